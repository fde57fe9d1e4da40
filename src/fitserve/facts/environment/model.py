"""Exactly which model: its revision on the Hub, or a fingerprint of its folder, and how it is quantised."""

import hashlib
import os
import re
from pathlib import Path
from typing import Any

import msgspec

from fitserve.errors import FitserveError, InputError
from fitserve.facts.checkpoint.read import read_checkpoint

_COMMIT = re.compile(r"[0-9a-f]{40}")
_WHOLE_BYTES = 4 << 20
"""A file up to this size counts with its content; of a larger one name, size and both ends do."""

_END_BYTES = 64 << 10


class ModelIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """A model.

    Attributes:
        model: the id or the folder, as it was given.
        revision: the commit of the Hub that lies here; empty for a folder of one's own.
        fingerprint: of the files' names, sizes and contents (ends of large ones), such as ``sha256:1f2e...``.
        size_bytes: of all its files.
        architecture: the first that its configuration names; empty where it names none.
        quantization: the method; empty where the weights are not quantised.
        source: the folder that was read.
    """

    model: str
    revision: str
    fingerprint: str
    size_bytes: int
    architecture: str
    quantization: str
    source: str


def identify(model: str) -> ModelIdentity:
    """Read what lies on this machine; nothing is fetched.

    Raises:
        InputError: there is no such folder, and the local cache of the Hub has no such id.
    """
    checkpoint = read_checkpoint(model, fetch=False)
    folder = _folder(checkpoint.config.source, model)
    files = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else [folder]
    commit = folder.name if _COMMIT.fullmatch(folder.name) else ""
    return ModelIdentity(
        model=model,
        revision=commit,
        fingerprint=fingerprint(folder, files),
        size_bytes=sum(path.stat().st_size for path in files),
        architecture=_architecture(checkpoint.config),
        quantization=_method(checkpoint.config.quantization, folder),
        source=str(folder),
    )


def fingerprint(folder: Path, files: list[Path]) -> str:
    """The same for the same files, wherever the folder lies."""
    whole = hashlib.sha256()
    for path in files:
        size = path.stat().st_size
        name = path.relative_to(folder).as_posix() if path != folder else path.name
        whole.update(f"{name}\0{size}\0".encode(errors="surrogateescape"))
        with path.open("rb") as stream:
            if size <= _WHOLE_BYTES:
                whole.update(stream.read())
            else:
                whole.update(stream.read(_END_BYTES))
                stream.seek(-_END_BYTES, os.SEEK_END)
                whole.update(stream.read(_END_BYTES))
    return f"sha256:{whole.hexdigest()[:24]}"


def _folder(source: str, model: str) -> Path:
    for place in (Path(source), Path(source).parent, Path(model).expanduser()):
        if place.is_dir() and place != Path():
            return place
        if place.is_file() and place.suffix == ".gguf":
            return place
    raise InputError("its files are not on this machine", where=model)


def _architecture(config: Any) -> str:
    try:
        return str(config.architecture)
    except FitserveError:
        return ""


def _method(quantization: dict[str, Any] | None, folder: Path) -> str:
    if folder.suffix == ".gguf":
        return "gguf"
    if not quantization:
        return ""
    inner = quantization.get("quantization")
    named = quantization.get("quant_method") or quantization.get("quant_algo")
    if not named and isinstance(inner, dict):
        named = inner.get("quant_algo")
    return str(named or "unnamed").lower()
