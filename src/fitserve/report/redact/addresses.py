"""IPv4 addresses: the most frequent private thing in a log, so they have a search of their own."""

import re
from functools import cache, lru_cache
from typing import Any

from fitserve.report.redact.rule import Edit, Memory

_PATTERN = rb"[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}\b"
_WELL_KNOWN = frozenset((b"8.8.8.8", b"8.8.4.4", b"1.1.1.1", b"9.9.9.9"))
_OURS = (b"198.18.", b"198.19.")
_LOCAL_NETWORK = re.compile(rb"192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.")
"""What no version begins with: RFC 1918, but for 10.0.0.0/8."""
_CONTEXT_BYTES = 40
_GOES_ON = re.compile(
    rb"[_+]|\.\d|-(?:py|cp|cuda|manylinux|linux|rc|dev|post|beta|alpha|devel|runtime|ubuntu|base|\d)"
)
_GLUED = re.compile(rb"[A-Za-z0-9_.+]|(?<![\s-])-")
_LATE = re.compile(rb"(?:\\[nrt]|%[0-9A-F][0-9A-F]|\x1b\[[0-9]{1,2}m)$")
_VERSIONED = re.compile(
    rb"(?i).*(?:version|ver|release|driver|firmware|cudnn|nccl|build|tag|revision|rev)|v|"
    rb"(?:nvidia|opencv|types|intel|onnx|lib|cu|py|torch|tensorflow|mkl|cuda|tbb|nixl|mooncake|rdma|ucx|hpcx|ofed|mlnx)[a-z0-9_.\-]*(?:\[[a-z,]*\])?"
)
"""The word before four numbers that are a version."""


def address_edits(block: bytes, memory: Memory) -> list[Edit]:
    """Where IPv4 addresses are replaced in a block; loopback, any-address, well-known servers and versions stay."""
    hits: list[tuple[int, int]] = []
    _search().scan(block, lambda _which, start, end, _flags, _context: hits.append((start, end)))
    hits.sort()
    edits: list[Edit] = []
    done = 0
    for start, end in hits:
        if start < done:
            continue
        text = block[start:end]
        before = block[max(0, start - _CONTEXT_BYTES) : start]
        if _is_kept(text) or (
            not _LOCAL_NETWORK.match(text) and (_is_number(before) or _GOES_ON.match(block, end))
        ):
            continue
        edits.append((start, end, memory.names.label("ip", text)))
        done = end
    return edits


@cache
def _search() -> Any:
    import hyperscan

    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(expressions=[_PATTERN], ids=[0], flags=[hyperscan.HS_FLAG_SOM_LEFTMOST])
    return database


@lru_cache(maxsize=1 << 16)
def _is_kept(text: bytes) -> bool:
    """True for what is no address, and for addresses that every machine has."""
    parts = text.split(b".")
    return (
        text in _WELL_KNOWN
        or any(int(part) > 255 or (len(part) > 1 and part[:1] == b"0") for part in parts)
        or parts[0] in (b"127", b"0", b"255")
        or text.startswith(_OURS)
    )


@lru_cache(maxsize=1 << 12)
def _is_number(before: bytes) -> bool:
    """True where what stands before makes four numbers a version, or a part of something longer."""
    if not before:
        return False
    glued = before[-1:] if before[-1:] != b"-" else before[-2:]
    if _GLUED.search(glued) and not _LATE.search(before):
        return True
    plain = before.rstrip(b" \t:(\"'")
    if plain.endswith((b"==", b">=", b"<=", b"~=", b"!=")):
        return True
    word = re.split(rb"[ \t]", plain.rstrip(b"=<>~"))[-1]
    return _VERSIONED.fullmatch(word.strip(b"\"'=:([{,")) is not None
