"""The attention backend, as far as it decides the block size.

Source: ``platforms/cuda.py``, ``v1/attention/backends/{flash_attn,triton_flashinfer}.py`` and ``mla/*.py`` of vLLM 0.8.5 to 0.33.0.
"""

from collections.abc import Sequence

from fitserve.memory.kv.dtypes import is_quantized
from fitserve.memory.kv.facts import Attention, Facts, NotModelledError
from fitserve.memory.kv.pages import on_cpu

_DEFAULT = 16
_LATENT = {
    "FLASH_ATTN_MLA": 16,
    "TRITON_MLA": 16,
    "FLASHMLA": 64,
    "CUTLASS_MLA": 128,
    "FLASHINFER_MLA": 64,
}
"""The block size of each backend of latent attention where none is asked for."""


_IMAGE_PREFIX = ("bagel", "gemma3", "molmo2", "moondream3", "paligemma")
"""Model types in which the tokens of an image see each other."""


def kernel_block_size(facts: Facts, dtype: str, layers: Sequence[Attention], *, latent: bool) -> int:
    """Tokens a block where no state enlarges it.

    Args:
        facts: the model and the settings.
        dtype: the resolved ``kv_cache_dtype``.
        layers: the layers with attention.
        latent: the model has latent attention.
    """
    options, device = facts.options, facts.options.device
    if device.compute_capability is None:
        return _without_cuda(facts, latent=latent)
    asked = options.block_size
    if not latent:
        return asked or _preferred(facts, dtype, layers)
    wanted = _LATENT[_latent_backend(facts, dtype)]
    if asked is None or (not facts.since("0.18.0") and asked % wanted):
        return wanted
    return asked


def _preferred(facts: Facts, dtype: str, layers: Sequence[Attention]) -> int:
    """What the chosen backend prefers where no size is asked for: 16, but for the kernels that take blocks of 64.

    From 0.30 to 0.32 vLLM's own code was asked in a build without these kernels, and laid out blocks of 16.
    """
    return 64 if facts.since("0.33.0") and wide_blocks(facts, dtype, layers) else _DEFAULT


def wide_blocks(facts: Facts, dtype: str, layers: Sequence[Attention]) -> str:
    """The kernel that takes blocks of 64 tokens for this model on this device; empty where none does.

    - FlashAttention 4 on Hopper, from 0.31: it reads an fp8 cache of heads of 512 in such blocks.
    - FlashInfer beside Triton on the larger Blackwell devices, from 0.30, where the tokens of an image see each other:
      for heads of 256 and 512.
    """
    major = (facts.options.device.compute_capability or (0, 0))[0]
    sizes = {layer.head_size for layer in layers}
    if major == 9 and facts.since("0.31.0") and dtype in ("fp8", "fp8_e4m3") and 512 in sizes:
        return "FlashAttention 4"
    if major == 10 and facts.since("0.30.0") and _sees_images_whole(facts) and sizes <= {256, 512}:
        return "FlashInfer"
    return ""


def _sees_images_whole(facts: Facts) -> bool:
    """True where the tokens of an image see those behind them, unless no image may stand in a prompt.

    Source: ``is_mm_prefix_lm`` in ``transformers_utils/model_arch_config_convertor.py``, vLLM 0.30 to 0.33.
    """
    if facts.options.language_model_only:
        return False
    kind = str(facts.config.data.get("model_type"))
    if kind.startswith("gemma4"):
        return facts.text.get("use_bidirectional_attention") == "vision"
    return kind in _IMAGE_PREFIX


def _without_cuda(facts: Facts, *, latent: bool) -> int:
    if on_cpu(facts.options):
        if latent and facts.since("0.28.0"):
            return 16
        return facts.options.block_size or (128 if facts.since("0.11.1") else _DEFAULT)
    if facts.options.block_size is None and not latent and _is_rocm(facts.options.device.name):
        return _DEFAULT
    if facts.options.block_size is None:
        raise NotModelledError(
            f"the attention backend of {facts.options.device.name}, which chooses the block size"
        )
    return facts.options.block_size


def _is_rocm(name: str) -> bool:
    """True for AMD's devices; all of their backends but the opt-in unified one take blocks of 16.

    Source: ``v1/attention/backends/rocm_*.py``, vLLM 0.19 to 0.32.
    """
    return any(part in name for part in ("AMD", "Instinct", "Radeon", "MI2", "MI3", "gfx"))


def _latent_backend(facts: Facts, dtype: str) -> str:
    """The backend of latent attention that decides the block size.

    Up to 0.17 the platform settles the block size before a backend is chosen: FlashMLA's on Hopper. From 0.18 on it is
    the chosen backend's: on Hopper FlashAttention's, which takes no quantised cache.
    """
    major = (facts.options.device.compute_capability or (0, 0))[0]
    if major == 9:
        chosen = facts.since("0.18.0") and not is_quantized(dtype)
        return "FLASH_ATTN_MLA" if chosen else "FLASHMLA"
    if major == 10:
        early = facts.since("0.15.0") and not facts.since("0.18.0")
        whole = facts.integer("qk_nope_head_dim", default=1) == 128
        return "FLASHINFER_MLA" if early and whole else "CUTLASS_MLA"
    return "TRITON_MLA"


def resolved_dtype(facts: Facts, dtype: str, *, sparse: bool) -> str:
    """The cache's type after the model and its backend have had their say.

    GLM 5 keeps its cache in fp8 on Blackwell from 0.32 on. Sparse latent attention keeps a quantised cache in DeepSeek's
    layout, except with FlashInfer on the larger Blackwell devices; in 0.11 it does so unless another type is asked for.

    Source: ``models/config.py`` and ``layers/attention/mla_attention.py`` of vLLM 0.11 to 0.33.
    """
    major = (facts.options.device.compute_capability or (0, 0))[0]
    if not sparse:
        return dtype
    if dtype == "bfloat16":
        return "auto"
    if not facts.since("0.18.0"):
        packed = dtype.startswith("fp8") or (dtype == "auto" and not facts.since("0.12.0"))
        return "fp8_ds_mla" if packed else dtype
    return _packed_by_device(facts, dtype, major)


def _packed_by_device(facts: Facts, dtype: str, major: int) -> str:
    glm = facts.config.architecture == "GlmMoeDsaForCausalLM" and facts.since("0.32.0")
    if glm and dtype == "auto" and major == 10:
        return "fp8_e4m3"
    small = major == 12 and facts.since("0.24.0")
    if (small and dtype == "auto") or ((small or major == 9) and dtype.startswith("fp8")):
        return "fp8_ds_mla"
    return dtype
