"""What drafts: its weights and its part of the cache, as vLLM's own code has them.

Each row of ``measured_drafts.jsonl`` was measured with vLLM 0.32.0 on torch's meta device, as one rank of a pretended start on a
pretended H100: the model and what drafts were built with one configuration, as a start does, the parameters of the drafting part were
added without the embeddings and output layers that vLLM then replaces by the model's own, and the cache was laid out.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fitserve.errors import UsageError
from fitserve.facts.checkpoint import Checkpoint
from fitserve.facts.model_config import ModelConfig, parse_config
from fitserve.memory.budget import rank_budgets
from fitserve.memory.kv import KvCache, Refusal, capacity, layer_specs
from fitserve.memory.options import EngineOptions
from fitserve.memory.resolve import Resolved, resolve
from fitserve.memory.weights.ranks import config_weights
from fitserve.units import Quantity, Unknown

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parent / "measured_drafts.jsonl").read_text(encoding="utf-8").splitlines()
]
PUBLISHED = [
    json.loads(line)
    for line in (Path(__file__).parent / "measured_drafts_published.jsonl")
    .read_text(encoding="utf-8")
    .splitlines()
]
LLAMA = next(row["config"] for row in ROWS if row["model"] == "llama")
HEAD = next(row["draft"] for row in ROWS if row["spec"]["method"] == "eagle3")


def parsed(config: dict[str, Any]) -> ModelConfig:
    """A configuration as it is read."""
    return parse_config(json.dumps(config).encode())


def settled(config: dict[str, Any], given: dict[str, Any], version: str = "0.32.0") -> Resolved:
    """Settings with all defaults, on an H100."""
    return resolve(parsed(config), given, version=version, device=EngineOptions().device)


def with_folder(row: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The row's settings, with its drafting model in a folder."""
    spec = dict(row["spec"])
    if "draft" in row:
        (folder / "config.json").write_text(json.dumps(row["draft"]), encoding="utf-8")
        spec["model"] = str(folder)
    return {"speculative_config": spec, "enforce_eager": True, **row["settings"]}


def label(row: dict[str, Any]) -> str:
    """A row's name."""
    return f"{row['spec']['method']}-{row['model']}-{row['settings'].get('tensor_parallel_size', 1)}"


@pytest.mark.parametrize("row", ROWS, ids=label)
def test_what_drafts_takes_what_vllm_registers(row: dict[str, Any], tmp_path: Path) -> None:
    """Heads share the embeddings where their files are not known to hold them: then the size is an interval."""
    found = config_weights(parsed(row["config"]), settled(row["config"], with_folder(row, tmp_path)).options)

    assert isinstance(found, tuple), found
    assert (found[0].draft_bytes.low, found[0].draft_bytes.high) == (row["low"], row["high"])


@pytest.mark.parametrize("row", ROWS, ids=label)
def test_drafting_layers_stand_in_the_cache(row: dict[str, Any], tmp_path: Path) -> None:
    """Blocks, tokens and concurrency are vLLM's, with the drafting layers among the model's or in groups of their own."""
    options = settled(row["config"], with_folder(row, tmp_path)).options
    specs = layer_specs(parsed(row["config"]), options)

    assert not isinstance(specs, Unknown), specs
    for cache in row["caches"]:
        found = capacity(specs, options, cache["kv_cache_bytes"])
        assert isinstance(found, KvCache)
        assert (found.num_blocks, found.tokens) == (cache["num_blocks"], cache["tokens"])
        assert found.max_concurrency == pytest.approx(cache["max_concurrency"])


@pytest.mark.parametrize("row", PUBLISHED, ids=label)
def test_published_models_draft_with_their_own_modules(
    row: dict[str, Any], published: Callable[[str], Checkpoint]
) -> None:
    """Modules of DeepSeek and Qwen3.5: their weights, and the blocks or the refusal with them in the cache."""
    config = published(row["model"]).config
    options = settled(config.data, {"speculative_config": row["spec"], **row["settings"]}).options
    weights, specs = config_weights(config, options), layer_specs(config, options)

    assert isinstance(weights, tuple), weights
    assert not isinstance(specs, Unknown), specs
    assert weights[0].draft_bytes.expected == row["draft_bytes"]
    for cache in row["caches"]:
        found = capacity(specs, options, cache["kv_cache_bytes"])
        if "num_blocks" in cache:
            assert isinstance(found, KvCache)
            assert (found.num_blocks, found.tokens) == (cache["num_blocks"], cache["tokens"])
        else:
            assert isinstance(found, Refusal)
            assert found.estimated_max_model_len == cache["longest"]


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({"speculative_config": {"method": "eagle3", "model": "ORG/HEAD"}}, "ORG/HEAD"),
        ({"speculative_config": {"model": "ORG/SMALL", "num_speculative_tokens": 3}}, "ORG/SMALL"),
        ({"spec_model": "ORG/SHORT", "spec_method": "draft_model", "spec_tokens": 2}, "ORG/SHORT"),
        ({"speculative_model": "ORG/OLD", "num_speculative_tokens": 3}, "ORG/OLD"),
        ({"speculative_config": {"method": "mtp", "num_speculative_tokens": 1}}, "LlamaForCausalLM"),
        ({"speculative_config": {"method": "dflash", "num_speculative_tokens": 1}}, "dflash"),
    ],
)
def test_what_is_not_at_hand_is_named(given: dict[str, Any], missing: str) -> None:
    """Neither the weights nor the cache are guessed: the answer names the model or the method."""
    options = settled(LLAMA, given).options

    weights, specs = config_weights(parsed(LLAMA), options), layer_specs(parsed(LLAMA), options)

    assert isinstance(weights, Unknown)
    assert missing in weights.unknown
    assert isinstance(specs, Unknown)
    assert missing in specs.unknown


@pytest.mark.parametrize("given", [{"method": "ngram"}, {"model": "[ngram]"}, {"method": "suffix"}])
def test_drafting_from_the_text_takes_no_weights(given: dict[str, Any]) -> None:
    """There is nothing to load, and no layer more."""
    options = settled(LLAMA, {"speculative_config": {**given, "num_speculative_tokens": 4}}).options
    found = config_weights(parsed(LLAMA), options)

    assert isinstance(found, tuple)
    assert found[0].draft_bytes.high == 0
    assert layer_specs(parsed(LLAMA), options) == layer_specs(
        parsed(LLAMA), EngineOptions(max_model_len=4096)
    )


def test_a_head_whose_files_hold_no_embeddings_shares_them(tmp_path: Path) -> None:
    """With headers at hand the interval closes."""
    header = json.dumps({"fc.weight": {"dtype": "BF16", "shape": [1, 1], "data_offsets": [0, 2]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0\0")
    row = next(row for row in ROWS if row["spec"]["method"] == "eagle3")

    found = config_weights(parsed(LLAMA), settled(LLAMA, with_folder(row, tmp_path)).options)

    assert isinstance(found, tuple)
    assert found[0].draft_bytes.low == found[0].draft_bytes.high == row["low"]


def test_only_the_last_stage_drafts(tmp_path: Path) -> None:
    """With two pipeline stages the first one holds nothing of it, and the last one its own embeddings."""
    row = next(row for row in ROWS if label(row) == "eagle3-llama-1")
    given = {**with_folder(row, tmp_path), "tensor_parallel_size": 1, "pipeline_parallel_size": 2}

    found = config_weights(parsed(LLAMA), settled(LLAMA, given).options)

    assert isinstance(found, tuple)
    assert [rank.draft_bytes.expected for rank in found] == [0, row["high"]]


def test_drafting_widens_the_activations(tmp_path: Path) -> None:
    """A row of logits for each drafted token more, and buffers: expected more, at least the same."""
    row = next(row for row in ROWS if label(row) == "eagle-llama-1")
    sizes: list[Quantity] = []
    for given in ({"enforce_eager": True}, with_folder(row, tmp_path)):
        resolved = settled(LLAMA, given)
        ranks = rank_budgets(parsed(LLAMA), resolved, config_weights(parsed(LLAMA), resolved.options))
        assert isinstance(ranks[0].activation_bytes, Quantity)
        sizes.append(ranks[0].activation_bytes)

    logits, buffers = 2 * 1024 * 32003 * 2, 2 * 8192 * 512 * 2
    assert sizes[1].expected - sizes[0].expected == logits + buffers
    assert sizes[1].low == sizes[0].low
    assert sizes[1].high > sizes[1].expected


@pytest.mark.parametrize(
    "given",
    [
        {"speculative_config": "{no"},
        {"speculative_config": 3},
        {"speculative_config": {"method": "ngram", "num_speculative_tokens": 1_000}},
        {"speculative_config": {"method": "ngram", "num_speculative_tokens": "four"}},
    ],
)
def test_wrong_settings_are_a_usage_error(given: dict[str, Any]) -> None:
    """No traceback for what cannot be meant."""
    with pytest.raises(UsageError):
        settled(LLAMA, given)


@pytest.mark.parametrize(
    "spec", [{"method": "ngram"}, {"method": "mtp"}, {"method": "ngram", "num_speculative_tokens": 0}]
)
def test_how_many_tokens_are_drafted_is_said(spec: dict[str, Any]) -> None:
    """Without a drafting model that says it, or of none at all, vLLM drafts nothing: it refuses."""
    with pytest.raises(UsageError) as caught:
        settled(LLAMA, {"speculative_config": spec})

    assert "num_speculative_tokens" in caught.value.what


def test_suffixes_have_a_depth_of_their_own() -> None:
    """Where the number is not given, the depth of the suffix tree counts."""
    assert 24 == settled(LLAMA, {"speculative_config": {"method": "suffix"}}).options.num_speculative_tokens
