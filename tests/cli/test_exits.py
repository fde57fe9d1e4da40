"""How the tool ends where an answer cannot be given or written."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = [sys.executable, "-m", "fitserve"]


def test_an_answer_that_cannot_be_written_is_no_defect() -> None:
    """A full device behind standard output is told in one line, with the code of an unusable place."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*TOOL, "explain", "disk-full"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )

    assert 3 == done.returncode
    assert (
        "error: the answer cannot be written: No space left on device\n  --> standard output\n" == done.stderr
    )


def test_an_error_is_json_where_json_was_asked_for() -> None:
    """With ``--json`` standard output holds one object for an error too, with its exit code."""
    done = subprocess.run(
        [*TOOL, "diagnose", "--json", "no-such.log"], capture_output=True, text=True, check=False
    )
    answer = json.loads(done.stdout)

    assert (3, 3) == (done.returncode, answer["exit_code"])
    assert ("error", "no-such.log") == (answer["kind"], answer["where"])


def test_the_json_of_a_launched_command_is_its_own() -> None:
    """A ``--json`` behind ``--`` belongs to the launched program."""
    done = subprocess.run(
        [*TOOL, "fix", "--", "no-vllm", "--json"], capture_output=True, text=True, check=False
    )

    assert (2, "") == (done.returncode, done.stdout)


def test_a_letter_that_the_terminal_lacks_is_no_defect() -> None:
    """A terminal of another encoding gets an answer with escapes; JSON is UTF-8 everywhere."""
    environ = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    command = [*TOOL, "fix", "--dry-run", "--", "vllm", "serve", "モデル"]
    text = subprocess.run(command, capture_output=True, env=environ, check=False)
    as_json = subprocess.run(
        [*command[:4], "--json", *command[4:]], capture_output=True, env=environ, check=False
    )

    assert (0, b"") == (text.returncode, text.stderr)
    assert rb"vllm serve '\u30e2\u30c7\u30eb'" in text.stdout
    assert "vllm serve 'モデル'" == json.loads(as_json.stdout.decode())["command"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--deadline nan", "nan is no finite number"),
        ("--silence inf", "inf is no finite number"),
        ("--budget-minutes nan", "nan is no finite number"),
        ("--wait nan", "nan is no finite number"),
        ("--dry-run --emit yaml", "--dry-run starts nothing"),
        ("--dry-run --resume last", "--resume goes on with an old one"),
        ("--dry-run --vllm-version latest", "'latest' is no version"),
        ("--vllm-version 0.32.0", "--vllm-version is for --dry-run"),
        ("--grow-starts 2", "--grow-starts needs --grow"),
    ],
)
def test_options_that_could_do_nothing_are_refused_before_a_start(options: str, words: str) -> None:
    """What has no meaning is a usage error, and nothing is started."""
    done = subprocess.run(
        [*TOOL, "fix", *options.split(), "--", "vllm", "serve", "m"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (2, "") == (done.returncode, done.stdout)
    assert words in done.stderr
    assert "trial 1" not in done.stderr


def test_a_command_that_no_journal_can_hold_is_refused() -> None:
    """Bytes that are no UTF-8 have no place in JSON."""
    done = subprocess.run(
        [*TOOL, "fix", "--", "vllm", "serve", b"/models/\xff"], capture_output=True, text=True, check=False
    )

    assert 2 == done.returncode
    assert done.stderr.startswith("error: a word of the command is no UTF-8\n  --> '/models/\\udcff'\n")


@pytest.mark.parametrize(
    "words", [["report"], ["verify"], ["runs", "--delete"], ["explain"], ["plan"], ["env"]]
)
def test_an_argument_that_is_no_text_is_no_defect(words: list[str], tmp_path: Path) -> None:
    """Bytes that are no UTF-8 are the user's mistake, with a sentence."""
    env = {**os.environ, "FITSERVE_DATA_DIR": str(tmp_path)}
    done = subprocess.run([*TOOL, *words, b"\xff"], capture_output=True, check=False, env=env)

    assert done.returncode in (2, 3)
    assert done.stderr.startswith(b"error: ")


@pytest.mark.parametrize(
    "command",
    [
        "env --timeout inf",
        "env --timeout nan",
        "env --timeout 1e300",
        "plan m --gpu-total-gib nan",
        "plan m --gpu-total-gib 24 --gpu-free-gib nan",
    ],
)
def test_a_number_without_an_end_is_a_usage_error(command: str) -> None:
    """Nothing waits for ever, and no device has no size."""
    done = subprocess.run([*TOOL, *command.split()], capture_output=True, check=False)

    assert (2, b"") == (done.returncode, done.stdout)
    assert b"Invalid value" in done.stderr
