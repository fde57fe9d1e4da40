"""``fitserve runs`` and ``fitserve report`` on a journal of their own, as a user starts them."""

import json
import os
import re
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


def test_runs_are_pruned(journal_folder: Path) -> None:
    """All but the newest are forgotten; by age none is, on the day that they were saved."""
    by_age = fitserve(journal_folder, "runs", "--prune", "--older-than", "1d", "--json")
    by_count = fitserve(journal_folder, "runs", "--prune", "--keep", "1", "--json")

    assert 3 == len(json.loads(by_age.stdout)["runs"])
    assert "forgotten: 0 runs\n" == by_age.stderr
    assert [NEWEST] == [run["run"] for run in json.loads(by_count.stdout)["runs"]]
    assert "forgotten: 2 runs\n" == by_count.stderr


@pytest.mark.parametrize("place", ["file", "-"])
def test_runs_are_exported(journal_folder: Path, place: str) -> None:
    """Every record is a line that reads back as it is kept, oldest first."""
    path = journal_folder / "all.jsonl"
    done = fitserve(journal_folder, "runs", "--export", str(path) if place == "file" else "-")
    lines = (path.read_text(encoding="utf-8") if place == "file" else done.stdout).splitlines()

    assert [SERVED, "20261201-160000-000001", NEWEST] == [record_from_json(line).run for line in lines]
    assert record_of(journal_folder, SERVED) == record_from_json(lines[0])
    assert done.stderr.startswith("exported: 3 runs; nothing in it is hidden")


@pytest.mark.parametrize("form", ["text", "json", "md", "html"])
@pytest.mark.parametrize("to_file", [True, False])
def test_what_leaves_is_redacted(journal_folder: Path, form: str, *, to_file: bool) -> None:
    """In every format, on stdout and in a file, the key is hidden and a line says what was; --no-redact keeps it, --quiet says less."""
    path = journal_folder / "out"
    place = ["-o", str(path)] if to_file else []
    done = fitserve(journal_folder, "report", SERVED, "--format", form, *place)
    text = path.read_text(encoding="utf-8") if to_file else done.stdout
    kept = fitserve(journal_folder, "report", SERVED, "--format", form, "--private")
    quiet = fitserve(journal_folder, "report", SERVED, "--format", form, "--quiet")

    assert "sk-very-secret" not in text
    assert re.fullmatch(r"redacted: [23] secret \(\d+x\); --no-redact keeps them\n", done.stderr)
    assert form == "md" or "sk-very-secret" in kept.stdout
    assert ("", "") == (kept.stderr, quiet.stderr)


def test_a_model_is_hidden_where_that_is_asked(journal_folder: Path) -> None:
    """The name of a model stays, unless --hide-models is given; what was hidden is said."""
    shown = fitserve(journal_folder, "report", SERVED, "--format", "html")
    hidden = fitserve(journal_folder, "report", SERVED, "--format", "html", "--hide-models")

    assert "org/model-8b" in shown.stdout
    assert "model-8b" not in hidden.stdout
    assert "1 model" in hidden.stderr


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
        (["runs", "--prune"], 2, "error: --prune goes with one of --keep N and --older-than AGE"),
        (["runs", "--keep", "3"], 2, "error: --prune goes with one of"),
        (["runs", "--prune", "--keep", "3", "--older-than", "1d"], 2, "error: --prune goes with one of"),
        (["runs", "--prune", "--older-than", "soon"], 2, "error: 'soon' is no age"),
        (["runs", "--prune", "--older-than", "999999w"], 2, "error: 999999w ago is before all time"),
        (["runs", "--export", "/none/x.jsonl"], 3, "error: the runs cannot be written: No such file"),
        (
            ["report", SERVED, "--format", "html", "-o", "/none/x.html"],
            3,
            "error: the answer cannot be written",
        ),
        (
            ["report", SERVED, "--bundle", "/none/x.zip"],
            3,
            "error: the bundle cannot be written: No such file",
        ),
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
