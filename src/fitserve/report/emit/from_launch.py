"""A deployment out of a launch: its options in one table, its keys left out (i: PATH, whether a directory is there)."""

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fitserve.facts.command import ASSIGNMENT, Launch
from fitserve.facts.command_edit import secrets_in
from fitserve.facts.container import Service
from fitserve.facts.serve_options import arity, read_value
from fitserve.report.emit.deployment import Deployment, Mount

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL")
_KEYS = {"api_key": "VLLM_API_KEY", "hf_token": "HF_TOKEN"}
_PARALLEL = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
_RELEASE = re.compile(r"(\d+\.\d+\.\d+)(?:\+(\w+))?")
_LEAST_HIDDEN = 6
MASK = "***"


def deployment_of(
    launch: Launch,
    *,
    version: str | None = None,
    start_seconds: float | None = None,
    host_bytes: int | None = None,
    note: str = "",
) -> Deployment:
    """What a launch serves, to be started elsewhere.

    Args:
        launch: the command.
        version: vLLM's release, for the image.
        start_seconds: how long its start took.
        host_bytes: the most resident memory that it had.
        note: what is known about the command.
    """
    options = _options(launch)
    environment = launch_environment(launch)
    secrets = {name for name in environment if _SECRET_NAME.search(name)}
    secrets |= {variable for option, variable in _KEYS.items() if option in options}
    hidden = _hidden_texts(launch, environment, secrets)
    options = {name: _without(value, hidden) for name, value in options.items() if name not in _KEYS}
    model = str(options.pop("model", None) or launch.model or "MODEL")
    in_container = launch.container is not None
    devices = 0 if _is_cpu(version, environment) else _product(options)
    return Deployment(
        name=_label(model),
        model=model,
        options=options,
        environment={
            name: _without(value, hidden) for name, value in environment.items() if name not in secrets
        },
        secrets=tuple(sorted(secrets)),
        program=_program(launch),
        image=_image(launch, version, devices),
        devices=devices,
        start_seconds=start_seconds,
        host_bytes=host_bytes,
        mount=None if in_container else _mount(model),
        note=note,
    )


def launch_environment(launch: Launch) -> dict[str, str]:
    """The variables that a command sets, wherever it does."""
    words = launch.words[: launch.program]
    found = dict(launch.env)
    if isinstance(launch.host, Service):
        return {**found, **launch.host.environment}
    if launch.container is None:
        found |= _pairs(words)
    else:
        line = launch.argv if launch.around else launch.words
        given = line[launch.container.program : launch.container.image]
        found |= _pairs(
            text
            for at, word in enumerate(given)
            for text in _container_settings(word, given[at + 1] if at + 1 < len(given) else "")
        )
    return found


def _container_settings(word: str, following: str) -> list[str]:
    if word in ("-e", "--env"):
        return [following]
    return [word.removeprefix("--env=").removeprefix("-e")] if word.startswith(("--env=", "-e")) else []


def _pairs(words: Any) -> dict[str, str]:
    parts = [word.partition("=") for word in words if ASSIGNMENT.match(word)]
    return {name: value for name, _, value in parts}


def _options(launch: Launch) -> dict[str, Any]:
    """Every option once, the config file's behind the command's; dotted parts in one mapping."""
    options: dict[str, Any] = dict(launch.config.values) if launch.config else {}
    for option in launch.options:
        head, _, path = option.name.partition(".")
        value = _exact(option.name, option.value, option.texts)
        if not path:
            options[head] = value
            continue
        whole = options.get(head)
        options[head] = _within(whole if isinstance(whole, dict) else {}, path.split("."), value)
    options.pop("config", None)
    options.pop("help", None)
    return options


def _exact(name: str, value: Any, texts: tuple[str, ...]) -> Any:
    """A value as it was typed, a number only where it is written the same."""
    if isinstance(value, bool | list) or not texts:
        return value
    read = read_value(name, texts[0])
    return read if isinstance(read, dict | list) or str(read) == texts[0] else texts[0]


def _within(whole: dict[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    head, *rest = path
    inner = whole.get(head)
    return {**whole, head: _within(inner if isinstance(inner, dict) else {}, rest, value) if rest else value}


def _hidden_texts(launch: Launch, environment: Mapping[str, str], secrets: set[str]) -> list[str]:
    found = {environment[name] for name in secrets if name in environment}
    found |= set(secrets_in(launch.words)) | set(secrets_in(launch.argv))
    for name in _KEYS:
        value = launch.configured(name)
        found |= {str(each) for each in (value if isinstance(value, list) else [value]) if each is not None}
    return sorted((text for text in found if len(text) >= _LEAST_HIDDEN), key=len, reverse=True)


def _without(value: Any, hidden: list[str]) -> Any:
    if isinstance(value, str):
        for text in hidden:
            value = value.replace(text, MASK)
        return value
    if isinstance(value, list):
        return [_without(each, hidden) for each in value]
    if isinstance(value, dict):
        return {_without(name, hidden): _without(each, hidden) for name, each in value.items()}
    return value


def _is_cpu(version: str | None, environment: Mapping[str, str]) -> bool:
    return "+cpu" in (version or "") or any(name.startswith("VLLM_CPU_") for name in environment)


def _product(options: Mapping[str, Any]) -> int:
    product = 1
    for name in _PARALLEL:
        value = options.get(name, 1)
        product *= int(value) if arity(name) == "one" and str(value).isdecimal() else 1
    return product


def _image(launch: Launch, version: str | None, devices: int) -> str:
    if launch.container is not None and launch.container.is_vllm:
        return launch.container.name
    release = _RELEASE.match(version or "")
    tag = f"v{release[1]}" if release else "latest"
    return f"vllm/vllm-openai:{tag}" if devices else f"vllm/vllm-openai-cpu:{tag}"


def _program(launch: Launch) -> tuple[str, ...]:
    """The words up to vLLM's own arguments, without what stands in front; the program's whole path where it is known."""
    if launch.container is not None:
        return ("vllm", "serve")
    words = [word for word in launch.words[launch.program : launch.first] if not ASSIGNMENT.match(word)]
    if not words:
        return ("vllm", "serve")
    found = shutil.which(words[0])
    return (str(Path(found).absolute()) if found else words[0], *words[1:])


def _mount(model: str) -> Mount | None:
    """A model's directory, as a container sees it."""
    # Unlike pathlib, these leave a home that nobody has and a name that is too long as they are.
    path = os.path.expanduser(model)  # noqa: PTH111
    if not os.path.exists(path) and not model.startswith(("/", "./", "../", "~")):  # noqa: PTH110
        return None
    return Mount(os.path.abspath(path), f"/models/{_label(path)}")  # noqa: PTH100


def _label(text: str) -> str:
    """A name for everything that wants one: a DNS label. Source: RFC 1123, at most 63 characters; a suffix has room."""
    name = re.sub(r"[^a-z0-9]+", "-", text.rstrip("/").rpartition("/")[2].lower()).strip("-")[:40].strip("-")
    return f"vllm-{name}" if name else "vllm"
