"""What a launch tells a plan: its settings, the variables that count, and the release that its image names."""

import json
import re
from itertools import takewhile
from typing import Any

from fitserve.facts.command import Launch, Option, variable
from fitserve.facts.container import Service
from fitserve.facts.serve_options import read_integer

VARIABLES = (
    "VLLM_ALLOW_LONG_MAX_MODEL_LEN",
    "VLLM_CPU_KVCACHE_SPACE",
    "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS",
    "VLLM_USE_V1",
    "VLLM_USE_V2_MODEL_RUNNER",
)
"""The variables that decide a plan."""


def given_settings(launch: Launch) -> dict[str, Any]:
    """The options by name, the config file's behind the command's.

    Dotted parts make up one JSON value that is read behind all others, so that a whole value beside them does not count.
    ``-O`` with JSON is ``--compilation-config``, as before 0.12.

    Source: ``FlexibleArgumentParser.parse_args`` in ``utils/argparse_utils.py``, vLLM 0.9 to 0.32.
    """
    given = {name: launch.configured(name) for name in (launch.config.values if launch.config else ())}
    dotted: dict[str, dict[str, Any]] = {}
    for option in launch.options:
        head, *path = option.name.split(".")
        if not path:
            given[head] = option.value
            continue
        inner = dotted.setdefault(head, {})
        for part in path[:-1]:
            deeper = inner.get(part)
            inner[part] = inner = deeper if isinstance(deeper, dict) else {}
        inner[path[-1]] = _dotted_value(option)
    given |= dotted
    if isinstance(given.get("optimization_level"), dict):
        given["compilation_config"] = given.pop("optimization_level")
    for name in ("model", "revision"):
        given.pop(name, None)
    return given


def _dotted_value(option: Option) -> Any:
    """JSON, a number with a suffix, or the text."""
    text = option.texts[0] if option.texts else ""
    for read in (json.loads, read_integer):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def command_words(launch: Launch) -> tuple[str, ...]:
    """The words to type for the launch, its variables before them; empty where they are a compose file's."""
    if isinstance(launch.host, Service):
        return ()
    return (*(f"{name}={value}" for name, value in launch.env.items()), *launch.words)


def plan_variables(launch: Launch) -> dict[str, str]:
    """The variables that decide a plan, as the launch sets them; a container's are its own."""
    found = {name: variable(launch, name, {}) for name in VARIABLES}
    return {name: value for name, value in found.items() if value is not None}


def visible_devices(launch: Launch) -> int | None:
    """How many devices the launch shows its vLLM; None where it does not say, or where other machines have more.

    Source: ``CUDA_VISIBLE_DEVICES`` in NVIDIA's CUDA C++ Programming Guide: what stands behind an invalid number is not visible.
    """
    text = variable(launch, "CUDA_VISIBLE_DEVICES", {})
    elsewhere = launch.value("distributed_executor_backend") == "ray" or (launch.value("nnodes") or 1) != 1
    if text is None or "$" in text or elsewhere:
        return None
    shown = takewhile(lambda one: one and one != "-1", (one.strip() for one in text.split(",")))
    return len(list(shown))


def fewest(*counts: int | None) -> int | None:
    """The least of those that are known."""
    return min((count for count in counts if count is not None), default=None)


def image_release(launch: Launch) -> str | None:
    """The release that a container's image names: ``vllm/vllm-openai:v0.19.0``."""
    if launch.container is None:
        return None
    tag = re.search(r":v?(\d+\.\d+\.\d+)\b", launch.container.name)
    return tag[1] if tag else None
