"""Prints what vLLM itself makes of a model's KV cache; runs in vLLM's own Python (CPU build, 0.32).

Reads one JSON object a line: ``config`` (a folder with ``config.json``), ``settings`` (vLLM's arguments) and
``kv_cache_bytes``; writes the object with ``expected``. Ranks are pretended: every layer is built as rank 0 of
``tensor_parallel_size`` builds it, on the meta device. ``VLLM_ALLOW_LONG_MAX_MODEL_LEN=1`` lets rows ask for more than a model has.
"""

import json
import re
import sys
from typing import Any

import torch
import vllm.distributed.parallel_state as parallel
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.platforms import current_platform
from vllm.v1.core import kv_cache_utils
from vllm.v1.worker.gpu.attn_utils import get_kv_cache_spec

_KINDS = {
    "FullAttentionSpec": "full",
    "SlidingWindowSpec": "sliding",
    "ChunkedLocalAttentionSpec": "chunked",
    "MLAAttentionSpec": "mla",
    "MambaSpec": "state",
    "CrossAttentionSpec": "cross",
}
_NEEDED = re.compile(r"\(([\d.]+) GiB KV.*?\([\d.]+ GiB\)(?:.*?length is (\d+))?")


def layers_of(config: VllmConfig) -> dict[str, Any]:
    """The specs of a model that is built without memory for its weights."""
    with set_current_vllm_config(config), torch.device("meta"):
        usual = torch.get_default_dtype()
        torch.set_default_dtype(config.model_config.dtype)
        initialize_model(config)
        torch.set_default_dtype(usual)
    current_platform.update_block_size_for_backend(config)
    with set_current_vllm_config(config):
        specs: dict[str, Any] = get_kv_cache_spec(config)
    return specs


def counted(specs: dict[str, Any]) -> list[dict[str, Any]]:
    """Equal layers, counted."""
    counts: dict[tuple[str, int, int], int] = {}
    for spec in specs.values():
        key = (_KINDS[type(spec).__name__], spec.block_size, spec.page_size_bytes)
        counts[key] = counts.get(key, 0) + 1
    return [
        {"kind": kind, "block_size": block, "page_bytes": page, "count": count}
        for (kind, block, page), count in counts.items()
    ]


def laid_out(config: VllmConfig, specs: dict[str, Any], size: int) -> dict[str, Any]:
    """Blocks, tokens and concurrency, or the refusal."""
    config.cache_config.kv_cache_layout = "LBHNC"
    try:
        found = kv_cache_utils.get_kv_cache_configs(config, [specs], [size])[0]
    except ValueError as refusal:
        numbers = _NEEDED.search(str(refusal))
        if numbers is None:
            return {"refused": {"cause": "kv-pages-not-unifiable"}}
        return {
            "refused": {
                "needed_gib": float(numbers[1]),
                "estimated_max_model_len": int(numbers[2] or 0),
            }
        }
    if not found.kv_cache_groups:
        return {"num_blocks": found.num_blocks, "tokens": 0, "max_concurrency": 0}
    tokens, concurrency = kv_cache_utils.get_kv_cache_capacity(config, found)
    return {"num_blocks": found.num_blocks, "tokens": tokens, "max_concurrency": concurrency}


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """One case with its expected values."""
    settings = dict(case["settings"])
    ranks = settings.pop("tensor_parallel_size", 1)
    arguments = EngineArgs(
        model=case["config"],
        load_format="dummy",
        skip_tokenizer_init=True,
        enforce_eager=True,
        **settings,
    )
    config = arguments.create_engine_config()
    if not parallel.model_parallel_is_initialized():
        with set_current_vllm_config(config):
            parallel.init_distributed_environment(1, 0, "tcp://127.0.0.1:29511", 0, "gloo")
            parallel.initialize_model_parallel(1, 1)
    parallel.get_tp_group().world_size = ranks
    config.parallel_config.tensor_parallel_size = ranks
    specs = layers_of(config)
    return {**case, "expected": {"layers": counted(specs), **laid_out(config, specs, case["kv_cache_bytes"])}}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
