"""Reads text in blocks, finds the lines that can hold something private, and puts pseudonyms in its place.

All probes are searched for at once in a block of bytes (hyperscan, gigabytes a second); only lines with a hit are given to the rules that
the hit belongs to. What was learned on the way is hidden in the whole block. Memory is bounded: a block, and the pseudonyms.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, BinaryIO

from fitserve.facts.reading.stream import chunks, cut
from fitserve.report.redact.addresses import address_edits
from fitserve.report.redact.cluster import cluster_rules
from fitserve.report.redact.colours import coloured, edited, moved, uncoloured
from fitserve.report.redact.content import content_rules
from fitserve.report.redact.encoded import encoded_edits
from fitserve.report.redact.known import Known
from fitserve.report.redact.models import model_rules
from fitserve.report.redact.named import named_rules
from fitserve.report.redact.network import network_rules
from fitserve.report.redact.paths import path_rules
from fitserve.report.redact.people import people_rules
from fitserve.report.redact.pseudonyms import Pseudonyms
from fitserve.report.redact.rule import Edit, Memory, Rule
from fitserve.report.redact.several import several_rules
from fitserve.report.redact.tokens import token_kinds, token_rules
from fitserve.report.redact.told import told_rules
from fitserve.report.redact.wrapped import rewrapped, wrap_in

BLOCK_BYTES = 1 << 20
"""A text up to this size is known as a whole before its first line is written."""

KINDS = token_kinds() | {
    "account", "basic-auth", "bearer-token", "bucket", "container", "cookie", "device", "dir", "email", "encoded", "env-value", "file", "host", "ip", "ip6",
    "mac", "model", "namespace", "password", "pod", "project", "query-secret", "secret", "serial", "text", "token-ids", "url-password", "user",
}  # fmt: skip
"""Every kind that a pseudonym can have."""

_KEY_BEGINS = re.compile(rb"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----")
_KEY_BODY = re.compile(rb"[A-Za-z0-9+/]{4,}={0,2}")
_LONGEST_KEY_LINES = 200


class Redactor:
    """Hides what is private; the same thing has the same pseudonym in everything that one redactor reads.

    Args:
        hide_models: names of models too, except those of well-known makers.
        own_names: names to hide wherever they stand alone, by kind (``user``, ``host``).
    """

    def __init__(self, *, hide_models: bool = False, own_names: Iterable[tuple[str, str]] = ()) -> None:
        self._memory = Memory(names=Pseudonyms(KINDS), known=Known())
        self._rules = _rules(hide_models)
        self._search = _compiled(hide_models)
        self._key_column = -1
        self._key_lines = 0
        for kind, name in own_names:
            self._memory.known.learn(kind, name.encode(errors="surrogateescape"))

    def text(self, text: str) -> str:
        """The text without anything private."""
        self._key_column = -1
        return self._block(text.encode(errors="surrogatepass")).decode(errors="surrogatepass")

    def value(self, value: Any) -> Any:
        """The same for a value: texts in structs, lists and mappings; what a secret's name holds is hidden whatever it looks like."""
        from fitserve.report.redact.values import redacted

        return redacted(value, self.text)

    def stream(self, source: BinaryIO, sink: BinaryIO) -> None:
        """Copy a stream of any bytes; UTF-16 becomes UTF-8, a line of more than a MiB loses its middle."""
        wrap = None
        self._key_column = -1
        for number, block in enumerate(_blocks(chunks(source))):
            wrap = wrap_in(block) if number == 0 else wrap
            sink.write(self._block(block) if wrap is None else rewrapped(block, wrap, self._block))

    def counts(self) -> dict[str, tuple[int, int]]:
        """For each kind that was met: how many different values, and how often they stood there."""
        return self._memory.names.counts()

    def _block(self, block: bytes) -> bytes:
        block, marks = uncoloured(block)
        for step in (self._by_rules, self._encoded, self._addresses, self._known):
            edits = step(block)
            block, marks = edited(block, edits), moved(marks, edits)
        return coloured(block, marks)

    def _encoded(self, block: bytes) -> list[Edit]:
        return encoded_edits(block, self._memory, self._is_private)

    def _is_private(self, text: bytes) -> bool:
        if _KEY_BEGINS.search(text):
            return True
        column, self._key_column = self._key_column, -1
        edits = self._by_rules(text) or self._addresses(text)
        self._key_column = column
        return bool(edits)

    def _by_rules(self, block: bytes) -> list[Edit]:
        hits: list[tuple[int, int]] = []
        self._search.scan(block, lambda rule, _start, end, _flags, _context: hits.append((end, rule)))
        edits: list[Edit] = []
        later: list[Edit] = []
        done = self._key_body(block, 0, edits) if self._key_column >= 0 else 0
        for start, end, rules in _lines(block, hits):
            edits += [edit for edit in later if done <= edit[0] < start]
            if end < done:
                continue
            found = [edit for edit in later if start <= edit[0]]
            for edit in self._line_edits(block, start, end, rules):
                _add(edit, found)
            edits += [edit for edit in found if done <= edit[0] <= end]
            done = edits[-1][1] if edits else done
            later = [edit for edit in found if edit[0] > end]
            begins = _KEY_BEGINS.search(block, start, end)
            if begins and b"-----END" not in block[begins.end() : end]:
                self._key_column, self._key_lines = begins.start() - start, 0
                done = self._key_body(block, end + 1, edits)
        return edits + [edit for edit in later if edit[0] >= done]

    def _line_edits(self, block: bytes, start: int, end: int, rules: set[int]) -> Iterator[Edit]:
        """What the rules ask for in a line, and in those behind it where a rule reads on."""
        line = block[start:end]
        for which in sorted(rules):
            rule = self._rules[which]
            piece = line if rule.lines == 1 else _with_next(block, start, len(line), rule.lines)
            for match in rule.pattern.finditer(piece):
                if match.start() > len(line):
                    break
                for at, stop, new in rule.replace(match, self._memory):
                    yield start + at, start + stop, new

    def _key_body(self, block: bytes, start: int, edits: list[Edit]) -> int:
        """Hide the lines of a private key from a place on; returns where ordinary text goes on."""
        while start < len(block):
            end = block.find(b"\n", start)
            end = len(block) if end < 0 else end
            line = block[start:end]
            self._key_lines += 1
            if b"-----END" in line or self._key_lines > _LONGEST_KEY_LINES:
                self._key_column = -1
                return start
            body = line[self._key_column :].strip(b" \t\r\"',+\\n")
            at = line.rfind(body) if body else 0
            if not _KEY_BODY.fullmatch(body):
                words = line.split()
                body = words[-1] if words and len(words[-1]) >= 40 else b""
                at = line.rfind(body)
            if _KEY_BODY.fullmatch(body):
                label = self._memory.names.label("private-key", body)
                edits.append((start + at, start + at + len(body), label))
            start = end + 1
        return len(block)

    def _addresses(self, block: bytes) -> list[Edit]:
        return address_edits(block, self._memory)

    def _known(self, block: bytes) -> list[Edit]:
        return [
            (start, end, self._memory.names.label(kind, _same(kind, block[start:end])))
            for start, end, kind in self._memory.known.found(block)
        ]


def _add(edit: Edit, edits: list[Edit]) -> None:
    """Add an edit in its order, unless it overlaps earlier ones; where it covers them and more, it takes their place."""
    start, end, _ = edit
    first = bisect_right(edits, start, key=lambda one: one[1])
    last = bisect_left(edits, end, key=lambda one: one[0])
    in_the_way = edits[first:last]
    if in_the_way and (
        start > in_the_way[0][0] or end < in_the_way[-1][1] or in_the_way[0][:2] == (start, end)
    ):
        return
    edits[first : max(first, last)] = [edit]


def _same(kind: str, value: bytes) -> bytes:
    return value.lower() if kind == "host" else value


def _with_next(block: bytes, start: int, length: int, lines: int) -> bytes:
    """A line and those behind it, so many together."""
    end = start + length
    for _ in range(lines - 1):
        end = block.find(b"\n", end + 1)
        if end < 0:
            return block[start:]
    return block[start:end]


def _lines(block: bytes, hits: list[tuple[int, int]]) -> Iterator[tuple[int, int, set[int]]]:
    """The lines with hits, in order: where each begins and ends, and the rules that may apply."""
    hits.sort()
    end = -1
    start = 0
    rules: set[int] = set()
    for at, rule in hits:
        if at > end + 1 or end < 0:
            if rules:
                yield start, end, rules
            start = block.rfind(b"\n", 0, at - 1) + 1
            end = block.find(b"\n", at - 1)
            end = len(block) if end < 0 else end
            rules = set()
        rules.add(rule)
    if rules:
        yield start, end, rules


def _blocks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Blocks of whole lines."""
    rest: list[bytes] = []
    size = 0
    for piece in pieces:
        end = piece.rfind(b"\n") + 1
        if size + len(piece) >= BLOCK_BYTES and end:
            yield b"".join([*rest, piece[:end]])
            rest, size = [piece[end:]], len(piece) - end
            continue
        rest.append(piece)
        size += len(piece)
        if size > 4 * BLOCK_BYTES:
            rest = [_shortened(b"".join(rest))]
            size = len(rest[0])
    if size:
        yield b"".join(rest)


def _shortened(block: bytes) -> bytes:
    head, newline, tail = block.rpartition(b"\n")
    return head + newline + cut(tail)


@cache
def _rules(hide_models: bool) -> tuple[Rule, ...]:
    return (
        *content_rules(),
        *token_rules(),
        *named_rules(),
        *told_rules(),
        *several_rules(),
        *people_rules(),
        *(model_rules() if hide_models else ()),
        *cluster_rules(),
        *path_rules(),
        *network_rules(),
    )


@cache
def _compiled(hide_models: bool) -> Any:
    import hyperscan

    rules = _rules(hide_models)
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(
        expressions=[rule.probe for rule in rules],
        ids=list(range(len(rules))),
        flags=[
            hyperscan.HS_FLAG_PREFILTER
            | hyperscan.HS_FLAG_MULTILINE
            | (hyperscan.HS_FLAG_CASELESS if rule.caseless else 0)
            for rule in rules
        ],
    )
    return database
