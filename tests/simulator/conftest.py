"""Simulated machines, and real processes on them."""

import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fitserve.simulator.machine import Machine, device_called, make_machine
from fitserve.simulator.models import known_models, make_model

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
READY = "Application startup complete."


class Site:
    """A machine, a model's folder, and the servers that a test starts there."""

    def __init__(self, folder: Path, machine: Machine, model: str, changes: dict[str, Any]) -> None:
        self.folder, self.machine = folder, machine
        self.programs = make_machine(folder / "machine", machine)
        self.model = str(make_model(folder / "model", model, **changes)) if model in known_models() else model
        self.started: list[subprocess.Popen[bytes]] = []

    @property
    def environ(self) -> dict[str, str]:
        """The environment in which any tool sees the machine."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("CUDA_", "VLLM_"))}
        return {**kept, "PATH": f"{self.programs}:{os.environ['PATH']}"}

    def start(self, *words: str, **env: str) -> tuple[subprocess.Popen[bytes], Path]:
        """Start ``vllm serve`` of the model; the process and its log."""
        log = self.folder / f"serve-{len(self.started)}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                ["vllm", "serve", self.model, *words],
                env={**self.environ, **env},
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.started.append(process)
        return process, log

    def until(self, log: Path, words: str, process: subprocess.Popen[bytes]) -> str:
        """The log, as soon as it has these words or the program has ended."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            ended = process.poll() is not None
            text = log.read_text(encoding="utf-8", errors="replace")
            if ended or words in text:
                return text
            time.sleep(0.01)
        raise TimeoutError(f"{words!r} is not in {log}")

    def stop(self) -> None:
        """End everything that was started."""
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """Makes a machine with a model on it."""
    made: list[Site] = []

    def make(
        device: str = "H100", model: str = LLAMA, changes: dict[str, Any] | None = None, **machine: Any
    ) -> Site:
        folder = tmp_path / f"site-{len(made)}"
        described = Machine(device=device_called(device), **{"speed": 2000.0, **machine})
        made.append(Site(folder, described, model, changes or {}))
        return made[-1]

    yield make
    for each in made:
        each.stop()


@pytest.fixture
def free_port() -> int:
    """A port that nobody has."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        number: int = server.getsockname()[1]
    return number


def get(url: str) -> tuple[int, str]:
    """Status and text of an answer."""
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
