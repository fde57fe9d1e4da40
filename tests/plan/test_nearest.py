"""Where no settings meet the goal: what comes nearest, and what is said about a setting that is refused."""

import json
from typing import Any

import pytest

from fitserve.facts.checkpoint import Checkpoint
from fitserve.facts.model_config import parse_config
from fitserve.memory.options import Device
from fitserve.plan.make import make_plan
from fitserve.plan.nearest import find_nearest
from fitserve.plan.request import Request, concurrency_at, judge_request
from fitserve.plan.values import Goal, Plan
from fitserve.report.plan_text import render_plan
from fitserve.units import GIB, Quantity
from tests.plan.test_make import LLAMA_8B


def asked(
    goal: Goal, *, gpus: int | None = 1, total_gib: float = 22, version: str = "0.32.0", **given: Any
) -> Request:
    """The question about Llama 3.1 8B on a device of that size."""
    return Request(
        checkpoint=Checkpoint(config=parse_config(json.dumps(LLAMA_8B).encode())),
        model="model",
        device=Device(name="L4", total_bytes=round(total_gib * GIB), compute_capability=(8, 9)),
        given=given,
        version=version,
        gpus=gpus,
        goal=goal,
    )


def test_the_longest_context_is_the_longest() -> None:
    """With the settings that are named so many requests of that context fit for sure, and of one block more they do not."""
    request = asked(Goal(context=131072, concurrency=8))
    plan = make_plan(request)
    assert plan.nearest is not None
    longest = plan.nearest.longest
    assert longest is not None
    judged = judge_request(request, longest.changes)

    assert plan.choices == []
    assert judged.verdict == "starts"
    assert concurrency_at(request, judged, longest.max_model_len, 0) >= 8
    assert concurrency_at(request, judged, longest.max_model_len + 16, 0) < 8


def test_the_most_requests_of_the_context_are_named() -> None:
    """Of a context that fits the most requests at once are told, with the least memory that is likely."""
    request = asked(Goal(context=8192, concurrency=64))
    plan = make_plan(request)
    assert plan.nearest is not None
    most = plan.nearest.most
    assert most is not None

    assert most.max_model_len == 8192
    assert 1 <= most.concurrency_low <= most.max_concurrency < 64
    assert f"nearest, the most requests of 8,192 tokens: {'gpu_memory_utilization'}" in render_plan(plan)
    assert most.command in render_plan(plan)


def test_so_many_devices_meet_the_goal_and_half_of_them_do_not() -> None:
    """The number of devices that is named is the fewest by doubling."""
    goal = Goal(context=131072, concurrency=8)
    plan = make_plan(asked(goal))
    assert plan.nearest is not None
    devices = plan.nearest.devices
    assert devices is not None

    assert make_plan(asked(goal, gpus=devices)).choices != []
    half = make_plan(asked(goal, gpus=devices // 2))
    sizes = {"max_model_len", "tensor_parallel_size", "gpu_memory_utilization"}
    assert [one for one in half.choices if one.changes.keys() <= sizes] == []


def test_weights_of_the_size_that_is_named_leave_room() -> None:
    """A device that is larger by what the weights are too large meets the goal."""
    request = asked(Goal(context=65536))
    judged = judge_request(request)
    allowed = find_nearest(request, judged).weights_bytes
    held = judged.ranks[0].weights_bytes
    assert allowed is not None
    assert isinstance(held, Quantity)
    excess = held.expected - allowed
    larger = asked(
        Goal(context=65536),
        total_gib=22 + 1.02 * excess / GIB / 0.95,
        gpu_memory_utilization=0.95,
        max_model_len=65536,
    )

    assert 0 < allowed < held.expected
    assert make_plan(larger).meets_goal is True


def test_a_goal_beyond_the_model_names_its_limit() -> None:
    """No device helps where the model itself takes no longer context."""
    plan = make_plan(asked(Goal(context=262144), total_gib=80))
    assert plan.nearest is not None

    assert [(one.flag, one.to) for one in plan.advice] == [("max_model_len", 131072)]
    assert plan.nearest.devices is None
    assert plan.nearest.weights_bytes is None
    assert plan.nearest.longest is not None
    assert plan.nearest.longest.max_model_len == 131072


def refused(version: str = "0.32.0", **given: Any) -> Plan:
    """The plan for a setting that is refused."""
    return make_plan(asked(Goal(), gpus=None, version=version, **given))


@pytest.mark.parametrize(("ranks", "sizes"), [(3, [2, 4]), (6, [4, 8]), (33, [32]), (12, [8, 16])])
def test_sizes_that_divide_are_named(ranks: int, sizes: list[int]) -> None:
    """The next smaller and the next larger number of ranks that the heads divide by."""
    plan = refused(tensor_parallel_size=ranks)

    assert plan.cause == "heads-not-divisible"
    assert [one.to for one in plan.advice] == sizes
    assert all(one.why == "32 heads divide by 1, 2, 4, 8, 16, 32" for one in plan.advice)


@pytest.mark.parametrize(
    ("version", "option", "action", "why"),
    [
        ("0.32.0", "max_modellen", "remove-flag", "did you mean --max-model-len?"),
        ("0.32.0", "tensor_paralel_size", "remove-flag", "did you mean --tensor-parallel-size?"),
        ("0.32.0", "swap_space", "remove-flag", "vLLM 0.17.1 is the last release with --swap-space"),
        (
            "0.9.0",
            "kv_cache_memory_bytes",
            "upgrade-vllm",
            "--kv-cache-memory-bytes is there from vLLM 0.10.2 on",
        ),
        ("0.32.0", "zzz", "remove-flag", "no release has --zzz"),
        (
            "0.33.0",
            "guided_decoding_backend",
            "remove-flag",
            "earlier releases had --guided-decoding-backend",
        ),
    ],
)
def test_an_option_that_the_release_lacks(version: str, option: str, action: str, why: str) -> None:
    """When the release had it, or what is spelled like it."""
    plan = refused(version, **{option: 4})

    assert plan.cause == "unknown-flag"
    assert [(one.action, one.why) for one in plan.advice] == [(action, why)]


def test_the_text_has_words_for_actions() -> None:
    """No internal id is shown where words are meant."""
    text = render_plan(make_plan(asked(Goal(context=131072, concurrency=64), total_gib=8)))

    assert "help: a smaller or a quantised model; no settings were found that meet the goal here" in text
    assert "smaller-or-quantized-model" not in text
