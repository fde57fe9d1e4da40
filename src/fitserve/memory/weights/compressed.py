"""compressed-tensors checkpoints: groups of targets, each with its own scheme.

Source: vLLM 0.32 ``layers/quantization/compressed_tensors/compressed_tensors.py`` and its ``schemes``.
"""

from collections.abc import Callable, Hashable
from typing import Any

import msgspec

from fitserve.memory.weights.packed import PackedGroups
from fitserve.memory.weights.patterns import compiled
from fitserve.memory.weights.quantiser import (
    PLAIN,
    Mentions,
    Quantiser,
    fused_names,
    target_skips,
)
from fitserve.memory.weights.schemes import MicroBlock, PerBlock, PerChannel, PerTensor, Scheme
from fitserve.memory.weights.shapes import NotModelledError

_CACHE_SCALES = (3, 12)
"""Three zero points in the model's dtype and three float32 scales, whether the checkpoint has a cache scheme or not."""


def compressed_quantiser(
    found: dict[str, Any], rename: Callable[[str], str], *, may_keep_indices: bool
) -> Quantiser:
    """The quantisation of a compressed-tensors section.

    Args:
        found: the section.
        rename: vLLM's name of a checkpoint's module.
        may_keep_indices: whether packed experts keep the order of their columns depends on the kernel.

    Raises:
        NotModelledError: a group's scheme is not modelled.
    """
    groups = found.get("config_groups")
    if not isinstance(groups, dict) or found.get("transform_config"):
        raise NotModelledError("compressed-tensors without plain config_groups")
    targets: list[tuple[str, Scheme]] = []
    for group in groups.values():
        if not isinstance(group, dict):
            continue
        named = group.get("targets")
        names = [str(target) for target in named] if isinstance(named, list) else []
        if len(names) == 1 and names[0].endswith("Attention"):
            continue
        scheme = _scheme(group, str(group.get("format") or found.get("format") or ""))
        targets += [(_renamed(name, rename), scheme) for name in names]
    left_out = found.get("ignore")
    ignored = [_renamed(str(name), rename) for name in left_out] if isinstance(left_out, list) else []
    quantiser = CompressedQuantiser(targets, ignored, kv_scales=_CACHE_SCALES)
    if may_keep_indices and any(isinstance(scheme, PackedGroups) for _, scheme in targets):
        kept = [(name, _with_indices(scheme)) for name, scheme in targets]
        quantiser.other = CompressedQuantiser(kept, ignored, kv_scales=_CACHE_SCALES)
    return quantiser


def _with_indices(scheme: Scheme) -> Scheme:
    return msgspec.structs.replace(scheme, indices=True) if isinstance(scheme, PackedGroups) else scheme


def _renamed(name: str, rename: Callable[[str], str]) -> str:
    return rename(name) if "." in name and not name.startswith("re:") else name


def _scheme(group: dict[str, Any], layout: str) -> Scheme:
    weights, inputs = group.get("weights"), group.get("input_activations")
    if not isinstance(weights, dict):
        raise NotModelledError("a compressed-tensors group without weights")
    bits, kind, strategy = weights.get("num_bits"), weights.get("type"), weights.get("strategy")
    size = _group_size(weights.get("group_size"))
    static = isinstance(inputs, dict) and inputs.get("dynamic") is False
    if layout == "nvfp4-pack-quantized":
        return MicroBlock(bits=4, group=16, tensor_scale=True, activation_scale=isinstance(inputs, dict))
    if layout == "mxfp4-pack-quantized":
        return MicroBlock(bits=4, group=32)
    if bits == 8 and strategy == "tensor":
        return PerTensor(static_activation=static)
    if bits == 8 and strategy == "channel" and layout != "pack-quantized":
        return PerChannel(static_activation=static)
    if bits == 8 and strategy == "block" and kind == "float":
        rows, columns = _sides(weights.get("block_structure"))
        return PerBlock(rows=rows, columns=columns)
    if kind == "int" and layout == "pack-quantized" and bits in (2, 3, 4, 8) and not isinstance(inputs, dict):
        return PackedGroups(
            bits=int(bits),
            group=-1 if strategy == "channel" else size,
            symmetric=weights.get("symmetric") is not False,
        )
    raise NotModelledError(f"compressed-tensors {kind} in {bits} bit by {strategy} ({layout})")


def _group_size(value: Any) -> int:
    """Columns that share a scale; -1 for all of them."""
    if not value:
        return -1
    if isinstance(value, bool) or not isinstance(value, int):
        raise NotModelledError(f"compressed-tensors in groups of {value!r}")
    return value


def _sides(value: Any) -> tuple[int, int]:
    """Rows and columns of a block, as a list or as ``128x128``; 128 each where nothing is said."""
    block = value or [128, 128]
    if isinstance(block, str):
        block = [int(side) for side in block.split("x") if side.isdecimal()]
    if (
        not isinstance(block, list)
        or len(block) != 2
        or not all(isinstance(one, int) and one > 0 for one in block)
    ):
        raise NotModelledError(f"compressed-tensors in blocks of {value!r}")
    return block[0], block[1]


class CompressedQuantiser(Quantiser):
    """The first target that fits a layer's name, else its class."""

    def __init__(
        self, targets: list[tuple[str, Scheme]], ignored: list[str], *, kv_scales: tuple[int, int]
    ) -> None:
        self.kv_scales = kv_scales
        self._ignores = target_skips(ignored)
        self._named = {name: scheme for name, scheme in targets if not name.startswith("re:")}
        self._patterns = [(compiled(name[3:]), scheme) for name, scheme in targets if name.startswith("re:")]
        self._mentions = Mentions((*ignored, *(name for name, _ in targets)))

    def linear(self, name: str, shards: tuple[str, ...]) -> Scheme:
        """The scheme of the target that fits the layer, or one of its fused parts."""
        if self._ignores(name, shards):
            return PLAIN
        for each in (name, *fused_names(name, shards)):
            if each in self._named:
                return self._named[each]
            for pattern, scheme in self._patterns:
                if pattern.match(each):
                    return scheme
        return self._named.get("Linear", PLAIN)

    def experts(self, name: str) -> Scheme:
        """The scheme of the projections of its first expert."""
        if self._ignores(name, ()):
            return PLAIN
        return self.linear(f"{name}.0.gate_up_proj", ("gate_proj", "up_proj"))

    def head(self, name: str) -> Scheme:
        """The output layer is one only by name, or where the class ``ParallelLMHead`` is a target."""
        if self._ignores(name, ()):
            return PLAIN
        named = self._named.get(name) or self._named.get("ParallelLMHead")
        if named is not None:
            return named
        return next((scheme for pattern, scheme in self._patterns if pattern.match(name)), PLAIN)

    def group(self, index: int) -> Hashable:
        """Layers that the same rules mention."""
        return self._mentions.group(index)
