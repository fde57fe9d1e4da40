"""The journal's database: connected, made, brought to the newest schema (o: files, network).

SQLite runs in WAL mode: readers and one writer do not wait for each other, and what a killed process has not
committed is not there. Every change of ours is one transaction that takes the write lock at its beginning, so
that it waits for another writer instead of failing half-way.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from fitserve.errors import MachineError
from fitserve.store.failures import explained
from fitserve.store.place import URL_VARIABLE, Place
from fitserve.store.tables import SCHEMA, VERSION_TABLE, metadata, version, version_metadata, version_name

MIGRATIONS = Path(__file__).parent / "migrations"


class Database:
    """Transactions on a database at the newest schema.

    Args:
        place: where it is.
        busy_seconds: how long to wait for another process's lock.
        read_only: for a SQLite file in a folder that cannot be written.
    """

    def __init__(self, place: Place, *, busy_seconds: float, read_only: bool = False) -> None:
        self.place = place
        self._busy_seconds = busy_seconds
        self._engine = self._connect(read_only=read_only)

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """One consistent view."""
        with explained(self.place), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """All or nothing."""
        with explained(self.place), _begin_write(self._engine) as connection:
            yield connection

    def prepare(self) -> None:
        """Make the tables where there are none; bring older ones to the newest schema.

        Raises:
            UnwritableError: it cannot be made here.
            MachineError: locked, damaged, newer than this version of the tool, or another program's database.
        """
        with explained(self.place):
            if self._is_newest():
                return
            with self._alone():
                if not self._is_newest():
                    self._make_or_upgrade()

    def check(self) -> None:
        """Refuse anything but the newest schema, without a write.

        Raises:
            MachineError: another schema, or no journal.
        """
        with explained(self.place):
            schema = self._schema()
        if schema != SCHEMA:
            raise MachineError(
                f"the journal has schema {schema}, this fitserve needs {SCHEMA}, and it is read-only",
                where=self.place.shown,
            )

    def _connect(self, *, read_only: bool = False, foreign_keys: bool = True) -> sa.Engine:
        if self.place.path is None:
            return _connect_server(self.place)
        url = sa.URL.create("sqlite", database=str(self.place.path))
        if read_only:
            # `immutable` reads without the lock files that a read-only folder has no room for.
            url = url.set(database=self.place.path.absolute().as_uri())
            url = url.update_query_dict({"mode": "ro", "immutable": "1", "uri": "true"})
        engine = sa.create_engine(url, poolclass=NullPool, connect_args={"timeout": self._busy_seconds})

        @sa.event.listens_for(engine, "connect")
        def _on_connect(connection: Any, _: Any) -> None:
            connection.isolation_level = None  # transactions begin where we say, with the lock that we say
            connection.execute(f"PRAGMA foreign_keys={'ON' if foreign_keys else 'OFF'}")

        @sa.event.listens_for(engine, "begin")
        def _on_begin(connection: sa.Connection) -> None:
            writes = connection.get_execution_options().get("writes", False)
            connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

        return engine

    def _schema(self) -> int | None:
        """The schema in one SELECT; None where the database is empty."""
        if self.place.path is not None and not self.place.path.exists():
            return None
        try:
            return self._version()
        except (sa.exc.OperationalError, sa.exc.ProgrammingError):
            with self._engine.begin() as connection:
                tables = sa.inspect(connection).get_table_names()
            if VERSION_TABLE in tables:
                return self._version()  # another process has just made it, or the trouble is real
            self._refuse_foreign(tables)
            return None

    def _version(self) -> int:
        with self._engine.begin() as connection:
            name = connection.execute(sa.select(version.c.version_num)).scalar()
        # Alembic leaves the table empty where every migration is still to come.
        return int(name) if name else 0

    def _is_newest(self) -> bool:
        """True where nothing is to be done.

        Raises:
            MachineError: the journal is newer than this version of the tool.
        """
        schema = self._schema()
        if schema is not None and schema > SCHEMA:
            raise MachineError(
                f"the journal has schema {schema}, and this fitserve knows up to {SCHEMA}",
                where=self.place.shown,
                hint="upgrade fitserve",
            )
        return schema == SCHEMA

    def _refuse_foreign(self, tables: list[str]) -> None:
        if tables and self.place.path is not None:
            raise MachineError(
                f"the file is another program's database: it holds the table {tables[0]}",
                where=self.place.shown,
                hint=f"name another file in {URL_VARIABLE}",
            )

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other processes of ours from making or upgrading the same file."""
        if self.place.path is None:
            yield
            return
        from filelock import FileLock, Timeout

        self.place.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            with FileLock(f"{self.place.path}.lock", timeout=self._busy_seconds):
                yield
        except Timeout as error:
            raise MachineError(
                "the journal is being made or upgraded by another process",
                where=self.place.shown,
                hint="try again when that has ended",
            ) from error

    def _make_or_upgrade(self) -> None:
        try:
            if self._schema() is None:
                self._make()
            else:
                self._upgrade()
        except (sa.exc.ProgrammingError, sa.exc.IntegrityError):
            # On a server another machine may have done it in the same moment; then it is done.
            if not self._is_newest():
                raise

    def _make(self) -> None:
        if self.place.path is not None:
            self.place.path.touch(mode=0o600)  # it holds commands and logs
            with closing(sqlite3.connect(self.place.path, timeout=self._busy_seconds)) as connection:
                connection.execute("PRAGMA journal_mode=WAL")  # the file remembers it
        with _begin_write(self._engine) as transaction:
            metadata.create_all(transaction)
            version_metadata.create_all(transaction)
            transaction.execute(version.insert().values(version_num=version_name(SCHEMA)))

    def _upgrade(self) -> None:
        """Run the missing migrations in one transaction."""
        from alembic import command
        from alembic.config import Config

        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
        # A migration that rebuilds a table drops the old one, and a foreign key would delete what hangs on it.
        with _begin_write(self._connect(foreign_keys=False)) as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")


def _begin_write(engine: sa.Engine) -> Any:
    return engine.execution_options(writes=True).begin()


def _connect_server(place: Place) -> sa.Engine:
    try:
        return sa.create_engine(str(place.url), poolclass=NullPool)
    except ModuleNotFoundError as error:
        raise MachineError(
            f"the package {error.name} is not installed, and {URL_VARIABLE} needs it",
            where=place.shown,
            hint=f"pip install {error.name}",
        ) from error
    except sa.exc.ArgumentError as error:
        raise MachineError(f"{URL_VARIABLE} names an unknown database: {error}", where=place.shown) from error
