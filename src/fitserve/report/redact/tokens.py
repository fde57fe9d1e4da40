"""Keys and tokens that are known by their form: our table, and the patterns of bc-detect-secrets."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fitserve.report.redact.rule import BEFORE, Edit, Memory, Replace, Rule, hidden

_LONG = re.compile(r"(?<=[\])\w])\{(?:[7-9]|[1-9]\d+)(?:,\d*)?\}(?P<last>$|\|)?")
_RUN_ON = re.compile(rb"[A-Za-z0-9+/][A-Za-z0-9+/]")
"""A letter within something longer, whose rest would be left."""
_KEY_BODY = re.compile(rb"(?:[A-Za-z0-9+/]|\\[/nr]){12,}={0,2}")


def token_rules() -> list[Rule]:
    """A rule for each entry of both tables, ours first."""
    ours = [_own(entry["kind"], entry["pattern"], entry.get("probe")) for entry in _table("tokens")["token"]]
    theirs = [
        Rule(
            pattern=re.compile(entry["pattern"].encode(), entry["flags"]),
            replace=_theirs(entry["kind"], entry["group"]),
            probe=_short(entry["pattern"]),
            caseless=bool(entry["flags"] & re.IGNORECASE),
        )
        for entry in _table("detect_secrets")["detector"]
    ]
    return [_private_key(), *ours, *theirs]


def _theirs(kind: str, group: int) -> Replace:
    """Their patterns take in what stands around the secret."""

    def replace(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
        whole = match[group] or b""
        value = whole.lstrip(b" \t\"'=:").rstrip(b" \t\r\"'")
        start = match.start(group) + whole.index(value)
        if value and not memory.names.is_label(value) and not _RUN_ON.match(match.string, start - 1):
            memory.known.learn(kind, value)
            yield start, start + len(value), memory.names.label(kind, value)

    return replace


def token_kinds() -> frozenset[str]:
    """The kinds that these rules can find."""
    entries = [*_table("tokens")["token"], *_table("detect_secrets")["detector"]]
    return frozenset(entry["kind"] for entry in entries) | {"private-key"}


def _table(name: str) -> dict[str, list[dict[str, Any]]]:
    return tomllib.loads((Path(__file__).parent / f"{name}.toml").read_text(encoding="utf-8"))


def _own(kind: str, pattern: str, probe: str | None) -> Rule:
    return Rule(
        pattern=re.compile(BEFORE + b"(?:" + pattern.encode() + b")"),
        replace=hidden(kind, everywhere=True),
        probe=_short(pattern) if probe is None else probe.encode(),
    )


def _short(pattern: str) -> bytes:
    """A probe for the pattern: six characters of each long run are enough to look closer, and compile in a tenth of the time."""
    plain = pattern.replace(r"(?:.{0,100}\n?){0,2}", ".*").replace("|^", "")
    return _LONG.sub(lambda run: "{6}" + run["last"] if run["last"] is not None else "{6,}", plain).encode()


def _private_key() -> Rule:
    """A whole key in one line: its line ends are escaped. Keys over several lines are kept track of by the reader."""

    def replace(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
        for body in _KEY_BODY.finditer(match[0], len("-----BEGIN PRIVATE KEY-----")):
            label = memory.names.label("private-key", body[0])
            yield match.start() + body.start(), match.start() + body.end(), label

    return Rule(
        pattern=re.compile(rb"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----[^\n]*?(?:-----END|\n|$)"),
        replace=replace,
        probe=rb"PRIVATE KEY",
    )
