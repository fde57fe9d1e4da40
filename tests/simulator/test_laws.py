"""Laws of the hidden truth: what must hold for any machine, model and settings; and the measured starts come out again."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitserve.simulator.machine import Device, known_devices
from fitserve.simulator.models import Measured, Model, known_models
from fitserve.simulator.releases import at_least
from fitserve.simulator.settings import Settings, resolve
from fitserve.simulator.start import Start, would_start

GIB = 1 << 30
RELEASES = ("0.8.5", "0.10.2", "0.12.0", "0.19.0", "0.24.0", "0.32.0")

devices = st.sampled_from(known_devices())
models = st.sampled_from(list(known_models().values()))
releases = st.sampled_from(RELEASES)
seeds = st.integers(0, 1 << 32)
words = st.fixed_dictionaries(
    {"max_model_len": st.integers(1, 8192)},
    optional={
        "gpu_memory_utilization": st.floats(0.3, 0.99),
        "max_num_seqs": st.integers(1, 1024),
        "max_num_batched_tokens": st.integers(1024, 32768),
        "enforce_eager": st.just(value=True),
        "tensor_parallel_size": st.sampled_from([1, 2, 4, 8]),
        "kv_cache_dtype": st.just("fp8"),
    },
)


def started(
    model: Model, device: Device, release: str, words: dict[str, Any], seed: int, *, free: int | None = None
) -> Start:
    """How a start ends on an empty device, or one with that much free."""
    settings = resolve(words, release, device, model, {})
    size = device.total_bytes if free is None else free
    return would_start(model, settings, device, [size] * settings.world_size, seed)


@given(models, devices, releases, words, seeds)
def test_a_longer_context_never_needs_less(
    model: Model, device: Device, release: str, words: dict[str, Any], seed: int
) -> None:
    """Neither bytes nor blocks go down when the context grows by one token."""
    pool = started(model, device, release, words, seed).pool
    length = words["max_model_len"]

    assert pool.needed_bytes(length) <= pool.needed_bytes(length + 1)
    assert pool.blocks_per_request(length) <= pool.blocks_per_request(length + 1)


@given(models, devices, releases, words, st.tuples(seeds, st.integers(0, 8 * GIB)))
def test_a_neighbour_never_helps(
    model: Model, device: Device, release: str, words: dict[str, Any], drawn: tuple[int, int]
) -> None:
    """What does not start alone does not start beside another."""
    seed, held = drawn
    alone = started(model, device, release, words, seed)
    beside = started(model, device, release, words, seed, free=device.total_bytes - held)

    assert alone.cause is None or beside.cause is not None


@given(models, devices, releases, words, seeds)
def test_the_suggested_length_starts_and_one_more_does_not(
    model: Model, device: Device, release: str, words: dict[str, Any], seed: int
) -> None:
    """The longest context that the error names passes the same check, and no longer one does."""
    start = started(model, device, release, {**words, "max_model_len": model.longest}, seed)
    if start.cause != "kv-cache-smaller-than-context":
        return
    fits = start.pool.longest(start.available_bytes, start.max_model_len)

    assert fits == 0 or start.pool.needed_bytes(fits) <= start.available_bytes
    assert start.pool.needed_bytes(fits + 1) > start.available_bytes


@given(models, devices, releases, words, seeds)
def test_a_serving_start_holds_what_it_promises(
    model: Model, device: Device, release: str, words: dict[str, Any], seed: int
) -> None:
    """One request of the whole length fits, and everything together fits the device."""
    start = started(model, device, release, words, seed)
    if start.cause is not None:
        return
    needs = start.needs
    held = (
        needs.context + needs.weights + needs.non_torch + needs.graphs + start.blocks * start.pool.block_bytes
    )
    first_group_alone = len(start.pool.groups) > start.pool.checked_groups

    assert held <= device.total_bytes
    assert first_group_alone or start.at_once(start.max_model_len) >= 1


@given(models, devices, releases, words, seeds)
def test_more_ranks_never_hold_more_weights_each(
    model: Model, device: Device, release: str, words: dict[str, Any], seed: int
) -> None:
    """Twice the ranks, at most the weights."""
    one = started(model, device, release, {**words, "tensor_parallel_size": 1}, seed)
    two = started(model, device, release, {**words, "tensor_parallel_size": 2}, seed)

    assert two.needs.weights <= one.needs.weights


@given(models, devices, releases, words, seeds)
def test_without_graphs_nothing_is_captured(
    model: Model, device: Device, release: str, words: dict[str, Any], seed: int
) -> None:
    """An eager start has no graphs and no estimate, and never less room for the cache."""
    graphs = started(model, device, release, {**words, "enforce_eager": False}, seed)
    eager = started(model, device, release, {**words, "enforce_eager": True}, seed)

    assert (0, 0) == (eager.needs.graphs, eager.needs.estimate)
    assert eager.available_bytes >= graphs.available_bytes or graphs.available_bytes == 0


MEASURED = [
    (name, row)
    for name, model in known_models().items()
    for row in model.measured
    if row.kv_available_gib
    and row.total_gib == 79.19
    and row.max_num_seqs
    and at_least(str(row.vllm_version), "0.15.0")
]


def settings_of(model: Model, row: Measured, device: Device) -> Settings:
    """The settings of a measured start."""
    given: dict[str, Any] = {
        name: getattr(row, name)
        for name in (
            "gpu_memory_utilization",
            "tensor_parallel_size",
            "pipeline_parallel_size",
            "max_num_seqs",
            "max_num_batched_tokens",
        )
    }
    return resolve({**given, "max_model_len": 8192}, str(row.vllm_version), device, model, {})


@pytest.mark.parametrize(
    ("name", "row"), MEASURED, ids=[f"{name}-{row.vllm_version}" for name, row in MEASURED]
)
def test_a_measured_start_comes_out_again(name: str, row: Measured) -> None:
    """The cache has the measured size within the noise that a seed may draw, and a token takes what was measured."""
    model = known_models()[name]
    device = next(one for one in known_devices() if abs(one.total_bytes / GIB - row.total_gib) < 0.02)
    settings = settings_of(model, row, device)
    start = would_start(model, settings, device, [device.total_bytes] * settings.world_size, 5)
    own = row.weights_gib + row.activation_gib + row.non_torch_gib

    assert row.kv_available_gib is not None
    assert row.kv_available_gib == pytest.approx(start.available_bytes / GIB, abs=0.05 * own)
    if row.kv_tokens and row.pipeline_parallel_size == 1:  # the smallest stage decides, and only one is known
        shown = start.pool.shown_tokens(
            start.pool.blocks(int(row.kv_available_gib * GIB)), 8192, str(row.vllm_version)
        )
        assert row.kv_tokens == pytest.approx(shown, rel=0.005)


def test_every_device_and_model_is_whole() -> None:
    """Devices have a board larger than what CUDA counts; models have what the laws ask for."""
    for device in known_devices():
        assert 0 <= device.board_mib - device.total_bytes // (1 << 20) < 1600
    for model in known_models().values():
        assert msgspec.to_builtins(model.cache)["full"] > 0
        assert {"hidden_size", "vocab_size", "num_hidden_layers", "num_attention_heads"} <= model.text.keys()
