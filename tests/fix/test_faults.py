"""What goes wrong around a run: each is told as what it is, and nothing is left behind."""

import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from fitserve.fix.loop import fix
from fitserve.fix.options import Options
from fitserve.store.journal import open_journal
from fitserve.trial.capture import KEPT_HEAD_BYTES, KEPT_TAIL_BYTES
from fitserve.trial.progress import Quiet


def launch(port: int | None, *options: str) -> list[str]:
    """A launch that fails as it is, and serves with one change."""
    where = [] if port is None else ["--port", str(port)]
    return ["vllm", "serve", "org/model", *where, "--max-model-len", "8192", *options]


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


def below(process: subprocess.Popen[str], word: str) -> list[psutil.Process]:
    """The processes below the tool whose command has the word."""
    found = psutil.Process(process.pid).children(recursive=True)
    return [child for child in found if any(word in part for part in child.cmdline())]


def test_a_server_that_is_killed_is_told_about(tool: Any, port: int, mark: Any) -> None:
    """The server is killed from outside: the trial failed by SIGKILL, and nothing is left."""
    process = start_until(tool, "trial 1: weights", "fix", "--json", "--", *launch(port), FAKE_VLLM="silent")
    for found in below(process, "fake_vllm.py"):
        found.send_signal(signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    (trial,) = msgspec.json.decode(out)["trials"]

    assert (1, []) == (process.returncode, mark.processes()), err
    assert ("failed", 9, "host-memory-exhausted") == (trial["outcome"], trial["signal"], trial["cause"])


def test_a_worker_that_is_killed_is_told_about(tool: Any, port: int, mark: Any) -> None:
    """What vLLM says of a worker that has died is the cause."""
    code, answer = tool.fix("--max-trials", "1", launch=launch(port), FAKE_VLLM="worker-killed")
    (trial,) = answer["trials"]

    assert (1, "failed", []) == (code, trial["outcome"], mark.processes())
    assert trial["cause"] not in (None, "healthy")


def test_a_flood_is_cut_and_said(tool: Any, port: int, tmp_path: Path) -> None:
    """A server that writes 300 MiB as fast as it can: the log keeps its two ends, the tool stays small, the cause is found."""
    options = ["fix", "--json", "--max-trials", "1", "--log-dir", str(tmp_path / "logs")]
    process = tool.start(*options, "--", *launch(port), FAKE_VLLM="floods-on", stderr=subprocess.DEVNULL)
    most = 0
    while process.poll() is None:
        try:
            most = max(most, psutil.Process(process.pid).memory_info().rss)
            process.wait(0.1)
        except (subprocess.TimeoutExpired, psutil.Error):
            continue
    out, _ = process.communicate()
    (trial,) = tool.record()["trials"]
    size = (tmp_path / "logs" / "trial-1.log").stat().st_size

    assert (1, "kv-cache-smaller-than-context") == (process.returncode, trial["cause"]), out
    assert size <= KEPT_HEAD_BYTES + KEPT_TAIL_BYTES + 100
    assert most < 512 << 20
    assert any(note.endswith("bytes from the middle of its log were not kept") for note in trial["notes"])


def test_files_that_cannot_grow_do_not_stop_a_run(tool: Any, port: int, mark: Any) -> None:
    """With a limit on the size of every file, the proof is made all the same, and each lack is one line."""
    options = ["fix", "--json", "--", *launch(port)]

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))

    done = subprocess.run(
        [sys.executable, "-c", "from fitserve.cli import main; main()", *options],
        env={**tool.env, "FAKE_VLLM": "floods", "FAKE_KV_TOKENS": "8192"},
        preexec_fn=limit,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (0, "served") == (done.returncode, msgspec.json.decode(done.stdout)["outcome"]), done.stderr
    assert 1 == done.stderr.count("is not complete: File too large")
    assert ("Traceback" not in done.stderr, []) == (True, mark.processes())


class TakesPort(Quiet):
    """Takes the trial's port when the trial is over."""

    def __init__(self) -> None:
        self.taken: list[socket.socket] = []

    def trial_ended(self, trial: Any) -> None:
        """Be faster than the next trial."""
        if not self.taken:
            server = socket.socket()
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            at = trial.argv.index("--port")
            server.bind(("127.0.0.1", int(trial.argv[at + 1])))
            server.listen()
            self.taken.append(server)


@pytest.fixture
def takes_port(tool: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[TakesPort]:
    """The tool's environment is this process's."""
    for name, value in tool.env.items():
        monkeypatch.setenv(name, value)
    progress = TakesPort()
    yield progress
    for server in progress.taken:
        server.close()


def test_the_users_port_that_is_taken_between_trials_ends_the_run(
    takes_port: TakesPort, tool: Any, port: int
) -> None:
    """It is an error that names the holder; the run can go on when the port is free."""
    from fitserve.errors import MachineError

    with pytest.raises(MachineError, match=f"port {port} is taken by process {os.getpid()}"):
        fix(
            launch(port, "--kv-cache-memory-bytes=64M"),
            options=Options(),
            progress=takes_port,
            journal=open_journal(tool.env),
            run="20260101-000000-aaaaaa",
            environ=tool.env,
        )
    takes_port.taken[0].close()
    done = tool.run("fix", "--resume", "last")

    assert 0 == done.returncode, done.stderr
    assert ["failed", "served"] == [trial["outcome"] for trial in tool.record()["trials"]]
