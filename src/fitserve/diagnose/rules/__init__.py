"""One module a cause, beside its page."""
