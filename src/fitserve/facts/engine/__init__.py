"""The vLLM that is run: one that the user has, or a private CPU build that the tool installs."""
