"""One record, many readings."""
