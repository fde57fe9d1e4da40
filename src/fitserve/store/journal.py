"""The journal as the rest of the tool sees it. SQLAlchemy is imported when one is opened, not before."""

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

import msgspec

from fitserve.errors import MachineError
from fitserve.report.record import Record
from fitserve.store.place import Place, journal_place

BUSY_SECONDS = 5.0
"""How long a save waits for another process that is saving."""


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the list of runs.

    Attributes:
        run: the run's id.
        made_by: the command that made it.
        started_utc: ISO 8601, seconds.
        saved_utc: when it was saved last.
        command: the user's command, quoted for a shell.
        trials: how many starts there were.
        outcome: how it ended; None where it has not, or was killed.
        verified: whether every check passed; None where none was made.
    """

    run: str
    made_by: str
    started_utc: str
    saved_utc: str
    command: str
    trials: int
    outcome: str | None
    verified: bool | None


class RunList(msgspec.Struct, frozen=True, kw_only=True):
    """The runs, newest first. Its JSON is the contract of ``runs --json``."""

    schema: int = 1
    kind: Literal["runs"] = "runs"
    runs: list[RunSummary]


class Journal(Protocol):
    """Runs and logs that outlast the process.

    Saving never stops a run: what cannot be saved is said once on stderr, and the run goes on. Reading raises.
    """

    def save(self, record: Record) -> bool:
        """Keep the record, in place of what was kept of the same run, in one transaction; whether it is kept."""

    def keep_log(self, path: Path) -> str | None:
        """Keep a trial's log, once however often it is given; its digest, or None where it could not be kept."""

    def load(self, run: str) -> Record:
        """The record of a run: its id, the unambiguous beginning of one, or ``last``.

        Raises:
            InputError: there is no such run, or several.
            MachineError: the journal cannot be read.
        """

    def read_log(self, digest: str) -> bytes:
        """A kept log.

        Raises:
            InputError: there is none with this digest.
            MachineError: the journal cannot be read, or the log is not what was kept.
        """

    def open_log(self, digest: str) -> BinaryIO:
        """A kept log as a stream; at its end it has been checked.

        Raises:
            InputError: there is none with this digest.
            MachineError: the journal cannot be read; while reading: the log is not what was kept.
        """

    def latest(self, limit: int) -> list[RunSummary]:
        """The newest runs, newest first.

        Raises:
            MachineError: the journal cannot be read.
        """

    def naming(self, words: str) -> list[Record]:
        """The newest runs whose command holds the words, newest first; none where the journal cannot be read."""

    def delete(self, run: str) -> str:
        """Forget a run and the logs that no other run has; its id.

        Raises:
            InputError: there is no such run, or several.
            MachineError: the journal cannot be written.
        """

    def every(self) -> Iterator[Record]:
        """Every run, oldest first, one at a time.

        Raises:
            MachineError: the journal, or a record in it, cannot be read.
        """

    def prune(self, *, keep: int | None = None, before_utc: str | None = None) -> list[str]:
        """Forget the runs beyond the newest ``keep``, or those saved last before a time, with their logs; their ids.

        Raises:
            MachineError: the journal cannot be written.
        """


class NullJournal:
    """The journal where none can be kept; ``reason`` says why."""

    def __init__(self, reason: MachineError) -> None:
        self.reason = reason

    def save(self, record: Record) -> bool:
        """Nothing is kept; it was said when the journal was opened."""
        return False

    def keep_log(self, path: Path) -> str | None:
        """Nothing is kept."""
        return None

    def load(self, run: str) -> Record:
        """Raises the reason."""
        raise self.reason

    def read_log(self, digest: str) -> bytes:
        """Raises the reason."""
        raise self.reason

    def open_log(self, digest: str) -> BinaryIO:
        """Raises the reason."""
        raise self.reason

    def every(self) -> Iterator[Record]:
        """Raises the reason."""
        raise self.reason

    def prune(self, *, keep: int | None = None, before_utc: str | None = None) -> list[str]:
        """Raises the reason."""
        raise self.reason

    def latest(self, limit: int) -> list[RunSummary]:
        """Raises the reason."""
        raise self.reason

    def naming(self, words: str) -> list[Record]:
        """None."""
        return []

    def delete(self, run: str) -> str:
        """Raises the reason."""
        raise self.reason


def say_on_stderr(line: str) -> None:
    """One line for the user, beside the answer."""
    sys.stderr.write(f"{line}\n")


def open_journal(
    environ: Mapping[str, str] = os.environ,
    *,
    busy_seconds: float = BUSY_SECONDS,
    say: Callable[[str], None] = say_on_stderr,
) -> Journal:
    """The journal to save in, made where there is none.

    A folder that cannot be written, or a full disk, gives a ``NullJournal`` and one line on stderr.

    Args:
        environ: where ``FITSERVE_DB`` and ``FITSERVE_DATA_DIR`` are looked up.
        busy_seconds: how long to wait for another process's lock.
        say: gets the one line.

    Raises:
        UsageError: ``FITSERVE_DB`` is no database URL.
        MachineError: the journal is locked, damaged, newer than this version of the tool, or cannot be reached.
    """
    from fitserve.store.database import Database
    from fitserve.store.failures import UnwritableError
    from fitserve.store.inbox import take_in
    from fitserve.store.sql_journal import SqlJournal

    database = Database(journal_place(environ), busy_seconds=busy_seconds)
    try:
        database.prepare()
    except UnwritableError as error:
        say(f"warning: this run is not saved: {error.what} ({error.where})")
        return NullJournal(error)
    take_in(SqlJournal(database, say=_say_nothing), environ)
    return SqlJournal(database, say=say)


def open_journal_to_read(
    environ: Mapping[str, str] = os.environ, *, busy_seconds: float = BUSY_SECONDS
) -> Journal:
    """The journal to read in, where it lies in a read-only folder too.

    Raises:
        UsageError: ``FITSERVE_DB`` is no database URL.
        MachineError: the journal cannot be read, or there is none and none can be made.
    """
    from fitserve.store.database import Database
    from fitserve.store.failures import UnwritableError
    from fitserve.store.inbox import take_in
    from fitserve.store.sql_journal import SqlJournal

    place = journal_place(environ)
    database = Database(place, busy_seconds=busy_seconds)
    try:
        database.prepare()
        take_in(SqlJournal(database, say=_say_nothing), environ)
    except UnwritableError:
        if place.path is None or not _has_content(place.path):
            raise
        if _has_content(_write_ahead_log(place.path)):
            # A killed process has left it; without a place for its index it is read in a copy.
            place = _copied(place, place.path)
            database = Database(place, busy_seconds=busy_seconds)
        else:
            database = Database(place, busy_seconds=busy_seconds, read_only=True)
        database.check()
    return SqlJournal(database, say=say_on_stderr)


def _say_nothing(line: str) -> None:
    """What is left beside the journal stays there and is tried again: no word for this run's user."""


def _copied(place: Place, path: Path) -> Place:
    """The place of a copy that lasts as long as this process."""
    folder = tempfile.TemporaryDirectory(prefix="fitserve-journal-")
    atexit.register(folder.cleanup)
    copy = Path(folder.name) / path.name
    try:
        for source, target in ((path, copy), (_write_ahead_log(path), _write_ahead_log(copy))):
            shutil.copyfile(source, target)
    except OSError as error:
        raise MachineError(f"the journal cannot be read: {error.strerror}", where=place.shown) from error
    return msgspec.structs.replace(place, path=copy)


def _write_ahead_log(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _has_content(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except OSError:
        return False
