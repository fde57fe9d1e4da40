"""Writes a run as a bundle (o: the file)."""

import contextlib
import hashlib
import io
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import msgspec

from fitserve import __version__
from fitserve.errors import InputError
from fitserve.report.bundle import (
    ENVIRONMENT,
    FRONTIER,
    MANIFEST,
    PAGE,
    RECORD,
    BundledFile,
    Manifest,
    log_name,
)
from fitserve.report.html.extras import Frontier
from fitserve.report.record import Record, record_to_json, storable

OpenLog = Callable[[], contextlib.AbstractContextManager[Any]]
Copy = Callable[[BinaryIO, BinaryIO], None]

_LEVEL = 1
"""Logs repeat themselves: zlib's fastest level makes them a tenth, at four times the speed of its default."""

_EPOCH = (1980, 1, 1, 0, 0, 0)
"""One time for every file, so that the same run gives the same bundle."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What a bundle says beside the logs.

    Attributes:
        record: as it may leave.
        frontier: what was worked out for the page.
        page: the page.
        redactions: what was hidden; None where nothing was looked for.
    """

    record: Record
    frontier: Frontier
    page: str
    redactions: dict[str, tuple[int, int]] | None = None


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """What goes into a bundle.

    Attributes:
        logs: how each trial's log is opened, as it was.
        copy: copies a log as it may leave.
        tell: makes the rest; called when the logs have been copied, so that a name that only a log gives away is known.
    """

    logs: Mapping[int, OpenLog]
    copy: Copy = shutil.copyfileobj
    tell: Callable[[], Told]


def write_bundle(path: Path, content: Content) -> Manifest:
    """Write the bundle, whole or not at all.

    Raises:
        InputError: it cannot be written.
        MachineError: a kept log is damaged.
    """
    try:
        with (
            _whole(path) as out,
            zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as archive,
        ):
            return _fill(archive, content)
    except OSError as error:
        raise InputError(f"the bundle cannot be written: {error.strerror}", where=str(path)) from error


def _fill(archive: zipfile.ZipFile, content: Content) -> Manifest:
    files = []
    for n, open_log in sorted(content.logs.items()):
        with open_log() as log:
            files.append(_add(archive, log_name(n), log, content.copy))
    told = content.tell()
    record = storable(told.record)
    texts = {
        RECORD: record_to_json(record),
        ENVIRONMENT: msgspec.json.encode(record.environment),
        FRONTIER: msgspec.json.encode(told.frontier),
        PAGE: told.page.encode(errors="replace"),
    }
    files += [_add(archive, name, io.BytesIO(text)) for name, text in texts.items()]
    manifest = Manifest(
        fitserve_version=__version__,
        run=record.run,
        redacted=told.redactions is not None,
        redactions=told.redactions or {},
        files=files,
    )
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
    _add(archive, MANIFEST, io.BytesIO(text))
    return manifest


def _add(
    archive: zipfile.ZipFile, name: str, source: BinaryIO, copy: Copy = shutil.copyfileobj
) -> BundledFile:
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o600 << 16
    with archive.open(entry, "w", force_zip64=True) as sink:
        counted = _Counted(sink)
        copy(source, cast("BinaryIO", counted))
    return BundledFile(name=name, size_bytes=counted.size_bytes, sha256=counted.digest.hexdigest())


class _Counted(io.RawIOBase):
    """A sink that knows the size and the hash of what went through it."""

    def __init__(self, sink: IO[bytes]) -> None:
        super().__init__()
        self._sink = sink
        self.size_bytes = 0
        self.digest = hashlib.sha256()

    def write(self, data: bytes) -> int:  # type: ignore[override]  # bytes are all that is written here
        """Pass the bytes on."""
        self.size_bytes += len(data)
        self.digest.update(data)
        return self._sink.write(data)


@contextlib.contextmanager
def _whole(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes the path's place when all of it is written; only its owner reads it."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as out:
            yield out
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
