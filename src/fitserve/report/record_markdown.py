"""A record as Markdown that fits an issue form: short first, the rest folded, secrets of the command left out."""

import re

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
        left_out = f"the details of the first {index + 1} trials are left out; all of it: `fitserve report {record.run}`"
        text = _whole(record, [left_out, *filter(None, details)])
    return text if len(text) <= MOST_CHARACTERS else _shortest(record)


def _whole(record: Record, details: list[str]) -> str:
    blocks = [_head(record), _trials_table(record), *details, _checks(record), _ending(record)]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _head(record: Record) -> str:
    title = f"### fitserve {record.kind}: {outcome_words(record)}"
    return f"{title}\n\n{_environment(record)}\n\n{_fenced(shell_words(record.command), 'sh')}"


def _trials_table(record: Record) -> str:
    rows = [
        [str(trial.n), title_words(trial), ending_words(trial), trial.cause or ""] for trial in record.trials
    ]
    return _table(["trial", "change", "outcome", "cause"], rows)


def _shortest(record: Record) -> str:
    """What fits whatever the texts are: each of its parts is cut to its share."""
    parts = [_inline(outcome_words(record)), _inline(shell_words(record.command)), _inline(record.reason)]
    if record.final_command is not None:
        parts.append(_inline(shell_words(record.final_command)))
    share = MOST_CHARACTERS // (len(parts) + 1)
    cut = [part if len(part) < share else f"{part[:share]}…" for part in parts if part]
    return (
        "\n\n".join([f"### fitserve {record.kind}", *cut, f"all of it: `fitserve report {record.run}`"])
        + "\n"
    )


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
        f"<details><summary>trial {trial.n}: {_inline(title_words(trial))}</summary>",
        *_facts(trial),
    ]
    rows = [[row.name, row.predicted, row.measured] for row in comparisons(trial, before)]
    if rows:
        parts.append(_table(["figure", "predicted", "measured"], rows))
    env = {name: MASK if SECRET.search(name) else value for name, value in trial.env.items()}
    parts += [*([_fenced(shell_words(trial.argv, env), "sh")] if trial.argv else []), "</details>"]
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
