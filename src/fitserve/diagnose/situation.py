"""What a rule looks at, and what it gives back."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from fitserve.diagnose.boot import Boot, Hit
from fitserve.diagnose.finding import Advice, NotAdvised, Scalar
from fitserve.facts.case import Case
from fitserve.facts.ledger import Ledger, rank_of
from fitserve.facts.messages.event import Event
from fitserve.units import Quantity

Confidence = Literal["certain", "likely", "possible"]
Severity = Literal["error", "warning", "note"]


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """One boot, its facts, and the message that names its cause.

    Attributes:
        boot: the boot.
        case: its facts.
        hit: the message that names the cause; None where a rule found it in other lines.
        earlier: the boots before it in the same log.
    """

    boot: Boot
    case: Case
    hit: Hit | None
    earlier: Sequence[Boot] = ()

    @property
    def event(self) -> Event:
        """The message that names the cause.

        Raises:
            ValueError: there is none.
        """
        if self.hit is None:
            raise ValueError("no message names this cause")
        return self.hit.event

    @property
    def version(self) -> str | None:
        """The vLLM release to reckon with, None if any may be meant."""
        return self.case.release

    def number(self, name: str) -> Any:
        """A number of the message, None if it has none of that name."""
        return self.hit.event.numbers.get(name) if self.hit else None

    @property
    def ledger(self) -> Ledger:
        """The memory of the rank that printed the message, else of the rank whose cache is the smallest."""
        rank = rank_of(self.hit.event) if self.hit else None
        ledgers = self.case.ledgers
        if not ledgers:
            return Ledger(rank=rank or "0")
        own = [one for one in ledgers if one.rank == rank]
        return own[0] if own else min(ledgers, key=_cache_bytes)


def _cache_bytes(ledger: Ledger) -> float:
    cache = ledger.kv_cache_bytes
    return cache.expected if isinstance(cache, Quantity) else float("inf")


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A rule's answer.

    Attributes:
        cause: the cause's id.
        stage: its stage.
        message: one lower-case sentence with the values, true on its own.
        event: the line that names it; None for a state such as ``healthy``.
        confidence: how sure.
        severity: how bad.
        numbers: the facts behind it, by name with units.
        support: further lines that show it.
        advice: what to change, the best first.
        not_advised: what people try here in vain.
    """

    cause: str
    stage: str
    message: str
    event: Event | None
    confidence: Confidence = "certain"
    severity: Severity = "error"
    numbers: dict[str, Any] = {}
    support: list[Event] = []
    advice: list[Advice] = []
    not_advised: list[NotAdvised] = []


def scalar(value: Any) -> Scalar:
    """A value as JSON can hold it."""
    return value if isinstance(value, int | float | str | bool) or value is None else str(value)
