"""``fitserve runs`` and ``fitserve report`` on a journal of their own, as a user starts them."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from fitserve.report.record import Record, record_from_json
from fitserve.report.record_text import render_record
from fitserve.store.journal import open_journal

RECORDS = sorted((Path(__file__).parents[1] / "report/records").glob("*/record.json"))
NEWEST = "20261201-170000-000002"
SERVED = "20261201-152233-7f3a9c"


def fitserve(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the tool with its journal in the folder."""
    return subprocess.run(
        [sys.executable, "-c", "from fitserve.cli import main; main()", *arguments],
        env={**os.environ, "FITSERVE_DATA_DIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def journal_folder(tmp_path: Path) -> Path:
    """A journal with a run of each outcome; the log of the first trial of one is kept."""
    journal = open_journal({"FITSERVE_DATA_DIR": str(tmp_path)})
    log = tmp_path / "trial.log"
    log.write_bytes(b"INFO one line\r\n\xff")
    digest = str(journal.keep_log(log))
    for path in RECORDS:
        record = record_from_json(path.read_bytes())
        if record.run == SERVED:
            record = msgspec.structs.replace(record, logs={1: digest})
        journal.save(record)
    return tmp_path


def record_of(folder: Path, run: str) -> Record:
    """What the journal holds."""
    return open_journal({"FITSERVE_DATA_DIR": str(folder)}).load(run)


def test_runs_lists_newest_first(journal_folder: Path) -> None:
    """The table has a line for each run: unfinished, not reached, served and verified."""
    done = fitserve(journal_folder, "runs")

    assert (0, "") == (done.returncode, done.stderr)
    assert [
        "RUN                     KIND  WHEN (UTC)        TRIALS  OUTCOME      VERIFIED  COMMAND",
        "20261201-170000-000002  run   2026-12-01 17:00  0       unfinished   -         vllm serve m",
        "20261201-160000-000001  fix   2026-12-01 16:00  3       not-reached  no        api_server --model 'some folder/model' --enforce-eager",
        "20261201-152233-7f3a9c  fix   2026-12-01 15:22  2       served       yes       vllm serve org/model-8b --max-model-len 131072 --api-ke…",
    ] == done.stdout.splitlines()


def test_runs_has_json(journal_folder: Path) -> None:
    """The JSON is one object, and ``--limit`` bounds it."""
    done = fitserve(journal_folder, "runs", "--json", "--limit", "1")
    answer = json.loads(done.stdout)
    saved = answer["runs"][0].pop("saved_utc")

    assert saved.endswith("+00:00")
    assert {
        "schema": 1,
        "kind": "runs",
        "runs": [
            {
                "run": NEWEST,
                "made_by": "run",
                "started_utc": "2026-12-01T17:00:00+00:00",
                "command": "vllm serve m",
                "trials": 0,
                "outcome": None,
                "verified": None,
            }
        ],
    } == answer


def test_runs_of_a_new_user(tmp_path: Path) -> None:
    """Where nothing was tried the list says how to begin, and that is no failure."""
    done = fitserve(tmp_path / "new", "runs")

    assert (0, "") == (done.returncode, done.stderr)
    assert "no run has been saved yet; start one with: fitserve fix -- vllm serve MODEL\n" == done.stdout


def test_runs_deletes(journal_folder: Path) -> None:
    """A deleted run is gone from the list and from the reports."""
    done = fitserve(journal_folder, "runs", "--delete", "20261201-17", "--json")
    after = fitserve(journal_folder, "report", NEWEST)

    assert [SERVED, "20261201-160000-000001"] == sorted(run["run"] for run in json.loads(done.stdout)["runs"])
    assert 3 == after.returncode


def test_report_tells_the_story(journal_folder: Path) -> None:
    """The text of a run is asked for by its beginning, and of the newest by ``last``."""
    one = fitserve(journal_folder, "report", "20261201-15", "--no-redact")
    last = fitserve(journal_folder, "report", "last")

    assert render_record(record_of(journal_folder, SERVED)) == one.stdout
    assert render_record(record_of(journal_folder, NEWEST)) == last.stdout


@pytest.mark.parametrize("how", [["--format", "json"], ["--json"]])
def test_report_json_is_the_record(journal_folder: Path, how: list[str]) -> None:
    """The JSON of a report holds the whole record, and can be read back into one."""
    done = fitserve(journal_folder, "report", SERVED, "--no-redact", *how)

    assert "record" == json.loads(done.stdout)["kind"]
    assert record_of(journal_folder, SERVED) == record_from_json(done.stdout)


def test_report_writes_markdown_to_a_file(journal_folder: Path) -> None:
    """Markdown goes where ``-o`` says, and not to stdout."""
    path = journal_folder / "issue.md"
    done = fitserve(journal_folder, "report", SERVED, "--format", "md", "-o", str(path))

    assert "" == done.stdout
    assert path.read_text(encoding="utf-8").startswith("### fitserve fix: served and proven\n")


def test_report_gives_back_a_log(journal_folder: Path) -> None:
    """A trial's log comes out byte for byte."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from fitserve.cli import main; main()",
            "report",
            SERVED,
            "--log",
            "1",
        ],
        env={**os.environ, "FITSERVE_DATA_DIR": str(journal_folder)},
        capture_output=True,
        check=True,
    )

    assert b"INFO one line\r\n\xff" == done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["report", "2026"], 3, "error: several runs begin with 2026: "),
        (["report", "nothing"], 3, "error: no run begins with 'nothing'"),
        (["report", SERVED, "--log", "2"], 3, "error: the log of trial 2 was not kept"),
        (["report", SERVED, "--log", "1", "--json"], 2, "error: --log writes the log as text"),
        (["report"], 2, "Usage: "),
        (["runs", "--limit", "0"], 2, "Usage: "),
        (["runs", "--delete", "nothing"], 3, "error: no run begins with 'nothing'"),
    ],
)
def test_a_users_mistake_has_a_word_and_a_code(
    journal_folder: Path, arguments: list[str], code: int, words: str
) -> None:
    """What was asked wrongly ends with its exit code and one error, without a traceback."""
    done = fitserve(journal_folder, *arguments)

    assert code == done.returncode
    assert ("--json" in arguments) == bool(done.stdout)
    assert done.stderr.startswith(words)
    assert "Traceback" not in done.stderr


def test_a_newer_journal_ends_with_the_machines_code(journal_folder: Path) -> None:
    """A journal of a later version ends with 4 and names both schemas."""
    with closing(sqlite3.connect(journal_folder / "journal.db")) as connection, connection:
        connection.execute("UPDATE journal_schema SET version_num = '0099'")
    done = fitserve(journal_folder, "runs")

    assert 4 == done.returncode
    assert done.stderr.startswith("error: the journal has schema 99, and this fitserve knows up to ")
    assert done.stderr.endswith("help: upgrade fitserve\n")


def test_a_journal_that_cannot_be_made_ends_with_the_machines_code(tmp_path: Path) -> None:
    """Where no journal can be, listing ends with 4 and names the folder to set."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    done = fitserve(tmp_path / "file" / "data", "runs")

    assert (4, "") == (done.returncode, done.stdout)
    assert done.stderr.startswith("error: the journal cannot be used: not a directory\n")
    assert "FITSERVE_DATA_DIR" in done.stderr


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("vllm serve m", "vllm serve m"),
        ("env A=1 /opt/venv/bin/vllm serve m --port 1", "vllm serve m --port 1"),
        ("python3 -m vllm.entrypoints.openai.api_server --model m", "api_server --model m"),
        (
            "docker run -p 1:8000 vllm/vllm-openai --model m",
            "docker run -p 1:8000 vllm/vllm-openai --model m",
        ),
        ("vllm serve " + "x" * 99, "vllm serve " + "x" * 44 + "…"),
        ("vllm serve", "vllm serve"),
        ("my-vllm serve m", "my-vllm serve m"),
    ],
)
def test_a_command_is_shown_from_its_program_on(command: str, shown: str) -> None:
    """What tells runs apart is behind wrappers and folders."""
    from fitserve.cli.runs import _short

    assert shown == _short(command)
