"""Whoever is killed, at whatever moment: no process is left, and the journal can be read.

``FITSERVE_KILLS`` says how many kills are tried; ``python -m bench kills`` tries a hundred.
"""

import os
import random
import signal
import time
from typing import Any

import psutil
import pytest

KILLS = int(os.environ.get("FITSERVE_KILLS", "5"))
VICTIMS = ["tool", "guard", "keeper", "vllm", "worker"]


def processes_of(tool: int) -> dict[str, list[int]]:
    """The living processes below the tool, by what they are."""
    found: dict[str, list[int]] = {victim: [] for victim in VICTIMS}
    found["tool"] = [tool]
    try:
        below = psutil.Process(tool).children(recursive=True)
    except psutil.NoSuchProcess:
        return found
    reapers = set()
    for process in below:
        try:
            words, parent = process.cmdline(), process.ppid()
        except psutil.Error:
            continue
        if any(word.endswith("reaper.py") for word in words):
            found["keeper" if parent in reapers else "guard"].append(process.pid)
            reapers.add(process.pid)
        elif any(word.endswith("fake_vllm.py") for word in words):
            found["vllm"].append(process.pid)
        elif any(word.startswith("import time; time.sleep") for word in words):
            found["worker"].append(process.pid)
    return found


def kill_one(tool: int, victim: str, delay: float) -> bool:
    """Kill a victim some time after it has appeared; False where the tool has ended before."""
    end = time.monotonic() + 60
    while not (pids := processes_of(tool)[victim]):
        if time.monotonic() > end or not psutil.pid_exists(tool):
            return False
        time.sleep(0.01)
    time.sleep(delay)
    try:
        os.kill(random.Random(delay).choice(pids), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.timeout(60 + 30 * KILLS)
def test_random_kills_leave_nothing(tool: Any, port: int, mark: Any) -> None:
    """After each kill the tool ends by itself or is gone, nothing it started is left, and its runs can be listed."""
    chance = random.Random(20)
    killed = 0
    for number in range(KILLS):
        victim = VICTIMS[number % len(VICTIMS)]
        delay = chance.choice([0.0, chance.uniform(0, 0.3), chance.uniform(0, 1.5)])
        launch = ["vllm", "serve", "org/model", "--port", str(port)]
        process = tool.start(
            "fix",
            "--json",
            "--quiet",
            "--max-trials",
            "2",
            "--silence",
            "5",
            "--deadline",
            "5",
            "--",
            *launch,
        )
        hit = kill_one(process.pid, victim, delay)
        killed += hit
        _, said = process.communicate(timeout=120)
        # A reaper that is killed before it has started anything is the machine's fault.
        expected = {"tool": [-9] if hit else [0], "guard": [0, 1, 4], "keeper": [0, 1, 4]}.get(victim, [0, 1])

        assert process.returncode in expected, (number, victim, delay, said)
        assert [] == mark.left_after(8), (number, victim, delay)
        assert 0 == tool.run("runs").returncode, (number, victim, delay)

    assert killed > KILLS // 2


def test_both_reapers_at_once_leave_nothing_either(tool: Any, port: int, mark: Any) -> None:
    """What survives both processes between is found by the trial's mark and ended."""
    launch = ["vllm", "serve", "org/model", "--port", str(port)]
    process = tool.start("fix", "--quiet", "--max-trials", "1", "--", *launch, FAKE_VLLM="silent")
    end = time.monotonic() + 60
    while len((found := processes_of(process.pid))["worker"]) < 2 and time.monotonic() < end:
        time.sleep(0.02)
    for pid in found["guard"] + found["keeper"]:
        os.kill(pid, signal.SIGSTOP)
    for pid in found["guard"] + found["keeper"]:
        os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=120)

    assert (1, []) == (process.returncode, mark.left_after(8))
