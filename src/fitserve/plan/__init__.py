"""Will it start, how long a context, how many at once, with which settings."""
