"""Intervals of estimates, and how they add up."""

from collections.abc import Iterable
from math import hypot

from fitserve.units import Quantity


def estimated(expected: int, below: float, above: float, slack_bytes: int, *, source: str) -> Quantity:
    """An estimate with a share of itself and a fixed amount on each side.

    Args:
        expected: the bytes to reckon with.
        below: the share that it may be less.
        above: the share that it may be more.
        slack_bytes: what it may be off besides, either way.
        source: what it is estimated from.
    """
    return Quantity(
        low=max(0, round(expected * (1 - below)) - slack_bytes),
        expected=expected,
        high=round(expected * (1 + above)) + slack_bytes,
        basis="estimated",
        source=source,
    )


def left_after(requested_bytes: int, terms: Iterable[Quantity], *, source: str) -> Quantity:
    """What terms leave of a size: their errors are independent, so the widths add as the legs of a right angle."""
    parts = list(terms)
    expected = requested_bytes - sum(part.expected for part in parts)
    more = hypot(*(part.expected - part.low for part in parts))
    less = hypot(*(part.high - part.expected for part in parts))
    return Quantity(
        low=round(expected - less),
        expected=expected,
        high=round(expected + more),
        basis="computed" if less == more == 0 else "estimated",
        source=source,
    )
