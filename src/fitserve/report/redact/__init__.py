"""Text and values without anything private, and still good for a diagnosis."""
