"""The header of a safetensors file: names, types, shapes and places of its tensors.

The file begins with the header's length as 8 bytes, little-endian, then a JSON object. **Source**: the safetensors format,
version 0.4 to 0.8; its reader refuses headers above 100,000,000 bytes, as this one does.
"""

from math import prod
from typing import Any

import msgspec

from fitserve.errors import InputError
from fitserve.facts.checkpoint.checkpoint import Tensor

LENGTH_BYTES = 8
LARGEST_HEADER_BYTES = 100_000_000
_LARGEST = 1 << 60

_BITS = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}


def header_length(start: bytes, source: str, file_bytes: int | None = None) -> int:
    """The length of the JSON that follows the first 8 bytes.

    Args:
        start: the file's first bytes.
        source: the file, for messages.
        file_bytes: the file's size, where it is known.

    Raises:
        InputError: the file is too short, or the length is absurd.
    """
    if len(start) < LENGTH_BYTES:
        raise InputError(f"the file ends after {len(start)} bytes, before its header", where=source)
    length = int.from_bytes(start[:LENGTH_BYTES], "little")
    if length > LARGEST_HEADER_BYTES:
        raise InputError(
            f"the header claims {length:,} bytes; no safetensors header is longer than {LARGEST_HEADER_BYTES:,}",
            where=source,
            hint="the file is damaged, or is no safetensors file; download it again",
        )
    if file_bytes is not None and LENGTH_BYTES + length > file_bytes:
        raise InputError(f"the header claims {length:,} bytes, the file has {file_bytes:,}", where=source)
    return length


def parse_header(text: bytes, source: str, data_bytes: int | None = None) -> dict[str, Tensor]:
    """The tensors of a header's JSON.

    Args:
        text: the JSON, without the 8 bytes before it.
        source: the file, for messages.
        data_bytes: bytes behind the header, where they are known.

    Raises:
        InputError: it is no JSON object, or a tensor's type, shape or place is missing or contradicts the others.
    """
    try:
        entries = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InputError(f"the header is no JSON: {error}", where=source) from error
    if not isinstance(entries, dict):
        raise InputError("the header is no JSON object", where=source)
    tensors: dict[str, Tensor] = {}
    places: list[tuple[int, int, str]] = []
    for name, entry in entries.items():
        if name != "__metadata__":
            tensors[name] = _tensor(entry, f"{source}: {name}", data_bytes)
            places.append((*entry["data_offsets"], name))
    _check_places(sorted(places), source, data_bytes)
    return tensors


def _check_places(places: list[tuple[int, int, str]], source: str, data_bytes: int | None) -> None:
    """The tensors lie one behind the other, from the first byte of the data to its last.

    Source: ``Metadata::validate`` and ``SafeTensors::read_metadata`` of safetensors 0.4 to 0.8.
    """
    at = 0
    for begin, end, name in places:
        if begin != at:
            raise InputError(
                f"the tensor begins at byte {begin:,}, the one before it ends at {at:,}",
                where=f"{source}: {name}: data_offsets",
                hint="the file is damaged: download it again",
            )
        at = end
    if data_bytes is not None and at != data_bytes:
        raise InputError(f"the tensors end at byte {at:,}, the file's data at {data_bytes:,}", where=source)


def _tensor(entry: Any, where: str, data_bytes: int | None) -> Tensor:
    if not isinstance(entry, dict):
        raise InputError("a tensor is described by no JSON object", where=where)
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    bits = _BITS.get(dtype) if isinstance(dtype, str) else None
    if bits is None:
        raise InputError(f"{dtype!r} is no type of a tensor", where=f"{where}: dtype")
    if not isinstance(shape, list) or not all(_is_size(side) for side in shape):
        raise InputError(f"{shape!r} is no shape", where=f"{where}: shape")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(_is_size(place) for place in offsets):
        raise InputError(f"{offsets!r} are no offsets", where=f"{where}: data_offsets")
    begin, end = offsets
    size = -(-prod(shape) * bits // 8)
    if end - begin != size:
        raise InputError(
            f"{dtype} {shape} takes {size:,} bytes, its place has {end - begin:,}",
            where=f"{where}: data_offsets",
        )
    if data_bytes is not None and end > data_bytes:
        raise InputError(
            f"the tensor ends at byte {end:,}, the file's data at {data_bytes:,}",
            where=f"{where}: data_offsets",
        )
    return Tensor(dtype=str(dtype), shape=tuple(shape), size_bytes=size)


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST
