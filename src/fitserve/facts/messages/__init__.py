"""The catalogue: what every vLLM release prints, as a table."""
