"""A run as one HTML file: no script, nothing from a network, every word from a log escaped."""
