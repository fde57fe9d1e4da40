"""From a stream of bytes to numbered physical lines, in constant memory."""

import codecs
import io
import zlib
from collections.abc import Iterable, Iterator
from typing import BinaryIO

CHUNK_BYTES = 1 << 18
LONGEST_LINE_BYTES = 1 << 20

_CUT = b" [...] "
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


class Unzipped(io.RawIOBase):
    """The content of a gzip stream; a truncated or damaged one gives what it holds.

    Attributes:
        damaged: True once bytes have come that no gzip stream has there.
    """

    def __init__(self, packed: BinaryIO) -> None:
        super().__init__()
        self._packed = packed
        self._inflate = zlib.decompressobj(wbits=31)
        self._left = b""
        self.damaged = False

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # typeshed names no concrete buffer
        """Fill the buffer with unpacked bytes; 0 at the end of what can be unpacked."""
        packed = b"more"
        while packed:
            packed = self._left or self._packed.read(CHUNK_BYTES)
            try:
                plain = self._inflate.decompress(packed, len(buffer))
            except zlib.error:
                self.damaged = True
                return 0
            self._left = self._inflate.unconsumed_tail
            if self._inflate.eof:
                self._left = self._inflate.unused_data
                self._inflate = zlib.decompressobj(wbits=31)
            if plain:
                buffer[: len(plain)] = plain
                return len(plain)
        return 0

    def close(self) -> None:
        """Close the packed stream too."""
        self._packed.close()
        super().close()


def chunks(stream: BinaryIO) -> Iterator[bytes]:
    """The stream's bytes in pieces, as UTF-8 where a byte order mark says UTF-16."""
    head = stream.read(CHUNK_BYTES)
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            head = head[len(mark) :]
            if encoding != "utf-8":
                yield from _as_utf8(head, stream, encoding)
                return
    while head:
        yield head
        head = stream.read(CHUNK_BYTES)


def _as_utf8(head: bytes, stream: BinaryIO, encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    while head:
        if text := decoder.decode(head):
            yield text.encode(errors="replace")
        head = stream.read(CHUNK_BYTES)
    if text := decoder.decode(b"", final=True):
        yield text.encode(errors="replace")


def physical_lines(pieces: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Number the physical lines from 1, each without its line end and cut in the middle where it is too long."""
    number = 0
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            number += 1
            yield number, cut(line)
        rest = cut(rest)
    if rest:
        yield number + 1, rest


def cut(line: bytes) -> bytes:
    """Keep the two ends of a line that is longer than any message."""
    if len(line) <= LONGEST_LINE_BYTES:
        return line
    half = LONGEST_LINE_BYTES // 2
    return line[:half] + _CUT + line[-half:]
