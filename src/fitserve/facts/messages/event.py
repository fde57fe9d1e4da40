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
    """

    id: str
    role: Role
    stage: str
    line: Line
    numbers: dict[str, Any] = {}
