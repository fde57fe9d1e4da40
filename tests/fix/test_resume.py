"""A run that was killed goes on where it was: what is over is not repeated, what was left running is ended first."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from fitserve.fix.options import Options, options_to_json
from fitserve.fix.resume import end_leftovers
from fitserve.report.record import Record
from fitserve.store.journal import open_journal
from fitserve.trial.identity import boot, identify
from fitserve.trial.outcome import Pending, ProcessId
from fitserve.trial.progress import Quiet

KILLED = "the tool was killed while this trial ran; it was done again"


def launch(port: int, *options: str) -> list[str]:
    """A launch that fails as it is, and serves with one change."""
    return [*plain(port), "--kv-cache-memory-bytes=64M", *options]


def plain(port: int) -> list[str]:
    """A launch that leaves the cache to the engine."""
    return ["vllm", "serve", "org/model", "--port", str(port), "--max-model-len", "8192"]


DIES_CAPTURING = {"FAKE_VLLM": "dies-capturing", "FAKE_KV_TOKENS": "8192"}
"""It serves with smaller graphs, which an experiment without any tells."""


def start_until(tool: Any, words: str, *arguments: str, **env: str) -> subprocess.Popen[str]:
    """Start the tool and read its progress up to some words."""
    process: subprocess.Popen[str] = tool.start(*arguments, **env)
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if words in line:
            return process
    raise AssertionError("".join(seen))


def kill(process: subprocess.Popen[str]) -> None:
    """SIGKILL to the tool."""
    process.kill()
    process.communicate()


def story(record: dict[str, Any]) -> list[tuple[str, str | None, str | None]]:
    """The trials that were not broken off."""
    return [
        (trial["outcome"], trial["cause"], trial["change"] and trial["change"]["flag"])
        for trial in record["trials"]
        if trial["outcome"] != "stopped"
    ]


WHOLE_STORY = [
    ("failed", "kv-cache-pinned-too-small", None),
    ("served", None, "kv_cache_memory_bytes"),
]


def test_a_killed_run_goes_on(tool: Any, port: int, mark: Any) -> None:
    """The failed trial is not repeated, the broken one is marked and made again, and the proof is made."""
    process = start_until(tool, "checking http", "fix", "--", *launch(port), FAKE_VLLM="slow")
    before = tool.record()
    kill(process)
    done = tool.run("fix", "--resume", "last")
    record = tool.record()

    assert 0 == done.returncode, done.stderr
    assert (before["run"], "served") == (record["run"], record["outcome"])
    assert WHOLE_STORY == story(record)
    assert ["failed", "stopped", "served"] == [trial["outcome"] for trial in record["trials"]]
    assert [1, 2, 3] == [trial["n"] for trial in record["trials"]]
    assert [KILLED] == record["trials"][1]["notes"]
    assert record["trials"][1]["argv"] == record["trials"][2]["argv"]
    assert before["trials"][0] == {**record["trials"][0], "log_path": before["trials"][0]["log_path"]}
    assert record["seconds"] > before["seconds"]
    assert (None, []) == (record["pending"], mark.processes())


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_kills_at_any_moment_change_nothing(seed: int, tool: Any, port: int, mark: Any) -> None:
    """However often it is killed, wherever it was: the trials that are over are those of a run that was left alone."""
    draw = random.Random(seed)
    arguments = ["fix", "--", *launch(port)]
    for _ in range(4):
        process = tool.start(*arguments)
        time.sleep(draw.uniform(0.3, 3.5))
        kill(process)
        process.wait()
        assert [] == mark.left_after(10)
        if open_journal(tool.env).latest(1):
            arguments = ["fix", "--resume", "last", "--max-trials", "20"]
    last = tool.run(*arguments)
    record = tool.record()

    assert last.returncode in (0, 2), last.stderr  # a run that ended before the last kill is over
    assert ("served", WHOLE_STORY, []) == (record["outcome"], story(record), mark.processes())
    assert list(range(1, len(record["trials"]) + 1)) == [trial["n"] for trial in record["trials"]]


def cut_after(tool: Any, trials: int) -> Record:
    """Leave the newest run as a kill right after one of its trials was saved would; the whole one is given back."""
    journal = open_journal(tool.env)
    whole = journal.load("last")
    later = {trial.change.flag for trial in whole.trials[trials:] if trial.change}
    tried = [each for each in whole.tried if each[0] not in later]
    cut = {
        "outcome": None,
        "reason": "",
        "final_command": None,
        "trials": whole.trials[:trials],
        "tried": tried,
    }
    journal.save(msgspec.structs.replace(whole, **cut))
    return whole


def test_a_run_that_was_killed_after_its_proof_has_served(tool: Any, port: int) -> None:
    """The proof is in the journal; only the word that the run is over was not: nothing is started again."""
    tool.fix(launch=launch(port))
    whole = cut_after(tool, 2)
    done = tool.run("fix", "--resume", "last")
    record = open_journal(tool.env).load("last")

    assert 0 == done.returncode, done.stderr
    assert "trial 3" not in done.stderr
    assert (whole.outcome, whole.reason, whole.final_command) == (
        record.outcome,
        record.reason,
        record.final_command,
    )
    assert whole.trials == record.trials


def test_a_run_that_was_killed_after_its_proof_is_started_to_stay(tool: Any, port: int) -> None:
    """With ``--serve`` the proven command is started as it is, and stays until it is told to end."""
    tool.fix(launch=launch(port))
    whole = cut_after(tool, 2)
    process = start_until(tool, "checking http", "fix", "--resume", "last", "--serve")
    answer = process.stdout.readline()  # the answer comes when it serves
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    record = open_journal(tool.env).load("last")

    assert answer
    assert ("served", whole.final_command) == (record.outcome, record.final_command)
    assert record.trials[2].argv == record.trials[1].argv


def test_an_experiment_is_not_made_twice(tool: Any, port: int) -> None:
    """What an experiment has told is told again from the journal; the next start is the fix."""
    tool.fix(launch=plain(port), **DIES_CAPTURING)
    whole = cut_after(tool, 2)
    done = tool.run("fix", "--resume", "last", **DIES_CAPTURING)
    record = open_journal(tool.env).load("last")

    assert 0 == done.returncode, done.stderr
    assert ["isolation", "fix"] == [trial.change.purpose for trial in record.trials if trial.change]
    assert [trial.change for trial in whole.trials] == [trial.change for trial in record.trials]


def test_an_experiment_that_was_broken_off_is_made_again(tool: Any, port: int) -> None:
    """It has told nothing yet."""
    tool.fix(launch=plain(port), **DIES_CAPTURING)
    whole = cut_after(tool, 2)
    broken = msgspec.structs.replace(whole.trials[1], outcome="stopped")
    record = open_journal(tool.env).load("last")
    open_journal(tool.env).save(msgspec.structs.replace(record, trials=[whole.trials[0], broken]))
    done = tool.run("fix", "--resume", "last", **DIES_CAPTURING)
    record = open_journal(tool.env).load("last")

    assert 0 == done.returncode, done.stderr
    assert ["failed", "stopped", "served", "served"] == [trial.outcome for trial in record.trials]
    assert [trial.change for trial in whole.trials[1:]] == [trial.change for trial in record.trials[2:]]


def test_an_interrupted_run_goes_on(tool: Any, port: int) -> None:
    """TERM, as at a shutdown, leaves a run that can go on too."""
    process = start_until(tool, "checking http", "fix", "--", *launch(port), FAKE_VLLM="slow")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    done = tool.run("fix", "--resume", "last")

    assert (0, WHOLE_STORY) == (done.returncode, story(tool.record())), done.stderr


def test_what_a_killed_tool_and_its_reaper_left_is_ended(tool: Any, port: int, mark: Any) -> None:
    """With the processes above the trial killed as well, its workers live on; they are ended, and named."""
    process = start_until(tool, "trial 1: weights", "fix", "--", *launch(port), FAKE_VLLM="silent")
    while len(tool.record()["pending"]["processes"]) < 3:
        time.sleep(0.1)
    below = psutil.Process(process.pid).children(recursive=True)
    keepers = [child for child in below if any("reaper.py" in word for word in child.cmdline())]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for victim in [*reversed(keepers), psutil.Process(process.pid)]:
            victim.send_signal(number)
    process.communicate()
    left = mark.processes()
    done = tool.run("fix", "--resume", "last")

    assert left
    assert 0 == done.returncode, done.stderr
    assert any(f"{pid} (" in done.stderr for pid in left)  # some may have ended by themselves meanwhile
    assert [] == mark.processes()


def test_a_process_with_a_recorded_number_but_another_start_is_left_alone() -> None:
    """A number that was given out again is somebody else's."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as other:
        found = identify(other.pid)
        assert found is not None
        pending = Pending(n=1, argv=[], boot=boot(), processes=[ProcessId(other.pid, found.started - 1)])
        end_leftovers("20260101-000000-aaaaaa", pending, Quiet())

        assert None is other.poll()
        end_leftovers("20260101-000000-aaaaaa", msgspec.structs.replace(pending, processes=[found]), Quiet())
        assert -signal.SIGTERM == other.wait(20)


def test_a_container_that_was_left_is_ended(tmp_path: Path) -> None:
    """The container whose id was written down is killed through its engine."""
    engine = tmp_path / "docker"
    engine.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\n')
    engine.chmod(0o755)
    (tmp_path / "trial-1.cid").write_text("0123456789abcdef")
    pending = Pending(n=1, argv=[], boot=boot(), container=[str(engine), str(tmp_path / "trial-1.cid")])
    end_leftovers("20260101-000000-aaaaaa", pending, Quiet())

    assert "kill 0123456789abcdef\n" == (tmp_path / "asked").read_text()
    assert not (tmp_path / "trial-1.cid").exists()


def test_a_run_that_still_goes_on_is_refused(tool: Any, port: int) -> None:
    """Exit code 4, with the process that runs it."""
    process = start_until(tool, "trial 1: weights", "fix", "--", *launch(port), FAKE_VLLM="silent")
    done = tool.run("fix", "--resume", "last")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)

    assert 4 == done.returncode
    assert f"is still going on, in process {process.pid} (" in done.stderr


def test_a_finished_run_is_refused_with_its_outcome(tool: Any, port: int) -> None:
    """Nothing is started again."""
    tool.fix(launch=launch(port))
    done = tool.run("fix", "--resume", "last")

    assert 2 == done.returncode
    assert "has ended: served and proven: every check passed" in done.stderr


def test_there_is_nothing_to_go_on_with(tool: Any) -> None:
    """Exit code 3 for a run that is not there."""
    done = tool.run("fix", "--resume", "last")

    assert (3, True) == (done.returncode, "no run has been saved yet" in done.stderr)


def test_a_key_is_asked_for_again(tool: Any, port: int, tmp_path: Path) -> None:
    """The journal keeps no key: the command is given again, and the broken trial has the key in its place."""
    command = launch(port, "--api-key", "sk-secret-key")
    kill(start_until(tool, "checking http", "fix", "--", *command, FAKE_VLLM="slow"))
    without = tool.run("fix", "--resume", "last")
    other = tool.run("fix", "--resume", "last", "--", *command[:-1])
    done = tool.run("fix", "--json", "--resume", "last", "--", *command)
    journal = b"".join(path.read_bytes() for path in (tmp_path / "data").iterdir())

    assert (2, True) == (without.returncode, "holds a key, which the journal does not keep" in without.stderr)
    assert (2, True) == (other.returncode, "of another command" in other.stderr)
    assert 0 == done.returncode, done.stderr
    assert "--api-key sk-secret-key" in msgspec.json.decode(done.stdout)["command"]
    assert b"sk-secret-key" not in journal


def save_unfinished(tool: Any, port: int, **others: Any) -> None:
    """A run in the journal that was killed before its first trial."""
    record = Record(
        run="20260101-000000-aaaaaa",
        kind="fix",
        started_utc="2026-01-01T00:00:00+00:00",
        fitserve_version="0.1.0",
        command=launch(port),
    )
    open_journal(tool.env).save(msgspec.structs.replace(record, **others))


def test_the_time_used_counts(tool: Any, port: int) -> None:
    """A run that has used an hour has none of its half hour left; with more of it, it goes on."""
    options = options_to_json(Options(budget_seconds=1800))
    save_unfinished(tool, port, seconds=3600.0, options=options)
    first = tool.run("fix", "--json", "--resume", "20260101")
    save_unfinished(tool, port, seconds=3600.0, options=options)
    second = tool.run("fix", "--resume", "20260101", "--budget-minutes", "90")

    assert (1, 0) == (first.returncode, second.returncode), second.stderr
    assert "the time is used up" in msgspec.json.decode(first.stdout)["reason"]


def test_the_options_are_kept_and_overridden(tool: Any, port: int) -> None:
    """The trials allowed are those of the first call, unless others are given."""
    options = options_to_json(Options(max_trials=1))
    save_unfinished(tool, port, options=options)
    first = tool.run("fix", "--resume", "last")
    save_unfinished(tool, port, options=options)
    second = tool.run("fix", "--resume", "last", "--max-trials", "2")

    assert (1, 0) == (first.returncode, second.returncode), second.stderr


def test_logs_of_a_finished_run_are_in_the_journal_alone(tool: Any, port: int, tmp_path: Path) -> None:
    """The folder of logs below the temporary folder goes when the journal has them all; --log-dir keeps them."""
    tool.fix(launch=launch(port))
    left = [path.name for path in tmp_path.iterdir() if path.name.startswith("fitserve-")]
    tool.fix("--log-dir", str(tmp_path / "logs"), launch=launch(port))

    assert [] == left
    assert ["trial-1.log", "trial-2.log"] == sorted(path.name for path in (tmp_path / "logs").iterdir())
    assert "To serve at least one request" in tool.run("report", "last", "--log", "1").stdout
