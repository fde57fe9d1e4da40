"""Edits a launch: one option or one variable at a time, where it stands, everything else as it was typed."""

import contextlib
import json
import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

import msgspec

from fitserve.errors import UsageError
from fitserve.facts.command import ASSIGNMENT, Launch, Option, in_script, read_command, shown
from fitserve.facts.config_file import ConfigFile
from fitserve.facts.container import Container, Service
from fitserve.facts.serve_options import SWITCHES, arity, names_of
from fitserve.facts.shell_script import Script

_CHANGES_ENVIRONMENT = frozenset({"sudo", "doas", "ssh", "mpirun", "mpiexec"})
"""Wrappers that do not hand their own environment on."""

_ENV_OPTIONS_WITH_VALUE = ("-u", "--unset", "-C", "--chdir")

_SECRETS = ("api_key", "hf_token")
_SECRET_SETTING = re.compile(
    r"(?:--env=|-e)?[A-Z0-9_]*(?:KEY|TOKEN|SECRET|PASSWORD)[A-Z0-9_]*=(.+)", re.DOTALL
)


def with_option(launch: Launch, name: str, value: Any) -> Launch:
    """The same command with one option set, in place where it stands, else added behind the others.

    Args:
        launch: the command.
        name: vLLM's name with underscores; ``compilation_config.mode`` reaches into a JSON value.
        value: the new value; True and False set a switch, None removes the option.
    """
    if value is None:
        return without_option(launch, name)
    present = launch.option(name)
    if present is not None:
        if not _can_change(launch, present):
            return with_words(launch, _spelled_new(name, value))
        return spliced(launch, present.at, present.width, _respelled(present, name, value))
    head, _, path = name.partition(".")
    whole = launch.option(head)
    dotted = any(option.name.startswith(f"{head}.") for option in launch.options)
    if path and whole is not None and isinstance(whole.value, dict) and not dotted:
        return with_option(launch, head, _with_key(whole.value, path.split("."), value))
    if launch.config is not None and whole is None and not dotted:
        return _configured(launch, launch.config, name, value)
    return with_words(launch, _spelled_new(name, value))


def with_words(launch: Launch, words: Sequence[str]) -> Launch:
    """The same command with an option added behind the others, as it is typed."""
    end = len(launch.words)
    rest = launch.words[launch.first :]
    if "--" in rest:
        end = launch.first + rest.index("--")
    return spliced(launch, end, 0, words)


def without_option(launch: Launch, name: str) -> Launch:
    """The same command without an option, wherever it stands.

    Raises:
        UsageError: it comes out of a variable together with others.
    """
    while (option := launch.option(name)) is not None:
        if not _can_change(launch, option):
            raise UsageError(
                f"{option.spelled} stands in a variable, and cannot be removed there",
                where=shown(launch.argv, launch.env),
                hint="write the options behind vllm serve themselves",
            )
        launch = spliced(launch, option.at, option.width, [])
    for known in names_of(name):
        if launch.config is not None and known in launch.config.entries:
            launch = msgspec.structs.replace(launch, config=launch.config.without(known))
    return launch


def with_variable(launch: Launch, name: str, value: str) -> Launch:
    """The same command with one environment variable set, where the command sets it already, else before it."""
    if isinstance(launch.host, Service):
        return msgspec.structs.replace(launch, host=launch.host.with_variable(name, value))
    if launch.container is not None:
        return _with_container_variable(launch, launch.container, name, value)
    setting = f"{name}={value}"
    before = launch.words[: launch.program]
    for at, word in enumerate(before):
        if word.startswith(f"{name}="):
            return spliced(launch, at, 1, [setting])
    if _names(before) & {"env"}:
        return spliced(launch, _end_of_env(before), 0, [setting])
    if _names(before) & _CHANGES_ENVIRONMENT:
        return spliced(launch, launch.program, 0, ["env", setting])
    in_front = msgspec.structs.replace(launch, env={**launch.env, name: value})
    return in_front if launch.host is None else spliced(launch, 0, 0, [setting])


def _with_container_variable(launch: Launch, container: Container, name: str, value: str) -> Launch:
    line = launch.argv if launch.around else launch.words
    at, width, words = container.setting(line, name, value)
    if launch.around:
        again = read_command(_with(launch.argv, at, width, words))
        return msgspec.structs.replace(again, env=launch.env)
    return spliced(launch, at, width, words)


def secrets_in(argv: Sequence[str]) -> list[str]:
    """The keys and tokens that a command holds, longest first."""
    found = {match[1] for word in argv if (match := _SECRET_SETTING.match(word))}
    with contextlib.suppress(UsageError):
        found |= {
            text for option in read_command(argv).options if option.name in _SECRETS for text in option.texts
        }
    return sorted(found - {""}, key=lambda secret: (-len(secret), secret))


def _configured(launch: Launch, config: ConfigFile, name: str, value: Any) -> Launch:
    """The option in the config file where it stands there, else behind the command's others.

    A switch goes behind the command's others: vLLM passes over a false in the file.
    """
    head, _, path = name.partition(".")
    known = next((each for each in names_of(head) if each in config.entries), None)
    if known is None or (path and not isinstance(config.entries[known].value, dict)):
        return with_words(launch, _spelled_new(name, value))
    if isinstance(value, bool) and not path:
        return with_words(
            msgspec.structs.replace(launch, config=config.without(known)), _spelled_new(name, value)
        )
    new = _with_key(config.entries[known].value, path.split("."), value) if path else value
    return msgspec.structs.replace(launch, config=config.with_value(known, new))


def _can_change(launch: Launch, option: Option) -> bool:
    return launch.host is None or launch.host.can_change(option.at, option.width)


def _respelled(option: Option, name: str, value: Any) -> list[str]:
    if isinstance(value, bool) and (arity(name) == "none" or not option.texts):
        return _spelled_new(name, value)
    if option.joiner == " ":
        return [option.spelled, *_texts(value)]
    return [option.spelled + option.joiner + " ".join(_texts(value))]


def _spelled_new(name: str, value: Any) -> list[str]:
    head, dot, path = name.partition(".")
    spelled = head.replace("_", "-") + dot + path
    if isinstance(value, bool) and (head in SWITCHES or arity(head) is None):
        return [f"--{spelled}" if value else f"--no-{spelled}"]
    return [f"--{spelled}", *_texts(value)]


def _texts(value: Any) -> list[str]:
    if isinstance(value, list | tuple):
        return [str(item) for item in value]
    if isinstance(value, dict | bool):
        return [json.dumps(value, separators=(",", ":"))]
    return [str(value)]


def _with_key(whole: dict[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    head, *rest = path
    inner = whole.get(head)
    return {
        **whole,
        head: _with_key(inner if isinstance(inner, dict) else {}, rest, value) if rest else value,
    }


def _end_of_env(before: Sequence[str]) -> int:
    """Where the last ``env`` of a command takes another assignment: behind its options and the ones it has."""
    at = 1 + max(i for i, word in enumerate(before) if PurePath(word).name == "env")
    while at < len(before) and (before[at].startswith("-") or ASSIGNMENT.match(before[at])):
        at += 2 if before[at] in _ENV_OPTIONS_WITH_VALUE else 1
    return at


def spliced(launch: Launch, at: int, width: int, words: Sequence[str]) -> Launch:
    """The launch with some of its words replaced, wherever they stand."""
    host = launch.host
    if isinstance(host, Script):
        return in_script(launch, host.spliced(at, width, words), host.at, host.path, host.known)
    if isinstance(host, Service):
        edited = host.with_words(_with(host.words, at, width, words))
        return msgspec.structs.replace(launch, host=edited)
    again = read_command(_with(launch.argv, at, width, words))
    return msgspec.structs.replace(again, env=launch.env, config=launch.config)


def _with(argv: Sequence[str], at: int, width: int, words: Sequence[str]) -> list[str]:
    return [*argv[:at], *words, *argv[at + width :]]


def _names(words: Sequence[str]) -> set[str]:
    return {PurePath(word).name for word in words}
