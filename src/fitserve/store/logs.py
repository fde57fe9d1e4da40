"""A log as the journal keeps it: named by its content, compressed (o: reads the file)."""

import hashlib
import io
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec

_CHUNK_BYTES = 1 << 20


class KeptLog(msgspec.Struct, frozen=True, kw_only=True):
    """A compressed log.

    Attributes:
        digest: ``b2:`` and the blake2b hash (32 bytes, hexadecimal) of the text as it was.
        size_bytes: the length of the text as it was.
        content: the text, compressed by zlib.
    """

    digest: str
    size_bytes: int
    content: bytes


def pack(path: Path) -> KeptLog:
    """Read, hash and compress a file in one pass: the digest belongs to what was read, though the file may grow.

    Raises:
        OSError: it cannot be read.
    """
    hasher = hashlib.blake2b(digest_size=32)
    packer = zlib.compressobj()
    packed = []
    size_bytes = 0
    with path.open("rb") as source:
        while chunk := source.read(_CHUNK_BYTES):
            hasher.update(chunk)
            packed.append(packer.compress(chunk))
            size_bytes += len(chunk)
    packed.append(packer.flush())
    return KeptLog(digest=f"b2:{hasher.hexdigest()}", size_bytes=size_bytes, content=b"".join(packed))


class Unpacked(io.RawIOBase):
    """A kept log as a stream of what it was, in constant memory.

    Args:
        content: as it was kept.
        digest: what it was named by.
        damaged: makes the error for a content that is not what the digest names; raised at its end at the latest.
    """

    def __init__(self, content: bytes, digest: str, damaged: Callable[[], Exception]) -> None:
        super().__init__()
        self._left = content
        self._digest = digest
        self._damaged = damaged
        self._inflate = zlib.decompressobj()
        self._hasher = hashlib.blake2b(digest_size=32)

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # typeshed names no concrete buffer
        """Fill the buffer; 0 at the end."""
        try:
            text = self._inflate.decompress(self._left, len(buffer))
        except zlib.error as error:
            raise self._damaged() from error
        self._left = self._inflate.unconsumed_tail
        self._hasher.update(text)
        if not text and not (self._inflate.eof and self._digest == f"b2:{self._hasher.hexdigest()}"):
            raise self._damaged()
        buffer[: len(text)] = text
        return len(text)
