"""The journal keeps runs and logs, and gives them back."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fitserve.errors import InputError, MachineError, UsageError
from fitserve.report.record import Record
from fitserve.store.journal import NullJournal, open_journal
from fitserve.store.run_id import new_run_id
from fitserve.verify.verification import Verification

MakeRecord = Callable[..., Record]


def test_a_run_is_listed_while_it_lasts_and_after(
    environ: dict[str, str], make_record: MakeRecord, passed: Verification
) -> None:
    """A run is one line from its first save on; the last save is what stands."""
    journal = open_journal(environ)
    journal.save(make_record(trials=0))
    [first] = journal.latest(10)
    journal.save(make_record(trials=2, outcome="served", verification=passed))
    [last] = journal.latest(10)

    assert (0, None, None) == (first.trials, first.outcome, first.verified)
    assert (2, "served", True) == (last.trials, last.outcome, last.verified)
    assert "vllm serve 'some model'" == last.command


def test_the_newest_run_is_first(environ: dict[str, str], make_record: MakeRecord) -> None:
    """Runs are listed newest first, and no more than asked for."""
    journal = open_journal(environ)
    for name in ("20260102-000000-aaaaaa", "20260103-000000-aaaaaa", "20260101-000000-aaaaaa"):
        journal.save(make_record(name))

    assert ["20260103-000000-aaaaaa", "20260102-000000-aaaaaa"] == [run.run for run in journal.latest(2)]


def test_the_beginning_of_an_id_is_enough(environ: dict[str, str], make_record: MakeRecord) -> None:
    """A run is found by its id, by a beginning that no other has, and as the last."""
    journal = open_journal(environ)
    for name in ("20260101-000000-aaaaaa", "20260102-000000-bbbbbb", "20260102-000000-bbbbbb-2"):
        journal.save(make_record(name))

    assert "20260101-000000-aaaaaa" == journal.load("20260101").run
    assert "20260102-000000-bbbbbb" == journal.load("20260102-000000-bbbbbb").run
    assert "20260102-000000-bbbbbb-2" == journal.load("last").run


@pytest.mark.parametrize(
    ("asked", "what"),
    [
        ("2026", "several runs begin with 2026: 20260101-000000-aaaaaa, 20260102-000000-aaaaaa"),
        ("2027", "no run begins with '2027'"),
        ("", "no run begins with ''"),
        ("%", "no run begins with '%'"),
    ],
)
def test_an_id_that_is_not_one_run_is_refused(
    environ: dict[str, str], make_record: MakeRecord, asked: str, what: str
) -> None:
    """An ambiguous or unknown beginning is an error that says so."""
    journal = open_journal(environ)
    journal.save(make_record("20260101-000000-aaaaaa"))
    journal.save(make_record("20260102-000000-aaaaaa"))

    with pytest.raises(InputError) as error:
        journal.load(asked)

    assert what == error.value.what


def test_there_is_no_last_run_at_first(environ: dict[str, str]) -> None:
    """An empty journal has no last run, and says so."""
    with pytest.raises(InputError) as error:
        open_journal(environ).load("last")

    assert "no run has been saved yet" == error.value.what


def test_a_log_is_kept_once(environ: dict[str, str], make_record: MakeRecord, tmp_path: Path) -> None:
    """The same text under two names is one log, and comes back byte for byte."""
    text = b"INFO a line\n\x00\xff" * 100_000
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_bytes(text)
    journal = open_journal(environ)
    digests = {journal.keep_log(tmp_path / name) for name in ("a.log", "b.log")}
    [digest] = digests

    assert digest is not None
    assert text == journal.read_log(digest)
    assert len(text) // 10 > (tmp_path / "data/journal.db").stat().st_size


def test_a_deleted_run_takes_its_own_logs_along(
    environ: dict[str, str], make_record: MakeRecord, tmp_path: Path
) -> None:
    """Deleting a run forgets its logs, save those that another run has too."""
    (tmp_path / "own.log").write_text("own", encoding="utf-8")
    (tmp_path / "both.log").write_text("both", encoding="utf-8")
    journal = open_journal(environ)
    own, both = journal.keep_log(tmp_path / "own.log"), journal.keep_log(tmp_path / "both.log")
    journal.save(make_record("20260101-000000-aaaaaa", trials=2, logs={1: own, 2: both}))
    journal.save(make_record("20260102-000000-bbbbbb", trials=1, logs={1: both}))
    journal.delete("20260101")

    assert ["20260102-000000-bbbbbb"] == [run.run for run in journal.latest(10)]
    assert b"both" == journal.read_log(str(both))
    with pytest.raises(InputError, match="no log with the digest"):
        journal.read_log(str(own))


def test_a_log_that_is_gone_does_not_stop_a_run(environ: dict[str, str], tmp_path: Path) -> None:
    """A missing log is one line, and no digest."""
    said: list[str] = []
    journal = open_journal(environ, say=said.append)
    digests = [journal.keep_log(tmp_path / "none.log") for _ in range(2)]

    assert [None, None] == digests
    assert [
        f"warning: a log could not be kept: No such file or directory ({tmp_path / 'none.log'}); the run goes on"
    ] == said


def test_the_journal_is_its_owners(environ: dict[str, str], make_record: MakeRecord, tmp_path: Path) -> None:
    """Nobody else may read the folder or the file: they hold commands and logs."""
    open_journal(environ).save(make_record())

    assert 0o700 == (tmp_path / "data").stat().st_mode & 0o777
    assert 0o600 == (tmp_path / "data/journal.db").stat().st_mode & 0o777


def test_a_database_is_named_by_url(make_record: MakeRecord, tmp_path: Path) -> None:
    """A URL names the file, with characters in it that mean something in URLs elsewhere."""
    path = tmp_path / "a b#c" / "runs.db"
    journal = open_journal({"FITSERVE_DB": f"sqlite:///{path}", "FITSERVE_DATA_DIR": "/dev/null"})
    journal.save(make_record())

    assert path.exists()
    assert make_record() == journal.load("last")


@pytest.mark.parametrize("folder", ["a?b", "a%41", "a b", "ü"])
def test_a_folder_may_have_any_name(make_record: MakeRecord, tmp_path: Path, folder: str) -> None:
    """The folder is taken as it is written."""
    open_journal({"FITSERVE_DATA_DIR": str(tmp_path / folder)}).save(make_record())

    assert (tmp_path / folder / "journal.db").exists()


@pytest.mark.parametrize("url", ["nonsense", "sqlite://", "sqlite:///:memory:"])
def test_a_url_that_keeps_nothing_is_refused(url: str) -> None:
    """What is no database, or one that lives in memory, is a wrong setting."""
    with pytest.raises(UsageError) as error:
        open_journal({"FITSERVE_DB": url})

    assert "FITSERVE_DB" in error.value.what


def test_run_ids_sort_by_time_and_differ() -> None:
    """Ids made in a row are in order up to the second; of a thousand, two at most fall together."""
    names = [new_run_id() for _ in range(1000)]

    assert sorted(name[:15] for name in names) == [name[:15] for name in names]
    assert len(set(names)) >= 999


def test_runs_are_found_by_words_of_their_command(environ: dict[str, str], make_record: MakeRecord) -> None:
    """Newest first, with the words taken as they are, and none where nothing can be read."""
    journal = open_journal(environ)
    for number, command in enumerate((["vllm", "serve", "a_b"], ["vllm", "serve", "axb"], ["x", "a_b", "y"])):
        journal.save(make_record(f"2026010{number + 1}-000000-aaaaaa", command=command))

    assert ["20260103-000000-aaaaaa", "20260101-000000-aaaaaa"] == [run.run for run in journal.naming("a_b")]
    assert [] == journal.naming("%")
    assert [] == NullJournal(MachineError("no place")).naming("a_b")
