"""One trial: phases, readiness, lingering, and what its log says."""

import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
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
    trial.memory.close()
    held = trial.measured(settled).memory

    assert ("served", None, True) == (settled.outcome, settled.cause, healthy)
    starts = [phase.start_seconds for phase in settled.phases]
    assert (sorted(starts), True) == (starts, held.peak_rss_bytes > 0)
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


def test_an_answer_of_somebody_else_does_not_count(attempt: Any, port: int) -> None:
    """While another process listens on the port and the server itself does not, nothing is ready."""

    class Healthy(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def do_GET(self) -> None:
            """All is well."""
            self.send_response(200)
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", port), Healthy) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        answered = is_healthy(f"http://127.0.0.1:{port}/health")
        settled = attempt(FAKE_VLLM="silent").settle(Limits(start_seconds=3))
        server.shutdown()

    assert (True, "timed-out") == (answered, settled.outcome)
