"""Processes do what the pure function says: they end as it says, and print the cache that it reckons."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from fitserve.simulator.machine import Machine, device_called, known_devices
from fitserve.simulator.models import known_models
from fitserve.simulator.refusals import refuse_settings
from fitserve.simulator.settings import resolve
from fitserve.simulator.start import would_start

READY = "Application startup complete."
RELEASES = ("0.10.2", "0.12.0", "0.19.0", "0.24.0", "0.32.0")


def draw(seed: int) -> tuple[Machine, str, dict[str, Any]]:
    """A machine, a model, and arguments by name."""
    dice = random.Random(seed)
    device = dice.choice([one for one in known_devices() if one.capability >= (8, 0)])
    machine = Machine(device=device, count=2, vllm_version=dice.choice(RELEASES), seed=seed, speed=4000.0)
    name = dice.choice(sorted(known_models()))
    given = {
        "max_model_len": dice.choice([2048, 4096, 8192]),
        "gpu_memory_utilization": dice.choice([0.5, 0.7, 0.85, 0.9, 0.95, 0.98]),
        "max_num_seqs": dice.choice([16, 128, 256]),
        "max_num_batched_tokens": dice.choice([1024, 4096, 16384]),
        "tensor_parallel_size": dice.choice([1, 2]),
    }
    return machine, name, given


@pytest.mark.parametrize("seed", range(24))
def test_a_process_ends_as_its_truth_says(seed: int, site: Callable[..., Any], free_port: int) -> None:
    """It serves where the function says so, with the same cache; else it ends with code 1."""
    machine, name, given = draw(seed)
    model = known_models()[name]
    settings = resolve(given, machine.vllm_version, machine.device, model, {})
    refused = refuse_settings(settings, model, machine, 2, {}) is not None
    free = [machine.device.total_bytes] * settings.world_size
    start = would_start(model, settings, machine.device, free, seed)
    place = site(
        machine.device.short, model=name, count=2, vllm_version=machine.vllm_version, seed=seed, speed=4000.0
    )
    words = [word for key, value in given.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    process, log = place.start(*words, "--port", str(free_port))
    text = place.until(log, READY, process)

    assert machine.device == device_called(machine.device.short)
    if refused or start.cause is not None:
        assert 1 == process.wait()
    else:
        assert READY in text
        assert f"KV cache size: {start.tokens:,} tokens" in text
