"""A verification as text: the proof table, the knee, the three verdicts, and what to do."""

import textwrap
from itertools import zip_longest
from typing import Any

import click

from fitserve.verify.verification import Check, Verification

MIN_WIDTH = 80
_NAME_WIDTH = 25
_RESULT_WIDTH = 10
_SECONDS_WIDTH = 9
_TOKENS_WIDTH = 16

_COLORS = {"passed": "green", "failed": "red", "not asked": "yellow", "yes": "green", "no": "red"}

HELP = {
    "connection-refused": "nothing listens there: check the port, or read why the start failed with: fitserve diagnose LOG",
    "host-unknown": "check the spelling of the host",
    "unreachable": "check the network between here and the server",
    "tls-failed": "trust the server's authority with --ca-file FILE, use the name in its certificate, or write http:// where it has no TLS",
    "proxy-failed": "take the server out of the proxy with NO_PROXY",
    "not-http": "another service listens there, or it speaks https: check the scheme and the port",
    "http-401": "name the variable that holds the API key: --api-key-env VAR",
    "http-403": "name the variable that holds the API key: --api-key-env VAR",
    "timeout": "allow slow requests more time with --deadline SECONDS",
    "request-never-scheduled": "lower --max-model-len, or give the KV cache more room; newer releases refuse such a request",
    "preemption-thrash": "give the KV cache more room, shorten the context, or let fewer run at once: --max-num-seqs",
    "waiting-for-kv-cache": "give the KV cache more room, shorten the context, or ask for fewer at once",
    "not-at-once": "raise --max-num-seqs if it is below the goal; else give the KV cache more room",
    "request-too-long": "raise --max-model-len as far as the KV cache holds it, or shorten the requests",
    "not-openai-compatible": "give the address of vLLM's API server: http://HOST:PORT",
    "http-404": "give the address without the path of an endpoint: http://HOST:PORT",
    "over-length-accepted": "a client cannot rely on being told: keep requests below max_model_len yourself",
    "empty-answer": "look at the answer by hand: a model that says nothing may be broken",
}
"""One thing to do, by the error type of a failed check."""


def render_verification(verification: Verification, *, colored: bool = False, width: int = 120) -> str:
    """The verification as text.

    Args:
        verification: what was proven.
        colored: with terminal colours.
        width: columns of the table; it is never narrower than 80.
    """
    blocks = [
        _heading(verification),
        _table(verification.checks, max(width, MIN_WIDTH), colored),
        _load(verification.numbers),
        _verdicts(verification.numbers, colored),
        _help(verification),
        [_sum(verification.checks)],
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
        lines.append("  " + ", ".join(fact for fact in facts if fact))
    return lines


def result_word(check: Check) -> str:
    """How a check ended, in a word."""
    if check.passed is None:
        return "not asked"
    return "passed" if check.passed else "failed"


def _table(checks: list[Check], width: int, colored: bool) -> list[str]:
    text_width = (width - _NAME_WIDTH - _RESULT_WIDTH - _SECONDS_WIDTH - _TOKENS_WIDTH - 4) // 2
    header = ("", "check", "expected", "actual", "seconds", "tokens in, out")
    lines = [_row(header, text_width)]
    for check in checks:
        lines += _check_rows(check, text_width, colored)
    return lines


def _row(cells: tuple[str, str, str, str, str, str], text_width: int) -> str:
    result, name, expected, actual, seconds, tokens = cells
    return (
        f"{result:<{_RESULT_WIDTH}}{name:<{_NAME_WIDTH}}{expected:<{text_width}}  {actual:<{text_width}}"
        f"  {seconds:>{_SECONDS_WIDTH}}{tokens:>{_TOKENS_WIDTH}}"
    ).rstrip()


def _check_rows(check: Check, text_width: int, colored: bool) -> list[str]:
    expected = textwrap.wrap(_printable(check.expected), text_width) or [""]
    actual = textwrap.wrap(_printable(check.actual), text_width) or [""]
    word = result_word(check)
    seconds = f"{check.seconds:.2f}" if check.seconds else ""
    rows = []
    for index, (left, right) in enumerate(zip_longest(expected, actual, fillvalue="")):
        head = (word, check.name, left, right, seconds, _tokens(check))
        rows.append(_row(head if index == 0 else ("", "", left, right, "", ""), text_width))
    if colored:
        rows[0] = click.style(word, fg=_COLORS[word]) + rows[0].removeprefix(word)
    return rows


def _printable(text: str) -> str:
    """A server's words without what would move a terminal's cursor."""
    return "".join(character if character.isprintable() else " " for character in text)


def _tokens(check: Check) -> str:
    if check.prompt_tokens is None and check.output_tokens is None:
        return ""
    return f"{check.prompt_tokens or 0:,}, {check.output_tokens or 0:,}"


def _load(numbers: dict[str, Any]) -> list[str]:
    load = numbers.get("load") or {}
    knee = load.get("knee")
    if not knee:
        return []
    lines = [f"knee: {knee_words(knee)}"]
    pressures = [step["pressure"] for step in load.get("ramp", []) if step.get("pressure")]
    asked = sum(pressure["prefix_cache_query_tokens"] or 0 for pressure in pressures)
    found = sum(pressure["prefix_cache_hit_tokens"] or 0 for pressure in pressures)
    if asked:
        lines.append(
            f"prefix cache: {found:,} of {asked:,} prompt tokens were found there, the rest was computed"
        )
    return lines


def knee_words(knee: dict[str, Any]) -> str:
    """Where the server stopped taking more, as a sentence."""
    clean = knee["highest_clean"]
    if knee["concurrency"] is None:
        blind = "" if knee["metrics"] else "; without /metrics, preemptions and waits are not seen"
        return f"none up to {clean} at once{blind}"
    events = [
        f"{words} at {knee[key]} at once"
        for key, words in (
            ("first_error", "the first error"),
            ("first_preemption", "the first preemption"),
            ("first_waiting", "the first wait for room"),
        )
        if knee[key] is not None
    ]
    before = f"; {clean} at once went without" if clean is not None else ""
    return f"{', '.join(events)}{before}"


def _verdicts(numbers: dict[str, Any], colored: bool) -> list[str]:
    lines = []
    for verdict in numbers.get("verdicts") or []:
        answer = verdict["answer"]
        shown = f"{answer:<9}"
        if colored and answer in _COLORS:
            shown = click.style(answer, fg=_COLORS[answer]) + shown.removeprefix(answer)
        lines.append(f"{shown} {verdict['question']}: {_printable(verdict['because'])}")
    return lines


def _help(verification: Verification) -> list[str]:
    """One line a kind of trouble, in the order of the checks."""
    kinds = dict.fromkeys(check.error_type for check in verification.checks if check.passed is False)
    return [f"help: {HELP[kind]}" for kind in kinds if kind in HELP]


def _sum(checks: list[Check]) -> str:
    words = [result_word(check) for check in checks]
    return ", ".join(f"{words.count(word)} {word}" for word in ("passed", "failed", "not asked"))
