"""A move: one setting that can be changed, as a row of the table."""

from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec

from fitserve.diagnose.finding import Cost
from fitserve.memory.history import has_flag
from fitserve.plan.judge import Judged
from fitserve.plan.request import Request


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """Where a move would be made.

    Attributes:
        request: the question, with the goal.
        base: the start with its present settings, judged.
    """

    request: Request
    base: Judged


Aim = Literal["latency", "throughput"]
"""What comes first for the user, where it is neither context nor concurrency."""

Values = Callable[[Scene], Iterator[Any]]
"""The values worth trying, the smallest change first."""


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """One row.

    Attributes:
        name: its id.
        flag: vLLM's name of the setting, or the environment variable.
        cost: what it costs.
        saves: what it saves, in words.
        costs: what is lost, in words.
        needs: what must be there, in words; empty where nothing is needed.
        hurts: what it is bad for: it counts as one step dearer where that comes first.
        dear: steps by which it counts as dearer than its cost says, where other moves do too.
        causes: the failures that it helps against.
        values: the values worth trying.
    """

    name: str
    flag: str
    cost: Cost
    saves: str
    costs: str
    needs: str = ""
    hurts: tuple[Aim, ...] = ()
    dear: int = 0
    causes: frozenset[str]
    values: Values

    def fits(self, cause: str, version: str) -> bool:
        """True where it helps against the cause and the release has the setting."""
        return cause in self.causes and has_flag(self.flag, version)
