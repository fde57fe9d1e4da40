"""A failing launch is fixed by one change at a time, proven, and told about as it was."""

import contextlib
import json
import os
import re
import socket
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest


def launch(port: int, *options: str) -> list[str]:
    """A launch whose context needs more room than there is by default."""
    return ["vllm", "serve", "org/model", "--port", str(port), "--max-model-len", "8192", *options]


def changes(answer: dict[str, Any]) -> list[tuple[str, Any] | None]:
    """The change of each trial."""
    found = [trial["change"] for trial in answer["trials"]]
    return [None if change is None else (change["flag"], change["to"]) for change in found]


def test_a_launch_that_serves_is_proven_unchanged(tool: Any, port: int, mark: Any) -> None:
    """One start, no change, every check passed, nothing left behind."""
    code, answer = tool.fix(launch=launch(port), FAKE_KV_TOKENS="8192")

    assert (0, "served", [None]) == (code, answer["outcome"], changes(answer))
    assert f"vllm serve org/model --port {port} --max-model-len 8192" == answer["command"]
    assert all(check["passed"] is not False for check in answer["verification"]["checks"])
    assert [] == mark.processes()


def test_a_pinned_cache_that_is_too_small_is_fixed_by_one_change(tool: Any, port: int, mark: Any) -> None:
    """Two starts: the refusal, then the same command with one flag changed in place."""
    code, answer = tool.fix(launch=launch(port, "--kv-cache-memory-bytes=64M"))
    first, second = answer["trials"]

    assert (0, "served") == (code, answer["outcome"])
    assert ("failed", "kv-cache-pinned-too-small", 1) == (
        first["outcome"],
        first["cause"],
        first["exit_code"],
    )
    assert ("served", None, "kv_cache_memory_bytes") == (
        second["outcome"],
        second["cause"],
        second["change"]["flag"],
    )
    assert answer["command"] == second["command"] != first["command"]
    assert [] == mark.processes()


def test_every_trial_differs_from_the_one_before_in_one_option(tool: Any, port: int) -> None:
    """Each command is the one before it with one option set, and the last one serves."""
    code, answer = tool.fix(launch=launch(port))
    commands = [trial["command"].split() for trial in answer["trials"]]

    assert 0 == code
    for before, after in pairwise(commands):
        assert 2 >= len(set(after) - set(before))
        assert len(after) in (len(before), len(before) + 2)


def test_the_goal_is_never_left(tool: Any, port: int, mark: Any) -> None:
    """Where only a shorter context would start, a goal above it is not reached, and the best is named."""
    code, answer = tool.fix("--goal-context", "8K", launch=launch(port))

    assert (1, "not-reached", None) == (code, answer["outcome"], answer["command"])
    assert re.search(r"max_model_len 40\d\d: it is below the goal of 8,192", answer["reason"])
    assert all(trial["command"].split()[6] == "8192" for trial in answer["trials"])
    assert [] == mark.processes()


def test_a_goal_that_cannot_be_proven_is_not_called_proven(tool: Any, port: int) -> None:
    """It serves, and no check fails; but the goal's requests ended before they took what they were to take."""
    code, answer = tool.fix(
        "--goal-context", "8K", launch=launch(port), FAKE_KV_TOKENS="8192", FAKE_VLLM="ends-early"
    )

    assert (1, "served") == (code, answer["outcome"])
    assert answer["reason"].startswith("no check failed; the goal is not proven: ")
    assert ": served, the goal not proven\n" in tool.run("report", "last").stdout


def test_trials_are_bounded(tool: Any, port: int) -> None:
    """With the starts used up, the reason tells what would have come next."""
    code, answer = tool.fix("--max-trials", "1", launch=launch(port))

    assert (1, 1) == (code, len(answer["trials"]))
    assert "the 1 trials are used up; next would be" in answer["reason"]


def test_time_is_bounded(tool: Any, port: int) -> None:
    """When the budget is used up, no further start is made."""
    code, answer = tool.fix("--budget-minutes", "0.1", launch=launch(port), FAKE_VLLM="silent")

    assert (1, ["timed-out"]) == (code, [trial["outcome"] for trial in answer["trials"]])


def test_a_start_that_says_nothing_is_ended(tool: Any, port: int, mark: Any) -> None:
    """Silence for longer than allowed is an outcome of its own."""
    code, answer = tool.fix("--silence", "1", launch=launch(port), FAKE_VLLM="silent")
    (trial,) = answer["trials"]

    assert (1, "silent", "interrupted") == (code, trial["outcome"], trial["cause"])
    assert "in the stage weights, and was stopped" in trial["message"]
    assert [] == mark.processes()


def test_a_start_that_takes_too_long_is_ended(tool: Any, port: int, mark: Any) -> None:
    """So is a start that is not done in time, though it never said a word."""
    code, answer = tool.fix("--start-timeout", "1", launch=launch(port), FAKE_VLLM="mute")

    assert (1, ["timed-out"]) == (code, [trial["outcome"] for trial in answer["trials"]])
    assert [] == mark.processes()


def test_a_program_that_dies_without_a_word_is_told_about(tool: Any, port: int) -> None:
    """Its exit code is known, and nothing is made up about a log that is empty."""
    code, answer = tool.fix(launch=launch(port), FAKE_VLLM="dies-at-once")
    (trial,) = answer["trials"]

    assert (1, 3, "unrecognised-error") == (code, trial["exit_code"], trial["cause"])
    assert (
        "the program ended with exit code 3 in the stage config, and its log names no cause"
        == trial["message"]
    )


def test_an_experiment_tells_what_fails_and_is_not_kept(tool: Any, port: int, mark: Any) -> None:
    """Without graphs it serves: that is shown once, and the fix is smaller graphs."""
    code, answer = tool.fix(launch=launch(port), FAKE_VLLM="dies-capturing", FAKE_KV_TOKENS="8192")
    failed, experiment, fixed = answer["trials"]

    assert (0, "graph_capture", []) == (code, failed["stage"], mark.processes())
    assert ("enforce_eager", "isolation", "served") == (
        experiment["change"]["flag"],
        experiment["change"]["purpose"],
        experiment["outcome"],
    )
    assert ("max_cudagraph_capture_size", "fix") == (fixed["change"]["flag"], fixed["change"]["purpose"])
    assert "--enforce-eager" not in answer["command"]


def test_a_program_that_is_killed_is_told_about(tool: Any, port: int) -> None:
    """The signal that ended it is known, and what it usually means."""
    code, answer = tool.fix(launch=launch(port), FAKE_VLLM="killed")
    (trial,) = answer["trials"]

    assert (1, 9, None, "host-memory-exhausted") == (
        code,
        trial["signal"],
        trial["exit_code"],
        trial["cause"],
    )


def test_a_flood_of_output_changes_nothing(tool: Any, port: int) -> None:
    """A start that writes nine megabytes is understood like any other."""
    code, answer = tool.fix(launch=launch(port, "--kv-cache-memory-bytes=64M"), FAKE_VLLM="floods")

    assert (0, ["kv-cache-pinned-too-small", None]) == (code, [trial["cause"] for trial in answer["trials"]])


def test_a_wrong_name_is_a_cause(tool: Any, port: int) -> None:
    """When clients will send a name that is not served, the served name is what is changed."""
    code, answer = tool.fix("--model", "assistant", launch=launch(port), FAKE_KV_TOKENS="8192")

    assert (0, [None, ("served_model_name", "assistant")]) == (code, changes(answer))
    assert "model-name-unknown" == answer["trials"][0]["cause"]


def test_what_the_goal_rules_out_is_never_started(tool: Any, port: int) -> None:
    """A command that allows less than the goal has it from the first start on, as that trial's one change."""
    short = ["vllm", "serve", "org/model", "--port", str(port), "--max-model-len", "2k"]
    code, answer = tool.fix("--goal-context", "4000", launch=short)

    assert (0, [("max_model_len", 4000)]) == (code, changes(answer))


def test_a_context_below_the_goal_is_a_cause(tool: Any, port: int) -> None:
    """A server that starts with less than the goal is started again with it."""
    short = ["env", "FAKE_MAX_MODEL_LEN=2000", "vllm", "serve", "org/model", "--port", str(port)]
    code, answer = tool.fix("--goal-context", "4000", launch=short)

    assert (0, [None, ("max_model_len", 4000)]) == (code, changes(answer))
    assert "request-too-long" == answer["trials"][0]["cause"]


def test_a_served_launch_that_fails_its_checks_is_not_called_fixed(tool: Any, port: int) -> None:
    """Readiness is no proof: a server that refuses requests is not served."""
    code, answer = tool.fix(
        launch=launch(port),
        FAKE_KV_TOKENS="8192",
        FAKE_VLLM="refuses-requests",
    )

    assert (1, "not-reached", "unrecognised-error") == (code, answer["outcome"], answer["trials"][0]["cause"])
    assert answer["command"] is None


def test_the_key_of_the_command_reaches_the_checks(tool: Any, port: int, tmp_path: Path) -> None:
    """A server with a key is proven with it, and the journal does not have it."""
    code, answer = tool.fix(launch=launch(port, "--api-key", "sk-secret"), FAKE_KV_TOKENS="8192")
    journal = b"".join(path.read_bytes() for path in (tmp_path / "data").iterdir())

    assert 0 == code
    assert "--api-key sk-secret" in answer["command"]
    assert b"sk-secret" not in journal


def test_a_taken_port_that_was_given_is_the_users(tool: Any, mark: Any) -> None:
    """Exit code 4, the holder's name, no start, and the holder is left alone."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        done = tool.run("fix", "--", *launch(server.getsockname()[1]))

    assert 4 == done.returncode
    assert f"is taken by process {os.getpid()}" in done.stderr
    assert [] == mark.processes()


def test_another_port_is_used_where_none_was_given(tool: Any) -> None:
    """The default port being taken is said, and the proven command has the port that was used."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # somebody else may have it: so much the better
            server.bind(("127.0.0.1", 8000))
            server.listen()
        done = tool.run("fix", "--json", "--", "vllm", "serve", "org/model")
    answer = json.loads(done.stdout)

    assert (0, True) == (done.returncode, "port 8000 is taken: using --port 80" in done.stderr)
    assert answer["command"].startswith("vllm serve org/model --port 80")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["no-such-vllm", "serve"], 2, "starts no vLLM server"),
        (["/no/such/vllm", "serve", "org/model"], 4, "there is no program /no/such/vllm"),
        (["python", "train.py"], 2, "starts no vLLM server"),
        (["docker", "run", "--name", "x", "-p", "1:8000", "vllm/vllm-openai", "--model", "m"], 2, "--rm"),
        (["docker", "run", "vllm/vllm-openai", "--model", "m"], 2, "publish its port"),
        ([], 2, "Missing argument"),
    ],
)
def test_what_cannot_be_started(words: list[str], code: int, said: str, tool: Any) -> None:
    """Usage errors end with 2, a missing program with 4; no traceback."""
    done = tool.run("fix", "--", *words)

    assert (code, "") == (done.returncode, done.stdout)
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_the_answer_alone_is_on_stdout(tool: Any, port: int) -> None:
    """Progress goes to stderr line by line; the text ends with the command alone on its line."""
    done = tool.run("fix", "--", *launch(port, "--kv-cache-memory-bytes=64M"))
    lines = done.stdout.rstrip().splitlines()

    assert 0 == done.returncode
    assert lines[-1].startswith("    vllm serve org/model")
    assert "trial 1: failed: kv-cache-pinned-too-small" in done.stderr
    assert "change: kv_cache_memory_bytes from 67108864 to" in done.stderr


def test_quiet_is_quiet(tool: Any, port: int) -> None:
    """With --quiet nothing is on stderr."""
    done = tool.run("fix", "--quiet", "--", *launch(port), FAKE_KV_TOKENS="8192")

    assert (0, "") == (done.returncode, done.stderr)


def test_a_dry_run_starts_nothing(tool: Any, port: int, mark: Any, tmp_path: Path) -> None:
    """It says what would be started, and nothing is there afterwards."""
    done = tool.run("fix", "--dry-run", "--", *launch(port))

    assert (0, "") == (done.returncode, done.stderr)
    assert f"    vllm serve org/model --port {port} --max-model-len 8192" in done.stdout
    assert ([], False) == (mark.processes(), (tmp_path / "data").exists())


def test_the_journal_has_the_run_and_its_logs(tool: Any, port: int) -> None:
    """What was answered is what was kept, and each trial's log with it."""
    _, answer = tool.fix(launch=launch(port, "--kv-cache-memory-bytes=64M"))
    record = tool.record()
    log = tool.run("report", "last", "--log", "1")

    assert (answer["run"], "served", 2) == (record["run"], record["outcome"], len(record["trials"]))
    assert "To serve at least one request" in log.stdout


def test_a_journal_that_cannot_be_kept_is_one_line(tool: Any, port: int, tmp_path: Path) -> None:
    """The run goes on without it."""
    (tmp_path / "data").write_text("no folder")
    done = tool.run("fix", "--", *launch(port), FAKE_KV_TOKENS="8192")
    warnings = [line for line in done.stderr.splitlines() if line.startswith("warning")]

    assert (0, 1) == (done.returncode, len(warnings))


@pytest.mark.parametrize("number", ["0", "70000", "-1"])
def test_a_number_that_is_no_port_is_a_mistake(tool: Any, number: str) -> None:
    """It is said before anything is started, without a traceback."""
    done = tool.run("fix", "--", "vllm", "serve", "org/model", f"--port={number}")

    assert (2, True) == (done.returncode, "give one from 1 to 65535" in done.stderr)
