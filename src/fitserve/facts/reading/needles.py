"""Finds many literals in blocks of bytes at gigabytes a second."""

import html
from collections import Counter
from collections.abc import Sequence

import msgspec

_FEWEST_BYTES = 4
_RARE_HITS = 256
_FREQUENT_HITS = 1000
_FREQUENT_HITS_PER_MIB = 64
_MOST_HITS = 10_000


class Haystack:
    """Searches blocks for literals, and gives up on those that every other line has.

    A literal that came 1,000 times and still comes more than 64 times a MiB, or that came 10,000 times, marks ordinary
    traffic: its further occurrences are not reported, so that such lines cost no more than others.

    Args:
        needles: the literals; those below four bytes are left out.
    """

    def __init__(self, needles: Sequence[bytes]) -> None:
        self._needles = sorted(
            {form for needle in needles for form in _forms(needle) if len(form) >= _FEWEST_BYTES}
        )
        self._found: Counter[int] = Counter()
        self._compile(range(len(self._needles)))

    def _compile(self, ids: Sequence[int]) -> None:
        import hyperscan

        self._ids = list(ids)
        self._database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        if self._ids:
            self._database.compile(
                expressions=[self._needles[each] for each in self._ids],
                ids=self._ids,
                flags=[0] * len(self._ids),
                literal=True,
            )

    def search(self, block: bytes) -> list[tuple[int, bool]]:
        """Where literals end in the block, in order, each with whether its literal is still rare."""
        if not self._ids:
            return []
        hits: list[tuple[int, int]] = []
        self._database.scan(block, lambda needle, _start, end, _flags, _context: hits.append((end, needle)))
        here = Counter(needle for _, needle in hits)
        rare = {needle for needle in here if self._found[needle] + here[needle] <= _RARE_HITS}
        self._found.update(here)
        frequent = {needle for needle, count in here.items() if self._is_frequent(needle, count, len(block))}
        if frequent:
            self._compile([each for each in self._ids if each not in frequent])
        return [(end, needle in rare) for end, needle in sorted(hits)]

    def _is_frequent(self, needle: int, count: int, block_bytes: int) -> bool:
        return (
            self._found[needle] > _FREQUENT_HITS and count * (1 << 20) > _FREQUENT_HITS_PER_MIB * block_bytes
        )


def _forms(needle: bytes) -> set[bytes]:
    """A literal as it stands in plain text, in JSON and in HTML."""
    text = needle.decode(errors="replace")
    as_json = msgspec.json.encode(text)[1:-1]
    return {needle, as_json, as_json.decode().encode("ascii", "backslashreplace"), html.escape(text).encode()}
