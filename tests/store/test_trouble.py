"""A journal in trouble: killed processes, full disks, locks, damage. Real processes and real file systems."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from fitserve.errors import EXIT_OK, MachineError
from fitserve.report.record import Record
from fitserve.store.journal import NullJournal, open_journal, open_journal_to_read

MakeRecord = Callable[..., Record]
PROGRAMS = Path(__file__).parent / "programs"
SAVE_SOME = str(PROGRAMS / "save_some.py")


def run_program(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python with arguments, its journal in the folder."""
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "FITSERVE_DATA_DIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def in_tmpfs(script: str, folder: Path, size: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script with a small file system mounted on the folder; only the script sees it."""
    folder.mkdir()
    mount = f'mount -t tmpfs -o size={size} tmpfs "{folder}"'
    unshare = shutil.which("unshare")
    command = [unshare or "unshare", "-rm", "sh", "-ec"]
    if unshare is None or subprocess.run([*command, mount], capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here (unshare -rm, mount)")
    return subprocess.run(
        [*command, f"{mount}\n{script}"],
        env={
            **os.environ,
            "FITSERVE_DATA_DIR": str(folder),
            "PYTHON": sys.executable,
            "SAVE_SOME": SAVE_SOME,
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(("kills", "mode"), [(200, "same"), (60, "fresh")])
def test_a_killed_process_leaves_a_journal(tmp_path: Path, kills: int, mode: str) -> None:
    """After SIGKILL at any moment, each save that had returned is there, whole, and the journal works."""
    done = run_program(
        str(PROGRAMS / "kill_savers.py"), str(tmp_path), str(kills), "7", mode, folder=tmp_path
    )
    seen = json.loads(done.stdout)

    assert [] == seen["faults"]
    assert kills == seen["kills"]
    assert seen["with_saves"] >= kills // 2


def test_processes_save_at_once(tmp_path: Path) -> None:
    """Processes that make the journal and save in it at the same time lose nothing and say nothing."""
    programs = [
        subprocess.Popen(
            [sys.executable, SAVE_SOME, name, "10", "3", "1000"],
            env={**os.environ, "FITSERVE_DATA_DIR": str(tmp_path / "data")},
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )
        for name in ("aaaaaa", "bbbbbb", "cccccc", "dddddd")
    ]
    said = [program.communicate()[1] for program in programs]
    runs = open_journal({"FITSERVE_DATA_DIR": str(tmp_path / "data")}).latest(100)
    with closing(sqlite3.connect(tmp_path / "data/journal.db")) as connection:
        logs = connection.execute("SELECT count(*) FROM logs").fetchall()

    assert [b"", b"", b"", b""] == said
    assert [3] * 40 == [run.trials for run in runs]
    assert [(1,)] == logs


def test_a_file_that_cannot_grow_does_not_stop_a_run(tmp_path: Path) -> None:
    """Where the journal cannot grow, the run ends as it would, with one line; what was saved before is there."""
    done = run_program(SAVE_SOME, "aaaaaa", "3", "5", "100000", "150000", folder=tmp_path)
    runs = open_journal({"FITSERVE_DATA_DIR": str(tmp_path)}).latest(100)

    assert EXIT_OK == done.returncode
    assert {"done": True, "kind": "SqlJournal"} == json.loads(done.stdout)
    assert 1 == len(done.stderr.splitlines())
    assert done.stderr.startswith("warning: this run could not be saved: the journal cannot be used: ")
    assert runs[-1].run == "20260101-000000-aaaaaa"
    assert runs[-1].trials >= 1


def test_a_full_disk_does_not_stop_a_run(tmp_path: Path) -> None:
    """On a file system without room the run ends as it would, with one line; what was saved before is there."""
    done = in_tmpfs(
        '"$PYTHON" "$SAVE_SOME" aaaaaa 3 5 100000\n'
        '"$PYTHON" -c "from fitserve.store.journal import open_journal as o; print(o().latest(9)[-1].trials)"',
        tmp_path / "small",
        "500k",
    )
    outcome, first_run_trials = done.stdout.splitlines()

    assert {"done": True, "kind": "SqlJournal"} == json.loads(outcome)
    assert done.stderr.startswith(
        "warning: this run could not be saved: the journal cannot be used: the disk is full"
    )
    assert 1 == len(done.stderr.splitlines())
    assert int(first_run_trials) >= 1


def test_a_disk_that_is_full_from_the_start_turns_saving_off(tmp_path: Path) -> None:
    """Where not even an empty journal has room, nothing is saved, one line says so, and the run goes on."""
    done = in_tmpfs(
        'dd if=/dev/zero of="$FITSERVE_DATA_DIR/fill" bs=1k count=60 2>/dev/null; "$PYTHON" "$SAVE_SOME" aaaaaa 2 2 10',
        tmp_path / "small",
        "64k",
    )

    assert {"done": True, "kind": "NullJournal"} == json.loads(done.stdout)
    assert done.stderr.startswith("warning: this run is not saved: the journal cannot be used: ")
    assert 1 == len(done.stderr.splitlines())


def test_a_read_only_folder_is_read_and_not_written(tmp_path: Path) -> None:
    """A journal on a read-only file system can be read; a run there is not saved, with one line."""
    reading = "from fitserve.store.journal import open_journal_to_read as o; print(o().load('last').run)"
    done = in_tmpfs(
        '"$PYTHON" "$SAVE_SOME" aaaaaa 1 1 10\n'
        'mount -o remount,ro "$FITSERVE_DATA_DIR"\n'
        f'"$PYTHON" -c "{reading}"\n'
        '"$PYTHON" "$SAVE_SOME" bbbbbb 1 1 10',
        tmp_path / "small",
        "1m",
    )
    _, read, second = done.stdout.splitlines()

    assert "20260101-000000-aaaaaa" == read
    assert {"done": True, "kind": "NullJournal"} == json.loads(second)
    assert 1 == len(done.stderr.splitlines())


def test_what_a_killed_process_left_is_read_on_a_read_only_folder(tmp_path: Path) -> None:
    """A save that waits in the write-ahead log is read too, where its index cannot be made."""
    killed = (
        "import os, sqlite3; from fitserve.store.journal import open_journal; from fitserve.report.record import Record;"
        "journal = open_journal(); new = lambda run: journal.save("
        "Record(run=run, kind='fix', started_utc='', fitserve_version='', command=['vllm']));"
        "new('a'); other = sqlite3.connect(os.environ['FITSERVE_DATA_DIR'] + '/journal.db');"
        "other.execute('SELECT run FROM runs').fetchall(); new('b'); os.kill(os.getpid(), 9)"
    )
    reading = "from fitserve.store.journal import open_journal_to_read as o; print([run.run for run in o().latest(9)])"
    done = in_tmpfs(
        f'"$PYTHON" -c "{killed}" || true\n'
        'test -s "$FITSERVE_DATA_DIR/journal.db-wal"\n'
        'rm "$FITSERVE_DATA_DIR/journal.db-shm"\n'
        'mount -o remount,ro "$FITSERVE_DATA_DIR"\n'
        f'"$PYTHON" -c "{reading}"',
        tmp_path / "small",
        "2m",
    )

    assert "['b', 'a']\n" == done.stdout, done.stderr


def test_a_place_that_is_no_folder_turns_saving_off(make_record: MakeRecord, tmp_path: Path) -> None:
    """Below a file there can be no journal: saving is off, one line says why, and reading says it too."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    environ = {"FITSERVE_DATA_DIR": str(tmp_path / "file" / "data")}
    said: list[str] = []
    journal = open_journal(environ, say=said.append)
    journal.save(make_record())

    assert isinstance(journal, NullJournal)
    assert journal.keep_log(tmp_path / "file") is None
    line = "warning: this run is not saved: the journal cannot be used: not a directory"
    assert [f"{line} ({tmp_path / 'file' / 'data' / 'journal.db'})"] == said
    for read in (journal.latest, open_journal(environ, say=said.append).latest):
        with pytest.raises(MachineError, match="not a directory"):
            read(1)
    with pytest.raises(MachineError, match="not a directory"):
        open_journal_to_read(environ)


def test_a_save_that_finds_the_journal_locked_is_said_once(
    environ: dict[str, str], make_record: MakeRecord, tmp_path: Path
) -> None:
    """While another process holds the journal a save is left out, with one line; the next one heals it."""
    said: list[str] = []
    journal = open_journal(environ, busy_seconds=0.01, say=said.append)
    with closing(sqlite3.connect(tmp_path / "data/journal.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        journal.save(make_record(trials=1))
        journal.save(make_record(trials=2))
        with pytest.raises(MachineError, match="locked by another process"):
            journal.delete("last")
    journal.save(make_record(trials=3))

    line = "warning: this run could not be saved: the journal is locked by another process"
    assert [f"{line} ({tmp_path / 'data/journal.db'}); the run goes on"] == said
    assert make_record(trials=3) == journal.load("last")


def test_a_journal_that_is_locked_for_all_cannot_be_opened(environ: dict[str, str], tmp_path: Path) -> None:
    """A journal that another process holds for itself alone is an error of the machine."""
    open_journal(environ)
    with closing(sqlite3.connect(tmp_path / "data/journal.db", isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode=EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(MachineError) as error:
            open_journal(environ, busy_seconds=0.01)

    assert "the journal is locked by another process" == error.value.what
    assert str(tmp_path / "data/journal.db") == error.value.where


@pytest.mark.parametrize(
    "content", [b"this is no database" * 100, b"SQLite format 3\x00" + b"\xff" * 5000, b"\x00" * 4096]
)
def test_a_file_that_is_no_database_is_refused(
    environ: dict[str, str], tmp_path: Path, content: bytes
) -> None:
    """Another file in the journal's place is named, and left as it is."""
    path = tmp_path / "data/journal.db"
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(MachineError) as error:
        open_journal(environ)

    assert error.value.what.startswith("the journal is damaged: ")
    assert "move the file away; a new journal is made then" == error.value.hint
    assert content == path.read_bytes()


def test_a_torn_journal_is_said_and_does_not_stop_a_run(
    environ: dict[str, str], make_record: MakeRecord, tmp_path: Path
) -> None:
    """Where the file's later pages are gone, reading says so, and saving is one line."""
    said: list[str] = []
    journal = open_journal(environ, say=said.append)
    for number in range(50):
        journal.save(make_record(f"20260101-{number:06d}-aaaaaa", trials=20))
    path = tmp_path / "data/journal.db"
    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + b"\xaa" * (len(whole) - 8192))
    journal.save(make_record())

    assert 1 == len(said)
    assert "the journal is damaged" in said[0]
    with pytest.raises(MachineError, match="the journal is damaged"):
        journal.latest(100)


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    """A SQLite file with tables of another program is not written to."""
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE customers (name TEXT)")
    before = path.read_bytes()
    with pytest.raises(MachineError) as error:
        open_journal({"FITSERVE_DB": f"sqlite:///{path}"})

    assert "the file is another program's database: it holds the table customers" == error.value.what
    assert before == path.read_bytes()


def test_a_server_without_its_driver_is_a_word_on_the_driver() -> None:
    """A URL whose driver is not installed says what to install, and hides the password."""
    with pytest.raises(MachineError) as error:
        open_journal({"FITSERVE_DB": "oracle+oracledb://me:secret@nowhere/x"})

    assert "the package oracledb is not installed, and FITSERVE_DB needs it" == error.value.what
    assert "oracle+oracledb://me:***@nowhere/x" == error.value.where


def test_an_unknown_kind_of_server_is_refused() -> None:
    """A URL of a kind that nobody knows is an error with the word in it."""
    with pytest.raises(MachineError) as error:
        open_journal({"FITSERVE_DB": "nosuch://me:secret@nowhere/x"})

    assert "nosuch" in error.value.what
    assert "secret" not in str(error.value)
