"""Old runs go, with the logs that no other run has; every run can be taken along; a log comes as a stream."""

import re
import sqlite3
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fitserve.errors import InputError, MachineError
from fitserve.report.record import Record
from fitserve.store.journal import Journal, open_journal

MakeRecord = Callable[..., Record]
NAMES = [f"2026010{day}-000000-aaaaaa" for day in range(1, 6)]


def kept_log(journal: Journal, folder: Path, text: bytes) -> str:
    """Keep a log; its digest."""
    path = folder / "log"
    path.write_bytes(text)
    return str(journal.keep_log(path))


def digests(environ: dict[str, str]) -> set[str]:
    """The logs in the journal's file."""
    with closing(sqlite3.connect(Path(environ["FITSERVE_DATA_DIR"]) / "journal.db")) as connection:
        return {row[0] for row in connection.execute("SELECT digest FROM logs")}


@given(keep=st.integers(0, 6), shared=st.sets(st.integers(0, 4)))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_pruning_keeps_the_newest_and_their_logs(
    tmp_path_factory: pytest.TempPathFactory, make_record: MakeRecord, keep: int, shared: set[int]
) -> None:
    """The newest N runs stay with exactly their logs, however many runs share one."""
    folder = tmp_path_factory.mktemp("journal")
    environ = {"FITSERVE_DATA_DIR": str(folder)}
    journal = open_journal(environ)
    logs = {}
    for at, name in enumerate(NAMES):
        logs[name] = kept_log(journal, folder, b"shared" if at in shared else name.encode())
        journal.save(make_record(name, logs={1: logs[name]}))
    gone = journal.prune(keep=keep)
    stay = NAMES[len(NAMES) - min(keep, len(NAMES)) :]

    assert sorted([*gone, *stay]) == NAMES
    assert stay[::-1] == [run.run for run in journal.latest(10)]
    assert {logs[name] for name in stay} == digests(environ)


def test_pruning_by_age_goes_by_the_last_save(
    environ: dict[str, str], make_record: MakeRecord, tmp_path: Path
) -> None:
    """A run that was saved before the time goes; one that is still being saved stays, however long ago it began."""
    journal = open_journal(environ)
    for name in NAMES[:2]:
        journal.save(make_record(name))
    with closing(sqlite3.connect(tmp_path / "data" / "journal.db")) as connection, connection:
        connection.execute(
            "UPDATE runs SET saved_utc = '2026-01-01T00:00:00+00:00' WHERE run = ?", [NAMES[0]]
        )

    assert [] == journal.prune(before_utc="2026-01-01T00:00:00+00:00")
    assert [NAMES[0]] == journal.prune(before_utc="2026-01-01T00:00:01+00:00")
    assert [NAMES[1]] == [run.run for run in journal.latest(10)]


def test_thousands_of_runs_are_pruned(
    environ: dict[str, str], make_record: MakeRecord, tmp_path: Path
) -> None:
    """More runs than a statement of SQLite may name go at once."""
    journal = open_journal(environ)
    journal.save(make_record(NAMES[0]))
    with closing(sqlite3.connect(tmp_path / "data" / "journal.db")) as connection, connection:
        connection.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40000) INSERT INTO runs "
            "SELECT 'x' || i, made_by, started_utc, saved_utc, command, outcome, verified, record FROM runs, n"
        )

    assert 40_000 == len(journal.prune(keep=1))


def test_every_run_comes_oldest_first(environ: dict[str, str], make_record: MakeRecord) -> None:
    """All runs are handed out as they were saved."""
    journal = open_journal(environ)
    records = [make_record(name) for name in NAMES]
    for record in reversed(records):
        journal.save(record)

    assert records == list(journal.every())


@given(text=st.binary(max_size=5_000), size=st.integers(1, 700))
@settings(max_examples=25, deadline=None)
def test_a_log_comes_in_pieces_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, text: bytes, size: int
) -> None:
    """Read in pieces of any size, a log is what was kept."""
    folder = tmp_path_factory.mktemp("journal")
    journal = open_journal({"FITSERVE_DATA_DIR": str(folder)})
    digest = kept_log(journal, folder, text)
    pieces = []
    with journal.open_log(digest) as log:
        while piece := log.read(size):
            pieces.append(piece)

    assert text == b"".join(pieces) == journal.read_log(digest)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-3],
        lambda content: content[: len(content) // 2],
        lambda content: b"",
        lambda content: b"no zlib" + content,
        lambda content: zlib.compress(b"another log"),
    ],
)
def test_a_damaged_log_is_never_taken_for_whole(
    environ: dict[str, str], tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    """A log that was cut or changed in the journal ends in an error, not in a shorter log."""
    journal = open_journal(environ)
    digest = kept_log(journal, tmp_path, b"INFO one line\n" * 1000)
    with closing(sqlite3.connect(tmp_path / "data" / "journal.db")) as connection, connection:
        [content] = connection.execute("SELECT content FROM logs").fetchone()
        connection.execute("UPDATE logs SET content = ?", [damage(content)])

    with (
        pytest.raises(MachineError, match=f"the log {digest} is not what was kept"),
        journal.open_log(digest) as log,
    ):
        log.read()


def test_a_log_that_was_never_kept_is_named(environ: dict[str, str]) -> None:
    """An unknown digest is an error that names it."""
    with pytest.raises(InputError, match=re.escape("no log with the digest b2:00 is kept")):
        open_journal(environ).open_log("b2:00")
