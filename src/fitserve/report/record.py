"""One run from the failing command to the proof: the value that every report and the journal read."""

from typing import Any, Literal

import msgspec

from fitserve.trial.outcome import Trial
from fitserve.verify.verification import Verification

Outcome = Literal["served", "not-reached", "stopped"]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one run; saved before and after each trial, so ``outcome`` is None while it lasts.

    Attributes:
        run: the run's id, sortable by time.
        kind: which command made it.
        started_utc: ISO 8601, seconds.
        fitserve_version: the tool's version.
        command: the command as the user gave it.
        environment: what this machine and its vLLM are, by name.
        trials: every start, in order.
        verification: what was proven at the end.
        outcome: how the run ended.
        reason: why it ended so, in one sentence.
        final_command: the command that serves; None where none does.
        seconds: the whole run.
    """

    schema: int = 1
    run: str
    kind: Literal["fix", "run", "demo"]
    started_utc: str
    fitserve_version: str
    command: list[str]
    environment: dict[str, Any] = {}
    trials: list[Trial] = []
    verification: Verification | None = None
    outcome: Outcome | None = None
    reason: str = ""
    final_command: list[str] | None = None
    seconds: float = 0.0
