"""The demo, as a user calls it, on the real engine."""

import json
import os
import shutil
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import psutil
import pytest

pytestmark = pytest.mark.live

MARK = "FITSERVE_TEST_MARK"


def start_demo(folder: Path, mark: str, *options: str) -> subprocess.Popen[str]:
    """The demo in a process of its own, with a journal of its own; its whole tree carries the mark."""
    return subprocess.Popen(
        [sys.executable, "-m", "fitserve", "demo", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=demo_environment(folder, mark),
    )


def demo_environment(folder: Path, mark: str) -> dict[str, str]:
    """The user's environment with a journal in the folder."""
    return {**os.environ, "FITSERVE_DATA_DIR": str(folder), MARK: mark}


def still_running(mark: str) -> list[str]:
    """Every process that carries the mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark:
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found


class Finished:
    """A demo that is over."""

    def __init__(self, folder: Path) -> None:
        self.mark = uuid.uuid4().hex
        self.folder = folder
        process = start_demo(folder, self.mark, "--json")
        self.stdout, self.stderr = process.communicate()
        self.exit_code = process.returncode
        self.left_running = still_running(self.mark)

    @property
    def answer(self) -> dict[str, Any]:
        """Its JSON."""
        return dict(json.loads(self.stdout))

    def fitserve(self, *words: str) -> str:
        """What another command says, with the same journal."""
        return subprocess.run(
            [sys.executable, "-m", "fitserve", *words],
            capture_output=True,
            text=True,
            check=True,
            env=demo_environment(self.folder, self.mark),
        ).stdout


@pytest.fixture(scope="module")
def demo(engine_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """One whole demo; the engine is there before it starts."""
    assert engine_python.exists()
    return Finished(tmp_path_factory.mktemp("journal"))


def test_the_demo_ends_served_and_with_exit_code_0(demo: Finished) -> None:
    """The whole loop reaches a server that is proven."""
    assert 0 == demo.exit_code, demo.stderr
    assert "served" == demo.answer["outcome"], demo.answer["reason"]


def test_nothing_is_left_running(demo: Finished) -> None:
    """When the demo is over, no process of its tree lives."""
    assert [] == demo.left_running


def test_the_first_launch_really_fails(demo: Finished) -> None:
    """The real engine refuses the pinned cache, and the finding is told on stderr."""
    first = demo.answer["trials"][0]

    assert ("failed", "kv_cache", "kv-cache-pinned-too-small") == (
        first["outcome"],
        first["stage"],
        first["cause"],
    )
    assert 1 == first["exit_code"]
    assert "error[kv-cache-pinned-too-small]" in demo.stderr


def test_one_thing_is_changed(demo: Finished) -> None:
    """The second command differs from the first in the one option that the change names."""
    first, second = demo.answer["trials"]
    before, after = first["command"].split(), second["command"].split()
    differing = [before[at - 1] for at in range(len(before)) if before[at] != after[at]]

    assert len(before) == len(after)
    assert [f"--{second['change']['flag'].replace('_', '-')}"] == differing
    assert "served" == second["outcome"]
    assert second["command"] == demo.answer["command"]


def test_the_server_is_proven_at_its_whole_context(demo: Finished) -> None:
    """No check failed, and a request of exactly ``max_model_len`` was answered."""
    checks = {check["name"]: check["passed"] for check in demo.answer["verification"]["checks"]}

    assert [] == [name for name, passed in checks.items() if passed is False]
    assert checks["boundary-exact"] is True
    assert checks["chat"] is True


def test_the_run_can_be_seen_again(demo: Finished) -> None:
    """The journal has the run, its report tells the cause, and the logs of both trials are kept."""
    run = demo.answer["run"]
    runs = json.loads(demo.fitserve("runs", "--json"))["runs"]
    report = demo.fitserve("report", run)

    assert [(run, "demo", "served")] == [(each["run"], each["made_by"], each["outcome"]) for each in runs]
    assert "kv-cache-pinned-too-small" in report
    assert "ValueError: To serve at least one request" in demo.fitserve("report", run, "--log", "1")
    assert "Application startup complete" in demo.fitserve("report", run, "--log", "2")


def test_an_interrupted_demo_leaves_its_logs_and_nothing_running(engine_python: Path, tmp_path: Path) -> None:
    """Ctrl-C while vLLM starts ends everything that was started; the exit code says so, and ``--keep`` keeps the log."""
    assert engine_python.exists()
    mark = uuid.uuid4().hex
    process = start_demo(tmp_path, mark, "--keep")
    assert process.stderr
    told = next(line for line in process.stderr if "weights" in line)
    process.send_signal(signal.SIGINT)
    stdout, _ = process.communicate()
    kept = Path(stdout.rstrip().splitlines()[-1].strip())

    assert told.startswith("trial 1: ")
    assert 130 == process.returncode
    assert [] == still_running(mark)
    assert ["trial-1.log"] == [path.name for path in kept.iterdir()]
    shutil.rmtree(kept)
