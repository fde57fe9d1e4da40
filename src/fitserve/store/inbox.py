"""Runs that were left beside the journal, for whoever opens it next (o: files).

To open the journal costs more than to read a log. What reads logs leaves its record here, in a few milliseconds.
"""

import contextlib
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fitserve.report.record import Record, record_from_json, record_to_json
from fitserve.store.place import inbox_folder

if TYPE_CHECKING:
    from fitserve.store.journal import Journal

BUSY_SECONDS = 5.0
"""How long to wait for another process that is taking in the same."""

LARGEST_LOG_BYTES = 8 << 20
"""A larger log is not copied: its record says where it was."""


def leave(record: Record, log: Path | None, environ: Mapping[str, str] = os.environ) -> str | None:
    """Leave a run, with a copy of its log where that is not large.

    Args:
        record: the run.
        log: its log as it was read, packed or not; None where it was no file.
        environ: where ``FITSERVE_DATA_DIR`` is looked up.

    Returns:
        Why it could not be left; None where it was.
    """
    folder = inbox_folder(environ)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if log is not None and log.is_file() and log.stat().st_size <= LARGEST_LOG_BYTES:
            shutil.copyfile(log, folder / f"{record.run}.log")
        draft = folder / f"{record.run}.draft"
        draft.write_bytes(record_to_json(record))
        draft.replace(folder / f"{record.run}.json")
    except OSError as error:
        return f"{error.strerror} ({folder})"
    return None


def take_in(journal: "Journal", environ: Mapping[str, str] = os.environ) -> None:
    """Move what was left into the journal, in one process at a time; what cannot be read or kept stays where it is."""
    folder = inbox_folder(environ)
    if not _left(folder):
        return
    from filelock import FileLock, Timeout

    with contextlib.suppress(OSError, Timeout), FileLock(folder.with_suffix(".lock"), timeout=BUSY_SECONDS):
        for path in _left(folder):
            log = path.with_suffix(".log")
            try:
                record = record_from_json(path.read_bytes())
                digest = _kept(journal, log) if log.exists() else None
            except (OSError, msgspec.MsgspecError):
                continue
            if log.exists() and digest is None:
                return
            if not journal.save(msgspec.structs.replace(record, logs={1: digest}) if digest else record):
                return
            path.unlink(missing_ok=True)
            log.unlink(missing_ok=True)


def _left(folder: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return sorted(folder.glob("*.json"))
    return []


def _kept(journal: "Journal", log: Path) -> str | None:
    """The digest of a log that may be packed."""
    from fitserve.facts.log import open_log

    with open_log(log) as source:
        if getattr(source, "name", None) == str(log):
            return journal.keep_log(log)
        plain = log.with_suffix(".plain")
        with plain.open("wb") as copy:
            shutil.copyfileobj(source, copy)
    digest = journal.keep_log(plain)
    plain.unlink(missing_ok=True)
    return digest


def say(words: str) -> None:
    """The one line where a run is not kept."""
    sys.stderr.write(f"warning: this run is not saved: {words}\n")
