"""Combinations of a model, a device and settings that vLLM refuses whatever the memory; each is certain from its sources."""

from collections.abc import Callable, Iterator

from fitserve.errors import InputError
from fitserve.facts.model_config import ModelConfig
from fitserve.memory.available import refused_method
from fitserve.memory.history import at_least
from fitserve.memory.resolve import Resolved

Refused = tuple[str, str]
"""A cause, and a sentence."""

_EXPERTS = ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts")
_EXPERTS_MATTER_SINCE = "0.8.0"
_LEAST_CAPABILITY: dict[str, tuple[tuple[str, tuple[int, int]], ...]] = {
    "fp8": (("0.20.0", (7, 5)),),
    "awq": (("0.2.0", (7, 5)),),
    "awq_marlin": (("0.2.0", (7, 5)),),
    "gptq": (("0.2.0", (6, 0)),),
    "bitsandbytes": (("0.6.0", (7, 0)),),
    "compressed-tensors": (("0.6.0", (7, 0)),),
    "mxfp4": (("0.12.0", (8, 0)),),
}
"""What a method asks of a device, from a release on, as far as it is the same in all that were read (0.9.2 to 0.33).

Source: ``get_min_capability`` in ``layers/quantization/*.py``; checked in ``config/vllm.py`` (``_get_quantization_config``).
"""

_KINDS = {
    name: kind
    for kind, names in {
        "awq": ("awq", "awq_marlin", "auto_awq"),
        "gptq": ("gptq", "gptq_marlin", "auto_gptq"),
        "fp8": ("fp8",),
        "compressed-tensors": ("compressed-tensors",),
        "modelopt": ("modelopt", "modelopt_fp4", "modelopt_mixed", "modelopt_mxfp8"),
        "bitsandbytes": ("bitsandbytes",),
        "mxfp4": ("mxfp4", "gpt_oss_mxfp4"),
        "gguf": ("gguf",),
    }.items()
    for name in names
}
"""Methods that stand for one another; of another kind than the checkpoint's, ``--quantization`` is refused.

Source: ``_verify_quantization`` in ``config/model.py`` and ``override_quantization_method`` of the methods, vLLM 0.6.6 to 0.32.
"""

_COPIES_SINCE = "0.27.0"

_LATENT_SPARSE_FP8 = ("0.20.0", "0.30.0")
"""Releases without a backend for it: FlashMLA's knows ``fp8`` alone, and FlashInfer's for Hopper came with 0.30."""


def refusals(config: ModelConfig, resolved: Resolved) -> Iterator[Refused]:
    """Every combination that is refused, in the order in which a start reaches it."""
    checks: tuple[Callable[[ModelConfig, Resolved], Refused | None], ...] = (
        context_ranks,
        _experts,
        _quantization,
        _sparse_cache,
    )
    for check in checks:
        found = check(config, resolved)
        if found is not None:
            yield found


def context_ranks(config: ModelConfig, resolved: Resolved) -> Refused | None:
    """Decode context parallel ranks are tensor parallel ranks, and those that would hold copies of KV heads.

    Source: ``config/parallel.py``, vLLM 0.10.2 to 0.33; ``verify_with_parallel_config`` in ``config/model.py``, 0.27 to 0.33.
    """
    options = resolved.options
    tp, dcp = options.tensor_parallel_size, options.decode_context_parallel_size
    if dcp == 1 or options.prefill_context_parallel_size > 1:
        return None
    if tp % dcp:
        return (
            "heads-not-divisible",
            f"tensor_parallel_size {tp} is not divisible by decode_context_parallel_size {dcp}",
        )
    if not at_least(options.vllm_version, _COPIES_SINCE) or config.text.get("kv_lora_rank"):
        return None
    try:
        heads = config.integer("num_attention_heads", "n_head", default=0)
        shared = config.integer("num_key_value_heads", "num_kv_heads", default=heads)
    except InputError:
        return None
    if not heads or not shared or (tp // shared >= dcp and heads // shared % dcp == 0):
        return None
    message = (
        f"decode_context_parallel_size {dcp} does not share out {heads // shared} query heads of each KV head "
        f"over {tp // shared} ranks"
    )
    return "heads-not-divisible", message


def _experts(config: ModelConfig, resolved: Resolved) -> Refused | None:
    """Expert parallelism needs experts.

    Source: ``_verify_with_expert_parallelism`` in ``config/model.py``, vLLM 0.8 to 0.33.
    """
    options = resolved.options
    if not options.enable_expert_parallel or not at_least(options.vllm_version, _EXPERTS_MATTER_SINCE):
        return None
    if _has_experts(config):
        return None
    return "unknown-flag", "enable_expert_parallel is refused for a model without experts"


def _has_experts(config: ModelConfig) -> bool:
    """True where a number of experts is there, or where it cannot be read."""
    if config.text.get("block_configs") or config.architecture in ("", "unknown"):
        return True
    for part in (config.text, config.data):
        for name in _EXPERTS:
            found = part.get(name)
            if found:
                return True
    return False


def _quantization(config: ModelConfig, resolved: Resolved) -> Refused | None:
    """The method of the checkpoint, or the one that is asked for: another one, in another release, on an older device."""
    options = resolved.options
    capability = options.device.compute_capability
    own, asked = _method(config), options.quantization
    for method in (own, asked):
        refused = refused_method(method, options.vllm_version) if method else None
        if refused:
            return "quantization-unsupported", refused
    if own in _KINDS and asked in _KINDS and _KINDS[own] != _KINDS[asked]:
        return "quantization-unsupported", f"the checkpoint is quantised as {own}, --quantization is {asked}"
    method = own or asked
    if capability is None or method is None:
        return None
    for first, least in _LEAST_CAPABILITY.get(method, ()):
        if at_least(options.vllm_version, first) and capability < least:
            return (
                "quantization-unsupported",
                f"{method} needs compute capability {_dotted(least)}, {options.device.name} has {_dotted(capability)}",
            )
    return None


def _method(config: ModelConfig) -> str | None:
    method = (config.quantization or {}).get("quant_method")
    return method.lower().replace("_tensors", "-tensors") if isinstance(method, str) else None


def _sparse_cache(config: ModelConfig, resolved: Resolved) -> Refused | None:
    """Sparse latent attention on Hopper takes ``fp8``, not ``fp8_e4m3``.

    Source: ``v1/attention/backends/mla/flashmla_sparse.py``, vLLM 0.20, 0.26 and 0.29; ``flashinfer_mla_sparse_sm90.py``, 0.30.
    """
    options = resolved.options
    first, end = _LATENT_SPARSE_FP8
    version = options.vllm_version
    is_hopper = (options.device.compute_capability or (0, 0))[0] == 9
    try:
        is_sparse = bool(config.integer("index_topk", default=0))
    except InputError:
        return None
    if not is_hopper or not is_sparse or options.kv_cache_dtype != "fp8_e4m3":
        return None
    if not at_least(version, first) or at_least(version, end):
        return None
    return (
        "attention-backend-unsupported",
        f"no backend of {version} keeps sparse latent attention as fp8_e4m3 on {options.device.name}; kv_cache_dtype fp8 is kept",
    )


def _dotted(capability: tuple[int, int]) -> str:
    return ".".join(map(str, capability))
