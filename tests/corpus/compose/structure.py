"""Pending."""

from .case import Case


def cases() -> list[Case]:
    """None yet."""
    return []
