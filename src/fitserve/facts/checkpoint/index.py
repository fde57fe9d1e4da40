"""``model.safetensors.index.json``: which file holds which tensor."""

from typing import Any

import msgspec

from fitserve.errors import InputError

INDEX_NAME = "model.safetensors.index.json"


class ShardIndex(msgspec.Struct, frozen=True):
    """The index of a checkpoint in several files.

    Attributes:
        files: the names of its files, each once, sorted.
        size_bytes: bytes of all tensors, as the index says; None where it says nothing usable.
    """

    files: tuple[str, ...]
    size_bytes: int | None


def parse_index(text: bytes, source: str = INDEX_NAME) -> ShardIndex:
    """Read the index.

    Raises:
        InputError: it is no index, or names a file outside its directory.
    """
    try:
        data: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InputError(f"it is no JSON: {error}", where=source) from error
    names = data.get("weight_map") if isinstance(data, dict) else None
    if not isinstance(names, dict) or not names:
        raise InputError("the index names no files", where=f"{source}: weight_map")
    files = sorted({_file_name(value, f"{source}: {key}") for key, value in names.items()})
    metadata = data.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    usable = isinstance(total, int) and not isinstance(total, bool) and 0 < total < 1 << 60
    return ShardIndex(files=tuple(files), size_bytes=total if usable else None)


def _file_name(value: Any, where: str) -> str:
    plain = (
        isinstance(value, str) and value.endswith(".safetensors") and "\\" not in value and "\0" not in value
    )
    if not plain or value.startswith("/") or ".." in value.split("/"):
        raise InputError(f"{value!r} is no file of the checkpoint", where=where)
    return str(value)
