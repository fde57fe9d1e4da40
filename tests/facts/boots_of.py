"""The lines of each boot, gathered; the product only numbers them."""

from collections.abc import Iterable

from fitserve.facts.boots import number_boots
from fitserve.facts.line import Line


def split_boots(lines: Iterable[Line]) -> list[list[Line]]:
    """The lines of each boot, in the order in which the boots began."""
    boots: dict[int, list[Line]] = {}
    for number, line in number_boots(lines):
        boots.setdefault(number, []).append(line)
    return list(boots.values())
