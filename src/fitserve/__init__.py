"""fitserve makes vLLM start, and proves that it serves."""

__version__ = "0.1.0"
