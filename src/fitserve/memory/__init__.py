"""The memory of a launch: arithmetic over facts, by vLLM version."""
