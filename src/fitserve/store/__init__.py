"""The journal of runs."""
