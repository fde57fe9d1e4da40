"""A record as Markdown that fits an issue form: short first, the rest folded, secrets of the command left out."""

import re

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
from fitserve.report.secrets import without_secrets
from fitserve.trial.outcome import Trial

EVIDENCE_LINES = 6
EVIDENCE_CHARACTERS = 300
"""An issue of GitHub holds 65,536 characters; a longer line is cut."""

SECRET = re.compile(r"(key|token|secret|password)$", re.IGNORECASE)
MASK = "***"


def render_record_markdown(record: Record) -> str:
    """The run as Markdown."""
    record = without_secrets(record)
    blocks = [
        f"### fitserve {record.kind}: {outcome_words(record)}",
        _environment(record),
        _fenced(shell_words(record.command), "sh"),
        _table(
            ["trial", "change", "outcome", "cause"],
            [
                [str(trial.n), change_words(trial.change), ending_words(trial), trial.cause or ""]
                for trial in record.trials
            ],
        ),
        *(_trial(record, index) for index in range(len(record.trials))),
        _checks(record),
        _ending(record),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _environment(record: Record) -> str:
    known = [
        f"{name} {value_words(name, value)}"
        for name, value in record.environment.items()
        if isinstance(value, str | int | float)
    ]
    return ", ".join(
        [f"run `{record.run}` of {record.started_utc}", f"fitserve {record.fitserve_version}", *known]
    )


def _trial(record: Record, index: int) -> str:
    trial = record.trials[index]
    before = record.trials[index - 1] if index else None
    parts = [
        f"<details><summary>trial {trial.n}: {_inline(change_words(trial.change))}</summary>",
        *_facts(trial),
    ]
    rows = [[row.name, row.predicted, row.measured] for row in comparisons(trial, before)]
    if rows:
        parts.append(_table(["figure", "predicted", "measured"], rows))
    env = {name: MASK if SECRET.search(name) else value for name, value in trial.env.items()}
    parts += [_fenced(shell_words(trial.argv, env), "sh"), "</details>"]
    return "\n\n".join(parts)


def _facts(trial: Trial) -> list[str]:
    parts = []
    if trial.change is not None and trial.change.why:
        parts.append(f"because {_inline(trial.change.why)}; costs {trial.change.cost}")
    phases = phase_durations(trial.phases, trial.seconds)
    if phases:
        words = ", ".join(f"{stage} {seconds_words(seconds)}" for stage, seconds in phases)
        parts.append(f"phases: {words}")
    memory = memory_words(trial)
    if memory:
        parts.append(f"memory: {memory}")
    if trial.diagnosis is not None and trial.cause is not None:
        parts.append(
            f"**{trial.diagnosis.cause}** ({trial.diagnosis.confidence}): {_inline(trial.diagnosis.message)}"
        )
        evidence = [
            f"{line.line}: {line.text}"[:EVIDENCE_CHARACTERS]
            for line in trial.diagnosis.evidence[:EVIDENCE_LINES]
        ]
        if evidence:
            parts.append(_fenced("\n".join(evidence), "text"))
    return parts


def _checks(record: Record) -> str:
    if record.verification is None:
        return ""
    result = {True: "passed", False: "**failed**", None: "not asked"}
    rows = [
        [check.name, result[check.passed], check.expected, check.actual]
        for check in record.verification.checks
    ]
    return f"{checks_words(record)}\n\n{_table(['check', 'result', 'expected', 'actual'], rows)}"


def _ending(record: Record) -> str:
    if record.final_command is None:
        return _inline(record.reason)
    command = _fenced(shell_words(record.final_command), "sh")
    return f"the command that serves:\n\n{command}"


def _table(head: list[str], rows: list[list[str]]) -> str:
    """A table; nothing where there are no rows."""
    if not rows:
        return ""
    lines = [head, ["---"] * len(head), *([_inline(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _inline(text: str) -> str:
    """Text that stays on its line and in its cell."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _fenced(text: str, language: str) -> str:
    """A code block whose fence is longer than any in the text."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
