"""A record as text: the story of a run, trial by trial."""

from typing import Any

from fitserve.diagnose.finding import Diagnosis
from fitserve.report.record import Record
from fitserve.report.record_words import (
    change_words,
    checks_words,
    comparisons,
    ending_words,
    memory_words,
    outcome_words,
    phase_durations,
    seconds_words,
    shell_words,
    value_words,
)
from fitserve.trial.outcome import Trial
from fitserve.verify.verification import Check, Verification

EVIDENCE_LINES = 6
"""So much of a log is quoted; the diagnosis has it all."""


def render_record(record: Record) -> str:
    """The run as text: the command, each trial with its cause, the checks, the command that serves."""
    blocks = [_heading(record)]
    before = None
    for trial in record.trials:
        blocks.append(_trial(trial, before, log_is_kept_in=record.run if trial.n in record.logs else None))
        before = trial
    if record.verification is not None:
        blocks.append(_verification(record, record.verification))
    blocks.append(_ending(record))
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _heading(record: Record) -> list[str]:
    lines = [
        f"run {record.run}: {outcome_words(record)}",
        f"  {record.kind} of {record.started_utc}, fitserve {record.fitserve_version}",
    ]
    lines += [
        f"  {name} {value_words(name, value)}"
        for name, value in record.environment.items()
        if isinstance(value, str | int | float)
    ]
    return [*lines, "", f"    {shell_words(record.command)}"]


def _trial(trial: Trial, before: Trial | None, log_is_kept_in: str | None) -> list[str]:
    lines = [f"trial {trial.n}: {change_words(trial.change)}"]
    if trial.change is not None and trial.change.why:
        lines.append(_field("because", trial.change.why))
    if trial.change is not None:
        lines.append(_field("costs", trial.change.cost))
    lines.append(_field("outcome", ending_words(trial)))
    phases = phase_durations(trial.phases, trial.seconds)
    if phases:
        words = ", ".join(f"{stage} {seconds_words(seconds)}" for stage, seconds in phases)
        lines.append(_field("phases", words))
    memory = memory_words(trial)
    if memory:
        lines.append(_field("memory", memory))
    if log_is_kept_in is not None:
        lines.append(_field("log", f"fitserve report {log_is_kept_in} --log {trial.n}"))
    lines += _figures(trial, before)
    if trial.diagnosis is not None and trial.outcome != "served":
        lines += ["", *_diagnosis(trial.diagnosis, trial.log_path)]
    return lines


def _field(name: str, words: str) -> str:
    return f"  {name:<9}{words}"


def _figures(trial: Trial, before: Trial | None) -> list[str]:
    """What was predicted and measured, in columns."""
    found = comparisons(trial, before)
    if not found:
        return []
    rows = [("", "predicted", "measured"), *((row.name, row.predicted, row.measured) for row in found)]
    names, predicted, measured = (max(len(row[column]) for row in rows) for column in range(3))
    return [
        f"  {name:<{names}}  {middle:>{predicted}}  {right:>{measured}}".rstrip()
        for name, middle, right in rows
    ]


def _diagnosis(diagnosis: Diagnosis, log_path: str | None) -> list[str]:
    lines = [f"  {diagnosis.severity}[{diagnosis.cause}]: {diagnosis.message}"]
    place = ", ".join(
        part
        for part in (
            diagnosis.process,
            f"vLLM {diagnosis.vllm_version}" if diagnosis.vllm_version else None,
            f"stage {diagnosis.stage}",
        )
        if part
    )
    line = "" if diagnosis.line is None else f":{diagnosis.line}"
    lines.append(f"    --> {log_path or 'log'}{line}  ({place})")
    lines += [f"    | {evidence.text}" for evidence in diagnosis.evidence[:EVIDENCE_LINES]]
    lines += _numbers(diagnosis.numbers)
    return [*lines, f"    = {diagnosis.confidence}"]


def _numbers(numbers: dict[str, Any]) -> list[str]:
    shown = {name: value_words(name, value) for name, value in numbers.items() if not isinstance(value, list)}
    names = max(map(len, shown), default=0)
    values = max(map(len, shown.values()), default=0)
    return [f"    = {name:<{names}}  {words:>{values}}" for name, words in shown.items()]


def _verification(record: Record, verification: Verification) -> list[str]:
    lines = [f"verification of {verification.url}: {checks_words(record)}"]
    names = max((len(check.name) for check in verification.checks), default=0)
    times = max((len(seconds_words(check.seconds)) for check in verification.checks), default=0)
    for check in verification.checks:
        lines.append(
            f"  {_mark(check)}  {check.name:<{names}}  {seconds_words(check.seconds):>{times}}  {_seen(check)}"
        )
    lines += [f"  {name} {value_words(name, value)}" for name, value in verification.numbers.items()]
    return lines


def _mark(check: Check) -> str:
    return {True: "passed  ", False: "FAILED  ", None: "left out"}[check.passed]


def _seen(check: Check) -> str:
    return f"{check.actual}; expected {check.expected}" if check.passed is False else check.actual


def _ending(record: Record) -> list[str]:
    took = f" after {seconds_words(record.seconds)}" if record.seconds else ""
    why = f": {record.reason}" if record.reason else ""
    if record.outcome is None:
        return ["unfinished: the run has not ended, or was killed"]
    if record.final_command is None:
        return [f"{outcome_words(record)}{took}{why}"]
    return [
        f"{outcome_words(record)}{took}{why}; the command that serves:",
        "",
        f"    {shell_words(record.final_command)}",
    ]
