"""Programs that run in vLLM's own Python."""
