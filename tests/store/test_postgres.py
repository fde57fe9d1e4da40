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

import pytest
import sqlalchemy as sa

from fitserve.errors import InputError, MachineError
from fitserve.report.record import Record
from fitserve.store.journal import open_journal

MakeRecord = Callable[..., Record]


def server_user() -> str | None:
    """Who may run the server: PostgreSQL refuses root."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid()).pw_name
    return "postgres" if any(user.pw_name == "postgres" for user in pwd.getpwall()) else None


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server that listens on a socket in its own folder."""
    user = server_user()
    if importlib.util.find_spec("psycopg") is None:
        pytest.skip("the driver psycopg is not installed")
    if shutil.which("initdb") is None or shutil.which("pg_ctl") is None or user is None:
        pytest.skip("PostgreSQL's initdb and pg_ctl are not installed, or there is no user to run them")
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        data.mkdir()
        for path in (folder, data):
            shutil.chown(path, user)
        options = f"-k {folder} -c listen_addresses="

        def control(*command: str) -> None:
            subprocess.run(
                command,
                user=user,
                check=True,
                cwd=folder,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

        control("initdb", "-D", str(data), "-U", "fitserve", "-A", "trust")
        control("pg_ctl", "-D", str(data), "-w", "-o", options, "start")
        try:
            yield f"postgresql+psycopg://fitserve@/postgres?host={folder}"
        finally:
            control("pg_ctl", "-D", str(data), "-m", "immediate", "stop")


def test_postgres_keeps_what_sqlite_keeps(url: str, make_record: MakeRecord, tmp_path: Path) -> None:
    """Runs and logs are saved, replaced, found, listed and deleted as in a file."""
    (tmp_path / "a.log").write_bytes(b"a log\x00\xff")
    journal = open_journal({"FITSERVE_DB": url})
    digest = journal.keep_log(tmp_path / "a.log")
    for trials in (1, 2):
        journal.save(make_record(trials=trials, logs={1: digest}, environment={"text": "\x00ü"}))
    again = open_journal({"FITSERVE_DB": url})

    assert make_record(trials=2, logs={1: digest}, environment={"text": "\x00ü"}) == again.load("2026")
    assert [2] == [run.trials for run in again.latest(5)]
    assert b"a log\x00\xff" == again.read_log(str(digest))
    assert "20260101-000000-aaaaaa" == again.delete("last")
    with pytest.raises(InputError, match="no log with the digest"):
        again.read_log(str(digest))


def test_machines_make_the_journal_at_once(url: str) -> None:
    """Processes that are the first on a new database, all at the same time, make one journal and none fails."""
    program = "from fitserve.store.journal import open_journal; open_journal()"
    admin = sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.pool.NullPool)
    said = []
    for number in range(5):
        with admin.connect() as connection:
            connection.exec_driver_sql(f"CREATE DATABASE new{number}")
        environ = {**os.environ, "FITSERVE_DB": url.replace("/postgres?", f"/new{number}?")}
        first = [
            subprocess.Popen([sys.executable, "-c", program], env=environ, stderr=subprocess.PIPE)
            for _ in range(4)
        ]
        said += [process.communicate()[1] for process in first]

    assert [b""] * 20 == said


def test_a_server_that_is_not_there_is_a_word(url: str) -> None:
    """A server that does not answer is an error of the machine, before anything is started."""
    with pytest.raises(MachineError) as error:
        open_journal({"FITSERVE_DB": "postgresql+psycopg://me:secret@127.0.0.1:1/x"})

    assert error.value.what.startswith("the journal's database refuses: ")
    assert "secret" not in str(error.value)
