"""However the tool is ended, nothing it started is left, and the journal tells the truth."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PHASES = {
    "before the first line": ({"FAKE_VLLM": "mute"}, "trial 1: config"),
    "while it starts": ({"FAKE_VLLM": "silent"}, "trial 1: weights"),
    "while it is checked": ({"FAKE_VLLM": "slow", "FAKE_KV_TOKENS": "8192"}, "checking http"),
    "while it is being ended": ({"FAKE_VLLM": "stubborn silent"}, "trial 1: weights"),
}


def launch(port: int) -> list[str]:
    """A launch that serves where there is room for 8,192 tokens."""
    return ["vllm", "serve", "org/model", "--port", str(port), "--max-model-len", "8192"]


def read_until(process: subprocess.Popen[str], words: str) -> None:
    """Read the tool's progress up to some words."""
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if words in line:
            return
    raise AssertionError("".join(seen))


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name
)
@pytest.mark.parametrize("phase", ["before the first line", "while it starts", "while it is checked"])
def test_an_interrupt_stops_everything(
    phase: str, number: signal.Signals, tool: Any, port: int, mark: Any
) -> None:
    """In every phase: exit code 130, no process left, the record closed as stopped with its trial in it."""
    env, words = PHASES[phase]
    process = tool.start("fix", "--json", "--", *launch(port), **env)
    read_until(process, words)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)

    assert (130, []) == (process.returncode, mark.processes()), err
    assert "stopped" == json.loads(out)["outcome"]
    record = tool.record()
    assert ("stopped", 1, None) == (record["outcome"], len(record["trials"]), record["final_command"])


def test_a_second_interrupt_ends_the_grace(tool: Any, port: int, mark: Any) -> None:
    """A server that ignores the first one is killed at the second, and the record is closed all the same."""
    env, words = PHASES["while it is being ended"]
    process = tool.start("fix", "--json", "--", *launch(port), **env)
    read_until(process, words)
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)

    assert (130, [], "stopped") == (process.returncode, mark.processes(), tool.record()["outcome"])


@pytest.mark.parametrize("phase", ["before the first line", "while it starts", "while it is checked"])
def test_a_killed_tool_leaves_nothing(phase: str, tool: Any, port: int, mark: Any) -> None:
    """After SIGKILL no process is left five seconds later, and the journal has the run as unfinished."""
    env, words = PHASES[phase]
    process = tool.start("fix", "--", *launch(port), **env)
    read_until(process, words)
    process.kill()
    process.communicate()

    assert [] == mark.left_after(5)
    assert tool.record()["outcome"] is None


def test_a_killed_group_leaves_nothing(tool: Any, port: int, mark: Any) -> None:
    """The same where the whole group of the tool is killed at once."""
    process = tool.start("fix", "--", *launch(port), FAKE_VLLM="silent")
    read_until(process, "trial 1: weights")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()

    assert [] == mark.left_after(5)


def test_it_goes_on_serving_where_it_is_told_to(tool: Any, port: int, mark: Any) -> None:
    """With --serve the answer comes when the proof is done, the server stays, and signals are its own."""
    process = tool.start("fix", "--serve", "--json", "--", *launch(port), FAKE_KV_TOKENS="8192")
    assert process.stdout is not None
    answer = json.loads(process.stdout.readline())
    verified = tool.run("verify", f"http://127.0.0.1:{port}", "--json", "--no-save")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)

    assert ("served", True) == (answer["outcome"], bool(json.loads(verified.stdout)["checks"]))
    assert (143, [], "served") == (process.returncode, mark.processes(), tool.record()["outcome"])


@contextmanager
def full_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system with hardly any room."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False).returncode:
        pytest.skip("only root can make a full disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_one_clear_line(tool: Any, port: int, tmp_path: Path, mark: Any) -> None:
    """The log ends where the disk does; the trial goes on to its proof, and the reason is said once."""
    with full_disk(tmp_path / "disk", "64k") as disk:
        options = ["fix", "--log-dir", str(disk), "--", *launch(port)]
        done = tool.run(*options, FAKE_KV_TOKENS="8192", FAKE_VLLM="floods")
    said = [line for line in done.stderr.splitlines() if "No space left" in line]

    assert (0, 1, []) == (done.returncode, len(said), mark.processes()), done.stderr


def test_a_cause_behind_the_end_of_the_disk_is_found(tool: Any, port: int, tmp_path: Path) -> None:
    """What did not get into the log was understood when it was written."""
    with full_disk(tmp_path / "disk", "64k") as disk:
        code, answer = tool.fix(
            "--max-trials", "1", "--log-dir", str(disk), launch=launch(port), FAKE_VLLM="floods"
        )

    assert (1, "kv-cache-smaller-than-context") == (code, answer["trials"][0]["cause"])


def test_a_full_disk_for_everything(tool: Any, port: int, tmp_path: Path, mark: Any) -> None:
    """With no room for the journal either, the proof is made, and nothing half-written is in the journal."""
    with full_disk(tmp_path / "disk", "256k") as disk:
        data = {"FITSERVE_DATA_DIR": str(disk / "data")}
        options = ["fix", "--log-dir", str(disk), "--", *launch(port)]
        done = tool.run(*options, FAKE_KV_TOKENS="8192", FAKE_VLLM="floods", **data)
        listed = tool.run("runs", "--json", **data)

    assert (0, []) == (done.returncode, mark.processes()), done.stderr
    assert "Traceback" not in done.stderr
    assert listed.returncode in (0, 4)
