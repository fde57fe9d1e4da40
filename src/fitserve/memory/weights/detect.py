"""The quantisation that vLLM finds in a checkpoint or is asked for, as a ``Quantiser``.

Source: vLLM 0.32 ``config/model.py`` (``_verify_quantization``), ``transformers_utils/model_arch_config_convertor.py``,
``layers/quantization/*.py`` (``from_config``).
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from fitserve.facts.model_config import ModelConfig
from fitserve.memory.history import at_least
from fitserve.memory.weights.packed import Awq, Bitsandbytes, Gptq
from fitserve.memory.weights.quantiser import (
    CACHE_SCALES,
    Quantiser,
    RuledQuantiser,
    exact_skips,
    substring_skips,
)
from fitserve.memory.weights.schemes import (
    MicroBlock,
    PaddedMxfp4,
    PerBlock,
    PerChannel,
    PerTensor,
    Plain,
    Scheme,
)
from fitserve.memory.weights.shapes import NotModelledError

Renames = tuple[tuple[str, str], ...]
"""How vLLM renames a checkpoint's modules: pairs of an old and a new beginning of the name."""


def quantiser_for(config: ModelConfig, asked: str | None, renames: Renames, version: str) -> Quantiser:
    """How the layers of this checkpoint are stored.

    Args:
        config: the checkpoint's configuration.
        asked: ``--quantization``.
        renames: the architecture's new names of modules, for the rules that name layers.
        version: vLLM's release.

    Raises:
        NotModelledError: the method is not modelled.
    """
    section = config.quantization
    found = None if section is None else _compiled(_Same(section), renames, version)
    return online_quantiser(asked) if found is None else found


class _Same:
    """A section as a key: equal to itself only, so that a long one is read once and not compared."""

    def __init__(self, section: dict[str, Any]) -> None:
        self.section = section

    def __hash__(self) -> int:
        return id(self.section)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.section is self.section


@lru_cache(maxsize=64)
def _compiled(key: _Same, renames: Renames, version: str) -> Quantiser | None:
    """The section's quantiser; None where vLLM loads the model unquantised."""
    found = quantization_section(key.section)
    if found is None:
        return None
    method = found["quant_method"]
    if method in {"mxfp4", "gpt_oss_mxfp4"}:
        return mxfp4_quantiser(version)
    if method == "compressed-tensors":
        return _compressed(found, renames, version)
    build = _METHODS.get(method)
    if build is None:
        raise NotModelledError(f"the quantisation {method!r}")
    return build(found, renames)


def quantization_section(section: dict[str, Any]) -> dict[str, Any] | None:
    """The section that counts, with its ``quant_method``; None where vLLM loads the model unquantised.

    A ModelOpt file without a producer, and a section without a method, count for nothing in vLLM.
    """
    method = (
        str(section.get("quant_method") or "").lower().replace("compressed_tensors", "compressed-tensors")
    )
    inner = section.get("quantization")
    producer = section.get("producer")
    if isinstance(inner, dict) and isinstance(producer, dict) and producer.get("name") == "modelopt":
        method = "modelopt"
    if not method:
        return None
    return section | {"quant_method": method}


_NEEDS_A_FILE = ("awq", "awq_marlin", "gptq", "gptq_marlin")
"""Methods that read what a quantiser has made. Source: ``get_quant_config`` in ``model_loader/weight_utils.py``, vLLM 0.9 to 0.33."""


def online_quantiser(asked: str | None) -> Quantiser:
    """What ``--quantization`` makes of an unquantised checkpoint while it loads.

    Source: vLLM 0.32 ``layers/quantization/online``; 0.6 to 0.31 ``fp8.py``.
    """
    if asked is None:
        return Quantiser()
    schemes: dict[str, Scheme] = {
        "fp8": PerTensor(),
        "fp8_per_tensor": PerTensor(),
        "fp8_per_channel": PerChannel(),
        "fp8_per_block": PerBlock(),
        "mxfp8": MicroBlock(bits=8, group=32),
        "bitsandbytes": Bitsandbytes(),
        "experts_int8": PerChannel(),
        "int8_per_channel_weight_only": PerChannel(),
    }
    scheme = schemes.get(asked)
    if asked in _NEEDS_A_FILE:
        raise NotModelledError(
            f"config.json has no quantization_config; vLLM refuses --quantization {asked} unless quant_config.json or "
            "quantize_config.json lies beside it"
        )
    if scheme is None:
        raise NotModelledError(f"--quantization {asked} of an unquantised checkpoint")
    if asked in ("experts_int8", "int8_per_channel_weight_only"):
        return RuledQuantiser(Plain(), exact_skips(()), experts=scheme)
    return RuledQuantiser(scheme, exact_skips(()))


def renamed(names: list[Any], renames: Renames) -> list[str]:
    """The names of modules as vLLM has them."""
    return [rename(str(name), renames) for name in names]


def rename(name: str, renames: Renames) -> str:
    """One name as vLLM has it."""
    for old, new in renames:
        if name.startswith(old):
            return new + name[len(old) :]
    return name


def _names(found: dict[str, Any], *keys: str) -> list[Any]:
    for key in keys:
        value = found.get(key)
        if isinstance(value, list) and value:
            return value
    return []


def _whole(found: dict[str, Any], *keys: str, default: int) -> int:
    for key in keys:
        value = found.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return default


def _fp8(found: dict[str, Any], renames: Renames) -> Quantiser:
    ignored = renamed(_names(found, "ignored_layers", "modules_to_not_convert"), renames)
    block = found.get("weight_block_size")
    scheme: PerBlock | PerTensor
    if isinstance(block, list) and len(block) == 2:
        scheme = PerBlock(rows=int(block[0]), columns=int(block[1]))
    else:
        scheme = PerTensor(static_activation=found.get("activation_scheme") == "static")
    return RuledQuantiser(scheme, exact_skips(ignored), ignored, kv_scales=CACHE_SCALES)


def _fbgemm_fp8(found: dict[str, Any], renames: Renames) -> Quantiser:
    ignored = renamed(_names(found, "modules_to_not_convert"), renames)
    return RuledQuantiser(PerChannel(bounded=True), exact_skips(ignored), ignored, experts=Plain())


_TOWERS = ("visual.", "vision_tower.", "vision_model.", "multi_modal_projector.")
"""AWQ and GPTQ checkpoints keep these in 16 bit; vLLM sees it in their headers where the section does not say it.
Source: vLLM 0.32 ``layers/quantization/auto_awq.py``, ``auto_gptq.py`` (``maybe_update_config``)."""


def _gptq(found: dict[str, Any], renames: Renames) -> Quantiser:
    if found.get("dynamic"):
        raise NotModelledError("GPTQ with rules for single layers (dynamic)")
    if found.get("desc_act") is True:
        raise NotModelledError("GPTQ with activation order (desc_act)")
    scheme = Gptq(
        bits=_whole(found, "bits", default=4),
        group=_whole(found, "group_size", default=128),
    )
    ignored = renamed(_names(found, "modules_to_not_convert"), renames)
    head = found.get("lm_head") is True
    return RuledQuantiser(scheme, substring_skips([*ignored, *_TOWERS]), ignored, head=head)


def _awq(found: dict[str, Any], renames: Renames) -> Quantiser:
    scheme = Awq(
        bits=_whole(found, "bits", "w_bit", default=4),
        group=_whole(found, "group_size", "q_group_size", default=128),
    )
    ignored = renamed(_names(found, "modules_to_not_convert"), renames)
    head = found.get("lm_head") is True
    return RuledQuantiser(scheme, substring_skips([*ignored, *_TOWERS]), ignored, head=head)


def _bitsandbytes(found: dict[str, Any], renames: Renames) -> Quantiser:
    if found.get("load_in_8bit") is True:
        raise NotModelledError("bitsandbytes in 8 bit")
    ignored = renamed(_names(found, "llm_int8_skip_modules"), renames)
    return RuledQuantiser(Bitsandbytes(), substring_skips(ignored), ignored)


_MXFP4_PADDINGS = (PaddedMxfp4(1, 64), PaddedMxfp4(256, 128))


def mxfp4_quantiser(version: str) -> Quantiser:
    """gpt-oss: only the experts; which kernel is chosen decides the padding, so the other one bounds the size.

    vLLM 0.32 without Triton's kernels pads to 256 and 128 (Marlin); 0.15 to 0.31 and 0.33 register 64 and none. Logged boots
    lie between: 13.64 GiB for gpt-oss-20b in 0.19 on an H100, where the two give 12.82 and 13.67.
    Source: parameters that these releases register for a compute capability of 9.0.
    """
    first, second = reversed(_MXFP4_PADDINGS) if version.startswith("0.32.") else _MXFP4_PADDINGS
    found = RuledQuantiser(Plain(), exact_skips(()), experts=first)
    found.other = RuledQuantiser(Plain(), exact_skips(()), experts=second)
    return found


def _compressed(found: dict[str, Any], renames: Renames, version: str) -> Quantiser:
    from fitserve.memory.weights.compressed import compressed_quantiser

    keeps = not at_least(version, "0.30.0")
    return compressed_quantiser(found, lambda name: rename(name, renames), may_keep_indices=keeps)


def _modelopt(found: dict[str, Any], renames: Renames) -> Quantiser:
    from fitserve.memory.weights.modelopt import modelopt_quantiser

    return modelopt_quantiser(found, lambda name: rename(name, renames))


_METHODS: dict[str, Callable[[dict[str, Any], Renames], Quantiser]] = {
    "fp8": _fp8,
    "fbgemm_fp8": _fbgemm_fp8,
    "gptq": _gptq,
    "gptq_marlin": _gptq,
    "awq": _awq,
    "awq_marlin": _awq,
    "bitsandbytes": _bitsandbytes,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
    "modelopt_mixed": _modelopt,
}
