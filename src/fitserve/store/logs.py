"""A log as the journal keeps it: named by its content, compressed (o: reads the file)."""

import hashlib
import zlib
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


def unpack(content: bytes, digest: str) -> bytes | None:
    """The text that was kept; None where the content is not what the digest names."""
    try:
        text = zlib.decompress(content)
    except zlib.error:
        return None
    return text if f"b2:{hashlib.blake2b(text, digest_size=32).hexdigest()}" == digest else None
