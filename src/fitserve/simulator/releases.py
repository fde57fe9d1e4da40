"""Releases of vLLM: their order, and where their sources have what is printed."""

import json
from functools import cache
from importlib.resources import files
from typing import Any


def parse(version: str) -> tuple[int, ...]:
    """``0.8.5.post1`` as (0, 8, 5, 1)."""
    return tuple(int(part.removeprefix("post")) for part in version.split("."))


def at_least(version: str, first: str) -> bool:
    """True where a release is ``first`` or newer."""
    return parse(version) >= parse(first)


@cache
def read_data(name: str) -> Any:
    """One of the simulator's own tables."""
    return json.loads((files("fitserve.simulator") / "data" / name).read_text(encoding="utf-8"))


def nearest(version: str, table: dict[str, Any]) -> str:
    """The release of a table that is the newest not above the given one, else its oldest."""
    known = sorted(table, key=parse)
    return next((each for each in reversed(known) if at_least(version, each)), known[0])
