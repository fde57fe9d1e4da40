"""One trial: phases, readiness, lingering, and what its log says."""

import os
from pathlib import Path
from typing import Any

import pytest

from fitserve.facts.command import read_command
from fitserve.trial.attempt import Attempt
from fitserve.trial.progress import Quiet
from fitserve.trial.watch import Limits, is_healthy


@pytest.fixture
def attempt(fake_vllm: Path, mark: Any, port: int, tmp_path: Path) -> Any:
    """Starts a launch that serves where there is room for 8,192 tokens."""

    def start(**env: str) -> Attempt:
        environ = {**os.environ, **mark.env, "PATH": f"{fake_vllm}:{os.environ['PATH']}", **env}
        words = ["vllm", "serve", "org/model", "--port", str(port), "--max-model-len", "8192"]
        return Attempt(1, read_command(words), environ=environ, log_path=tmp_path / "log", progress=Quiet())

    return start


def test_a_served_trial_tells_its_phases(attempt: Any, mark: Any) -> None:
    """It is ready when it answers; its phases come in order, and it holds memory while it runs."""
    trial = attempt(FAKE_KV_TOKENS="8192")
    settled = trial.settle(Limits())
    healthy = is_healthy(f"{settled.url}/health")
    trial.end()

    assert ("served", None, True) == (settled.outcome, settled.cause, healthy)
    starts = [phase.start_seconds for phase in settled.phases]
    assert (sorted(starts), True) == (starts, settled.memory.peak_rss_bytes > 0)
    assert (False, []) == (is_healthy(f"{settled.url}/health"), mark.processes())


def test_a_failed_start_that_does_not_end_is_ended(attempt: Any, mark: Any) -> None:
    """Once the log is certain, a server that stays without serving is waited for only so long."""
    settled = attempt(FAKE_VLLM="lingers").settle(Limits(linger_seconds=0.5))

    assert ("failed", "kv-cache-smaller-than-context") == (settled.outcome, settled.cause)
    assert [] == mark.processes()


def test_a_server_that_ends_before_it_serves_has_failed(attempt: Any) -> None:
    """An exit code of 0 is no success where a server was wanted."""
    settled = attempt(FAKE_KV_TOKENS="8192", FAKE_VLLM="dies-at-once").settle(Limits())

    assert ("failed", 3) == (settled.outcome, settled.exit_code)


def test_the_log_is_kept_as_it_was_written(attempt: Any) -> None:
    """The log file has both streams of the server and of nobody else."""
    settled = attempt().settle(Limits())
    text = Path(settled.log_path).read_text()

    assert text.startswith("(APIServer pid=")
    assert text.endswith("Failed core proc(s): {}\n")
