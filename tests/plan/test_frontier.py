"""The frontier: many lengths laid out at once are the same as each on its own."""

import json
from typing import Any

import pytest

from fitserve.facts.checkpoint import Checkpoint
from fitserve.facts.model_config import parse_config
from fitserve.memory.options import Device
from fitserve.plan.frontier import find_frontier
from fitserve.plan.request import Request, concurrency_at, judge_request
from fitserve.units import GIB

LENGTHS = (1, 15, 16, 17, 1000, 4096, 4097, 5000, 20_000, 32_768, 60_001, 131_072)
FULL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}
WINDOWS = {**FULL, "architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 4096}
STATES = {
    **FULL,
    "architectures": ["Mamba2ForCausalLM"],
    "model_type": "mamba2",
    "num_heads": 128,
    "head_dim": 64,
    "state_size": 128,
    "n_groups": 8,
    "conv_kernel": 4,
}


def asked(config: dict[str, Any], version: str, total_gib: int, stages: int) -> Request:
    """The question for four devices."""
    return Request(
        checkpoint=Checkpoint(config=parse_config(json.dumps(config).encode())),
        model="model",
        device=Device(name="NVIDIA L4", total_bytes=total_gib * GIB, compute_capability=(8, 9)),
        given={"pipeline_parallel_size": stages},
        version=version,
        gpus=4,
    )


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("version", ["0.6.4", "0.9.2", "0.10.1", "0.12.0", "0.15.0", "0.20.0", "0.33.0"])
@pytest.mark.parametrize("config", [FULL, WINDOWS, STATES], ids=["full", "windows", "states"])
def test_many_lengths_are_each_as_on_their_own(config: dict[str, Any], version: str, stages: int) -> None:
    """Each count is that of a start with the length as ``max_model_len``, and it ends where none fits.

    What does not start whatever the length has no counts, and says why.
    """
    request = asked(config, version, 24, stages)
    points = find_frontier(request, LENGTHS)

    assert points
    for point in points:
        changes = {
            "kv_cache_dtype": point.kv_cache_dtype,
            "tensor_parallel_size": point.tensor_parallel_size,
            "gpu_memory_utilization": point.gpu_memory_utilization,
            "enforce_eager": point.enforce_eager,
        }
        judged = judge_request(request, changes)
        if point.cause is not None and not point.concurrency:
            assert judged.problem is not None
            assert (point.cause, "does-not-start", 0) == (judged.problem.cause, judged.verdict, point.longest)
            continue
        each = {str(length): round(concurrency_at(request, judged, length), 2) for length in LENGTHS}

        assert {length: count for length, count in each.items() if count} == point.concurrency


def test_nothing_is_counted_where_the_weights_do_not_fit() -> None:
    """A device smaller than the weights serves no length."""
    points = find_frontier(asked(FULL, "0.20.0", 8, 1), LENGTHS)

    assert {} == points[0].concurrency
    assert 0 == points[0].longest
    assert "weights-do-not-fit" == points[0].cause
