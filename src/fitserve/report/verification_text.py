"""A verification as text: what was asked and why it matters, the load, the three verdicts, what is not proven, what to do."""

import textwrap
from itertools import zip_longest
from typing import Any
from urllib.parse import urlsplit

import click

from fitserve.report.load_text import load_lines
from fitserve.report.verification_help import HELP
from fitserve.verify.steps import UNPROVEN
from fitserve.verify.verification import Check, Verification

MIN_WIDTH = 80
_NAME_WIDTH = 25
_RESULT_WIDTH = 9
_SECONDS_WIDTH = 9
_EXPECTED_PART = 0.42
"""Of the room for words: what was seen has more of it than what was expected."""

_COLORS = {
    "passed": "green",
    "failed": "red",
    "beyond": "yellow",
    "unproven": "yellow",
    "not asked": "yellow",
    "yes": "green",
    "no": "red",
}

_SECTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "there: a server that can be found, and says what it serves",
        ("reach", "health", "version", "models", "model-name"),
    ),
    (
        "answers: whole ones, in the form that clients read",
        ("chat", "completion", "embedding", "pooling", "classification", "score", "endpoints"),
    ),
    (
        "context: kept to the token; where too long a request is not refused, users wait for nothing or lose text",
        ("boundary",),
    ),
    (
        "load: one request proves nothing about many; preempted ones are computed twice",
        ("load-", "goal-length", "full-length", "open-loop"),
    ),
    ("minutes: what only shows with time", ("soak",)),
)
"""What each group of checks is for, and how their names begin; the first that fits counts."""

_LATE = "after: still healthy"


def render_verification(verification: Verification, *, colored: bool = False, width: int = 120) -> str:
    """The verification as text.

    Args:
        verification: what was proven.
        colored: with terminal colours.
        width: columns of the table; it is never narrower than 80.
    """
    width = max(width, MIN_WIDTH)
    blocks = [
        _heading(verification),
        *_tables(verification.checks, width, colored),
        load_lines(verification, width),
        _not_asked(verification.checks, width, colored),
        _verdicts(verification.numbers, width, colored),
        _help(verification),
        _sum(verification, width),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _heading(verification: Verification) -> list[str]:
    lines = [f"verification of {verification.url}"]
    software = verification.numbers.get("software") or "server"
    facts = [
        f"model {verification.model}" if verification.model else "",
        f"max_model_len {verification.max_model_len:,}" if verification.max_model_len else "",
        f"vLLM {verification.server_version}"
        if verification.server_version
        else f"{software}, version not said",
    ]
    if verification.served_names:
        lines.append("  " + _printable(", ".join(fact for fact in facts if fact)))
    return lines


def result_word(check: Check) -> str:
    """How a check ended, in a word: also one that was answered and counts neither way."""
    if check.passed is not None:
        return "passed" if check.passed else "failed"
    if check.prompt_tokens is None:
        return "not asked"
    return "unproven" if check.error_type in UNPROVEN else "beyond"


def _section(name: str) -> str:
    if name == "health-after":
        return _LATE
    for title, beginnings in _SECTIONS:
        if name.startswith(beginnings):
            return title
    return ""


def _tables(checks: list[Check], width: int, colored: bool) -> list[list[str]]:
    """The checks that were answered, by what they are for, in the order of their asking."""
    sections: dict[str, list[Check]] = {}
    for check in checks:
        if result_word(check) != "not asked":
            sections.setdefault(_section(check.name), []).append(check)
    room = width - _NAME_WIDTH - _RESULT_WIDTH - _SECONDS_WIDTH - 4
    widths = (int(_EXPECTED_PART * room), room - int(_EXPECTED_PART * room))
    header = [_row(("", "check", "expected", "actual", "seconds"), widths)] if sections else []
    tables = [header]
    for title, members in sections.items():
        rows = [row for check in members for row in _check_rows(check, widths, colored)]
        tables.append([*textwrap.wrap(title, width), *rows])
    # The header stands right above the first table.
    return [header + tables[1], *tables[2:]] if len(tables) > 1 else []


def _row(cells: tuple[str, str, str, str, str], widths: tuple[int, int]) -> str:
    result, name, expected, actual, seconds = cells
    return (
        f"{result:<{_RESULT_WIDTH}}{name:<{_NAME_WIDTH}}{expected:<{widths[0]}}  {actual:<{widths[1]}}"
        f"  {seconds:>{_SECONDS_WIDTH}}"
    ).rstrip()


def _check_rows(check: Check, widths: tuple[int, int], colored: bool) -> list[str]:
    expected = textwrap.wrap(_printable(check.expected), widths[0]) or [""]
    actual = textwrap.wrap(_printable(check.actual), widths[1]) or [""]
    word = result_word(check)
    seconds = f"{check.seconds:.2f}" if check.seconds else ""
    rows = []
    for index, (left, right) in enumerate(zip_longest(expected, actual, fillvalue="")):
        rows.append(
            _row(
                (word, check.name, left, right, seconds) if index == 0 else ("", "", left, right, ""), widths
            )
        )
    if colored:
        rows[0] = click.style(word, fg=_COLORS[word]) + rows[0].removeprefix(word)
    return rows


def _printable(text: str) -> str:
    """A server's words without what would move a terminal's cursor."""
    return "".join(character if character.isprintable() else " " for character in text)


_UNASKED = "cannot be asked: "
MAX_NAMES = 9
"""More checks that share a reason are counted, not named: their names are in the JSON."""


def _not_asked(checks: list[Check], width: int, colored: bool) -> list[str]:
    """What was not asked, a line a reason."""
    reasons: dict[str, list[str]] = {}
    for check in checks:
        if result_word(check) == "not asked":
            reasons.setdefault(check.actual.removeprefix(_UNASKED), []).append(check.name)
    if not reasons:
        return []
    word = "not asked"
    lines = [click.style(word, fg=_COLORS[word]) if colored else word]
    for reason, names in reasons.items():
        named = ", ".join(names) if len(names) <= MAX_NAMES else f"everything else, {len(names)} checks"
        text = f"{named}: {_printable(reason)}"
        lines += textwrap.wrap(
            text, width, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
        )
    return lines


def _verdicts(numbers: dict[str, Any], width: int, colored: bool) -> list[str]:
    lines: list[str] = []
    verdicts = numbers.get("verdicts") or []
    if all(verdict["answer"] == "not asked" for verdict in verdicts):
        return lines
    for verdict in verdicts:
        answer = verdict["answer"]
        shown = f"{answer:<9}"
        because = _printable(verdict["because"].removeprefix(_UNASKED))
        first, *others = textwrap.wrap(
            f"{verdict['question']}: {because}", width - 10, break_on_hyphens=False
        )
        if colored and answer in _COLORS:
            shown = click.style(answer, fg=_COLORS[answer]) + shown.removeprefix(answer)
        lines += [f"{shown} {first}", *(" " * 10 + other for other in others)]
    return lines


def _help(verification: Verification) -> list[str]:
    """One line a kind of trouble, in the order of the checks; a server that was there and is gone has its own."""
    kinds: dict[str | None, None] = {}
    reached = False
    for check in verification.checks:
        reached = reached or (check.name == "reach" and bool(check.passed))
        if check.passed is False:
            gone = reached and check.error_type == "connection-refused"
            kinds["server-gone" if gone else check.error_type] = None
    port = _port(verification.url)
    return [f"help: {HELP[kind].replace(':PORT', f':{port}')}" for kind in kinds if kind in HELP]


def _port(url: str) -> int | str:
    """The server's port; the word for one where somebody else's record has no address there."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "PORT"
    return port or (443 if parts.scheme == "https" else 80)


def _sum(verification: Verification, width: int) -> list[str]:
    words = [result_word(check) for check in verification.checks]
    rare = [word for word in ("beyond", "unproven") if word in words]
    counts = ", ".join(f"{words.count(word)} {word}" for word in ("passed", "failed", *rare, "not asked"))
    lines = [counts]
    limits = _limits(verification)
    if limits and verification.passed:
        text = f"not proven: {'; '.join(limits)}"
        lines += textwrap.wrap(text, width, subsequent_indent="  ", break_on_hyphens=False)
    return lines


def _limits(verification: Verification) -> list[str]:
    """What a user might believe to be proven, and is not; with the option that asks for it."""
    load = verification.numbers.get("load")
    if load is None:
        return []
    limits = []
    if not load.get("goal_length"):
        limits.append("your own requests at once (--goal-context N --goal-concurrency N)")
    if not load.get("soak"):
        limits.append("hours of it (--minutes M)")
    return [*limits, "that the answers are good: their form was looked at, not their sense"]
