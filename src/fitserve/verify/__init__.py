"""What a running server can do, proven at its API."""
