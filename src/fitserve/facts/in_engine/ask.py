"""Asks vLLM's own code what a model takes; run by vLLM's Python as ``python ask.py``.

Reads one JSON object a line: ``model`` (a folder with ``config.json``; nothing in it is run), ``settings`` (vLLM's arguments),
``device`` (None for the CPU backend, else what ``pretend.pretend_cuda`` takes), ``kv_cache_bytes`` (sizes of the KV cache) and
``shared_bytes`` (sizes that the first rank's weights and KV cache have together). Writes one JSON object a line. The model is built on torch's meta device, as the first of
``tensor_parallel_size`` ranks: without weights, without GPU memory. All lines of one run must have the same device.

Written against vLLM 0.32.0: ``initialize_model``, ``get_kv_cache_spec``, ``get_kv_cache_configs``, ``get_kv_cache_capacity``.
"""

import gc
import json
import os
import re
import sys
from typing import Any

_QUIET = {
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_DEEP_GEMM": "0",
    "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1",
}
_LAYOUT = "LBHNC"
"""The order of a cache's dimensions; the sizes do not depend on it, but vLLM wants it decided."""

_GIB = 1 << 30
_EVERY_LENGTH = 1 << 40
_NUMBERS = re.compile(r"\(([\d.]+) GiB KV.*?\([\d.]+ GiB\)(?:.*?length is (\d+))?", re.DOTALL)
_KINDS = {
    "FullAttentionSpec": "full",
    "SlidingWindowSpec": "sliding",
    "ChunkedLocalAttentionSpec": "chunked",
    "MLAAttentionSpec": "mla",
    "SlidingWindowMLASpec": "sliding",
    "MambaSpec": "state",
    "CrossAttentionSpec": "cross",
}


def answer(job: dict[str, Any]) -> dict[str, Any]:
    """Weights, layers and capacities of one job, or the ``error`` that vLLM raised."""
    import vllm
    from vllm.engine.arg_utils import EngineArgs

    settings = dict(job["settings"])
    ranks = settings.get("tensor_parallel_size", 1)
    if job["device"] is None:
        # The CPU backend counts this machine's memory nodes, one for each rank.
        settings["tensor_parallel_size"] = 1
    arguments = EngineArgs(
        model=job["model"],
        load_format="dummy",
        skip_tokenizer_init=True,
        trust_remote_code=False,
        enforce_eager=True,
        **settings,
    )
    config = arguments.create_engine_config()
    config.parallel_config.tensor_parallel_size = ranks
    model = _built(config, ranks)
    params, buffers = _bytes(model.parameters()), _bytes(model.buffers())
    specs = _specs(config)
    sizes = [*job["kv_cache_bytes"], *(size - params - buffers for size in job["shared_bytes"])]
    return {
        "version": vllm.__version__,
        "param_bytes": params,
        "buffer_bytes": buffers,
        "max_model_len": config.model_config.max_model_len,
        "layers": _counted(specs),
        "caches": [_cache(config, specs, size) for size in sizes],
    }


def _built(config: Any, ranks: int) -> Any:
    import pretend
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.utils.torch_utils import set_default_torch_dtype

    pretend.pretend_ranks(ranks)
    with (
        pretend.Everything(),
        set_current_vllm_config(config),
        set_default_torch_dtype(config.model_config.dtype),
        torch.device("meta"),
    ):
        return initialize_model(config)


def _bytes(tensors: Any) -> int:
    """Bytes of all tensors, shared ones once."""
    return sum(
        tensor.numel() * tensor.element_size() for tensor in {id(one): one for one in tensors}.values()
    )


def _specs(config: Any) -> dict[str, Any]:
    from vllm.config import set_current_vllm_config
    from vllm.platforms import current_platform
    from vllm.v1.worker.gpu.attn_utils import get_kv_cache_spec

    current_platform.update_block_size_for_backend(config)
    with set_current_vllm_config(config):
        found: dict[str, Any] = get_kv_cache_spec(config)
    return found


def _counted(specs: dict[str, Any]) -> list[dict[str, Any]]:
    """Equal layers, counted."""
    counts: dict[tuple[str, int, int], int] = {}
    for spec in specs.values():
        name = type(spec).__name__
        key = (_KINDS.get(name, name), spec.block_size, spec.page_size_bytes)
        counts[key] = counts.get(key, 0) + 1
    return [
        {"kind": kind, "block_size": block, "page_bytes": page, "layers": count}
        for (kind, block, page), count in counts.items()
    ]


def _cache(config: Any, specs: dict[str, Any], size: int) -> dict[str, Any]:
    """Blocks, tokens and concurrency in so many bytes, or vLLM's refusal."""
    from vllm.v1.core import kv_cache_utils

    config.cache_config.kv_cache_layout = _LAYOUT
    try:
        found = kv_cache_utils.get_kv_cache_configs(config, [specs], [size])[0]
    except ValueError as refusal:
        numbers = _NUMBERS.search(str(refusal))
        return {
            "kv_cache_bytes": size,
            "refused": str(refusal),
            "needed_bytes": round(float(numbers[1]) * _GIB) if numbers else 0,
            "longest": int(numbers[2] or 0) if numbers else 0,
        }
    if not found.kv_cache_groups:
        raise NotImplementedError("no layer of this model keeps a KV cache")
    tokens, concurrency = kv_cache_utils.get_kv_cache_capacity(config, found)
    return {
        "kv_cache_bytes": size,
        "num_blocks": found.num_blocks,
        "tokens": tokens,
        "max_concurrency": concurrency,
        "bytes_per_block": max(_block_bytes(group) for group in found.kv_cache_groups),
        "longest": _longest(config, found.kv_cache_groups, size),
        "groups": [_group(group) for group in found.kv_cache_groups],
    }


def _group(group: Any) -> dict[str, Any]:
    """The layers that share a block table."""
    spec = group.kv_cache_spec
    inner = next(iter(getattr(spec, "kv_cache_specs", {}).values()), spec)
    name = type(inner).__name__
    return {
        "kind": _KINDS.get(name, name),
        "layers": len(group.layer_names),
        "block_size": spec.block_size,
        "page_bytes": spec.page_size_bytes,
    }


def _block_bytes(group: Any) -> int:
    """One block of all the group's layers; a spec of layers with different pages counts them together already."""
    spec = group.kv_cache_spec
    size: int = spec.page_size_bytes
    return size if hasattr(spec, "kv_cache_specs") else size * len(group.layer_names)


def _longest(config: Any, groups: list[Any], size: int) -> int | None:
    """The longest request that fits, whatever ``max_model_len`` is; None where every length does."""
    from vllm.v1.core import kv_cache_utils

    before = config.model_config.max_model_len
    config.model_config.max_model_len = _EVERY_LENGTH
    try:
        found = kv_cache_utils._estimate_max_model_len_from_groups(config, groups, size)  # noqa: SLF001
    finally:
        config.model_config.max_model_len = before
    return found if found < _EVERY_LENGTH else None


def _prepare(device: dict[str, Any] | None) -> None:
    """Everything that must stand before vLLM is imported."""
    import pretend

    pretend.pretend_images()
    if device is not None:
        pretend.pretend_cuda(device)
    from vllm.model_executor.models import registry

    # vLLM inspects a model's class in another process, where nothing of this is pretended.
    registry._run_in_subprocess = lambda inspect: inspect()  # noqa: SLF001


def main() -> None:
    """Answer each line of the standard input; what vLLM prints goes to the standard error."""
    os.environ.update(_QUIET)
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as replies:
        os.dup2(2, 1)
        prepared = False
        for line in sys.stdin:
            job = json.loads(line)
            try:
                if not prepared:
                    _prepare(job["device"])
                    prepared = True
                reply = answer(job)
            except Exception as error:  # noqa: BLE001 - whatever vLLM raises is the answer
                reply = {"error": f"{type(error).__name__}: {error}"}
            replies.write(json.dumps(reply) + "\n")
            replies.flush()
            gc.collect()


if __name__ == "__main__":
    main()
