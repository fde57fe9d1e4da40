"""NVIDIA ModelOpt checkpoints: FP8, NVFP4, and both mixed layer by layer.

Source: vLLM 0.32 ``layers/quantization/modelopt.py``.
"""

from collections.abc import Callable, Hashable
from typing import Any

from fitserve.memory.weights.quantiser import (
    CACHE_SCALES,
    PLAIN,
    Mentions,
    Quantiser,
    RuledQuantiser,
    Skips,
    expanded,
    fused_names,
    wildcard_skips,
)
from fitserve.memory.weights.schemes import MicroBlock, PerBlock, PerChannel, PerTensor, Scheme
from fitserve.memory.weights.shapes import NotModelledError

_TOWERS = ("vision_tower", "vision_model", "vit_large_projector")


def modelopt_quantiser(found: dict[str, Any], rename: Callable[[str], str]) -> Quantiser:
    """The quantisation of a ModelOpt section, in either of its two layouts.

    Raises:
        NotModelledError: the algorithm is not modelled.
    """
    inner = found.get("quantization")
    section: dict[str, Any] = inner if isinstance(inner, dict) else found
    algorithm = str(section.get("quant_algo") or "").upper()
    excluded = section.get("exclude_modules" if isinstance(inner, dict) else "ignore") or []
    names = [rename(name) for name in expanded(map(str, excluded if isinstance(excluded, list) else []))]
    scaled = bool(section.get("kv_cache_quant_algo")) or isinstance(section.get("kv_cache_scheme"), dict)
    group = section.get("group_size")
    size = group if isinstance(group, int) and group > 0 else 16
    if algorithm == "MIXED_PRECISION":
        layers = section.get("quantized_layers")
        if not isinstance(layers, dict):
            raise NotModelledError("ModelOpt's mixed precision without quantized_layers")
        chosen = {rename(str(name)): rule for name, rule in layers.items() if isinstance(rule, dict)}
        return MixedQuantiser(chosen, names, size, kv_scales=CACHE_SCALES if scaled else (0, 0))
    scheme = _scheme(algorithm, size)
    skips = wildcard_skips(names)

    def with_towers(name: str, shards: tuple[str, ...]) -> bool:
        return any(tower in name for tower in _TOWERS) or skips(name, shards)

    return RuledQuantiser(
        scheme, with_towers, names, head=True, kv_scales=CACHE_SCALES, latent_scales=CACHE_SCALES
    )


def _scheme(algorithm: str, group: int) -> Scheme:
    match algorithm:
        case "FP8":
            return PerTensor(static_activation=True)
        case "FP8_PER_CHANNEL_PER_TOKEN":
            return PerChannel()
        case "FP8_PB_WO":
            return PerBlock()
        case "NVFP4":
            return MicroBlock(bits=4, group=group, tensor_scale=True, activation_scale=True)
        case "W4A16_NVFP4":
            return MicroBlock(bits=4, group=group, tensor_scale=True, activation_scale=True, weight_only=True)
        case "MXFP8":
            return MicroBlock(bits=8, group=32)
        case _:
            raise NotModelledError(f"ModelOpt's algorithm {algorithm!r}")


class MixedQuantiser(Quantiser):
    """A scheme of its own for each layer that the checkpoint names."""

    def __init__(
        self,
        layers: dict[str, dict[str, Any]],
        excluded: list[str],
        group: int,
        *,
        kv_scales: tuple[int, int],
    ) -> None:
        self.kv_scales = kv_scales
        self._schemes = {
            name: _scheme(str(rule.get("quant_algo") or "").upper(), group) for name, rule in layers.items()
        }
        self._skips: Skips = wildcard_skips(excluded)
        self._known: dict[str, Scheme] = {}
        labels = [f"{name}={rule.get('quant_algo')}" for name, rule in layers.items()]
        self._mentions = Mentions((*excluded, *labels))

    def linear(self, name: str, shards: tuple[str, ...]) -> Scheme:
        """The layer's own scheme, or that of a part that is fused in it."""
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = self._find(name, shards)
        return known

    def _find(self, name: str, shards: tuple[str, ...]) -> Scheme:
        if self._skips(name, shards):
            return PLAIN
        for each in (name, *fused_names(name, shards)):
            found = self._schemes.get(each)
            if found is not None:
                return found
        return PLAIN

    def experts(self, name: str) -> Scheme:
        """The scheme of any expert in it, or else of its neighbours."""
        if self._skips(name, ()):
            return PLAIN
        found = self._schemes.get(name)
        if found is not None:
            return found
        for beginning in (f"{name}.", name.removesuffix("experts")):
            for each, scheme in self._schemes.items():
                if each.startswith(beginning):
                    return scheme
        return PLAIN

    def head(self, name: str) -> Scheme:
        """The output layer's own scheme."""
        return self._schemes.get("lm_head", PLAIN) if name.endswith("lm_head") else self.linear(name, ())

    def group(self, index: int) -> Hashable:
        """Layers that the same rules mention."""
        return self._mentions.group(index)
