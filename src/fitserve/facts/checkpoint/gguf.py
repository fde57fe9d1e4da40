"""The header of a GGUF file: metadata and the list of tensors, read piece by piece; the weights are not read.

**Source**: the GGUF format, versions 2 and 3 (``ggml/docs/gguf.md``); sizes of its types from ``ggml-common.h``.
"""

import struct
from math import prod
from typing import Any, BinaryIO

import msgspec

from fitserve.errors import InputError
from fitserve.facts.checkpoint.checkpoint import Checkpoint, Tensor
from fitserve.facts.checkpoint.gguf_config import gguf_config

_LARGEST_TEXT_BYTES = 64 << 20
_LARGEST_COUNT = 1 << 24
_LARGEST_SIDE = 1 << 40
_MOST_DIMENSIONS = 8
_STRING, _ARRAY = 8, 9
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

TYPES: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 36),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
}
"""Each type's name, numbers in a block, and bytes of a block."""


def read_gguf(stream: BinaryIO, source: str) -> Checkpoint:
    """The checkpoint of a GGUF file.

    Args:
        stream: the open file, at its start.
        source: its name, for messages.

    Raises:
        InputError: it is no GGUF file, ends early, or has absurd counts.
    """
    reader = _Reader(stream, source)
    if reader.take(4) != b"GGUF":
        raise InputError("it does not begin with GGUF", where=source)
    version = reader.number("I")
    if version not in (2, 3):
        raise InputError(f"GGUF version {version} is not 2 or 3", where=source)
    tensors, pairs = reader.count("tensors"), reader.count("metadata")
    metadata: dict[str, Any] = {}
    for _ in range(pairs):
        key = reader.text()
        metadata[key] = reader.value(reader.number("I"))
    _refuse_part(metadata.get("split.count"), source)
    found = dict(reader.tensor() for _ in range(tensors))
    return Checkpoint(
        config=gguf_config(metadata, {name: tensor.shape for name, tensor in found.items()}, source),
        tensors=found,
        size_bytes=sum(tensor.size_bytes for tensor in found.values()),
        format="gguf",
        source=source,
    )


def _refuse_part(count: Any, source: str) -> None:
    """A file that was split holds a part of the tensors, which is no model to vLLM: it loads one file.

    Source: ``split.*`` in ``ggml/docs/gguf.md``; vLLM's ``docs/features/quantization/gguf.md``.
    """
    if isinstance(count, int) and count > 1:
        raise InputError(
            f"it is one of the {count} files of a split model",
            where=f"{source}: split.count",
            hint="merge them: llama-gguf-split --merge FIRST MERGED",
        )


class Counted(msgspec.Struct, frozen=True):
    """An array of which only the length counts, such as the vocabulary."""

    length: int


class _Reader:
    """Reads the format's numbers, texts and arrays, and refuses what cannot be."""

    def __init__(self, stream: BinaryIO, source: str) -> None:
        self._stream = stream
        self._source = source

    def take(self, size: int) -> bytes:
        """That many bytes."""
        data = self._stream.read(size)
        if len(data) < size:
            raise InputError("the file ends within its header", where=self._source)
        return data

    def number(self, code: str) -> Any:
        """One number."""
        layout = struct.Struct("<" + code)
        return layout.unpack(self.take(layout.size))[0]

    def count(self, what: str) -> int:
        """How many follow."""
        number = int(self.number("Q"))
        if number > _LARGEST_COUNT:
            raise InputError(f"{number:,} {what} cannot be", where=self._source)
        return number

    def text(self) -> str:
        """A text with its length before it."""
        length = int(self.number("Q"))
        if length > _LARGEST_TEXT_BYTES:
            raise InputError(f"a text of {length:,} bytes cannot be", where=self._source)
        return self.take(length).decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        """A metadata value; of an array of texts only the length, of numbers at most the first thousand."""
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            return self._array()
        code = _SCALARS.get(kind)
        if code is None:
            raise InputError(f"{kind} is no type of metadata", where=self._source)
        return self.number(code)

    def _array(self) -> Any:
        kind, length = int(self.number("I")), self.count("elements of an array")
        if kind == _STRING:
            for _ in range(length):
                self.text()
            return Counted(length)
        code = _SCALARS.get(kind)
        if code is None:
            raise InputError(f"an array of type {kind} is not read", where=self._source)
        layout = struct.Struct("<" + code)
        data = self.take(layout.size * length)
        return [layout.unpack_from(data, index * layout.size)[0] for index in range(min(length, 1000))]

    def tensor(self) -> tuple[str, Tensor]:
        """A tensor's name, shape, type and place."""
        name = self.text()
        where = f"{self._source}: {name}"
        dimensions = int(self.number("I"))
        if dimensions > _MOST_DIMENSIONS:
            raise InputError(f"a tensor of {dimensions:,} dimensions cannot be", where=where)
        sides = [int(self.number("Q")) for _ in range(dimensions)]
        kind, _offset = int(self.number("I")), self.number("Q")
        if kind not in TYPES:
            raise InputError(f"{kind} is no known type of a tensor", where=where)
        if any(side > _LARGEST_SIDE for side in sides):
            raise InputError(f"{sides} is no shape", where=where)
        dtype, block, block_bytes = TYPES[kind]
        rows, row = prod(sides[1:]), sides[0] if sides else 1
        if row % block:
            raise InputError(f"rows of {row} numbers do not divide into blocks of {block}", where=where)
        return name, Tensor(
            dtype=dtype, shape=tuple(reversed(sides)), size_bytes=rows * (row // block) * block_bytes
        )
