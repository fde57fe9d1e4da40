"""The journal in a database (o)."""

import contextlib
import datetime as dt
import io
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import sqlalchemy as sa

from fitserve.errors import InputError, MachineError
from fitserve.report.record import Record, record_from_json, record_to_json, storable
from fitserve.store.database import Database
from fitserve.store.journal import RunSummary
from fitserve.store.logs import KeptLog, Unpacked, pack
from fitserve.store.tables import logs, runs, trials

LAST = "last"

_AT_ONCE = 500
"""Names in one statement: SQLite before 3.32 takes 999."""

LOG_BUFFER_BYTES = 1 << 18

NAMED_RUNS = 20
"""How many earlier runs are looked at for what a start will take."""


class SqlJournal:
    """A journal on a database at the newest schema.

    Args:
        database: where the runs are.
        say: gets the one line about what could not be saved.
    """

    def __init__(self, database: Database, *, say: Callable[[str], None]) -> None:
        self._database = database
        self._say = say
        self._has_complained = False

    def save(self, record: Record) -> bool:
        """Keep the record, in place of what was kept of the same run; whether it is kept."""
        try:
            with self._database.writing() as connection:
                _replace(connection, storable(record))
        except MachineError as error:
            self._complain(f"this run could not be saved: {error.what} ({error.where})")
            return False
        return True

    def keep_log(self, path: Path) -> str | None:
        """Keep a log once; its digest."""
        try:
            log = pack(path)
        except OSError as error:
            self._complain(f"a log could not be kept: {error.strerror} ({path})")
            return None
        try:
            with self._database.writing() as connection:
                _insert_once(connection, log)
        except MachineError as error:
            self._complain(f"a log could not be kept: {error.what} ({error.where})")
            return None
        return log.digest

    def load(self, run: str) -> Record:
        """The record of a run, by its id, its beginning or ``last``."""
        with self._database.reading() as connection:
            name = _resolve(connection, run, self._database.place.shown)
            text = connection.execute(sa.select(runs.c.record).where(runs.c.run == name)).scalar_one()
        try:
            return record_from_json(text)
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            raise MachineError(
                f"the record of run {name} cannot be read: {error}", where=self._database.place.shown
            ) from error

    def read_log(self, digest: str) -> bytes:
        """A kept log."""
        with self.open_log(digest) as log:
            return log.read()

    def open_log(self, digest: str) -> BinaryIO:
        """A kept log as a stream."""
        with self._database.reading() as connection:
            content = connection.execute(sa.select(logs.c.content).where(logs.c.digest == digest)).scalar()
        where = self._database.place.shown
        if content is None:
            raise InputError(f"no log with the digest {digest} is kept", where=where)
        words = f"the log {digest} is not what was kept: the journal is damaged"
        return io.BufferedReader(
            Unpacked(content, digest, lambda: MachineError(words, where=where)), LOG_BUFFER_BYTES
        )

    def latest(self, limit: int) -> list[RunSummary]:
        """The newest runs, newest first."""
        count = sa.select(sa.func.count()).where(trials.c.run == runs.c.run).scalar_subquery()
        columns = [column for column in runs.c if column.name != "record"]
        query = sa.select(*columns, count.label("trials")).order_by(runs.c.run.desc()).limit(limit)
        with self._database.reading() as connection:
            rows = connection.execute(query).mappings().all()
        return [RunSummary(**row) for row in rows]

    def naming(self, words: str) -> list[Record]:
        """The newest runs whose command holds the words."""
        query = sa.select(runs.c.record).where(runs.c.command.contains(words, autoescape=True))
        found = []
        with contextlib.suppress(MachineError), self._database.reading() as connection:
            for text in connection.execute(query.order_by(runs.c.run.desc()).limit(NAMED_RUNS)).scalars():
                with contextlib.suppress(msgspec.ValidationError, msgspec.DecodeError):
                    found.append(record_from_json(text))
        return found

    def every(self) -> Iterator[Record]:
        """Every run, oldest first, one at a time."""
        with self._database.reading() as connection:
            names = connection.execute(sa.select(runs.c.run).order_by(runs.c.run)).scalars().all()
        for name in names:
            with contextlib.suppress(InputError):  # another process has deleted it since
                yield self.load(name)

    def delete(self, run: str) -> str:
        """Forget a run and the logs that no other run has."""
        with self._database.writing() as connection:
            name = _resolve(connection, run, self._database.place.shown)
            _forget(connection, [name])
        return name

    def prune(self, *, keep: int | None = None, before_utc: str | None = None) -> list[str]:
        """Forget the runs beyond the newest so many, or those that ended before a time."""
        with self._database.writing() as connection:
            query = sa.select(runs.c.run).order_by(runs.c.run.desc())
            if before_utc is not None:
                query = query.where(runs.c.saved_utc < before_utc)
            names = list(connection.execute(query).scalars())[keep or 0 :]
            _forget(connection, names)
        return names

    def _complain(self, what: str) -> None:
        """Say it once; the next save tries again."""
        if not self._has_complained:
            self._say(f"warning: {what}; the run goes on")
        self._has_complained = True


def _replace(connection: sa.Connection, record: Record) -> None:
    connection.execute(runs.delete().where(runs.c.run == record.run))
    connection.execute(runs.insert().values(_run_row(record)))
    kept = set(
        connection.execute(sa.select(logs.c.digest).where(logs.c.digest.in_(record.logs.values()))).scalars()
    )
    rows = _trial_rows(record, kept)
    if rows:
        connection.execute(trials.insert(), rows)


def _forget(connection: sa.Connection, names: list[str]) -> None:
    """Delete runs, and the logs that no run has then."""
    for some in (names[at : at + _AT_ONCE] for at in range(0, len(names), _AT_ONCE)):
        own = list(connection.execute(sa.select(trials.c.log).where(trials.c.run.in_(some))).scalars())
        connection.execute(runs.delete().where(runs.c.run.in_(some)))
        still_used = sa.select(trials.c.log).where(trials.c.log.is_not(None))
        for few in (own[at : at + _AT_ONCE] for at in range(0, len(own), _AT_ONCE)):
            connection.execute(logs.delete().where(logs.c.digest.in_(few), logs.c.digest.not_in(still_used)))


def _run_row(record: Record) -> dict[str, Any]:
    return {
        "run": record.run,
        "made_by": record.kind,
        "started_utc": record.started_utc,
        "saved_utc": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "command": shlex.join(record.command),
        "outcome": record.outcome,
        "verified": None if record.verification is None else record.verification.passed,
        "record": record_to_json(record).decode(),
    }


def _trial_rows(record: Record, kept: set[str]) -> list[dict[str, Any]]:
    """The trials' rows; a digest of which the journal has no log stays in the record alone."""
    return [
        {
            "run": record.run,
            "n": trial.n,
            "outcome": trial.outcome,
            "cause": trial.cause,
            "flag": None if trial.change is None else trial.change.flag,
            "seconds": trial.seconds,
            "log": digest if (digest := record.logs.get(trial.n)) in kept else None,
        }
        for trial in record.trials
    ]


def _insert_once(connection: sa.Connection, log: KeptLog) -> None:
    known = connection.execute(sa.select(logs.c.digest).where(logs.c.digest == log.digest)).scalar()
    if known is None:
        connection.execute(logs.insert().values(msgspec.to_builtins(log, builtin_types=(bytes,))))


def _resolve(connection: sa.Connection, run: str, where: str) -> str:
    """The full id of the run that is meant."""
    if run == LAST:
        name = connection.execute(sa.select(runs.c.run).order_by(runs.c.run.desc()).limit(1)).scalar()
        if name is None:
            raise InputError("no run has been saved yet", where=where)
        return str(name)
    if connection.execute(sa.select(runs.c.run).where(runs.c.run == run)).scalar() is not None:
        return run
    begins = runs.c.run.startswith(run, autoescape=True)
    found = (
        connection.execute(sa.select(runs.c.run).where(begins).order_by(runs.c.run).limit(4)).scalars().all()
    )
    if run and len(found) == 1:
        return str(found[0])
    if run and found:
        raise InputError(
            f"several runs begin with {run}: {', '.join(found)}", where=where, hint="give more of the id"
        )
    raise InputError(f"no run begins with {run!r}", where=where, hint="list them with: fitserve runs")
