"""Secrets behind a name without a sign between them: in tables, sentences, the next line, objects of Kubernetes."""

import re
from collections.abc import Iterator

from fitserve.report.redact.named import (
    NAME,
    NAME_PROBE,
    OPEN,
    QUOTE,
    TRAILING,
    VALUE,
    decoded,
    is_random,
    secret,
    valued,
)
from fitserve.report.redact.rule import LINE, Edit, Memory, Rule, hidden

_BLOCK_SCALAR = rb"(?:" + QUOTE + rb")?[ \t]*:[ \t]*[|>][+\-0-9]{0,2}[ \t]*\r?\n" + LINE + rb"[ \t]*"
"""Between a name and its value in YAML where the value has lines of its own."""
_CELLS = (
    rb"(?:(?:\t|\\t)[ \t]*|[ \t]{2,}|`?[ \t]*\|[ \t]*`?(?=[^\n|]+\|)|>(?=[^\s<>]+</)| set by environment to )"
)
"""Between a name and its value in a table, in XML, in a message of NCCL."""
_VERBS = rb"(?:[ ](?:is|was|are|provided|given|used|set|to|of|value|found|supplied|received|invalid|incorrect|wrong|unknown|your|the|for|with)){0,4}"


def told_rules() -> list[Rule]:
    """A name and its value without a sign between them: in a table, a sentence, a file of their own."""
    return [*_placed_rules(), *_spoken_rules(), *_object_rules()]


def _placed_rules() -> list[Rule]:
    """In the next line, in an instruction, in a table."""
    return [
        Rule(
            pattern=re.compile(NAME + _BLOCK_SCALAR + OPEN),
            replace=valued,
            probe=NAME_PROBE + rb"[\"']?[ \t]*:[ \t]*[|>][+\-0-9]{0,2}[ \t]*\r?$",
            caseless=True,
            lines=2,
        ),
        Rule(
            # pydantic's complaint about a field, a variable of Terraform
            pattern=re.compile(
                NAME
                + rb"[\"']?(?: \{)?[ \t]*\r?\n[^\n]{0,200}?(?:\binput_value=|\bdefault[ \t]*=[ \t]*)"
                + VALUE
            ),
            replace=valued,
            probe=NAME_PROBE + rb"[\"']?(?: \{)?[ \t]*\r?$",
            caseless=True,
            lines=2,
        ),
        Rule(
            pattern=re.compile(
                rb"\b(?:ENV|ARG|setenv|setx|set -g?x g?|set -[gUx]+)[ \t]+" + NAME + rb"[ \t]+" + VALUE
            ),
            replace=valued,
            probe=rb"(?:ENV|ARG|setenv|setx|set -[gUx]+)[ \t]",
        ),
        Rule(
            pattern=re.compile(NAME + _CELLS + rb"(?P<open>(?:(?!\\[nrt\"'])[^\s\"'<>|`])+)"),
            replace=_in_cell,
            probe=NAME_PROBE + rb"(?:\t|\\t|[ \t]{2}|`?[ \t]*\||>| set by environment to )",
            caseless=True,
        ),
    ]


def _spoken_rules() -> list[Rule]:
    """In a sentence, in a line of .netrc."""
    return [
        Rule(
            pattern=re.compile(
                rb"(?i)(?<![a-z0-9_\-])(?P<name>api[ _\-]?key|access[ _\-]?(?:key|token)|token|password|passwd|passphrase|secret|credentials?)"
                + _VERBS
                + rb"[ ]?[:=]?[ ]+[\"'`]?(?P<open>(?:(?!\\[nrt\"'])[^\s\"'`<>])+)"
            ),
            replace=_in_cell,
            probe=rb"(?:key|token|password|passwd|passphrase|secret|credentials?) |(?:key|token|password|passwd|passphrase|secret|credentials?)[:=] ",
            caseless=True,
        ),
        Rule(
            # a line of .pgpass
            pattern=re.compile(
                rb"(?m)^(?P<name>)[^\s:]+:(?:\d{2,5}|\*):[^\s:]+:[^\s:]+:(?P<open>[^\s:]{6,})\r?$"
            ),
            replace=_in_cell,
            probe=rb"^[^\s:]+:(?:[0-9]{2,5}|\*):[^\s:]+:",
        ),
        Rule(
            pattern=re.compile(rb"(?m)^" + LINE + rb"[ \t]*password[ \t]+(?P<value>\S+)[ \t]*\r?$"),
            replace=hidden("password", "value", everywhere=True),
            probe=rb"[ \t]password[ \t]|^password[ \t]",
        ),
    ]


def _object_rules() -> list[Rule]:
    """A Secret of Kubernetes in YAML and in JSON."""
    return [
        Rule(
            pattern=re.compile(
                rb"(?m)^"
                + LINE
                + rb"(?P<indent>[ \t]*)(?P<what>stringData|data):[ \t]*\r?\n(?P<body>(?:"
                + LINE
                + rb"(?P=indent)[ \t]+[^\n]*(?:\n|\Z))+)"
            ),
            replace=_secret_object,
            probe=rb"(?:^|[ \t])(?:stringData|data):[ \t]*\r?$",
            lines=40,
        ),
        Rule(
            pattern=re.compile(rb"[\"']stringData[\"'][ \t]*:\s*\{(?P<body>[^}]*)"),
            replace=_secret_object,
            probe=rb"[\"']stringData[\"'][ \t]*:",
            lines=40,
        ),
    ]


def _in_cell(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
    """Nothing says that a value follows: only what looks like one is hidden."""
    value = match["open"].rstrip(TRAILING)
    is_shouted = (
        match["name"].isupper() and len(value) >= 6 and re.search(rb"\d|[a-z][A-Z].*[a-z][A-Z]", value)
    )
    if is_shouted or is_random(value):
        yield from secret(match["name"], False, value, match.start("open"), memory)


_ENTRY = re.compile(
    rb"(?m)^"
    + LINE
    + rb"[ \t]*[\"']?[\w.\-]+[\"']?:[ \t]+[\"']?(?P<value>[^\s\"']+)|[\"'][\w.\-]+[\"']\s*:\s*[\"'](?P<item>[^\"'\n]+)"
)


def _secret_object(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
    """Each value of a Secret of Kubernetes; those of a ConfigMap are not in base 64."""
    is_plain = match.groupdict().get("what") != b"data"
    for entry in _ENTRY.finditer(match["body"]):
        group = "value" if entry["value"] else "item"
        value = entry[group]
        if is_plain or (len(value) >= 8 and decoded(value)):
            yield from secret(b"secret", False, value, match.start("body") + entry.start(group), memory)
