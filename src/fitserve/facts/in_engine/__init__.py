"""Scripts that vLLM's own Python runs; this tool's process never imports them."""
