"""Load that lasts, on real servers: arrivals at a rate, a soak, the prefix cache, the sums, and the curve."""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from fitserve.report.verification_text import render_verification
from fitserve.verify.curve import load_curve
from fitserve.verify.device_memory import DeviceMemory
from fitserve.verify.options import Options
from fitserve.verify.run import verify_server
from fitserve.verify.soak import Slice, Soak, judge_drift, judge_memory
from fitserve.verify.steps import Spread
from fitserve.verify.verification import Check, Verification


def found(verification: Verification, name: str) -> Check:
    """A check by its name."""
    return next(check for check in verification.checks if check.name == name)


def quick(**changes: object) -> Options:
    """Quick options with changes."""
    return Options(**{"profile": "quick", "deadline_seconds": 20, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mode", "rate", "error_type"), [("good", 20, None), ("one-at-a-time", 20, "rate-not-sustained")]
)
def test_a_rate_is_kept_or_not(fake_url: str, mode: str, rate: float, error_type: str | None) -> None:
    """Requests that arrive faster than a server answers make a queue, which a closed loop would never show."""
    verification = verify_server(f"{fake_url}/{mode}", quick(request_rate=rate))

    check = found(verification, "open-loop")
    assert (error_type is None, error_type) == (check.passed, check.error_type)
    assert "all 100 answered" in check.actual
    assert 100 == verification.numbers["load"]["open_loop"]["requests"]


def test_a_trace_gives_the_sizes(fake_url: str, tmp_path: Path) -> None:
    """The ramp and the arrivals have the recorded sizes; no recorded word is sent."""
    trace = tmp_path / "trace.jsonl"
    trace.write_text(
        "".join(
            json.dumps({"input_tokens": 40 + n, "output_tokens": 3, "at_seconds": n / 50}) + "\n"
            for n in range(20)
        )
    )

    verification = verify_server(f"{fake_url}/good", quick(trace_file=str(trace)))

    assert (40, 3) == (
        found(verification, "load-1").prompt_tokens,
        found(verification, "load-1").output_tokens,
    )
    arrived = found(verification, "open-loop")
    assert (sum(range(40, 60)), 60) == (arrived.prompt_tokens, arrived.output_tokens)
    assert "20 recorded requests at their times" in arrived.expected


@pytest.mark.parametrize(
    ("mode", "failures"),
    [
        ("good", {}),
        ("leaks", {"soak-kv-cache": "kv-cache-leak"}),
        ("leaves-requests", {"soak-kv-cache": "requests-left-behind"}),
        ("fails-later", {"soak": "http-500"}),
    ],
)
def test_what_only_shows_with_time_is_found(fake_url: str, mode: str, failures: dict[str, str]) -> None:
    """Blocks that do not come back, requests that stay, and errors that begin late are each named."""
    verification = verify_server(f"{fake_url}/{mode}", quick(minutes=0.02, deadline_seconds=2))

    failed = {check.name: check.error_type for check in verification.checks if check.passed is False}
    assert failures == failed
    assert None is found(verification, "soak-memory").passed
    soak = verification.numbers["load"]["soak"]
    assert soak["answered"] == sum(part["answered"] for part in soak["slices"])
    assert sum(soak["errors"].values()) == sum(part["errors"] for part in soak["slices"])
    assert sum(soak["errors"].values()) <= 20 + soak["concurrency"]


def soak(halves: tuple[float, float], used_gib: tuple[float, float] = (10, 10)) -> Soak:
    """A soak whose answers take so long at first and at last, and whose device has so much in use."""
    times = [halves[0]] * 3 + [halves[1]] * 3
    parts = [
        Slice(
            from_seconds=float(index),
            answered=20,
            errors=0,
            output_tokens_per_second=1.0,
            end_to_end_seconds=Spread(p50=time, p90=time, p99=time, worst=time),
        )
        for index, time in enumerate(times)
    ]
    memory = [
        [DeviceMemory(index=0, name="a device", used_bytes=int(used * 2**30), total_bytes=80 * 2**30)]
        for used in used_gib
    ]
    return Soak(
        seconds=60.0,
        concurrency=4,
        answered=120,
        errors={},
        prompt_tokens=1,
        output_tokens=1,
        slices=parts,
        memory_before=memory[0],
        memory_after=memory[1],
    )


@pytest.mark.parametrize(
    ("halves", "error_type"), [((1, 1), None), ((1, 1.9), None), ((1, 2.1), "slowing-down"), ((2, 1), None)]
)
def test_slowing_down_is_a_drift(halves: tuple[float, float], error_type: str | None) -> None:
    """Answers of the second half that all take more than twice as long as any part of the first fail the soak."""
    assert error_type == judge_drift(soak(halves))[2]


@pytest.mark.parametrize(
    ("used", "error_type"), [((10, 10.5), None), ((10, 9), None), ((10, 10.9), "device-memory-grows")]
)
def test_device_memory_that_grows_is_told(used: tuple[float, float], error_type: str | None) -> None:
    """More than a hundredth of the device more is growth."""
    assert error_type == judge_memory(soak((1, 1), used))[2]


def test_a_prefix_cache_makes_no_false_proof(fake_url: str) -> None:
    """Where prompts were found and not computed, all were answered at once and nothing is proven: neither yes nor no."""
    verification = verify_server(f"{fake_url}/cached", quick(goal_context=100, goal_concurrency=4))

    goal = found(verification, "goal-length")
    assert (None, "prefix-cache-hits") == (goal.passed, goal.error_type)
    assert "from the prefix cache" in goal.actual
    assert "not asked" == verification.numbers["verdicts"][1]["answer"]
    assert "unproven goal-length" in " ".join(render_verification(verification).split())


def test_the_sums_are_those_of_the_checks(fake_url: str) -> None:
    """Accepted, refused and failed requests add up; tokens are at least those of the load."""
    verification = verify_server(f"{fake_url}/good", quick(goal_context=100, goal_concurrency=3))

    sums = verification.numbers["requests"]
    assert sums["sent"] == sums["accepted"] + sums["refused"] + sums["failed"]
    assert {"request-too-long": 2} == sums["error_types"]
    assert (2, 0, 3) == (sums["refused"], sums["failed"], sums["most_in_flight"])
    counted = [check for check in verification.checks if check.name.startswith(("load-", "goal"))]
    assert sums["prompt_tokens"] >= sum(check.prompt_tokens or 0 for check in counted)
    assert sums["output_tokens"] >= sum(check.output_tokens or 0 for check in counted)


def test_the_curve_survives_a_journal(fake_url: str) -> None:
    """The series of the chart are the ramp's, also when the verification comes back from JSON."""
    verification = verify_server(f"{fake_url}/preempting", quick())

    read = msgspec.json.decode(msgspec.json.encode(verification), type=Verification)
    curve = load_curve(read)

    assert curve is not None
    assert [1, 2, 4] == [point.concurrency for point in curve.points]
    assert [0, 0] == [point.preemptions for point in curve.points[:2]]
    assert (curve.points[2].preemptions or 0) > 0
    assert (4, "preemption") == (curve.knee.concurrency, curve.knee.limit)
    assert all((point.first_token_p50_seconds or 0) > 0.1 for point in curve.points)
    assert {0.25} == {point.kv_cache_usage_fraction for point in curve.points}
    assert None is load_curve(Verification(url="http://nowhere"))


def test_an_embedding_model_has_a_load_of_its_own(fake_url: str) -> None:
    """Prompts alone are sent, at once and at their full length; speed is that of the prompts, and no token's time is shown."""
    verification = verify_server(
        f"{fake_url}/embedding", quick(goal_context=256, goal_concurrency=3, request_rate=10)
    )

    assert ["yes", "yes", "yes"] == [verdict["answer"] for verdict in verification.numbers["verdicts"]]
    assert (768, 0) == (
        found(verification, "goal-length").prompt_tokens,
        found(verification, "goal-length").output_tokens,
    )
    assert found(verification, "open-loop").passed
    curve = load_curve(verification)
    assert curve is not None
    assert all(point.prompt_tokens_per_second > 0 for point in curve.points)
    assert "first token" not in render_verification(verification)


MEASURED = (
    "import resource, subprocess, sys\n"
    "code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode\n"
    "print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
)


@pytest.mark.parametrize("mode", ["gzip-bomb", "endless-models", "endless-tokens"])
def test_endless_answers_do_not_fill_the_memory(fake_url: str, mode: str) -> None:
    """Whatever a server sends without end, packed or not, is cut off while it is small."""
    command = [
        Path(sys.executable).with_name("fitserve"),
        "verify",
        f"{fake_url}/{mode}",
        "--quick",
        "--json",
    ]
    # A child's peak begins with its parent's size: a small process stands between.
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *command], capture_output=True, text=True, check=True, timeout=200
    )
    code, peak_kib = map(int, done.stdout.split())

    assert 1 == code
    assert peak_kib < 200 * 1024
