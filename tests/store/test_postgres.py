"""The same journal on a real PostgreSQL server, where its programs and a driver are installed."""

import importlib.util
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from fitserve.errors import InputError, MachineError
from fitserve.report.record import Record
from fitserve.store.inbox import leave
from fitserve.store.journal import open_journal

MakeRecord = Callable[..., Record]


DEBIAN = Path("/usr/lib/postgresql")
"""Where Debian's packages put the server's programs, a folder a version, on nobody's path."""


def server_program(name: str) -> str | None:
    """A program of the server, on the path or in the newest of Debian's folders."""
    versions = sorted(DEBIAN.glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    return shutil.which(name) or (str(versions[-1]) if versions else None)


def server_user() -> str | None:
    """Who runs the server: PostgreSQL refuses root, for whom the package's own user does it, or nobody."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid()).pw_name
    known = {user.pw_name for user in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in known), None)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server that listens on a socket in its own folder."""
    user = server_user()
    initdb, pg_ctl = server_program("initdb"), server_program("pg_ctl")
    if importlib.util.find_spec("psycopg") is None:
        pytest.skip("the driver psycopg is not installed")
    if initdb is None or pg_ctl is None or user is None:
        pytest.skip("PostgreSQL's initdb and pg_ctl are not installed, or there is no user to run them")
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        data.mkdir()
        for path in (folder, data):
            shutil.chown(path, user)
        options = f"-k {folder} -c listen_addresses="
        as_user: dict[str, Any] = {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}
        if os.geteuid() != 0:
            as_user = {}

        def control(*command: str) -> None:
            subprocess.run(
                command,
                **as_user,
                check=True,
                cwd=folder,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

        control(initdb, "-D", str(data), "-U", "fitserve", "-A", "trust")
        control(pg_ctl, "-D", str(data), "-w", "-o", options, "start")
        try:
            yield f"postgresql+psycopg://fitserve@/postgres?host={folder}"
        finally:
            control(pg_ctl, "-D", str(data), "-m", "immediate", "stop")


def test_postgres_keeps_what_sqlite_keeps(url: str, make_record: MakeRecord, tmp_path: Path) -> None:
    """Runs and logs are saved, replaced, found, listed and deleted as in a file."""
    (tmp_path / "a.log").write_bytes(b"a log\x00\xff")
    journal = open_journal({"FITSERVE_DB": url, "FITSERVE_DATA_DIR": str(tmp_path)})
    digest = journal.keep_log(tmp_path / "a.log")
    for trials in (1, 2):
        journal.save(make_record(trials=trials, logs={1: digest}, environment={"text": "\x00ü"}))
    again = open_journal({"FITSERVE_DB": url, "FITSERVE_DATA_DIR": str(tmp_path)})

    assert make_record(trials=2, logs={1: digest}, environment={"text": "\x00ü"}) == again.load("2026")
    assert [2] == [run.trials for run in again.latest(5)]
    assert b"a log\x00\xff" == again.read_log(str(digest))
    assert "20260101-000000-aaaaaa" == again.delete("last")
    with pytest.raises(InputError, match="no log with the digest"):
        again.read_log(str(digest))


def test_postgres_is_pruned_and_exported(url: str, make_record: MakeRecord, tmp_path: Path) -> None:
    """Old runs go with the logs that no other run has; the rest is handed out whole."""
    journal = open_journal({"FITSERVE_DB": url, "FITSERVE_DATA_DIR": str(tmp_path)})
    journal.prune(keep=0)
    names = [f"2026010{day}-000000-aaaaaa" for day in range(1, 4)]
    digests = []
    for name in names:
        (tmp_path / "log").write_bytes(name[:8].replace("3", "2").encode())
        digests.append(str(journal.keep_log(tmp_path / "log")))
        journal.save(make_record(name, logs={1: digests[-1]}))

    assert [names[1], names[0]] == journal.prune(keep=1)
    assert [names[2]] == [record.run for record in journal.every()]
    assert b"20260102" == journal.read_log(digests[2])
    with pytest.raises(InputError):
        journal.open_log(digests[0])


def test_machines_make_the_journal_at_once(url: str, make_record: MakeRecord, tmp_path: Path) -> None:
    """Processes that are the first on a new database, all at the same time, make one journal and none fails.

    What was left beside it comes in with them, once.
    """
    program = "from fitserve.store.journal import open_journal; open_journal()"
    admin = sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.pool.NullPool)
    said = []
    for number in range(5):
        with admin.connect() as connection:
            connection.exec_driver_sql(f"CREATE DATABASE new{number}")
        environ = {
            **os.environ,
            "FITSERVE_DB": url.replace("/postgres?", f"/new{number}?"),
            "FITSERVE_DATA_DIR": str(tmp_path),
        }
        for run in range(9):
            leave(make_record(f"20260101-000000-{run:06x}"), None, environ)
        first = [
            subprocess.Popen([sys.executable, "-c", program], env=environ, stderr=subprocess.PIPE)
            for _ in range(4)
        ]
        said += [process.communicate()[1] for process in first]
        assert 9 == len(open_journal(environ).latest(100))

    assert [b""] * 20 == said


def test_a_server_that_is_not_there_is_a_word(url: str) -> None:
    """A server that does not answer is an error of the machine, before anything is started."""
    with pytest.raises(MachineError) as error:
        open_journal({"FITSERVE_DB": "postgresql+psycopg://me:secret@127.0.0.1:1/x"})

    assert error.value.what.startswith("the journal's database refuses: ")
    assert "secret" not in str(error.value)
