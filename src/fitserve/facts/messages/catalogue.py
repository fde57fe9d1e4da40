"""The catalogue: which messages exist, and which of them a line is.

The tables beside this module hold one message a line, by stage. A line is looked up by its needles (the longest
literal text of each message, found all at once by an Aho-Corasick automaton); only then is the message's template
compiled and tried. The most specific message wins: weight first, then the longest literal text.
"""

from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
from ahocorasick_rs import AhoCorasick

from fitserve.facts.line import Line
from fitserve.facts.messages.event import Event, Role
from fitserve.facts.messages.template import Template

_TABLES = (
    "environment",
    "config",
    "weights",
    "profiling",
    "kv_cache",
    "graph_capture",
    "warmup",
    "serving",
    "request",
    "wrapper",
)
_LONGEST_LINE = 20_000


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a table.

    Attributes:
        id: stable name; a wording that changed has one row a wording.
        role: what such a message means.
        stage: the phase it belongs to.
        cause: the cause it names by itself.
        weight: how much it decides (see :class:`Event`).
        text: the template.
        needle: literal text of the template, searched for first.
        first: first release that prints it; None for a message that is not vLLM's.
        last: last release that prints it; None if it is still printed.
        source: vLLM's file, or the program that prints it.
        sample: a line as printed.
        whole: the message must be the whole line, such as ``Killed``.
    """

    id: str
    role: Role
    stage: str
    text: str
    needle: str
    sample: str
    source: str
    cause: str | None = None
    weight: int = 2
    first: str | None = None
    last: str | None = None
    whole: bool = False

    @property
    def is_vllms(self) -> bool:
        """True for vLLM's own message, False for one of torch, the hub, the kernel..."""
        return self.first is not None


class Catalogue:
    """All messages, ready to match.

    Args:
        messages: the rows.
    """

    def __init__(self, messages: list[Message]) -> None:
        self.messages = messages
        self._by_needle: dict[str, list[int]] = {}
        for index, message in enumerate(messages):
            self._by_needle.setdefault(message.needle, []).append(index)
        self._needles = list(self._by_needle)
        self._automaton = AhoCorasick(self._needles)
        self._templates: dict[int, Template] = {}
        self._by_id = {message.id: message for message in messages}

    def __getitem__(self, message_id: str) -> Message:
        """The row with this id.

        Raises:
            KeyError: there is none.
        """
        return self._by_id[message_id]

    def events(self, line: Line) -> list[Event]:
        """Every message that the line is, the most specific first."""
        text = line.text[:_LONGEST_LINE]
        hits = self._automaton.find_matches_as_indexes(text, overlapping=True)
        if not hits:
            return []
        indexes = {index for hit in hits for index in self._by_needle[self._needles[hit[0]]]}
        found = []
        for index in indexes:
            if self.messages[index].whole and text.strip() != self.messages[index].text:
                continue
            if (values := self._template(index).match(text)) is not None:
                found.append((self._rank(index), index, values))
        found.sort(key=lambda item: item[0], reverse=True)
        return [self._event(index, line, values) for _, index, values in found]

    def _rank(self, index: int) -> tuple[int, int, int]:
        template = self._template(index)
        return self.messages[index].weight, sum(map(len, template.literals)), -index

    def _template(self, index: int) -> Template:
        if index not in self._templates:
            self._templates[index] = Template(self.messages[index].text)
        return self._templates[index]

    def _event(self, index: int, line: Line, values: dict[str, Any]) -> Event:
        message = self.messages[index]
        return Event(
            id=message.id,
            role=message.role,
            stage=message.stage,
            line=line,
            numbers=values,
            cause=message.cause,
            weight=message.weight,
        )


@cache
def catalogue() -> Catalogue:
    """The shipped catalogue, read once."""
    messages: list[Message] = []
    decode = msgspec.json.Decoder(list[Message]).decode
    tables = files(__package__) / "tables"
    for name in _TABLES:
        messages += decode((tables / f"{name}.json").read_bytes())
    return Catalogue(messages)


def needles() -> list[bytes]:
    """Text of which a line must hold at least one to be of interest, for a prefilter over raw bytes."""
    return sorted({message.needle.encode() for message in catalogue().messages})
