"""vLLM's defaults, by release, device and model."""

import json

import pytest

from fitserve.errors import UsageError
from fitserve.facts.devices import find_device
from fitserve.facts.model_config import ModelConfig, parse_config
from fitserve.memory.options import Device
from fitserve.memory.resolve import Resolved, resolve
from fitserve.units import GIB


def config(**values: object) -> ModelConfig:
    """A configuration with these values."""
    return parse_config(
        json.dumps({"architectures": ["LlamaForCausalLM"], "hidden_size": 64, **values}).encode()
    )


def device(name: str) -> Device:
    """A device of the catalogue."""
    facts = find_device(name)
    assert facts is not None
    return Device(name=facts.name, total_bytes=facts.total_bytes, compute_capability=facts.compute_capability)


def resolved(version: str, name: str = "H100", length: int = 131072, **given: object) -> Resolved:
    """The settings of a start."""
    return resolve(config(max_position_embeddings=length), given, version=version, device=device(name))


BATCHES = [
    # version, device, context, max_num_seqs, max_num_batched_tokens
    ("0.5.0", "A100", 8192, 256, 8192),
    ("0.6.5", "A100", 65536, 256, 2048),
    ("0.6.4", "A100", 65536, 256, 512),
    ("0.8.5", "A100", 8192, 1024, 8192),
    ("0.10.2", "A100", 8192, 256, 2048),
    ("0.19.0", "H100", 8192, 1024, 8192),
    ("0.19.0", "L4", 8192, 256, 2048),
    ("0.30.0", "B200", 8192, 1024, 16384),
    ("0.32.0", "GB10", 8192, 1024, 8192),
    ("0.33.0", "GB10", 8192, 256, 2048),
]


@pytest.mark.parametrize(("version", "name", "length", "seqs", "tokens"), BATCHES)
def test_batch_sizes(version: str, name: str, length: int, seqs: int, tokens: int) -> None:
    """Sequences and tokens follow release and device."""
    options = resolved(version, name, length).options

    assert (seqs, tokens) == (options.max_num_seqs, options.max_num_batched_tokens)


@pytest.mark.parametrize(("version", "share"), [("0.19.1", 0.9), ("0.20.0", 0.92), ("0.33.0", 0.92)])
def test_utilization(version: str, share: float) -> None:
    """The share is 0.90 to 0.19 and 0.92 from 0.20 on, and says which release it is from."""
    found = resolved(version)

    assert share == found.options.gpu_memory_utilization
    assert f"default of {version}" == found.sources["gpu_memory_utilization"]


LENGTHS: list[tuple[dict[str, object], str, int]] = [
    ({"max_position_embeddings": 4096}, "0.32.0", 4096),
    ({"n_positions": 1024}, "0.32.0", 1024),
    ({"max_position_embeddings": 4096, "seq_length": 2048}, "0.32.0", 2048),
    ({}, "0.32.0", 2048),
    (
        {"max_position_embeddings": 8192, "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        "0.32.0",
        32768,
    ),
    (
        {"max_position_embeddings": 131072, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
        "0.32.0",
        131072,
    ),
    (
        {
            "max_position_embeddings": 131072,
            "original_max_position_embeddings": 4096,
            "rope_scaling": {"type": "longrope"},
        },
        "0.32.0",
        4096,
    ),
    (
        {
            "max_position_embeddings": 32768,
            "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
        },
        "0.11.0",
        131072,
    ),
    (
        {
            "max_position_embeddings": 163840,
            "rope_scaling": {"rope_type": "yarn", "factor": 40, "original_max_position_embeddings": 4096},
        },
        "0.32.0",
        163840,
    ),
]


@pytest.mark.parametrize(("values", "version", "tokens"), LENGTHS)
def test_derived_context(values: dict[str, object], version: str, tokens: int) -> None:
    """The context is what the configuration says, with the rope's factor."""
    found = resolve(config(**values), {}, version=version, device=device("H100"))

    assert tokens == found.options.max_model_len


@pytest.mark.parametrize(
    "given",
    [
        {"gpu_memory_utilization": 1.2},
        {"gpu_memory_utilization": 0},
        {"max_model_len": "long"},
        {"max_model_len": -5},
        {"max_num_seqs": 0},
        {"tensor_parallel_size": True},
    ],
)
def test_values_that_vllm_refuses(given: dict[str, object]) -> None:
    """A value of the wrong kind or range is the user's mistake."""
    with pytest.raises(UsageError):
        resolve(config(max_position_embeddings=4096), given, version="0.33.0", device=device("H100"))


def test_auto_fit_begins_at_the_model_s_length() -> None:
    """``max_model_len`` -1 asks for what fits, starting from the configuration's length."""
    found = resolved("0.20.0", max_model_len=-1)

    assert found.auto_fit
    assert found.options.max_model_len == 131072


@pytest.mark.parametrize(
    ("name", "total", "source"),
    [
        ("H100", 79.19, "measured"),
        ("rtx4090", 23.53, "measured"),
        ("DGX-Spark", 121.69, "measured"),
        ("L40S", 44.39, "measured"),
    ],
)
def test_catalogue(name: str, total: float, source: str) -> None:
    """A device is found in any spelling, with what cudaMemGetInfo reports there."""
    found = find_device(name)

    assert found is not None
    assert (total, source) == (found.total_gib, found.source)
    assert round(total * GIB) == found.total_bytes


def test_every_device_is_found_by_its_own_name() -> None:
    """Each entry of the catalogue answers to its full name, or to an entry of the same memory."""
    from fitserve.facts.devices import catalogue

    missed = []
    for entry in catalogue():
        found = find_device(entry.name)
        if found is None or abs(found.total_gib - entry.total_gib) > 0.5:
            missed.append(entry.name)

    assert missed == []
    assert len(catalogue()) >= 70
