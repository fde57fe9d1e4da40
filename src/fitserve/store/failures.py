"""What a database's complaint means for the user."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import SQLAlchemyError

from fitserve.errors import MachineError
from fitserve.store.place import FOLDER_VARIABLE, Place


class UnwritableError(MachineError):
    """The journal cannot be written here: no room, no permission, no such folder."""


_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_UNWRITABLE = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_READONLY: "it is read-only",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened",
    sqlite3.SQLITE_IOERR: "reading or writing fails",
    sqlite3.SQLITE_PERM: "access is not permitted",
}


@contextmanager
def explained(place: Place) -> Iterator[None]:
    """Turn what a database or the file system raises into an error of ours.

    Raises:
        UnwritableError: no room, no permission, no such folder.
        MachineError: locked, damaged, or not to be reached.
    """
    try:
        yield
    except OSError as error:
        raise _unwritable(error.strerror or str(error), place) from error
    except (SQLAlchemyError, sqlite3.Error) as error:
        raise _of_database(error, place) from error


def _of_database(error: Exception, place: Place) -> MachineError:
    cause = getattr(error, "orig", error)
    code = getattr(cause, "sqlite_errorcode", None)
    if code is None:
        words = str(cause).strip().partition("\n")[0]
        return MachineError(f"the journal's database refuses: {words}", where=place.shown)
    primary = code & 0xFF  # the high bits of an extended code only say where it happened
    if primary in _LOCKED:
        return MachineError(
            "the journal is locked by another process",
            where=place.shown,
            hint="wait for the other run to end its save, and try again",
        )
    if primary in _DAMAGED:
        return MachineError(
            f"the journal is damaged: {cause}",
            where=place.shown,
            hint="move the file away; a new journal is made then",
        )
    if primary in _UNWRITABLE:
        return _unwritable(_UNWRITABLE[primary], place)
    return MachineError(f"the journal's database refuses: {cause}", where=place.shown)


def _unwritable(reason: str, place: Place) -> UnwritableError:
    return UnwritableError(
        f"the journal cannot be used: {reason[:1].lower()}{reason[1:]}",
        where=place.shown,
        hint=f"set {FOLDER_VARIABLE} to a folder that can be written",
    )
