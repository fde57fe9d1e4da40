"""The models that can be simulated: their configurations, what was measured of them, and the shape of their caches (o: files)."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from fitserve.simulator.checkpoint import write_checkpoint
from fitserve.simulator.releases import read_data


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """A measured start. Sizes in GiB; the settings as vLLM spells them."""

    total_gib: float
    weights_gib: float
    activation_gib: float
    non_torch_gib: float = 0.1
    graphs_gib: float | None = None
    estimate_gib: float | None = None
    kv_available_gib: float | None = None
    kv_tokens: int | None = None
    vllm_version: str | None = None
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    gpu_memory_utilization: float = 0.9
    kv_cache_dtype: str = "auto"
    quantization: str | None = None


class Cache(msgspec.Struct, frozen=True, kw_only=True):
    """The layers that keep something of each sequence.

    Attributes:
        full: layers that attend to everything.
        sliding: layers that attend to ``window`` tokens.
        state: layers that keep ``state_bytes`` of a sequence, however long it is.
        image_tokens: of the largest image; 0 for a model without eyes.
        latent: width of the one vector that a layer keeps of a token, instead of keys and values.
    """

    full: int
    kv_heads: int
    head_dim: int
    sliding: int = 0
    window: int = 0
    state: int = 0
    state_bytes: int = 0
    latent: int = 0
    image_tokens: int = 0


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A model: its configuration, its cache, and what was measured of it."""

    name: str
    config: dict[str, Any]
    cache: Cache
    measured: tuple[Measured, ...]

    @property
    def text(self) -> dict[str, Any]:
        """The part of the configuration that describes the language model."""
        found: dict[str, Any] = self.config.get("text_config", self.config)
        return found

    @property
    def longest(self) -> int:
        """The longest context that the configuration allows."""
        return int(self.text["max_position_embeddings"])

    @property
    def quantization(self) -> str | None:
        """The method of its checkpoint; None where it is not quantised."""
        given = self.config.get("quantization_config")
        return None if given is None else str(given.get("quant_method"))


@cache
def known_models() -> dict[str, Model]:
    """Every model that can be simulated, by name."""
    return {
        name: Model(
            name=name,
            config=entry["config"],
            cache=msgspec.convert(entry["kv"], Cache),
            measured=tuple(msgspec.convert(row, Measured, strict=False) for row in entry["measured"]),
        )
        for name, entry in read_data("models.json").items()
    }


def make_model(folder: Path, name: str, **changes: Any) -> Path:
    """Write a model's folder: its configuration, a tokenizer's, and a checkpoint's header (its weights are a hole in the file). ``changes`` overwrite entries of the configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {**known_models()[name].config, "_name_or_path": name, **changes}
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    tokenizer = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (folder / "tokenizer.json").write_text(
        json.dumps({"version": "1.0", "model": {"type": "BPE"}}), encoding="utf-8"
    )
    write_checkpoint(folder, config)
    return folder


def find_model(place: str) -> Model | None:
    """The model of a folder, by its configuration's ``_name_or_path``, or of a name; None where it is unknown."""
    path = Path(place) / "config.json"
    if not path.is_file():
        return known_models().get(place)
    config = json.loads(path.read_text(encoding="utf-8"))
    known = known_models().get(str(config.get("_name_or_path")))
    return None if known is None else msgspec.structs.replace(known, config=config)
