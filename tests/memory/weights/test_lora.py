"""The slots for LoRA adapters, as vLLM's own layers allocate them, and by hand for releases that are not at hand.

Each row of ``measured_lora.jsonl`` was measured with vLLM 0.32.0: its model was built on torch's meta device like those of
``measured_small.jsonl``, whose configurations they are; then vLLM's ``LoRAModelManager`` put its layers in, for batches of 8,192
tokens and 256 sequences, and the bytes of all its tensors on the device were added. ``measured_lora_published.jsonl`` names
configurations that ``aiconfigurator-core`` carries.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fitserve.facts.checkpoint import Checkpoint
from fitserve.facts.model_config import ModelConfig, parse_config
from fitserve.memory.options import EngineOptions, LoraOptions
from fitserve.memory.resolve import resolve
from fitserve.memory.weights.ranks import RankWeights, config_weights
from fitserve.units import Unknown

FOLDER = Path(__file__).parent
ROWS = [json.loads(line) for line in (FOLDER / "measured_lora.jsonl").read_text().splitlines()]
PUBLISHED = [json.loads(line) for line in (FOLDER / "measured_lora_published.jsonl").read_text().splitlines()]
CONFIGS: dict[str, dict[str, Any]] = {}
for _line in (FOLDER / "measured_small.jsonl").read_text().splitlines():
    _row = json.loads(_line)
    CONFIGS.setdefault(_row["model"], _row["config"])


def config(model: str) -> ModelConfig:
    """One of the small configurations."""
    return parse_config(json.dumps(CONFIGS[model]).encode())


def first_rank(found: tuple[RankWeights, ...] | Unknown) -> RankWeights:
    """The first rank, which must be known."""
    assert isinstance(found, tuple), found
    return found[0]


def label(row: dict[str, Any]) -> str:
    """A row's name."""
    return f"{row['model']}{row['settings'] or ''}{row['lora']}"


@pytest.mark.parametrize("row", ROWS, ids=label)
def test_adapters_take_what_vllm_allocates(row: dict[str, Any]) -> None:
    """Every family, way of dividing and option takes exactly the bytes that vLLM allocates; the model itself is as before."""
    lora = {**row["lora"]}
    if "lora_target_modules" in lora:
        lora["lora_target_modules"] = tuple(lora["lora_target_modules"])
    options = EngineOptions(
        vllm_version="0.32.0", max_num_batched_tokens=8192, lora=LoraOptions(**lora), **row["settings"]
    )

    rank = first_rank(config_weights(config(row["model"]), options))

    assert (rank.lora_bytes.low, rank.lora_bytes.high) == (row["lora_bytes"], row["lora_bytes"])
    assert rank.param_bytes.expected == row["param_bytes"]


@pytest.mark.parametrize("row", PUBLISHED, ids=label)
def test_adapters_of_published_models(row: dict[str, Any], published: Callable[[str], Checkpoint]) -> None:
    """The same for architectures that have no small configuration here."""
    options = EngineOptions(
        vllm_version="0.32.0", max_num_batched_tokens=8192, lora=LoraOptions(**row["lora"]), **row["settings"]
    )

    rank = first_rank(config_weights(published(row["model"]).config, options))

    assert (rank.lora_bytes.low, rank.lora_bytes.high) == (row["lora_bytes"], row["lora_bytes"])


HIDDEN, INNER, LAYERS, VOCABULARY, BATCH = 512, 1408, 5, 32003, 8 * (4 * 8192 + 3 * 256)


def test_adapters_before_0_12_have_tokens_of_their_own() -> None:
    """0.9.2: 256 more tokens a slot in the embeddings' adapters, and in the model's own embeddings. By hand from its layers.

    Source: vLLM 0.9.2 ``lora/layers.py`` and ``models/llama.py``: Llama of 5 layers, 8 heads of 64 and 4 for keys and values, one
    slot of rank 16 in 16 bit.
    """
    options = EngineOptions(vllm_version="0.9.2", max_num_batched_tokens=8192, lora=LoraOptions())
    plain = first_rank(config_weights(config("llama"), EngineOptions(vllm_version="0.9.2")))

    rank = first_rank(config_weights(config("llama"), options))

    qkv = 3 * 16 * HIDDEN + 16 * (512 + 256 + 256)
    out = 16 * (512 + HIDDEN)
    mlp = 2 * 16 * (HIDDEN + INNER) + 16 * (INNER + HIDDEN)
    embeddings = 16 * (VOCABULARY + 256 + HIDDEN) + 256 * HIDDEN
    head = 16 * (32512 + HIDDEN) + 256 * HIDDEN  # 32,259 tokens, padded to 256
    kernels = 2 * 4 * (2 * 8192 + 2 * 2 + 3)
    assert rank.lora_bytes.expected == 2 * (LAYERS * (qkv + out + mlp) + embeddings + head) + BATCH + kernels
    # Both the embeddings and the output layer grow from 32,064 padded rows to 32,320.
    assert rank.param_bytes.expected - plain.param_bytes.expected == 2 * 256 * HIDDEN * 2


@pytest.mark.parametrize(("version", "experts"), [("0.11.0", False), ("0.11.1", True), ("0.32.0", True)])
def test_experts_take_adapters_from_0_11_1_on(version: str, experts: bool) -> None:
    """Mixtral's experts have no adapters before."""
    options = EngineOptions(vllm_version=version, lora=LoraOptions())

    found = first_rank(config_weights(config("mixtral"), options)).lora_bytes.expected

    assert (found > 5_000_000) is experts


@pytest.mark.parametrize(
    ("model", "version"),
    [("falcon", "0.32.0"), ("mamba", "0.32.0"), ("bert", "0.26.0"), ("llava", "0.12.0"), ("opt", "0.9.2")],
)
def test_models_that_vllm_refuses_with_adapters_are_not_counted(model: str, version: str) -> None:
    """Where the model class takes no adapters, the answer says so instead of a size."""
    found = config_weights(config(model), EngineOptions(vllm_version=version, lora=LoraOptions()))

    assert isinstance(found, Unknown)
    assert "LoRA" in found.unknown


def test_architectures_that_were_not_compared_get_an_interval() -> None:
    """A multimodal class that is not in the table: half to twice, and the reason."""
    found = first_rank(
        config_weights(config("qwen3reranker"), EngineOptions(vllm_version="0.32.0", lora=LoraOptions()))
    ).lora_bytes

    assert found.low * 2 <= found.expected <= found.high // 2 + 1
    assert "Qwen3ForSequenceClassification" in found.source


def test_settings_of_adapters_are_read() -> None:
    """Flags become the options; without the switch they count for nothing."""
    given = {"max_loras": 4, "max_lora_rank": 64, "lora_target_modules": ["o_proj"], "lora_dtype": "float16"}
    device = EngineOptions().device

    off = resolve(config("llama"), given, version="0.32.0", device=device).options.lora
    on = resolve(
        config("llama"), {"enable_lora": True, **given}, version="0.32.0", device=device
    ).options.lora

    assert off is None
    assert on == LoraOptions(
        max_loras=4, max_lora_rank=64, lora_target_modules=("o_proj",), lora_dtype="float16"
    )


@pytest.mark.parametrize(("rank", "refused"), [(24, True), (64, False)])
def test_a_rank_that_vllm_does_not_take(rank: int, refused: bool) -> None:
    """Only some ranks are taken, whatever the memory; without the switch none is looked at."""
    device = EngineOptions().device
    given = {"enable_lora": True, "max_lora_rank": rank}

    found = resolve(config("llama"), given, version="0.32.0", device=device).refused
    off = resolve(config("llama"), {"max_lora_rank": rank}, version="0.32.0", device=device).refused

    assert any(f"max_lora_rank {rank}" in reason for reason in found) is refused
    assert off == ()
