"""Another server that answers the same paths, the real llama.cpp: what can be proven of it, and what cannot."""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from fitserve.facts.engine.recipe import cache_root
from fitserve.report.verification_text import render_verification
from fitserve.verify.options import Options
from fitserve.verify.run import exit_code, verify_server
from fitserve.verify.verification import Check, Verification

pytestmark = pytest.mark.live

PROGRAMS = Path(__file__).parent / "programs"
CONTEXT = 512
SLOTS = 4
START_SECONDS = 60


def find_llama_server() -> Path:
    """The program: named by ``FITSERVE_LLAMA_SERVER``, on PATH, or built into the cache folder; skips where it is not there."""
    kept = cache_root() / "llama.cpp" / "llama-server"
    named = os.environ.get("FITSERVE_LLAMA_SERVER") or shutil.which("llama-server")
    found = Path(named) if named else kept
    if not found.exists():
        build = "tests/verify/programs/build_llama_server.py"
        pytest.skip(f"llama.cpp's server is not here; python {build} builds it")
    return found


@pytest.fixture(scope="module")
def llama_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A running llama.cpp server with four slots of 512 tokens and random weights."""
    program = find_llama_server()
    folder = tmp_path_factory.mktemp("llama")
    model = folder / "tiny.gguf"
    subprocess.run([sys.executable, PROGRAMS / "make_gguf.py", model], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        program,
        "-m",
        model,
        "-c",
        str(CONTEXT * SLOTS),
        "-np",
        str(SLOTS),
        "--no-ui",
        "--port",
        str(port),
    ]
    log = folder / "server.log"
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as server:
        url = f"http://127.0.0.1:{port}"
        end = time.monotonic() + START_SECONDS
        while not is_healthy(url):
            if server.poll() is not None or time.monotonic() > end:
                server.kill()
                pytest.fail(f"llama.cpp's server did not start:\n{log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.1)
        yield url
        server.kill()


def is_healthy(url: str) -> bool:
    """Does it answer 200?"""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2):
            return True
    except OSError:
        return False


def found(verification: Verification, name: str) -> Check:
    """A check by its name."""
    return next(check for check in verification.checks if check.name == name)


def test_llama_cpp_is_proven_as_far_as_it_tells(llama_url: str) -> None:
    """Its context is kept to the token and its slots serve at once; its cache and its preemptions are not seen, and that is said."""
    verification = verify_server(
        llama_url, Options(deadline_seconds=60, goal_context=256, goal_concurrency=SLOTS)
    )

    assert [] == [check for check in verification.checks if check.passed is False]
    assert 0 == exit_code(verification)
    assert (CONTEXT, None, "llama.cpp") == (
        verification.max_model_len,
        verification.server_version,
        verification.numbers["software"],
    )
    exact = found(verification, "boundary-exact")
    assert CONTEXT == (exact.prompt_tokens or 0) + (exact.output_tokens or 0)
    assert found(verification, "boundary-over").actual.startswith("400: ")
    assert ["yes", "yes", "yes"] == [verdict["answer"] for verdict in verification.numbers["verdicts"]]
    assert None is found(verification, "version").passed
    assert None is verification.numbers["metrics_before"]
    text = render_verification(verification)
    assert "llama.cpp, version not said" in text
    assert "without /metrics, preemptions and waits are not seen" in text


def test_more_at_once_than_slots_is_not_at_once(llama_url: str) -> None:
    """Twice as many requests as slots are all answered, one half after the other: that is no proof of so many at once."""
    number = 2 * SLOTS

    verification = verify_server(
        llama_url, Options(deadline_seconds=60, profile="quick", goal_context=256, goal_concurrency=number)
    )

    goal = found(verification, "goal-length")
    assert (False, "not-at-once") == (goal.passed, goal.error_type)
    assert f"all {number} of 256 tokens answered" in goal.actual


def test_a_name_that_is_not_listed_is_taken(llama_url: str) -> None:
    """It does not look at the name in a request: that is seen, and not called served."""
    verification = verify_server(llama_url, Options(deadline_seconds=60, profile="quick", model="my-model"))

    check = found(verification, "model-name")
    assert (True, "'my-model' is not listed but taken") == (check.passed, check.actual)


def test_kept_connections_that_the_server_closes_are_no_failure(llama_url: str) -> None:
    """It closes every connection after 100 answers: more requests in turn are answered all the same."""
    verification = verify_server(
        llama_url,
        Options(deadline_seconds=60, profile="quick", input_tokens=8, output_tokens=2, minutes=0.1),
    )

    soak = found(verification, "soak")
    assert (True, None) == (soak.passed, soak.error_type)
    assert verification.numbers["load"]["soak"]["answered"] > 100
