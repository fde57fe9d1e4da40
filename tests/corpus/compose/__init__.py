"""Composes the logs of this folder: run as a module, see README.md."""
