"""Simulated vLLM servers, proven at their API: a healthy one, one that never schedules, one whose engine dies, one short of cache."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fitserve.report.verification_text import render_verification
from fitserve.simulator.machine import Machine, device_called, make_machine
from fitserve.simulator.models import make_model
from fitserve.verify.options import Options
from fitserve.verify.run import exit_code, verify_server
from fitserve.verify.verification import Check, Verification

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
START_SECONDS = 60
Serve = Callable[..., str]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts ``vllm serve`` on a simulated machine and gives its address."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*words: str, version: str = "0.19.0", faults: tuple[str, ...] = ()) -> str:
        machine = Machine(device=device_called("H100"), vllm_version=version, speed=2000.0, faults=faults)
        programs = make_machine(tmp_path / "machine", machine)
        model = make_model(tmp_path / "model", MODEL)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        log = tmp_path / "serve.log"
        command = [
            programs / "vllm",
            "serve",
            str(model),
            "--served-model-name",
            "simulated",
            "--port",
            str(port),
        ]
        with log.open("wb") as out:
            environ = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"}
            server = subprocess.Popen(
                [*command, *words], stdout=out, stderr=out, env=environ, start_new_session=True
            )
        started.append(server)
        end = time.monotonic() + START_SECONDS
        while b"Application startup complete." not in log.read_bytes():
            if server.poll() is not None or time.monotonic() > end:
                pytest.fail(f"the server did not start:\n{log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.02)
        return f"http://127.0.0.1:{port}"

    yield start
    for server in started:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def found(verification: Verification, name: str) -> Check:
    """A check by its name."""
    return next(check for check in verification.checks if check.name == name)


def test_a_healthy_one_is_proven(serve: Serve) -> None:
    """Every check passes, the boundary is exact, and the goal runs at once."""
    url = serve("--max-model-len", "4096")

    verification = verify_server(
        url, Options(deadline_seconds=60, profile="quick", goal_context=2048, goal_concurrency=4)
    )

    assert [] == [(check.name, check.actual) for check in verification.checks if check.passed is False]
    assert (4096, "0.19.0") == (verification.max_model_len, verification.server_version)
    exact = found(verification, "boundary-exact")
    assert 4096 == (exact.prompt_tokens or 0) + (exact.output_tokens or 0)
    assert ["yes", "yes"] == [verdict["answer"] for verdict in verification.numbers["verdicts"][:2]]


def test_a_request_that_is_never_scheduled_is_found_within_its_deadline(serve: Serve) -> None:
    """Accepted and never run: every kind of request says so by the scheduler's own gauges, and the rest goes on."""
    url = serve("--max-model-len", "4096", faults=("never-schedules",))

    verification = verify_server(url, Options(deadline_seconds=1, profile="quick"))

    kinds = {
        name: found(verification, name).error_type
        for name in ("chat", "completion-stream", "boundary-exact", "load-1")
    }
    assert {"request-never-scheduled"} == set(kinds.values())
    assert "waiting while nothing runs" in found(verification, "completion-stream").actual
    assert found(verification, "boundary-over").passed
    assert 1 == exit_code(verification)
    assert all(check.seconds < 60 for check in verification.checks)


def test_a_goal_beyond_the_cache_is_seen_as_such(serve: Serve) -> None:
    """More at once than the KV cache holds is answered, and not at once: preempted, or waiting for room."""
    url = serve("--max-model-len", "4096", "--kv-cache-memory-bytes", str(2 << 30))

    verification = verify_server(
        url, Options(deadline_seconds=120, profile="quick", goal_context=4096, goal_concurrency=12)
    )

    goal = found(verification, "goal-length")
    assert goal.passed is False
    assert goal.error_type in ("preemption-thrash", "waiting-for-kv-cache")
    assert ["yes", "no", "no"] == [verdict["answer"] for verdict in verification.numbers["verdicts"]]


def test_an_engine_that_dies_is_told(serve: Serve) -> None:
    """The first request ends the engine: requests fail under their names, and the server is not called healthy after."""
    url = serve("--max-model-len", "4096", faults=("worker-dies",))

    verification = verify_server(url, Options(deadline_seconds=5, profile="quick"))

    assert found(verification, "reach").passed
    assert found(verification, "completion").passed is False
    assert found(verification, "health-after").passed is False
    assert 1 == exit_code(verification)
    assert "read its log with: fitserve diagnose LOG" in render_verification(verification)
