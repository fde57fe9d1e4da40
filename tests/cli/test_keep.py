"""``verify`` and ``diagnose`` are kept in the journal, and what keeps them from it changes no answer."""

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fitserve.diagnose.engine import diagnose_path
from fitserve.report.record import Record, record_from_json

FAKE_SERVER = Path(__file__).parents[1] / "verify" / "fake_server.py"
LOG = Path(__file__).parent / "logs" / "kv_cache.log"


def fitserve(folder: Path, *arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run the tool with its journal in the folder."""
    return subprocess.run(
        [sys.executable, "-c", "from fitserve.cli import main; main()", *arguments],
        env={**os.environ, "FITSERVE_DATA_DIR": str(folder)},
        input=given,
        capture_output=True,
        check=False,
        timeout=120,
    )


def last(folder: Path) -> Record:
    """The newest run as it is kept."""
    return record_from_json(fitserve(folder, "report", "last", "--format", "json", "--no-redact").stdout)


@pytest.fixture(scope="module")
def fake_url() -> Iterator[str]:
    """The address of a running fake server."""
    with subprocess.Popen([sys.executable, FAKE_SERVER], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        server.kill()


@pytest.mark.parametrize(
    ("mode", "code", "words"), [("good", 0, "proven"), ("over-accepted", 1, "a check failed")]
)
def test_a_verification_is_kept(tmp_path: Path, fake_url: str, mode: str, code: int, words: str) -> None:
    """Its checks, the machine, how long it took, and the command that asked: as text, as JSON, and in the list."""
    done = fitserve(tmp_path, "verify", f"{fake_url}/{mode}", "--quick", "--json", "--deadline", "5")
    record = last(tmp_path)
    text = fitserve(tmp_path, "report", "last").stdout.decode()
    [listed] = json.loads(fitserve(tmp_path, "runs", "--json").stdout)["runs"]

    assert code == done.returncode
    assert ("verify", "checked", []) == (record.kind, record.outcome, record.trials)
    assert record.verification is not None
    assert json.loads(done.stdout)["checks"][0]["name"] == record.verification.checks[0].name
    assert {"platform", "machine"} <= record.environment.keys()
    assert record.seconds > 0
    assert ["fitserve", "verify"] == record.command[:2]
    assert f": {words}\n" in text.splitlines(keepends=True)[0]
    assert ("verify", "checked", code == 0) == (listed["made_by"], listed["outcome"], listed["verified"])


def test_a_verification_is_not_kept_where_that_is_not_wanted(tmp_path: Path, fake_url: str) -> None:
    """With --no-save no journal is made."""
    fitserve(tmp_path / "home", "verify", f"{fake_url}/good", "--quick", "--no-save")

    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("how", ["file", "stdin", "gzip"])
def test_a_diagnosis_is_kept_with_its_log(tmp_path: Path, how: str) -> None:
    """The log is kept as it reads, however it came, and the report has the diagnosis; the answer is the same."""
    path = tmp_path / "x.log.gz"
    path.write_bytes(gzip.compress(LOG.read_bytes()))
    name = {"file": str(LOG), "stdin": "-", "gzip": str(path)}[how]
    given = LOG.read_bytes() if how == "stdin" else b""
    plain = fitserve(tmp_path, "diagnose", name, "--no-save", given=given)
    saved = fitserve(tmp_path, "diagnose", name, "--save", given=given)
    record = last(tmp_path)
    log = fitserve(tmp_path, "report", "last", "--log", "1", "--no-redact")
    text = fitserve(tmp_path, "report", "last").stdout.decode()

    assert (plain.returncode, plain.stdout) == (saved.returncode, saved.stdout)
    assert f"saved: fitserve report {record.run}\n".encode() == saved.stderr
    assert LOG.read_bytes() == log.stdout
    assert diagnose_path(LOG) == record.trials[0].diagnosis
    assert f"run {record.run}: {record.trials[0].cause}\n" in text
    assert "trial 1: the start that the log shows\n  outcome  failed\n" in text


PROGRAM = (
    "import sys\nfrom fitserve.cli.exits import run_guarded\nfrom fitserve.cli import root\n"
    "run_guarded(root)\nassert 'sqlalchemy' not in sys.modules"
)


@pytest.mark.parametrize(("words", "left"), [([], 2), (["--no-save"], 0)])
def test_a_diagnosis_opens_no_journal(tmp_path: Path, words: list[str], left: int) -> None:
    """It is left beside the journal with its log, unless that is not wanted; the database's library is not even imported."""
    home = tmp_path / "home"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "diagnose", str(LOG), *words],
        env={**os.environ, "FITSERVE_DATA_DIR": str(home)},
        capture_output=True,
        check=False,
    )

    assert (0, b"") == (done.returncode, done.stderr)
    assert left == len(list((home / "inbox").glob("*")))


@pytest.mark.parametrize("how", ["file", "stdin", "gzip"])
def test_what_was_left_is_taken_in(tmp_path: Path, how: str) -> None:
    """Whoever opens the journal next finds the diagnosis, and the log of a file; nothing stays beside it."""
    path = tmp_path / "x.log.gz"
    path.write_bytes(gzip.compress(LOG.read_bytes()))
    name = {"file": str(LOG), "stdin": "-", "gzip": str(path)}[how]
    fitserve(tmp_path, "diagnose", name, given=LOG.read_bytes() if how == "stdin" else b"")
    record = last(tmp_path)

    assert ("diagnose", "diagnosed") == (record.kind, record.outcome)
    assert diagnose_path(LOG) == record.trials[0].diagnosis
    assert (how != "stdin") == bool(record.logs)
    assert [] == list((tmp_path / "inbox").iterdir())
    if record.logs:
        assert LOG.read_bytes() == fitserve(tmp_path, "report", "last", "--log", "1", "--no-redact").stdout


def test_what_cannot_be_left_is_one_line(tmp_path: Path) -> None:
    """Where nothing can be written the answer stays, and one line says so."""
    home = tmp_path / "home"
    home.write_text("")
    done = fitserve(home, "diagnose", str(LOG))

    assert (1, True) == (done.returncode, bool(done.stdout))
    assert done.stderr.startswith(b"warning: this run is not saved: ")
    assert 1 == done.stderr.count(b"\n")


def test_what_cannot_be_read_stays_where_it_was_left(tmp_path: Path) -> None:
    """A damaged record is no reason not to open the journal, and is not thrown away."""
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox" / "x.json").write_text("{")
    done = fitserve(tmp_path, "runs")

    assert 0 == done.returncode
    assert (tmp_path / "inbox" / "x.json").exists()


def _damaged(folder: Path) -> None:
    folder.mkdir()
    (folder / "journal.db").write_bytes(b"no database " * 999)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.write_text(""), b"warning: this run is not saved: the journal cannot be used: "),
        (_damaged, b"warning: this run is not saved: the journal is damaged"),
    ],
)
def test_what_cannot_be_kept_is_one_line(tmp_path: Path, make: object, words: bytes) -> None:
    """Where there can be no journal, or it is damaged, the answer and its exit code stay, and one line says so."""
    home = tmp_path / "home"
    assert callable(make)
    make(home)
    plain = fitserve(tmp_path / "other", "diagnose", str(LOG), "--no-save")
    done = fitserve(home, "diagnose", str(LOG), "--save")

    assert (plain.returncode, plain.stdout) == (done.returncode, done.stdout)
    assert done.stderr.startswith(words)
    assert 1 == done.stderr.count(b"\n")


def test_a_wrong_address_of_a_journal_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where FITSERVE_DB is no database, the answer and its exit code stay."""
    monkeypatch.setenv("FITSERVE_DB", "no url")
    done = fitserve(tmp_path, "diagnose", str(LOG), "--save")

    assert (1, True) == (done.returncode, bool(done.stdout))
    assert b"warning: this run is not saved: FITSERVE_DB is no database URL\n" == done.stderr


def test_one_whole_log_is_kept(tmp_path: Path) -> None:
    """A folder of logs, and a log that is still growing, are not kept; that is a mistake with a word."""
    for arguments in ([str(LOG.parent)], ["--follow", str(LOG)], [str(LOG), str(LOG)]):
        done = fitserve(tmp_path, "diagnose", "--save", *arguments)
        assert (2, b"") == (done.returncode, done.stdout)
        assert done.stderr.startswith(b"error: --save keeps one whole log")
