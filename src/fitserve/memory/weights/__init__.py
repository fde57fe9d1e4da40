"""Bytes of weights that each rank holds, from a checkpoint's configuration and headers."""
