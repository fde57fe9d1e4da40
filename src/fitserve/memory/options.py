"""What decides a start's memory besides the model: the device, and vLLM's settings with every default filled in."""

import msgspec

from fitserve.facts.model_config import ModelConfig
from fitserve.units import GIB


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One accelerator, as vLLM sees it.

    Attributes:
        name: its product name.
        total_bytes: what ``cudaMemGetInfo`` reports as total.
        free_bytes: what is free before vLLM starts; None where it is not known.
        compute_capability: such as (9, 0); None where it is not a CUDA device.
        unified: it shares the host's memory.
        multiprocessors: streaming multiprocessors or compute units; None where they are not known.
        source: how it is known.
    """

    name: str
    total_bytes: int
    free_bytes: int | None = None
    compute_capability: tuple[int, int] | None = None
    unified: bool = False
    multiprocessors: int | None = None
    source: str = "given"


class LoraOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What ``--enable-lora`` sets aside; names and meanings are vLLM's.

    Attributes:
        max_loras: adapters in one batch.
        max_lora_rank: the largest rank.
        lora_dtype: ``auto`` is the model's dtype.
        lora_extra_vocab_size: tokens that an adapter may add, before 0.12; None: the release's default.
        lora_target_modules: only these layers; None: all that can.
    """

    max_loras: int = 1
    max_lora_rank: int = 16
    fully_sharded_loras: bool = False
    lora_dtype: str = "auto"
    lora_extra_vocab_size: int | None = None
    enable_lora_bias: bool = False
    lora_target_modules: tuple[str, ...] | None = None
    enable_moe_shared_loras: bool = False
    enable_mixed_moe_lora_format: bool = False
    enable_tower_connector_lora: bool = False


class Drafting(msgspec.Struct, frozen=True, kw_only=True):
    """What ``--speculative-config`` asks for.

    Attributes:
        method: how tokens are drafted: ``ngram``, ``suffix``, ``mtp``, ``eagle``, ``eagle3``, ``draft_model``...
        tokens: drafted at once.
        model: the drafting model as given; None where the checkpoint or the text itself drafts.
        config: the drafting model's configuration, where it is at hand.
        owns: which of ``embed_tokens`` and ``lm_head`` its files hold; None where that is not known.
        quantization: how it is quantised while it is loaded.
        missing: why its configuration is not at hand; empty where it is or none is needed.
    """

    method: str
    tokens: int
    model: str | None = None
    config: ModelConfig | None = None
    owns: tuple[str, ...] | None = None
    quantization: str | None = None
    missing: str = ""


class EncoderOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How encoders of images, video and sound are divided and how large their inputs may be.

    Attributes:
        tp_mode: ``weights`` divides an encoder over the ranks; ``data`` keeps it whole on each and divides the items.
        most_pixels: of one image, from ``--mm-processor-kwargs``; None: as the model's processor says.
        limits: items of each modality in a prompt, as far as they are given.
    """

    tp_mode: str = "weights"
    most_pixels: int | None = None
    limits: dict[str, int] = {}


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """vLLM's settings after it has filled in its defaults; names and meanings are vLLM's.

    Attributes:
        vllm_version: the release whose rules count.
        max_model_len: tokens of the longest sequence; None: as the model's configuration says.
        block_size: tokens a block; None: as the version, the model and the device choose.
        kv_cache_dtype: ``auto`` or one of vLLM's names.
        speculative_method: how tokens are drafted: ``ngram``, ``suffix``, ``mtp``, ``eagle``, ``eagle3``...
        lora: what is set aside for adapters; None without ``--enable-lora``.
        drafting: the whole of speculative decoding; its method and tokens are the two above.
        encoder: how the encoders of a multimodal model run.
        num_redundant_experts: copies of experts for balance, with ``--enable-eplb``.
        dtype: ``auto``, ``bfloat16``, ``float16``, ``half``, ``float32``...
    """

    vllm_version: str = "0.33.0"
    max_model_len: int | None = None
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    gpu_memory_utilization: float = 0.92
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    prefill_context_parallel_size: int = 1
    enable_expert_parallel: bool = False
    num_redundant_experts: int = 0
    block_size: int | None = None
    kv_cache_dtype: str = "auto"
    dtype: str = "auto"
    quantization: str | None = None
    kv_cache_memory_bytes: int | None = None
    num_gpu_blocks_override: int | None = None
    enable_prefix_caching: bool | None = None
    enable_chunked_prefill: bool | None = None
    disable_hybrid_kv_cache_manager: bool = False
    async_scheduling: bool | None = None
    enforce_eager: bool = False
    max_cudagraph_capture_size: int | None = None
    mamba_cache_mode: str | None = None
    mamba_block_size: int | None = None
    mamba_cache_dtype: str = "auto"
    mamba_ssm_cache_dtype: str = "auto"
    num_speculative_tokens: int = 0
    speculative_method: str | None = None
    cpu_offload_bytes: int = 0
    offload_group_size: int = 0
    offload_num_in_group: int = 1
    offload_prefetch_step: int = 1
    language_model_only: bool = False
    lora: LoraOptions | None = None
    drafting: Drafting | None = None
    encoder: EncoderOptions = EncoderOptions()
    device: Device = Device(name="H100", total_bytes=round(79.19 * GIB), compute_capability=(9, 0))
