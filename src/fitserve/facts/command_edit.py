"""Edits a launch: one option or one variable at a time, in place, everything else as it was typed."""

import contextlib
import json
import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

import msgspec

from fitserve.errors import UsageError
from fitserve.facts.command import ASSIGNMENT, Launch, Option, read_command
from fitserve.facts.serve_options import SWITCHES, arity

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
        return _replaced(launch, present.at, present.width, _respelled(present, name, value))
    head, _, path = name.partition(".")
    whole = launch.option(head)
    if path and whole is not None and isinstance(whole.value, dict):
        return with_option(launch, head, _with_key(whole.value, path.split("."), value))
    return with_words(launch, _spelled_new(name, value))


def with_words(launch: Launch, words: Sequence[str]) -> Launch:
    """The same command with an option added behind the others, as it is typed."""
    end = len(launch.argv)
    rest = launch.argv[launch.first :]
    if "--" in rest:
        end = launch.first + rest.index("--")
    return _replaced(launch, end, 0, words)


def without_option(launch: Launch, name: str) -> Launch:
    """The same command without an option, wherever it stands."""
    while (option := launch.option(name)) is not None:
        launch = _replaced(launch, option.at, option.width, [])
    return launch


def with_variable(launch: Launch, name: str, value: str) -> Launch:
    """The same command with one environment variable set, where the command sets it already, else before it."""
    setting = f"{name}={value}"
    if launch.container is not None:
        at, width, words = launch.container.setting(launch.argv, name, value)
        return _read_again(launch, _spliced(launch.argv, at, width, words))
    before = launch.argv[: launch.program]
    for at, word in enumerate(before):
        if word.startswith(f"{name}="):
            return _replaced(launch, at, 1, [setting])
    if _names(before) & {"env"}:
        return _replaced(launch, _end_of_env(before), 0, [setting])
    if _names(before) & _CHANGES_ENVIRONMENT:
        return _replaced(launch, launch.program, 0, ["env", setting])
    return msgspec.structs.replace(launch, env={**launch.env, name: value})


def secrets_in(argv: Sequence[str]) -> list[str]:
    """The keys and tokens that a command holds, longest first."""
    found = {match[1] for word in argv if (match := _SECRET_SETTING.match(word))}
    with contextlib.suppress(UsageError):
        found |= {
            text for option in read_command(argv).options if option.name in _SECRETS for text in option.texts
        }
    return sorted(found - {""}, key=lambda secret: (-len(secret), secret))


def _read_again(launch: Launch, argv: Sequence[str]) -> Launch:
    """The launch in an edited command, with the variables it had."""
    return msgspec.structs.replace(read_command(argv), env=launch.env)


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


def _replaced(launch: Launch, at: int, width: int, words: Sequence[str]) -> Launch:
    return _read_again(launch, _spliced(launch.argv, at, width, words))


def _spliced(argv: Sequence[str], at: int, width: int, words: Sequence[str]) -> list[str]:
    return [*argv[:at], *words, *argv[at + width :]]


def _names(words: Sequence[str]) -> set[str]:
    return {PurePath(word).name for word in words}
