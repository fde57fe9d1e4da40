"""Lines that a terminal has broken at its width, and how to join them again."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import msgspec

from fitserve.facts.reading.record import RECORD, TAG

_NARROWEST_COLUMNS = 40
_FEWEST_FULL_LINES = 2
_NEAR_COLUMNS = 16
_WIDEST_COLUMNS = 200
_FEWEST_BROKEN_LINES = 4
_FEWEST_SHARE = 10
_WIDTHS_TRIED = 4
_MOST_PIECES = 10_000
_STAMPED = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d |\[?\d\d:\d\d:\d\d|\{\"|(?:INFO|WARNING|ERROR): "
)
_FRAME = re.compile(r'Traceback \(most recent| {2}File "')
_BARE_START = re.compile(
    r" {4}\S|[\w.]{1,200}(?:Error|Exception|Interrupt|Exit)(?::|$)|(?:During handling of|The above exception) "
    r"|Process \w|Loading |Capturing |usage: |\$ |\+ "
)


class Wrap(msgspec.Struct, frozen=True, kw_only=True):
    """How a terminal has broken lines.

    Attributes:
        columns: its width.
        trimmed: a space in the last column was lost when the text was copied.
        at_words: lines were broken between words, as a mail program does it.
        starts: patterns with which lines of this log start.
    """

    columns: int
    trimmed: bool = False
    at_words: bool = False
    starts: tuple[re.Pattern[str], ...] = ()

    def starts_line(self, text: str) -> bool:
        """True where the text starts with what a logger puts in front of a line."""
        return _has_prefix(text) or any(start.match(text) for start in self.starts)

    def joint(self, text: str, following: str, *, in_record: bool) -> str | None:
        """What stood between two physical lines: nothing, or a lost space; None where a line ends there.

        Args:
            text: the upper one.
            following: the lower one.
            in_record: the upper one belongs to a line with a logger's prefix, so that bare text goes on in it.
        """
        if self.at_words:
            return " " if in_record and self._is_full(text, following) else None
        missing = self.columns - columns_of(text)
        if (
            abs(missing) > _NEAR_COLUMNS
            or not following
            or self.starts_line(following)
            or _FRAME.match(following)
        ):
            return None
        bare_start = _BARE_START.match(following)
        if missing == 0 or (missing == 1 and self.trimmed):
            return None if bare_start and not in_record else " " * missing
        return "" if in_record and not bare_start and not following[0].isupper() else None

    def _is_full(self, text: str, following: str) -> bool:
        """True where the first word of the lower line had no room in the upper one."""
        word = following.partition(" ")[0]
        goes_on = word and not self.starts_line(following) and not _FRAME.match(following)
        return bool(goes_on) and columns_of(text) + 1 + columns_of(word) > self.columns


def wrap_of(lines: Sequence[str], starts: tuple[re.Pattern[str], ...] = ()) -> Wrap | None:
    """Find the width at which lines were broken; None if they were not.

    It is a length that many lines have and hardly any exceeds, and after which the text goes on, now and then in the
    middle of a word.
    """
    lengths = [columns_of(line) for line in lines]
    if wrap := _wrap_at_words(lines, max(lengths, default=0), starts):
        return wrap
    full = Counter(length for length in lengths if length >= _NARROWEST_COLUMNS)
    for columns, count in full.most_common(_WIDTHS_TRIED):
        wrap = Wrap(columns=columns, starts=starts)
        too_long = sum(length > columns + _NEAR_COLUMNS for length in lengths)
        if count < max(_FEWEST_FULL_LINES, len(lines) // 50) or too_long > len(lines) // 50:
            continue
        after_full = [
            (line, following)
            for line, following, length in zip(lines, [*lines[1:], ""], lengths, strict=True)
            if length == columns
        ]
        going_on = [pair for pair in after_full if wrap.joint(*pair, in_record=False) is not None]
        in_a_word = sum(line[-1].isalnum() and following[0].isalnum() for line, following in going_on)
        if in_a_word and 2 * len(going_on) >= len(after_full):
            trimmed = columns - 1 in lengths and not any(line.endswith(" ") for line, _ in after_full)
            return msgspec.structs.replace(wrap, trimmed=trimmed)
    return None


def _wrap_at_words(lines: Sequence[str], columns: int, starts: tuple[re.Pattern[str], ...]) -> Wrap | None:
    """The width at which a program broke lines between words; None if it did not.

    It did where bare text follows lines with a prefix only if its first word had no room there, and those lines differ in
    length.
    """
    if not _NARROWEST_COLUMNS <= columns <= _WIDEST_COLUMNS or not any(map(_has_prefix, lines)):
        return None
    wrap = Wrap(columns=columns, at_words=True, starts=starts)
    bare = [
        (line, wrap.joint(line, following, in_record=True))
        for line, following in pairwise(lines)
        if following.strip()
        and not (wrap.starts_line(following) or _FRAME.match(following) or _BARE_START.match(following))
    ]
    broken = Counter(columns_of(line) for line, joint in bare if joint is not None)
    count = broken.total()
    is_wrapped = count >= _FEWEST_BROKEN_LINES and _FEWEST_SHARE * (len(bare) - count) <= len(bare)
    return wrap if is_wrapped and 2 * max(broken.values()) <= count else None


def joined(lines: Iterable[tuple[int, str]], wrap: Wrap) -> Iterator[tuple[int, str]]:
    """Join the numbered physical lines that a terminal has broken; each line has the number of its first piece."""
    pieces: list[str] = []
    first = last = 0
    in_record = False
    for number, text in lines:
        joint = wrap.joint(pieces[-1], text, in_record=in_record) if pieces and number <= last + 1 else None
        if joint is None or len(pieces) > _MOST_PIECES:
            if pieces:
                yield first, "".join(pieces)
            pieces, first, in_record = [text], number, wrap.starts_line(text)
        else:
            pieces += [joint, text]
        last = number
    if pieces:
        yield first, "".join(pieces)


def columns_of(text: str) -> int:
    """The columns that a terminal needs for the text."""
    if text.isascii():
        return len(text)
    import unicodedata

    wide = sum(unicodedata.east_asian_width(sign) in "WF" for sign in text)
    return wide + sum(unicodedata.combining(sign) == 0 for sign in text)


def _has_prefix(text: str) -> bool:
    return bool(TAG.match(text) or RECORD.match(text) or _STAMPED.match(text))
