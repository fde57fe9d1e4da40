"""One run from the failing command to the proof: the value that every report and the journal read."""

from typing import Any, Literal

import msgspec

from fitserve.trial.outcome import Pending, Trial
from fitserve.verify.verification import Verification

Outcome = Literal["served", "not-reached", "stopped", "checked", "diagnosed"]
"""How a run ended; ``checked`` and ``diagnosed``: nothing was started, a server was asked or a log was read."""

Maker = Literal["fix", "run", "demo", "verify", "diagnose"]


SCHEMA = 1
"""The newest schema of a record."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one run; saved before and after each trial, so ``outcome`` is None while it lasts.

    Attributes:
        shape: what the JSON is; its key is ``kind``.
        run: the run's id, sortable by time.
        kind: which command made it; its JSON key is ``made_by``.
        started_utc: ISO 8601, seconds.
        fitserve_version: the tool's version.
        command: the command as the user gave it; where nothing was started, the tool's own.
        environment: what this machine and its vLLM are: a few words by name, and all of it as ``machine``.
        trials: every start, in order; of a log that was read, the start that it shows.
        logs: the digest of each trial's log in the journal, by the trial's number.
        verification: what was proven at the end.
        outcome: how the run ended.
        reason: why it ended so, in one sentence.
        final_command: the command that serves; None where none does.
        seconds: the whole run.
        options: how far the loop may go, as it was told.
        tried: the flags and values that must not be tried again, as JSON.
        pending: the trial that is under way; None between trials.
    """

    schema: int = SCHEMA
    shape: Literal["record"] = msgspec.field(name="kind", default="record")
    run: str
    kind: Maker = msgspec.field(name="made_by")
    started_utc: str
    fitserve_version: str
    command: list[str]
    environment: dict[str, Any] = {}
    trials: list[Trial] = []
    logs: dict[int, str] = {}
    verification: Verification | None = None
    outcome: Outcome | None = None
    reason: str = ""
    final_command: list[str] | None = None
    seconds: float = 0.0
    options: dict[str, Any] = {}
    tried: list[tuple[str, str]] = []
    pending: Pending | None = None

    def __post_init__(self) -> None:
        """Raises ValueError where a younger version has made it: its fields may mean something else."""
        if self.schema > SCHEMA:
            raise ValueError(
                f"its schema is {self.schema}, and this fitserve knows up to {SCHEMA}: upgrade fitserve"
            )


def storable(record: Record) -> Record:
    """The record as JSON can hold it.

    A command line and a log may hold bytes that are no UTF-8 (Python keeps them as lone surrogates); each becomes a
    question mark, because JSON has no place for it.
    """
    try:
        msgspec.json.encode(record)
    except UnicodeEncodeError:
        return msgspec.convert(
            _without_surrogates(msgspec.to_builtins(record, str_keys=True)), Record, str_keys=True
        )
    return record


def record_to_json(record: Record) -> bytes:
    """The record as JSON; bytes that are no UTF-8 become question marks."""
    return msgspec.json.encode(storable(record))


def record_from_json(text: bytes | str) -> Record:
    """The record that the JSON describes; a key that this version does not know is passed over.

    Raises:
        msgspec.ValidationError: the JSON describes something else.
    """
    return msgspec.json.decode(text, type=Record)


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return value
