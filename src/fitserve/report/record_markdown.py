"""A record as Markdown that fits an issue form: short first, the rest folded, secrets of the command left out."""

import re

from fitserve.report.markdown_text import code, fenced, in_html, inline, paragraph, table
from fitserve.report.record import Record
from fitserve.report.record_words import (
    checks_words,
    comparisons,
    ending_words,
    memory_words,
    outcome_words,
    phase_durations,
    seconds_words,
    shell_words,
    title_words,
    value_words,
    visible,
)
from fitserve.report.secrets import without_secrets
from fitserve.trial.outcome import Trial

EVIDENCE_LINES = 6
EVIDENCE_CHARACTERS = 300
"""A longer line is cut."""

MOST_CHARACTERS = 60_000
"""An issue of GitHub holds 65,536, and its author wants to say something as well."""

SECRET = re.compile(r"(key|token|secret|password)$", re.IGNORECASE)
MASK = "***"


def render_record_markdown(record: Record) -> str:
    """The run as Markdown, within the limit: the oldest trials lose their details first, then long texts their ends."""
    return visible(_within_limit(without_secrets(record)))


def _within_limit(record: Record) -> str:
    details = [_trial(record, index) for index in range(len(record.trials))]
    text = _whole(record, details)
    for index in range(len(details)):
        if len(text) <= MOST_CHARACTERS:
            break
        details[index] = ""
        left_out = f"the details of the first {index + 1} trials are left out; all of it: {code(f'fitserve report {record.run}')}"
        text = _whole(record, [left_out, *filter(None, details)])
    return text if len(text) <= MOST_CHARACTERS else _shortest(record)


def _whole(record: Record, details: list[str]) -> str:
    blocks = [_head(record), _trials_table(record), *details, _checks(record), _ending(record)]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _head(record: Record) -> str:
    title = f"### fitserve {record.kind}: {inline(outcome_words(record))}"
    return f"{title}\n\n{_environment(record)}\n\n{fenced(shell_words(record.command), 'sh')}"


def _trials_table(record: Record) -> str:
    rows = [
        [str(trial.n), inline(title_words(trial)), inline(ending_words(trial)), inline(trial.cause or "")]
        for trial in record.trials
    ]
    return table(["trial", "change", "outcome", "cause"], rows)


def _shortest(record: Record) -> str:
    """What fits whatever the texts are: each of its parts is cut to its share."""
    parts = [
        paragraph(outcome_words(record)),
        paragraph(shell_words(record.command)),
        paragraph(record.reason),
    ]
    if record.final_command is not None:
        parts.append(paragraph(shell_words(record.final_command)))
    share = MOST_CHARACTERS // (len(parts) + 1)
    cut = [part if len(part) < share else f"{part[:share]}…" for part in parts if part]
    return (
        "\n\n".join(
            [f"### fitserve {record.kind}", *cut, f"all of it: {code(f'fitserve report {record.run}')}"]
        )
        + "\n"
    )


def _environment(record: Record) -> str:
    known = [
        f"{name} {value_words(name, value)}"
        for name, value in record.environment.items()
        if isinstance(value, str | int | float)
    ]
    return ", ".join(
        [
            f"run {code(record.run)} of {inline(record.started_utc)}",
            f"fitserve {inline(record.fitserve_version)}",
            *map(inline, known),
        ]
    )


def _trial(record: Record, index: int) -> str:
    trial = record.trials[index]
    before = record.trials[index - 1] if index else None
    parts = [
        f"<details><summary>trial {trial.n}: {in_html(title_words(trial))}</summary>",
        *_facts(trial),
    ]
    rows = [
        [inline(row.name), inline(row.predicted), inline(row.measured)] for row in comparisons(trial, before)
    ]
    if rows:
        parts.append(table(["figure", "predicted", "measured"], rows))
    env = {name: MASK if SECRET.search(name) else value for name, value in trial.env.items()}
    parts += [*([fenced(shell_words(trial.argv, env), "sh")] if trial.argv else []), "</details>"]
    return "\n\n".join(parts)


def _facts(trial: Trial) -> list[str]:
    parts = []
    if trial.change is not None and trial.change.why:
        parts.append(f"because {inline(trial.change.why)}; costs {inline(trial.change.cost)}")
    phases = phase_durations(trial.phases, trial.seconds)
    if phases:
        words = ", ".join(f"{stage} {seconds_words(seconds)}" for stage, seconds in phases)
        parts.append(f"phases: {inline(words)}")
    memory = memory_words(trial)
    if memory:
        parts.append(f"memory: {inline(memory)}")
    if trial.diagnosis is not None and trial.cause is not None:
        parts.append(
            f"**{inline(trial.diagnosis.cause)}** ({trial.diagnosis.confidence}): {inline(trial.diagnosis.message)}"
        )
        evidence = [
            f"{line.line}: {line.text}"[:EVIDENCE_CHARACTERS]
            for line in trial.diagnosis.evidence[:EVIDENCE_LINES]
        ]
        if evidence:
            parts.append(fenced("\n".join(evidence), "text"))
    return parts


def _checks(record: Record) -> str:
    if record.verification is None:
        return ""
    result = {True: "passed", False: "**failed**", None: "not asked"}
    rows = [
        [inline(check.name), result[check.passed], inline(check.expected), inline(check.actual)]
        for check in record.verification.checks
    ]
    return f"{inline(checks_words(record))}\n\n{table(['check', 'result', 'expected', 'actual'], rows)}"


def _ending(record: Record) -> str:
    if record.final_command is None:
        return paragraph(record.reason)
    command = fenced(shell_words(record.final_command), "sh")
    return f"the command that serves:\n\n{command}"
