"""One name for one thing: what stands in a text for what is private."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable

MOST_DISTINCT = 100_000
"""Values of a kind that are told apart; further ones share a name, so that memory does not grow with the text."""

_LABEL = re.compile(rb"(?P<kind>[a-z][a-z0-9]*(?:-[a-z][a-z0-9]*)*)-(?:\d{1,6}|more)")
_PARTS = re.compile(rb"[\s=:/,;@\"'()\[\]|&?]+")
_SHAPED = re.compile(
    rb"198\.1[89]\.\d{1,3}\.\d{1,3}|2001:db8::[0-9a-f]{1,5}|02:00:00:[0-9a-f:]{8}|00000000-0000-0000-0000-[0-9a-f]{12}"
)
"""Pseudonyms with the form of what they stand for, because programs look for that form.

Source: 198.18.0.0/15 is set aside for benchmarks (RFC 2544), 2001:db8::/32 for documents (RFC 3849); 02 is a locally administered address.
"""


class Pseudonyms:
    """Hands out ``host-1``, ``host-2``: the same for the same value, in the order in which they are first needed.

    Args:
        kinds: every kind that can be asked for.
    """

    def __init__(self, kinds: frozenset[str]) -> None:
        self._kinds = frozenset(kind.encode() for kind in kinds)
        self._labels: dict[tuple[str, bytes], bytes] = {}
        self._distinct: Counter[str] = Counter()
        self._uses: defaultdict[str, int] = defaultdict(int)

    def label(self, kind: str, value: bytes) -> bytes:
        """What stands for the value; a value that is a pseudonym already stands for itself."""
        known = self._labels.get((kind, value))
        if known is not None:
            self._uses[kind] += 1
            return known
        if self.is_label(value):
            return value
        self._uses[kind] += 1
        if self._distinct[kind] >= MOST_DISTINCT:
            return _written(kind, MOST_DISTINCT + 1) if kind in _FORMS else f"{kind}-more".encode()
        self._distinct[kind] += 1
        label = self._labels[kind, value] = _written(kind, self._distinct[kind])
        return label

    def is_label(self, value: bytes) -> bool:
        """True for what this class hands out, now or in an earlier pass."""
        match = _LABEL.fullmatch(value)
        return (match is not None and match["kind"] in self._kinds) or _SHAPED.fullmatch(value) is not None

    def holds_label(self, value: bytes) -> bool:
        """True where a pseudonym is a part of the value: an earlier pass was there."""
        return any(map(self.is_label, _PARTS.split(value)))

    def counts(self) -> dict[str, tuple[int, int]]:
        """For each kind that was met: how many different values, and how often they stood there."""
        return {kind: (self._distinct[kind], self._uses[kind]) for kind in sorted(self._uses)}


def _address(number: int) -> str:
    return f"198.{18 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"


def _mac(number: int) -> str:
    return f"02:00:00:{number >> 16 & 255:02x}:{number >> 8 & 255:02x}:{number & 255:02x}"


_FORMS: dict[str, Callable[[int], str]] = {
    "ip": _address,
    "ip6": "2001:db8::{:x}".format,
    "mac": _mac,
    "device": "00000000-0000-0000-0000-{:012x}".format,
}


def _written(kind: str, number: int) -> bytes:
    form = _FORMS.get(kind)
    return (f"{kind}-{number}" if form is None else form(number)).encode()
