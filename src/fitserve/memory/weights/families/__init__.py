"""Families of architectures, each counting its layers as vLLM builds them."""
