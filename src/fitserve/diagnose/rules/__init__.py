"""The causes, one module each: what happened, the arithmetic behind it, what to change and what not."""
