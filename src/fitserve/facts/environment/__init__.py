"""What this machine, its GPUs, its container and its vLLM are."""
