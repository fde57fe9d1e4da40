"""The caches of cosines and sines that a model keeps for its positions.

A cache has a row for each position and ``rotary_dim`` columns in the model's dtype; layers with equal settings share
one. It does not depend on ``max_model_len``, so a model for ten million positions pays for all of them.

Source: vLLM 0.32 ``layers/rotary_embedding``.
"""

from typing import Any

from fitserve.facts.model_config import read_integer
from fitserve.memory.weights.inventory import Inventory
from fitserve.memory.weights.model import Build
from fitserve.memory.weights.shapes import NotModelledError

_NESTED = ("full_attention", "sliding_attention", "linear_attention", "chunked_attention")


def rope_parameters(text: dict[str, Any], layer_type: str | None = None) -> dict[str, Any]:
    """The position settings of a configuration, in the new spelling or the old; those of one kind of layers."""
    found = text.get("rope_parameters")
    if isinstance(found, dict) and found:
        if layer_type is not None and isinstance(found.get(layer_type), dict):
            return dict(found[layer_type])
        if not any(isinstance(found.get(name), dict) for name in _NESTED):
            return dict(found)
    scaling = text.get("rope_scaling")
    return dict(scaling) if isinstance(scaling, dict) else {}


def _number(parameters: dict[str, Any], name: str) -> float:
    value = parameters.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1 << 40:
        raise NotModelledError(f"rope scaling without a usable {name}")
    return float(value)


def rotary_dim(text: dict[str, Any], parameters: dict[str, Any], head_dim: int) -> int:
    """Columns of the cache: the part of a head that turns."""
    if "rope_dim" in parameters:
        return int(_number(parameters, "rope_dim"))
    for place in (parameters, text):
        for name in ("partial_rotary_factor", "rotary_pct", "rotary_emb_fraction"):
            if place.get(name) is not None:
                return int(head_dim * _number(place, name))
    return head_dim


def rotary_rows(parameters: dict[str, Any], max_position: int, *, mrope_factor: int = 4) -> int:
    """Rows of the cache: the positions that the scaling covers."""
    kind = str(parameters.get("rope_type") or parameters.get("type") or "default")
    mrope = "mrope_section" in parameters
    match kind:
        case "default" | "mrope":
            return max_position * mrope_factor if mrope or kind == "mrope" else max_position
        case "llama3" | "proportional" | "mllama4" | "dynamic":
            return max_position
        case "linear" | "ntk":
            return int(max_position * _number(parameters, "factor"))
        case "yarn" | "deepseek_yarn" | "deepseek_llama_scaling":
            known = "original_max_position_embeddings" in parameters
            original = int(_number(parameters, "original_max_position_embeddings")) if known else max_position
            return original * mrope_factor if mrope else int(original * _number(parameters, "factor"))
        case "longrope" | "su":
            return int(_number(parameters, "original_max_position_embeddings")) + max_position
        case _:
            raise NotModelledError(f"rope scaling {kind!r}")


def add_rotary(
    inventory: Inventory,
    text: dict[str, Any],
    head_dim: int,
    *,
    source: str,
    layer_type: str | None = None,
    columns: int | None = None,
    max_position: int | None = None,
    mrope_factor: int = 4,
    key: object = None,
    element: int | None = None,
    default_position: int = 8192,
) -> None:
    """Count a layer's cache, once for all layers with the same settings.

    Args:
        inventory: where to count it.
        text: the configuration's part that holds the settings.
        head_dim: numbers of one head.
        source: the file, for messages.
        layer_type: the kind of layer, where settings differ by kind.
        columns: those of the cache, where they do not follow from the settings.
        max_position: positions, where they are not ``max_position_embeddings``.
        mrope_factor: how many times longer vLLM makes the cache of multimodal positions.
        key: what else tells caches apart.
        element: bytes of a number, where it is not the model's dtype.
        default_position: positions where the configuration names none.
    """
    parameters = rope_parameters(text, layer_type)
    if max_position is None:
        max_position = read_integer(text, ("max_position_embeddings",), source, default_position)
    if "original_max_position_embeddings" not in parameters and "original_max_position_embeddings" in text:
        parameters["original_max_position_embeddings"] = text["original_max_position_embeddings"]
    wide = rotary_dim(text, parameters, head_dim) if columns is None else columns
    rows = rotary_rows(parameters, max_position, mrope_factor=mrope_factor)
    inventory.rotary(
        (head_dim, wide, rows, layer_type, key),
        rows * wide * (inventory.element if element is None else element),
    )


def add_frequencies(build: Build, head_dim: int) -> None:
    """The frequencies of a model that vLLM runs through Transformers since 0.32; a cache in the releases before.

    Source: buffers of such models in vLLM 0.32 (``inv_freq`` and ``original_inv_freq``, float32).
    """
    if not build.at_least("0.32.0"):
        add_rotary(build.inventory, build.text, head_dim, source=build.config.source)
        return
    columns = rotary_dim(build.text, rope_parameters(build.text), head_dim)
    build.inventory.rotary("frequencies", 2 * (columns // 2) * 4)
