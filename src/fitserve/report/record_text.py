"""A record as text: the story of a run, trial by trial."""

import textwrap

from fitserve.diagnose.finding import Diagnosis
from fitserve.report.record import Record
from fitserve.report.record_words import (
    PURPOSES,
    comparisons,
    ending_words,
    memory_words,
    outcome_words,
    phase_durations,
    seconds_words,
    shell_words,
    title_words,
    value_words,
)
from fitserve.report.text import render_diagnosis
from fitserve.report.verification_text import render_verification
from fitserve.trial.outcome import Trial


def render_record(record: Record) -> str:
    """The run as text: the command, each trial with its cause, the checks, the command that serves."""
    blocks = [_heading(record)]
    for index, trial in enumerate(record.trials):
        before = record.trials[index - 1] if index else None
        blocks.append(_trial(record, trial, before))
    if record.verification is not None:
        blocks.append(render_verification(record.verification).splitlines())
    blocks.append(_ending(record))
    return "\n\n".join("\n".join(map(_printable, block)) for block in blocks) + "\n"


def _printable(text: str) -> str:
    """The text without what a terminal would obey, whatever a log or a command held; a quoted line feed stays."""
    return "".join(
        character if character.isprintable() or character in "\n\t" else "\ufffd" for character in text
    )


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


def _trial(record: Record, trial: Trial, before: Trial | None) -> list[str]:
    lines = [f"trial {trial.n}: {title_words(trial)}"]
    if trial.change is not None and trial.change.why:
        lines.append(_field("because", trial.change.why))
    if trial.change is not None:
        lines.append(_field("costs", trial.change.cost))
        if trial.change.purpose in PURPOSES:
            lines.append(_field("purpose", PURPOSES[trial.change.purpose]))
    lines.append(_field("outcome", ending_words(trial)))
    phases = phase_durations(trial.phases, trial.seconds)
    if phases:
        words = ", ".join(f"{stage} {seconds_words(seconds)}" for stage, seconds in phases)
        lines.append(_field("phases", words))
    memory = memory_words(trial)
    if memory:
        lines.append(_field("memory", memory))
    if trial.n in record.logs:
        lines.append(_field("log", f"fitserve report {record.run} --log {trial.n}"))
    lines += [_field("note", note) for note in trial.notes]
    lines += _figures(trial, before)
    if trial.diagnosis is not None and trial.cause is not None:
        lines += ["", *_diagnosis(trial.diagnosis, trial.log_path, with_help=trial is record.trials[-1])]
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


def _diagnosis(diagnosis: Diagnosis, log_path: str | None, *, with_help: bool) -> list[str]:
    """The cause with its evidence and arithmetic; what to do about it only where no later trial has done it."""
    text = render_diagnosis(diagnosis, log_path or "log")
    shown = text if with_help else text.partition("\n\n")[0]
    return textwrap.indent(shown.rstrip("\n"), "  ").split("\n")


def _ending(record: Record) -> list[str]:
    took = f" after {seconds_words(record.seconds)}" if record.seconds else ""
    why = f": {record.reason}" if record.reason else ""
    if record.outcome is None:
        return ["unfinished: the run has not ended, or was killed"]
    if record.outcome in ("checked", "diagnosed"):
        return [f"{outcome_words(record)}{took}"]
    if record.final_command is None:
        return [f"{outcome_words(record)}{took}{why}"]
    return [
        f"{outcome_words(record)}{took}{why}; the command that serves:",
        "",
        f"    {shell_words(record.final_command)}",
    ]
