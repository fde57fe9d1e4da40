"""Which layers of a model keep what, by architecture."""
