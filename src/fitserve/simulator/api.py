"""What the API answers: shapes, refusals, ``/metrics``; pure functions.

Source: ``entrypoints/openai/serving_engine.py``, ``renderers/params.py``, ``v1/metrics/loggers.py`` of vLLM 0.8.5 to 0.32.0.
"""

import time
from typing import Any

from fitserve.simulator.releases import at_least
from fitserve.simulator.scheduler import Scheduler

DEFAULT_COMPLETION_TOKENS = 16


def error_body(
    message: str, kind: str, code: int, version: str, *, parameter: str | None = None
) -> dict[str, Any]:
    """An error as the API writes it: under ``error`` from 0.10.0 on."""
    inner = {"message": message, "type": kind, "param": parameter, "code": code}
    return {"error": inner} if at_least(version, "0.10.0") else {"object": "error", **inner}


def unknown_model(name: str, served: list[str], version: str) -> dict[str, Any]:
    """404: no such name."""
    message = f"The model `{name}` does not exist."
    if at_least(version, "0.32.0"):
        message += f" Valid aliases: {', '.join(served)}."
    return error_body(message, "NotFoundError", 404, version, parameter="model")


def too_long(tokens: int, max_tokens: int | None, limit: int, version: str) -> dict[str, Any] | None:
    """400 for a request that the context does not hold; None where it does."""
    wanted = max_tokens or 0
    if tokens + wanted <= limit and tokens < limit:
        return None
    message = _too_long_words(tokens, max_tokens, limit, version)
    return error_body(message, "BadRequestError", 400, version, parameter="input_tokens")


def _too_long_words(tokens: int, max_tokens: int | None, limit: int, version: str) -> str:
    head, out = f"This model's maximum context length is {limit} tokens. However, ", max_tokens or 0
    total = tokens + out
    if at_least(version, "0.32.0") and tokens >= limit:
        tail = "which exceeds this limit even without any output tokens. Please reduce the length of the input prompt."
        return f"{head}your prompt contains {tokens} input tokens, {tail}"
    if at_least(version, "0.18.0"):
        tail = "Please reduce the length of the input prompt or the number of requested output tokens."
        counted = f"you requested {out} output tokens and your prompt contains {tokens} input tokens"
        return f"{head}{counted}, for a total of {total} tokens. {tail}"
    if at_least(version, "0.10.1") and tokens >= limit:
        return (
            f"{head}your request has {tokens} input tokens. Please reduce the length of the input messages."
        )
    if at_least(version, "0.10.1"):
        here = f"your request has {tokens} input tokens ({out} > {limit} - {tokens})"
        cap = f"This model's maximum context length is {limit} tokens"
        return f"'max_tokens' or 'max_completion_tokens' is too large: {out}. {cap} and {here}."
    if max_tokens is None:
        return (
            f"{head}you requested {tokens} tokens in the messages, Please reduce the length of the messages."
        )
    counted = f"you requested {total} tokens ({tokens} in the messages, {out} in the completion)"
    return f"{head}{counted}. Please reduce the length of the messages or completion."


def models_body(served: list[str], root: str, limit: int) -> dict[str, Any]:
    """``/v1/models``."""
    cards = [
        {
            "id": name,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "vllm",
            "root": root,
            "parent": None,
            "max_model_len": limit,
        }
        for name in served
    ]
    return {"object": "list", "data": cards}


def metrics_text(scheduler: Scheduler, model: str, version: str, tokens: int) -> str:
    """``/metrics``."""
    label = f'{{engine="0",model_name="{model}"}}'
    usage = "kv_cache_usage_perc" if at_least(version, "0.10.0") else "gpu_cache_usage_perc"
    prefix = "" if at_least(version, "0.10.0") else "gpu_"
    pool = scheduler.pool
    size = f',kv_cache_size_tokens="{tokens}"' if at_least(version, "0.32.0") else ""
    rows = [
        ("num_requests_running", "gauge", len(scheduler.running)),
        ("num_requests_waiting", "gauge", len(scheduler.waiting)),
        (usage, "gauge", scheduler.usage),
        ("num_preemptions_total", "counter", scheduler.preemptions),
        (f"{prefix}prefix_cache_queries_total", "counter", scheduler.prompt_total),
        (f"{prefix}prefix_cache_hits_total", "counter", 0),
        ("prompt_tokens_total", "counter", scheduler.prompt_total),
        ("generation_tokens_total", "counter", scheduler.output_total),
    ]
    lines = []
    for name, kind, value in rows:
        lines += [f"# TYPE vllm:{name} {kind}", f"vllm:{name}{label} {float(value)}"]
    blocks = scheduler.total + pool.reserved_blocks
    lines.append(
        f'vllm:cache_config_info{{block_size="{pool.block_size}",num_gpu_blocks="{blocks}",engine="0"{size}}} 1.0'
    )
    return "\n".join(lines) + "\n"


def chunk(
    kind: str, identity: str, model: str, text: str | None, *, finish: str | None = None, first: bool = False
) -> dict[str, Any]:
    """One event of a stream, or the choices of a whole answer."""
    if kind == "chat":
        delta: dict[str, Any] = {} if text is None else {"content": text}
        choice = {
            "index": 0,
            "delta": {"role": "assistant", **delta} if first else delta,
            "finish_reason": finish,
        }
        return {
            "id": identity,
            "object": "chat.completion.chunk",
            "created": 0,
            "model": model,
            "choices": [choice],
        }
    choice = {"index": 0, "text": text or "", "logprobs": None, "finish_reason": finish}
    return {"id": identity, "object": "text_completion", "created": 0, "model": model, "choices": [choice]}


def whole(kind: str, identity: str, model: str, text: str, usage: dict[str, int]) -> dict[str, Any]:
    """A whole answer."""
    choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": "length"}
    choice |= {"message": {"role": "assistant", "content": text}} if kind == "chat" else {"text": text}
    name = "chat.completion" if kind == "chat" else "text_completion"
    return {"id": identity, "object": name, "created": 0, "model": model, "choices": [choice], "usage": usage}


def usage_of(prompt: int, output: int) -> dict[str, int]:
    """Token counts."""
    return {"prompt_tokens": prompt, "total_tokens": prompt + output, "completion_tokens": output}
