"""The real vLLM on the CPU, proven at its API: one engine for all tests of this module."""

import asyncio
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from fitserve.verify.client import open_client
from fitserve.verify.load import run_step
from fitserve.verify.options import Options
from fitserve.verify.prompts import Prompts, find_prompts
from fitserve.verify.run import exit_code, verify_server
from fitserve.verify.session import Served, Session
from fitserve.verify.steps import Step, judge_together
from fitserve.verify.target import parse_target
from fitserve.verify.verification import Check, Verification
from fitserve.verify.workload import Size

pytestmark = pytest.mark.live

MAX_MODEL_LEN = 2048
START_SECONDS = 300
ENGINE_OPTIONS = (
    f"--load-format dummy --enforce-eager --max-model-len {MAX_MODEL_LEN} --kv-cache-memory-bytes 40M "
    "--served-model-name tiny"
).split()


EMBEDDING_OPTIONS = (
    "--runner pooling --convert embed --dtype float32 --no-enable-prefix-caching --no-enable-chunked-prefill "
    f"--max-num-batched-tokens {MAX_MODEL_LEN}"
).split()


@pytest.fixture(scope="module")
def engine_url(
    engine_python: Path, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A running engine whose KV cache holds 20,480 tokens: nine requests of full length, and one block less than ten."""
    folder = tmp_path_factory.mktemp("engine")
    with running(engine_python, tiny_model, ENGINE_OPTIONS, folder / "serve.log") as url:
        yield url


@contextmanager
def running(python: Path, model: Path, options: Sequence[str], log: Path) -> Iterator[str]:
    """The address of an engine that is up; it is killed in the end."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", model]
    command += [*options, "--host", "127.0.0.1", "--port", str(port)]
    with log.open("wb") as out:
        engine = subprocess.Popen(
            command,
            stdout=out,
            stderr=out,
            start_new_session=True,
            env=os.environ | {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"},
        )
    try:
        wait_until_healthy(f"http://127.0.0.1:{port}/health", engine, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(engine.pid, signal.SIGKILL)
        engine.wait()


def wait_until_healthy(url: str, engine: subprocess.Popen[bytes], log: Path) -> None:
    """Return when the engine answers; fail with the end of its log where it dies."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and engine.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except OSError:
            time.sleep(0.5)
    pytest.fail(f"the engine did not start:\n{log.read_text(errors='replace')[-3000:]}")


def found(verification: Verification, name: str) -> Check:
    """A check by its name."""
    return next(check for check in verification.checks if check.name == name)


def counter(url: str, name: str) -> float:
    """A number of the engine's own metrics page."""
    with urllib.request.urlopen(f"{url}/metrics") as page:
        lines = page.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"vllm:{name}{{"))


def test_the_context_is_kept_to_the_token(engine_url: str) -> None:
    """Exactly ``max_model_len`` tokens are answered and counted, one more is refused with 400 for its length."""
    verification = verify_server(engine_url, Options(deadline_seconds=60))

    assert [] == [check for check in verification.checks if check.passed is False]
    assert 0 == exit_code(verification)
    assert MAX_MODEL_LEN == verification.max_model_len
    exact = found(verification, "boundary-exact")
    assert MAX_MODEL_LEN == (exact.prompt_tokens or 0) + (exact.output_tokens or 0)
    for name in ("boundary-over", "boundary-prompt-over"):
        assert found(verification, name).actual.startswith("400: ")
    asked = [step["pressure"] for step in verification.numbers["load"]["ramp"]]
    assert 0 == sum(pressure["prefix_cache_hit_tokens"] for pressure in asked)


def test_an_unknown_name_is_named(engine_url: str) -> None:
    """The engine's 404 for a wrong name becomes its own finding, with the served name."""
    verification = verify_server(engine_url, Options(deadline_seconds=60, profile="quick", model="another"))

    assert ["model-name"] == [check.name for check in verification.checks if check.passed is False]
    check = found(verification, "model-name")
    assert "model-name-unknown" == check.error_type
    assert "'tiny'" in check.actual


@pytest.mark.parametrize(("number", "answer"), [(9, "yes"), (24, "no")])
def test_how_many_fit_at_once_is_seen(engine_url: str, number: int, answer: str) -> None:
    """Nine requests of full length run at once; of 24, some have to wait for KV cache, though all are answered."""
    verification = verify_server(
        engine_url,
        Options(deadline_seconds=120, profile="quick", goal_context=MAX_MODEL_LEN, goal_concurrency=number),
    )

    goal = found(verification, "goal-length")
    assert f"all {number} of 2,048 tokens answered" in goal.actual
    assert answer == verification.numbers["verdicts"][1]["answer"]
    assert answer == verification.numbers["verdicts"][2]["answer"]


async def step_of(url: str, concurrency: int, shape: tuple[int, int]) -> Step | None:
    """One step of load, without the checks around it."""
    async with open_client(parse_target(url)) as client:
        session = Session(client, Options(deadline_seconds=120), lambda _: None)
        session.served = Served(names=["tiny"], model="tiny", max_model_len=MAX_MODEL_LEN)
        prompts = await find_prompts(session, api="completions", model="tiny")
        assert prompts is not None
        size = Size(prompt_tokens=shape[0], output_tokens=shape[1])
        return await run_step(session, prompts, concurrency, [size] * concurrency)


def test_what_lasts_leaves_nothing_behind(engine_url: str) -> None:
    """Arrivals at a rate and a soak with spread sizes: all answered, and every block of the KV cache comes back."""
    verification = verify_server(
        engine_url,
        Options(deadline_seconds=120, profile="quick", request_rate=2, minutes=0.1, random_range_ratio=0.5),
    )

    kinds = {
        name: (found(verification, name).passed, found(verification, name).error_type)
        for name in ("open-loop", "soak", "soak-kv-cache")
    }
    assert dict.fromkeys(kinds, (True, None)) == kinds
    soak = verification.numbers["load"]["soak"]
    assert soak["kv_cache_usage_before_fraction"] == soak["kv_cache_usage_after_fraction"]


def test_a_cached_prompt_proves_nothing(engine_url: str) -> None:
    """The same prompt eight times is answered at once from the engine's prefix cache: that is seen, and no proof of room."""

    async def same_prompts() -> Step | None:
        async with open_client(parse_target(engine_url)) as client:
            session = Session(client, Options(deadline_seconds=120), lambda _: None)
            prompts = Prompts(api="completions", model="tiny", pool=[100], extras={"ignore_eos": True})
            return await run_step(session, prompts, 8, [Size(prompt_tokens=1000, output_tokens=64)] * 16)

    step = asyncio.run(same_prompts())

    assert step is not None
    assert (16, {}) == (step.answered, step.errors)
    assert step.found_fraction > 0.5
    assert "prefix-cache-hits" == judge_together(step)[0]


def test_preemptions_are_counted(engine_url: str) -> None:
    """24 requests of 1,900 tokens need twice the KV cache: the preemptions counted are the engine's own.

    Prompts that end 30 tokens before the end of a block of 128 let eleven in; each then grows into a block that is not there.
    """
    before = counter(engine_url, "num_preemptions_total")

    step = asyncio.run(step_of(engine_url, 24, (1762, 138)))

    assert step is not None
    assert (24, {}) == (step.answered, step.errors)
    assert 0 < step.preemptions
    assert counter(engine_url, "num_preemptions_total") - before == step.preemptions


def test_an_interrupt_leaves_the_engine_idle(engine_url: str) -> None:
    """Cancelled requests are gone from the engine: it does not go on working for nobody."""

    async def interrupted() -> None:
        load = asyncio.create_task(step_of(engine_url, 8, (1000, 1000)))
        while await asyncio.to_thread(counter, engine_url, "num_requests_running") == 0:
            assert not load.done()
            await asyncio.sleep(0.05)
        load.cancel()
        await asyncio.gather(load, return_exceptions=True)

    asyncio.run(interrupted())

    while counter(engine_url, "num_requests_running") + counter(engine_url, "num_requests_waiting") > 0:
        time.sleep(0.1)
    with urllib.request.urlopen(f"{engine_url}/health") as health:
        assert 200 == health.status


def test_an_embedding_model_is_proven_by_its_own_checks(
    engine_python: Path, tiny_model: Path, tmp_path: Path
) -> None:
    """No endpoint generates: vectors, a prompt of exactly ``max_model_len``, the refusal of one token more, and a load of prompts."""
    options = [*ENGINE_OPTIONS, *EMBEDDING_OPTIONS]
    with running(engine_python, tiny_model, options, tmp_path / "serve.log") as url:
        verification = verify_server(
            url, Options(deadline_seconds=60, profile="quick", goal_context=1000, goal_concurrency=8)
        )

    assert [] == [(check.name, check.actual) for check in verification.checks if check.passed is False]
    assert {None} == {found(verification, name).passed for name in ("chat", "completion")}
    assert found(verification, "embedding").passed
    assert MAX_MODEL_LEN == found(verification, "boundary-exact").prompt_tokens
    assert found(verification, "boundary-over").actual.startswith("400: ")
    assert (8000, 8) == (
        found(verification, "goal-length").prompt_tokens,
        found(verification, "goal-length").concurrency,
    )
