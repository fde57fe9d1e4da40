"""Laws that hold for every KV cache, whatever the model and the release."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitserve.facts.model_config import ModelConfig
from fitserve.memory.kv import KvCache, LayerSpec, Refusal, capacity, layer_specs
from fitserve.memory.options import EngineOptions
from fitserve.units import GIB, Unknown

CONFIGS: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("vllm_configs.json").read_text(encoding="utf-8")
)
MODELS = sorted(name for name, data in CONFIGS.items() if "Bert" not in data["architectures"][0])
RELEASES = ["0.8.5", "0.9.2", "0.10.2", "0.12.0", "0.15.0", "0.19.0", "0.22.0", "0.26.0", "0.29.0", "0.33.0"]

models = st.sampled_from(MODELS)
releases = st.sampled_from(RELEASES)
lengths = st.integers(1, 1 << 20)
memories = st.integers(1 << 20, 200 * GIB)


def specs_of(model: str, options: EngineOptions) -> tuple[LayerSpec, ...] | None:
    """A model's layers; None where they are not modelled."""
    data = CONFIGS[model]
    specs = layer_specs(ModelConfig(data=data, text=data), options)
    return None if isinstance(specs, Unknown) or not specs else specs


@given(model=models, release=releases, memory=memories, length=lengths, more=st.integers(0, 50 * GIB))
@settings(max_examples=300, deadline=None)
def test_more_memory_never_gives_fewer_blocks(
    model: str, release: str, memory: int, length: int, more: int
) -> None:
    """What fits in some memory fits in more, with at least as many blocks."""
    options = EngineOptions(vllm_version=release, max_model_len=length)
    specs = specs_of(model, options)
    if specs is None:
        return
    small, large = capacity(specs, options, memory), capacity(specs, options, memory + more)
    if isinstance(small, KvCache):
        assert isinstance(large, KvCache)
        assert small.num_blocks <= large.num_blocks


@given(model=models, release=releases, length=lengths, longer=st.integers(0, 1 << 20))
@settings(max_examples=300, deadline=None)
def test_a_longer_context_never_needs_less(model: str, release: str, length: int, longer: int) -> None:
    """The bytes that one request needs grow with its length."""
    needed = []
    for tokens in (length, length + longer):
        options = EngineOptions(vllm_version=release, max_model_len=tokens, max_num_batched_tokens=512)
        specs = specs_of(model, options)
        if specs is None:
            return
        found = capacity(specs, options, 1)
        needed.append(found.needed_bytes if isinstance(found, Refusal) else 0)

    assert needed[0] <= needed[1]


@given(model=models, release=releases, ranks=st.sampled_from([1, 2, 4, 8]))
@settings(max_examples=200, deadline=None)
def test_more_ranks_never_take_more_bytes_each(model: str, release: str, ranks: int) -> None:
    """A rank of many keeps no more for a layer than the only rank."""
    alone = specs_of(model, EngineOptions(vllm_version=release, max_model_len=8192))
    shared = specs_of(
        model, EngineOptions(vllm_version=release, max_model_len=8192, tensor_parallel_size=ranks)
    )
    if alone is None or shared is None or any(spec.kind == "state" for spec in alone):
        return

    assert sum(spec.page_bytes * len(spec.layers) for spec in shared) <= sum(
        spec.page_bytes * len(spec.layers) for spec in alone
    )


@given(model=models, release=releases, memory=memories, length=lengths)
@settings(max_examples=300, deadline=None)
def test_an_estimated_length_fits_and_the_next_does_not(
    model: str, release: str, memory: int, length: int
) -> None:
    """A request of the length that a refusal names is accepted; one token more is refused."""
    options = EngineOptions(vllm_version=release, max_model_len=length)
    specs = specs_of(model, options)
    if specs is None or any(spec.kind == "state" for spec in specs):
        return
    found = capacity(specs, options, memory)
    if not isinstance(found, Refusal) or not found.estimated_max_model_len:
        return
    if not isinstance(capacity(specs, options, 1 << 60), KvCache):
        return  # up to 0.13 the length is checked before pages that cannot share a pool are found
    estimate = found.estimated_max_model_len
    fits = EngineOptions(vllm_version=release, max_model_len=estimate)
    too_long = EngineOptions(vllm_version=release, max_model_len=estimate + 1)

    assert isinstance(capacity(specs, fits, memory), KvCache)
    assert isinstance(capacity(specs, too_long, memory), Refusal)


@given(model=models, release=releases, memory=memories)
@settings(max_examples=300, deadline=None)
def test_the_longest_length_that_fits_is_the_longest(model: str, release: str, memory: int) -> None:
    """``max_model_len_that_fits`` is accepted, and one token more is refused."""
    options = EngineOptions(vllm_version=release, max_model_len=1)
    specs = specs_of(model, options)
    if specs is None or any(spec.kind == "state" for spec in specs):
        return
    found = capacity(specs, options, memory)
    if not isinstance(found, KvCache) or found.max_model_len_that_fits is None:
        return
    longest = found.max_model_len_that_fits

    for tokens, accepted in ((longest, KvCache), (longest + 1, Refusal)):
        asked = EngineOptions(vllm_version=release, max_model_len=tokens)
        assert isinstance(capacity(specs, asked, memory), accepted)


@given(model=models, stages=st.sampled_from([2, 3, 4]), memory=memories, release=releases)
@settings(max_examples=200, deadline=None)
def test_stages_share_the_layers(model: str, stages: int, memory: int, release: str) -> None:
    """Every layer is on one stage, and a stage's block takes no more than all layers' block."""
    whole = EngineOptions(vllm_version=release, max_model_len=16)
    parts = EngineOptions(vllm_version=release, max_model_len=16, pipeline_parallel_size=stages)
    together, apart = specs_of(model, whole), specs_of(model, parts)
    if together is None or apart is None:
        return

    assert sum(len(spec.layers) for spec in together) == sum(len(spec.stages) for spec in apart)
    one, many = capacity(together, whole, memory), capacity(apart, parts, memory)
    if isinstance(one, KvCache) and isinstance(many, KvCache) and len(one.groups) == 1:
        assert many.bytes_per_block <= one.bytes_per_block


@pytest.mark.parametrize("release", ["0.8.5", "0.19.0", "0.33.0"])
def test_a_configuration_with_damage_never_raises(release: str) -> None:
    """Numbers that are missing or no numbers give an unknown, not an exception."""
    for data in CONFIGS.values():
        for key in data:
            for damage in (None, "x", -1, [], 1.5):
                broken = {**data, key: damage}
                if key == "architectures":
                    continue
                options = EngineOptions(vllm_version=release, max_model_len=4096)
                specs = layer_specs(ModelConfig(data=broken, text=broken), options)
                if not isinstance(specs, Unknown) and specs:
                    capacity(specs, options, GIB)
