"""The JSON of ``fix --json``: a promise, apart from the types that the code works with.

A run's full JSON is the ``Record`` itself (``report --format json``).
"""

from typing import Any, Literal

import msgspec

from fitserve.report.record import Outcome, Record, storable
from fitserve.report.record_words import phase_durations, shell_words
from fitserve.trial.outcome import Change, Memory, State, Trial
from fitserve.units import Unknown
from fitserve.verify.verification import Verification


class PhaseJson(msgspec.Struct, frozen=True, kw_only=True):
    """A phase of a start and how long it lasted."""

    stage: str
    seconds: float


class TrialJson(msgspec.Struct, frozen=True, kw_only=True):
    """One start.

    Attributes:
        budget: the memory by rank, as ``diagnose`` reads it from the trial's log, or why there is none.
        log: the digest of the log in the journal; None where it was not kept.
    """

    n: int
    change: Change | None
    outcome: State
    cause: str | None
    stage: str | None
    message: str | None
    seconds: float
    budget: list[dict[str, Any]] | Unknown
    phases: list[PhaseJson]
    memory: Memory
    command: str
    exit_code: int | None
    signal: int | None
    log: str | None


class FixJson(msgspec.Struct, frozen=True, kw_only=True):
    """A run from the failing command to the proof.

    Attributes:
        outcome: None while the run lasts.
        command: the command that serves, quoted for a shell; None where none does.
        original_command: the command as the user gave it.
    """

    schema: int = 1
    kind: Literal["fix"] = "fix"
    outcome: Outcome | None
    reason: str
    trials: list[TrialJson]
    verification: Verification | None
    command: str | None
    original_command: str
    run: str
    started_utc: str
    seconds: float
    fitserve_version: str
    environment: dict[str, Any]


def fix_json(record: Record) -> FixJson:
    """The JSON of a run, as a struct."""
    record = storable(record)
    return FixJson(
        outcome=record.outcome,
        reason=record.reason,
        trials=[_trial(trial, record.logs.get(trial.n)) for trial in record.trials],
        verification=record.verification,
        command=None if record.final_command is None else shell_words(record.final_command),
        original_command=shell_words(record.command),
        run=record.run,
        started_utc=record.started_utc,
        seconds=record.seconds,
        fitserve_version=record.fitserve_version,
        environment=record.environment,
    )


def _trial(trial: Trial, log: str | None) -> TrialJson:
    diagnosis = trial.diagnosis
    return TrialJson(
        n=trial.n,
        change=trial.change,
        outcome=trial.outcome,
        cause=trial.cause,
        stage=None if diagnosis is None else diagnosis.stage,
        message=None if diagnosis is None else diagnosis.message,
        seconds=trial.seconds,
        budget=_budget(trial),
        phases=[
            PhaseJson(stage=stage, seconds=seconds)
            for stage, seconds in phase_durations(trial.phases, trial.seconds)
        ],
        memory=trial.memory,
        command=shell_words(trial.argv, trial.env),
        exit_code=trial.exit_code,
        signal=trial.signal,
        log=log,
    )


def _budget(trial: Trial) -> list[dict[str, Any]] | Unknown:
    if trial.diagnosis is None:
        return Unknown("the trial has no diagnosis")
    return trial.diagnosis.budget or Unknown("vLLM printed no memory figures in this trial")
