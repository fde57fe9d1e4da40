"""The loop on the real vLLM: a context that is too long for its pinned cache is fixed and proven; nothing outlives us."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.live


def launch(python: Path, model: Path, port: int, *options: str) -> list[str]:
    """The real server on this machine's CPU, without weights."""
    server = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    return [*server, "--load-format", "dummy", "--enforce-eager", "--port", str(port), *options]


def test_a_context_too_long_for_its_pinned_cache(
    tool: Any, engine_python: Path, tiny_model: Path, port: int, mark: Any
) -> None:
    """Two starts: vLLM's refusal, then one changed flag, a server that passes every check, and no process left."""
    options = ["--max-model-len", "8192", "--kv-cache-memory-bytes", "4M"]
    code, answer = tool.fix(launch=launch(engine_python, tiny_model, port, *options))
    first, second = answer["trials"]

    assert (0, "served", []) == (code, answer["outcome"], mark.processes())
    assert ("failed", "kv-cache-pinned-too-small") == (first["outcome"], first["cause"])
    assert ("served", 1) == (second["outcome"], [first["change"], second["change"]].count(None))
    assert all(check["passed"] is not False for check in answer["verification"]["checks"])


def test_a_goal_that_the_cache_allows_is_kept(
    tool: Any, engine_python: Path, tiny_model: Path, port: int
) -> None:
    """The context is never made shorter than the goal, and the goal's request is proven."""
    options = ["--max-model-len", "8192", "--kv-cache-memory-bytes", "4M"]
    code, answer = tool.fix("--goal-context", "4K", launch=launch(engine_python, tiny_model, port, *options))
    checks = {check["name"]: check["passed"] for check in answer["verification"]["checks"]}

    assert (0, True) == (code, checks["goal-length"])
    assert 4096 <= answer["verification"]["max_model_len"]


@contextmanager
def started(tool: Any, launch: list[str], words: str) -> Iterator[Any]:
    """The supervised server, as soon as it has said the words; uvicorn says them on stderr."""
    process = tool.start("run", "--", *launch, stderr=subprocess.STDOUT)
    with process:
        said = any(words in line for line in process.stdout)
        if not said:
            pytest.fail(f"the server has never said {words!r}")
        yield process


@pytest.fixture
def small_launch(engine_python: Path, tiny_model: Path, port: int) -> list[str]:
    """A launch that serves."""
    return launch(
        engine_python, tiny_model, port, "--max-model-len", "1024", "--kv-cache-memory-bytes", "16M"
    )


@pytest.mark.parametrize("words", ["Resolved architecture", "Application startup complete"])
def test_the_real_engines_processes_go_with_the_tool(
    words: str, tool: Any, small_launch: list[str], mark: Any
) -> None:
    """Killed while it starts or serves: engine core and workers are gone five seconds later."""
    with started(tool, small_launch, words) as process:
        process.kill()

    assert [] == mark.left_after(5)


def test_the_real_engine_ends_by_itself_when_told(tool: Any, small_launch: list[str], mark: Any) -> None:
    """A TERM that is handed on ends the server in its own way: exit code 0, nothing left, no failure told."""
    with started(tool, small_launch, "Application startup complete") as process:
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()

    assert (0, [], False) == (process.returncode, mark.processes(), "error[" in rest)


def test_a_context_beyond_the_model(tool: Any, engine_python: Path, tiny_model: Path, port: int) -> None:
    """The second start has the context that the model allows, and every check passes."""
    limit = ["--hf-overrides", '{"max_position_embeddings": 2048}']
    options = ["--max-model-len", "999999", "--kv-cache-memory-bytes", "16M", *limit]
    code, answer = tool.fix(launch=launch(engine_python, tiny_model, port, *options))
    causes = [trial["cause"] for trial in answer["trials"]]

    assert (0, ["context-beyond-model-limit", None]) == (code, causes)
    assert answer["verification"]["max_model_len"] == 2048


def test_a_wrong_served_name(tool: Any, engine_python: Path, tiny_model: Path, port: int) -> None:
    """The server starts, the name that clients will send is unknown to it; the second start serves it."""
    options = ["--max-model-len", "1024", "--kv-cache-memory-bytes", "16M"]
    code, answer = tool.fix("--model", "ours", launch=launch(engine_python, tiny_model, port, *options))
    causes = [trial["cause"] for trial in answer["trials"]]

    assert (0, ["model-name-unknown", None]) == (code, causes)
    assert answer["trials"][1]["change"]["flag"] == "served_model_name"
    assert "ours" in answer["verification"]["served_names"]
