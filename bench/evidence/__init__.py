"""What plans are measured against: vLLM's own figures and measured starts, read in one place."""
