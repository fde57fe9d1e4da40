"""Opens a bundle that somebody else has sent (o: the file). Nothing is unpacked to the disk, and nothing in it is trusted."""

import contextlib
import hashlib
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import msgspec

from fitserve.errors import InputError
from fitserve.report.bundle import (
    FRONTIER,
    JSON_NAMES,
    LOG,
    MANIFEST,
    MOST_BYTES,
    MOST_FILES,
    MOST_JSON_BYTES,
    RECORD,
    SCHEMA,
    Manifest,
    is_allowed,
    log_name,
)
from fitserve.report.html.extras import Frontier
from fitserve.report.record import Record

_CHUNK_BYTES = 1 << 20
_MOST_LEVELS = 64
"""What fitserve writes has 10."""
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
T = TypeVar("T")


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """A bundle whose every file is what its manifest says.

    Attributes:
        path: the file.
        manifest: what it holds.
        record: the run.
        frontier: as it was worked out where it was made.
    """

    path: Path
    manifest: Manifest
    record: Record
    frontier: Frontier

    @property
    def logs(self) -> list[int]:
        """The trials whose logs are in it."""
        return sorted(int(found["n"]) for one in self.manifest.files if (found := LOG.fullmatch(one.name)))

    @contextlib.contextmanager
    def open_log(self, n: int) -> Iterator[IO[bytes]]:
        """A trial's log."""
        with _explained(self.path), zipfile.ZipFile(self.path) as archive, archive.open(log_name(n)) as log:
            yield log


def read_bundle(path: Path) -> Bundle:
    """Open a bundle and check all of it.

    Raises:
        InputError: it is no bundle, it is damaged or was changed, or it holds what no bundle may.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise InputError("a bundle is a file, and this is none", where=str(path))
    with _explained(path), zipfile.ZipFile(path) as archive:
        _check_names(archive)
        manifest = _decoded(_content(archive, MANIFEST, MOST_JSON_BYTES), Manifest, MANIFEST)
        _check_manifest(archive, manifest)
        found = {}
        for one in manifest.files:
            digest, size_bytes, kept = hashlib.sha256(), 0, []
            for piece in _pieces(archive, one.name, one.size_bytes):
                digest.update(piece)
                size_bytes += len(piece)
                if one.name in JSON_NAMES:
                    kept.append(piece)
            if (size_bytes, digest.hexdigest()) != (one.size_bytes, one.sha256):
                raise _UnfitError(f"{one.name} is not what the manifest says: it was damaged or changed")
            found[one.name] = b"".join(kept)
        _check_record(found[RECORD])
    return Bundle(
        path=path,
        manifest=manifest,
        record=_decoded(found[RECORD], Record, RECORD, path),
        frontier=_decoded(found[FRONTIER], Frontier, FRONTIER, path),
    )


class _UnfitError(Exception):
    """What is wrong with a bundle, in words."""


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn what a damaged or hostile file raises into one error.

    Raises:
        InputError: whatever is wrong with the file.
    """
    hint = "ask for the file again; it is made by: fitserve report RUN --bundle FILE.zip"
    try:
        yield
    except _UnfitError as error:
        raise InputError(str(error), where=str(path), hint=hint) from error
    except OSError as error:
        raise InputError(f"the bundle cannot be read: {error.strerror or error}", where=str(path)) from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise InputError(f"it is no whole bundle: {error}", where=str(path), hint=hint) from error


def _check_names(archive: zipfile.ZipFile) -> None:
    names = archive.namelist()
    if len(names) > MOST_FILES:
        raise _UnfitError(f"it holds {len(names):,} files, and a bundle has at most {MOST_FILES:,}")
    for entry in archive.infolist():
        if not is_allowed(entry.filename):
            raise _UnfitError(f"it holds {entry.filename!r}, which no bundle has")
        if entry.compress_type not in _METHODS:
            raise _UnfitError(f"{entry.filename} is packed in a way that bundles are not")
    if len(set(names)) != len(names):
        raise _UnfitError("a name is in it twice")
    if MANIFEST not in names:
        raise _UnfitError("it is no bundle: it has no manifest")


def _check_manifest(archive: zipfile.ZipFile, manifest: Manifest) -> None:
    if manifest.schema > SCHEMA:
        raise _UnfitError(
            f"the bundle has schema {manifest.schema}, and this fitserve knows up to {SCHEMA}: upgrade fitserve"
        )
    listed = [one.name for one in manifest.files]
    if sorted([*listed, MANIFEST]) != sorted(archive.namelist()):
        raise _UnfitError("its files are not those of its manifest")
    if missing := {RECORD, FRONTIER} - set(listed):
        raise _UnfitError(f"{min(missing)} is missing")
    if sum(one.size_bytes for one in manifest.files) > MOST_BYTES:
        raise _UnfitError(f"it would unpack to more than {MOST_BYTES >> 20:,} MiB")
    for one in manifest.files:
        if one.size_bytes < 0 or (one.name in JSON_NAMES and one.size_bytes > MOST_JSON_BYTES):
            raise _UnfitError(f"{one.name} would be {one.size_bytes:,} bytes")


def _check_record(text: bytes) -> None:
    value = _decoded(text, Any, RECORD)
    if _levels(value) > _MOST_LEVELS:
        raise _UnfitError(f"{RECORD} has values within values, more than {_MOST_LEVELS} deep")


def _levels(value: Any) -> int:
    """How deep values stand within values."""
    count, level = 0, [value]
    while level and count <= _MOST_LEVELS:
        count += 1
        inner = [
            item.values() if isinstance(item, dict) else item
            for item in level
            if isinstance(item, dict | list)
        ]
        level = [item for items in inner for item in items]
    return count


def _content(archive: zipfile.ZipFile, name: str, most_bytes: int) -> bytes:
    return b"".join(_pieces(archive, name, most_bytes))


def _pieces(archive: zipfile.ZipFile, name: str, most_bytes: int) -> Iterator[bytes]:
    """A file's content; what goes on after the bytes that it may have is refused before it is unpacked."""
    left = most_bytes
    with archive.open(name) as source:
        while piece := source.read(min(_CHUNK_BYTES, left + 1)):
            left -= len(piece)
            if left < 0:
                raise _UnfitError(
                    f"{name} is larger than it may be: it was changed, or is meant to fill the memory"
                )
            yield piece


def _decoded(text: bytes, kind: type[T], name: str, path: Path | None = None) -> T:
    """A value out of JSON.

    Raises:
        InputError: the JSON is something else; ``_UnfitError`` without a path.
    """
    try:
        return cast("T", msgspec.json.decode(text, type=cast("Any", kind)))
    except (msgspec.ValidationError, msgspec.DecodeError, RecursionError) as error:
        words = f"{name} cannot be read: {error}"
        if path is None:
            raise _UnfitError(words) from error
        raise InputError(words, where=str(path)) from error
