"""What a rule is: where it may apply, what it finds there, and what it puts in its place."""

import re
from collections.abc import Callable, Iterator

import msgspec

from fitserve.report.redact.known import Known
from fitserve.report.redact.pseudonyms import Pseudonyms

Edit = tuple[int, int, bytes]
"""Where in the searched piece, up to where, and what comes there."""


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered while a text is read.

    Attributes:
        names: the pseudonyms.
        known: names and keys that are hidden wherever they stand alone.
    """

    names: Pseudonyms
    known: Known


Replace = Callable[["re.Match[bytes]", Memory], Iterator[Edit]]


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to look for.

    Attributes:
        pattern: finds it in a line.
        replace: the edits that a match asks for; none where it is harmless.
        probe: an expression that every line with a match holds, cheap to search for; never over a line's end.
        caseless: the probe ignores case.
        lines: how many lines the pattern may need, from the one with the probe on.
    """

    pattern: re.Pattern[bytes]
    replace: Replace
    probe: bytes
    caseless: bool = False
    lines: int = 1


BEFORE = rb"(?:(?<![A-Za-z0-9_])(?!(?<=%)[0-9A-Fa-f]{2})|(?<=\\[nrt])|(?<=%[0-9A-Fa-f][0-9A-Fa-f]))"
"""Where a word begins: also behind an escaped line end and a percent-encoded character."""

LINE = (
    rb"(?:[\w.\-]{1,60}[ \t]+\| |\d{4}-\d\d-\d\dT[\d:.Z+\-]+ (?:std(?:out|err) [FP] )?|\[[\w./\-]{1,80}\] )?"
)
"""What compose, a container runtime or ``kubectl logs --prefix`` puts before a line."""


def hidden(kind: str, group: str | int = 0, *, everywhere: bool = False) -> Replace:
    """Replace one group of each match by a pseudonym of a kind.

    Args:
        kind: what it is.
        group: what is replaced.
        everywhere: hide the value from now on wherever it stands alone.
    """

    def replace(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
        value = match[group]
        if value and not memory.names.is_label(value):
            if everywhere:
                memory.known.learn(kind, value)
            yield match.start(group), match.end(group), memory.names.label(kind, value)

    return replace


_COMMANDS = frozenset(
    (
        b"vllm",
        b"python",
        b"python3",
        b"docker",
        b"env",
        b"nohup",
        b"exec",
        b"sudo",
        b"bash",
        b"sh",
        b"uv",
        b"torchrun",
        b"ray",
    )
)


def first_setting(value: bytes) -> bytes:
    """The value of a setting without the settings and the command that stand behind it in a line of a shell."""
    first, *others = value.split(b" ")
    if any(word in _COMMANDS or word.startswith(b"-") or b"=" in word for word in others):
        return first.rstrip(b";")
    return value
