"""What vLLM refuses before any device is touched: the configuration, the model's files, the number of devices.

Source: ``config/*.py``, ``engine/arg_utils.py``, ``platforms/cuda.py``, ``transformers_utils/config.py`` of vLLM 0.8.5 to 0.32.0, and
``huggingface_hub`` and ``transformers``.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from fitserve.simulator.machine import Device, Machine
from fitserve.simulator.models import Model
from fitserve.simulator.releases import at_least
from fitserve.simulator.settings import Settings

_KNOWN_TYPES = frozenset(
    [
        "llama",
        "qwen2",
        "qwen3",
        "qwen3_moe",
        "gemma",
        "mixtral",
        "mistral",
        "phi3",
        "granite",
        "gpt_oss",
        "deepseek_v2",
        "qwen3_5",
        "opt",
        "phi",
        "mistral3",
    ]
)


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a start ends before the engine.

    Attributes:
        cause: for whoever tests a reader of the log.
        error: its class; message: its words.
        frames: where it is raised.
        of: the pydantic model that carries the error; empty where there is none.
    """

    cause: str
    error: str
    message: str
    frames: tuple[str, ...] = ("api", "api_config")
    of: str = ""

    @property
    def last_line(self) -> str:
        """The error as a traceback ends with it."""
        if not self.of:
            return f"{self.error}: {self.message}"
        return (
            f"pydantic_core._pydantic_core.ValidationError: 1 validation error for {self.of}\n  Value error, {self.message} "
            "[type=value_error, input_value=ArgsKwargs((), {'model': ...}), input_type=ArgsKwargs]\n"
            "    For further information visit https://errors.pydantic.dev/2.12/v/value_error"
        )


def refuse_model(place: str, model: Model | None, given: Mapping[str, Any], version: str) -> Refusal | None:
    """What is wrong with the model's files."""
    folder = Path(place)
    frames = ("api", "api_model_config")
    if not (folder / "config.json").is_file():
        if folder.is_dir():
            message = (
                f"Invalid repository ID or local directory specified: '{place}'.\nPlease verify the following requirements:\n"
                "1. Provide a valid Hugging Face repository ID.\n"
                "2. Specify a local directory that contains a recognized configuration file.\n"
                "   - For Hugging Face models: ensure the presence of a 'config.json'.\n"
                "   - For Mistral models: ensure the presence of a 'params.json'.\n"
            )
            return Refusal(cause="model-not-found", error="ValueError", message=message, frames=frames)
        return _absent(place)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if config.get("auto_map") and not given.get("trust_remote_code"):
        message = (
            f"The repository {place} contains custom code which must be executed to correctly load the model. You can inspect the "
            f"repository content at {place} .\n You can inspect the repository content at https://hf.co/{place}.\n"
            "Please pass the argument `trust_remote_code=True` to allow custom code to be run."
        )
        return _model_config("tokenizer-failed", message, version)
    if config.get("model_type") not in _KNOWN_TYPES or model is None:
        message = (
            f"The checkpoint you are trying to load has model type `{config.get('model_type')}` but Transformers does not recognize "
            "this architecture. This could be because of an issue with the checkpoint, or because your version of Transformers is "
            "out of date."
        )
        return _model_config("architecture-unsupported", message, version)
    if not (folder / "tokenizer.json").is_file() and not given.get("skip_tokenizer_init"):
        message = (
            "Couldn't instantiate the backend tokenizer from one of: \n(1) a `tokenizers` library serialization file, \n"
            "(2) a slow tokenizer instance to convert or \n(3) an equivalent slow tokenizer class to instantiate and convert. \n"
            "You need to have sentencepiece or tiktoken installed to convert a slow tokenizer to a fast one."
        )
        return Refusal(cause="tokenizer-failed", error="ValueError", message=message, frames=("api",))
    return None


def _absent(place: str) -> Refusal:
    if place.startswith("gated/"):
        message = (
            "You are trying to access a gated repo.\nMake sure to have access to it at "
            f"https://huggingface.co/{place}.\n401 Client Error. (Request ID: Root=1-simulated)\n\n"
            f"Cannot access gated repo for url https://huggingface.co/{place}/resolve/main/config.json.\n"
            f"Access to model {place} is restricted. You must have access to it and be authenticated to access it. Please log in."
        )
        return Refusal(
            cause="model-access-denied", error="OSError", message=message, frames=("api", "api_model_config")
        )
    if place.startswith(("/", ".")):
        message = f"Repo id must be in the form 'repo_name' or 'namespace/repo_name': '{place}'. Use `repo_type` argument if needed."
        return Refusal(
            cause="model-not-found",
            error="huggingface_hub.errors.HFValidationError",
            message=message,
            frames=("api", "api_model_config"),
        )
    message = (
        f"{place} is not a local folder and is not a valid model identifier listed on 'https://huggingface.co/models'\n"
        "If this is a private repository, make sure to pass a token having permission to this repo either by logging in with "
        "`hf auth login` or by passing `token=<your_token>`"
    )
    return Refusal(
        cause="model-not-found", error="OSError", message=message, frames=("api", "api_model_config")
    )


def refuse_settings(
    settings: Settings, model: Model, machine: Machine, visible: int, environ: Mapping[str, str]
) -> Refusal | None:
    """What is wrong with the settings, in the order in which vLLM looks."""
    checks = (
        _length(settings, model, environ),
        _dtype(settings, machine.device),
        _quantization(settings, model, machine.device),
        _heads(settings, model),
        _batch(settings),
        _cache_dtype(settings, machine.device),
        _devices(settings, visible),
    )
    return next((found for found in checks if found is not None), None)


def _length(settings: Settings, model: Model, environ: Mapping[str, str]) -> Refusal | None:
    if settings.max_model_len <= model.longest or environ.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") == "1":
        return None
    limit = f"{model.longest}.0" if at_least(settings.version, "0.14.0") else str(model.longest)
    message = (
        f"User-specified max_model_len ({settings.max_model_len}) is greater than the derived max_model_len "
        f"(max_position_embeddings={limit} or model_max_length=None in model's config.json). "
    )
    if at_least(settings.version, "0.10.2"):
        message += (
            "To allow overriding this maximum, set the env var VLLM_ALLOW_LONG_MAX_MODEL_LEN=1. "
            "VLLM_ALLOW_LONG_MAX_MODEL_LEN must be used with extreme caution. If the model uses relative position encoding (RoPE), "
            "positions exceeding derived_max_model_len lead to nan. If the model uses absolute position encoding, positions "
            "exceeding derived_max_model_len will cause a CUDA array out-of-bounds error."
        )
    else:
        message += (
            "This may lead to incorrect model outputs or CUDA errors. To allow overriding this maximum, set the env var "
            "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1"
        )
    return _model_config("context-beyond-model-limit", message, settings.version)


def _dtype(settings: Settings, device: Device) -> Refusal | None:
    if settings.dtype != "bfloat16" or device.capability >= (8, 0):
        return None
    message = (
        "Bfloat16 is only supported on GPUs with compute capability of at least 8.0. "
        f"Your {device.name} GPU has compute capability {device.capability[0]}.{device.capability[1]}. "
        "You can use float16 instead by explicitly setting the `dtype` flag in CLI, for example: --dtype=half."
    )
    return Refusal(cause="dtype-unsupported", error="ValueError", message=message, frames=("engine_init",))


def _quantization(settings: Settings, model: Model, device: Device) -> Refusal | None:
    wanted, has = settings.quantization, model.quantization
    if (
        wanted != has
        and has is not None
        and wanted is not None
        and not has.startswith(wanted.partition("_")[0])
    ):
        message = (
            f"Quantization method specified in the model config ({has}) does not match the quantization method specified in the "
            f"`quantization` argument ({wanted})."
        )
        return _model_config("quantization-unsupported", message, settings.version)
    if wanted is not None and has is None and wanted != "fp8":
        return _vllm_config(
            "quantization-unsupported", f"Cannot find the config file for {wanted}", settings.version
        )
    least = {"compressed-tensors": 70, "fp8": 75, "gptq": 60, "mxfp4": 80}.get(wanted or "", 0)
    has_capability = device.capability[0] * 10 + device.capability[1]
    if has_capability >= least:
        return None
    message = (
        f"The quantization method {wanted} is not supported for the current GPU. Minimum capability: {least}. "
        f"Current capability: {has_capability}."
    )
    return _vllm_config("quantization-unsupported", message, settings.version)


def _heads(settings: Settings, model: Model) -> Refusal | None:
    heads, ranks = model.text["num_attention_heads"], settings.tensor_parallel_size
    if heads % ranks == 0:
        return None
    message = (
        f"Total number of attention heads ({heads}) must be divisible by tensor parallel size ({ranks})."
    )
    return _vllm_config("heads-not-divisible", message, settings.version)


def _batch(settings: Settings) -> Refusal | None:
    tokens, length = settings.max_num_batched_tokens, settings.max_model_len
    if tokens < length and not settings.chunked_prefill:
        message = (
            f"max_num_batched_tokens ({tokens}) is smaller than max_model_len ({length}). This effectively limits the maximum "
            "sequence length to max_num_batched_tokens and makes vLLM reject longer sequences. Please increase "
            "max_num_batched_tokens or decrease max_model_len."
        )
    elif tokens < settings.max_num_seqs:
        message = f"max_num_batched_tokens ({tokens}) must be greater than or equal to max_num_seqs ({settings.max_num_seqs})."
    else:
        return None
    return _in("SchedulerConfig", "batched-tokens-below-context", message, settings.version)


def _cache_dtype(settings: Settings, device: Device) -> Refusal | None:
    old = not at_least(settings.version, "0.12.0")
    if old or not settings.kv_cache_dtype.startswith("fp8") or device.capability >= (8, 0):
        return None
    message = (
        "No valid attention backend found for cuda with AttentionSelectorConfig(head_size=128, dtype=torch.float16, "
        f"kv_cache_dtype={settings.kv_cache_dtype}, block_size=None, use_mla=False, has_sink=False, use_sparse=False). "
        "Reasons: {FLASH_ATTN: [kv_cache_dtype not supported, compute capability not supported], "
        "FLASHINFER: [compute capability not supported], TRITON_ATTN: [kv_cache_dtype not supported]}."
    )
    return Refusal(
        cause="attention-backend-unsupported", error="ValueError", message=message, frames=("engine_init",)
    )


def _devices(settings: Settings, visible: int) -> Refusal | None:
    wanted, version = settings.world_size, settings.version
    if wanted <= visible:
        return None
    if at_least(version, "0.13.0"):
        message = (
            f"World size ({wanted}) is larger than the number of available GPUs ({visible}) in this node. If this is intentional "
            "and you are using:\n- ray, set '--distributed-executor-backend ray'.\n- multiprocessing, set '--nnodes' appropriately."
        )
    elif at_least(version, "0.11.1"):
        message = (
            f"Tensor parallel size ({wanted}) cannot be larger than the number of available GPUs ({visible})."
        )
    elif not at_least(version, "0.9.0"):
        message = "Unable to load Ray which is required for multi-node inference, please install Ray with `pip install ray`."
    else:
        message = (
            "Unable to load Ray: No module named 'ray'. Ray is required for multi-node inference, please install Ray with "
            "`pip install ray`."
        )
    return _in("ParallelConfig", "not-enough-gpus", message, version)


def _in(of: str, cause: str, message: str, version: str) -> Refusal:
    return Refusal(
        cause=cause,
        error="ValueError",
        message=message,
        of=of if at_least(version, "0.10.2") else "",
        frames=("api", "api_config"),
    )


def _vllm_config(cause: str, message: str, version: str) -> Refusal:
    return _in("VllmConfig", cause, message, version)


def _model_config(cause: str, message: str, version: str) -> Refusal:
    return msgspec.structs.replace(
        _in("ModelConfig", cause, message, version), frames=("api", "api_model_config")
    )
