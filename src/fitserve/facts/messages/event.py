"""A line that the catalogue knows."""

from typing import Any, Literal

import msgspec

from fitserve.facts.line import Line

Role = Literal["cause", "fact", "hint", "wrapper"]
"""``cause`` can end a start; ``fact`` carries numbers or marks progress; ``hint`` is advice or a warning; ``wrapper`` echoes."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A line matched by the catalogue.

    Attributes:
        id: the message's id in the catalogue.
        role: what such a message means.
        stage: the phase it belongs to, in the vocabulary of the causes.
        line: the line.
        numbers: what it carries, by name with units (``needed_gib``); a printed decimal stays its text in ``printed``.
        cause: the cause that such a message names by itself; None where more lines must be seen.
        weight: how much the message decides: 3 names the cause with its numbers, 2 names it, 1 may be an echo of
            something else, 0 is a pattern that nobody has looked at.
    """

    id: str
    role: Role
    stage: str
    line: Line
    numbers: dict[str, Any] = {}
    cause: str | None = None
    weight: int = 2
