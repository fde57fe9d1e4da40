"""What a launch tells a plan: its settings, the variables that count, and the release that its image names."""

import re
from typing import Any

from fitserve.facts.command import Launch, variable
from fitserve.facts.container import Service

VARIABLES = (
    "VLLM_ALLOW_LONG_MAX_MODEL_LEN",
    "VLLM_CPU_KVCACHE_SPACE",
    "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS",
    "VLLM_USE_V1",
    "VLLM_USE_V2_MODEL_RUNNER",
)
"""The variables that decide a plan."""


def given_settings(launch: Launch) -> dict[str, Any]:
    """The options by name, the config file's behind the command's; a dotted part goes into its JSON value."""
    given = {name: launch.configured(name) for name in (launch.config.values if launch.config else ())}
    for option in launch.options:
        head, _, path = option.name.partition(".")
        if not path:
            given[head] = option.value
            continue
        inner = given.setdefault(head, {})
        if isinstance(inner, dict):
            inner[path] = option.value
    for name in ("model", "revision"):
        given.pop(name, None)
    return given


def command_words(launch: Launch) -> tuple[str, ...]:
    """The words to type for the launch, its variables before them; empty where they are a compose file's."""
    if isinstance(launch.host, Service):
        return ()
    return (*(f"{name}={value}" for name, value in launch.env.items()), *launch.words)


def plan_variables(launch: Launch) -> dict[str, str]:
    """The variables that decide a plan, as the launch sets them; a container's are its own."""
    found = {name: variable(launch, name, {}) for name in VARIABLES}
    return {name: value for name, value in found.items() if value is not None}


def image_release(launch: Launch) -> str | None:
    """The release that a container's image names: ``vllm/vllm-openai:v0.19.0``."""
    if launch.container is None:
        return None
    tag = re.search(r":v?(\d+\.\d+\.\d+)\b", launch.container.name)
    return tag[1] if tag else None
