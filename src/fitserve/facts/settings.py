"""The settings of a launch, wherever a log shows them: a command, a Namespace, a dict, the engine's own line.

Names are vLLM's, with underscores. Values are ints, floats, booleans, strings, or the text as it stands where they
are nested (a dict, a list).

Source: the shapes printed by vLLM 0.2.0 to 0.33.0 (``args: Namespace(...)``, ``non-default args: {...}``,
``Initializing ... with config: ...``).
"""

import re
import shlex
from collections.abc import Iterator
from typing import Literal

import msgspec

from fitserve.errors import UsageError

Where = Literal["command", "environment", "arguments", "engine"]
Value = int | float | bool | str | None

_KEY = re.compile(r"'(?P<quoted>[A-Za-z_]\w{0,80})': |(?P<bare>[A-Za-z_]\w{0,80})=")
_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}
_HUMAN = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_EXPORT = re.compile(
    r"(?:^|\s|[+$#] ?)(?:export |-e |--env |env )?([A-Z][A-Z0-9_]{2,60})=(\"[^\"]*\"|'[^']*'|[^\s\"']*)"
)
_PROMPT = re.compile(r"\s*(?:\S{0,80}[$#%>] |\+{1,4} )?")
_COMMAND = re.compile(r"vllm serve|vllm\.entrypoints[\w.]*|vllm-openai\S* ")
_ENVIRONMENT = ("VLLM_", "CUDA_", "NCCL_", "HF_", "PYTORCH_", "TORCH_", "TRITON_", "XDG_", "RAY_", "OMP_")
_WORDS: dict[str, Value] = {"None": None, "null": None, "": None, "True": True, "False": False}
_RENAMED = {
    "max_seq_len": "max_model_len",
    "cache_dtype": "kv_cache_dtype",
    "kv_cache_memory": "kv_cache_memory_bytes",
}


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting as a log shows it.

    Attributes:
        value: what it is.
        line: the line that shows it.
        where: a typed command, the environment, vLLM's own list of arguments, or the engine's resolved config.
    """

    value: Value
    line: int
    where: Where


def read_pairs(text: str, line: int, where: Where) -> dict[str, Setting]:
    """The settings in ``a=1, b='x'`` or ``'a': 1, 'b': 'x'``, as far as the text goes."""
    return {
        _RENAMED.get(name, name): Setting(value=value, line=line, where=where)
        for name, value in _pairs(text)
        if value is not None or where == "arguments"
    }


def _pairs(text: str) -> Iterator[tuple[str, Value]]:
    position = 0
    while key := _KEY.search(text, position):
        raw, position = _take_value(text, key.end())
        if position >= len(text) and not raw:
            return
        yield key["quoted"] or key["bare"], read_value(raw)


def _take_value(text: str, start: int) -> tuple[str, int]:
    """The raw value from ``start`` up to the comma or bracket that ends it, and where reading goes on."""
    closers: list[str] = []
    quote = ""
    for position in range(start, len(text)):
        character = text[position]
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in _CLOSING:
            closers.append(_CLOSING[character])
        elif closers and character == closers[-1]:
            closers.pop()
        elif not closers and character in ",)}":
            return text[start:position].strip(), position + 1
    return text[start:].strip(), len(text)


def read_value(raw: str) -> Value:
    """A value as vLLM prints it or as a shell hands it over: ``131072``, ``32k``, ``0.9``, ``True``, ``'auto'``.

    ``32k`` is 32,000 and ``32K`` is 32,768. Source: vLLM 0.8.4 and later, ``engine/arg_utils.py``, ``human_readable_int``.
    """
    raw = raw.strip()
    if len(raw) > 1 and raw[0] == raw[-1] and raw[0] in "'\"":
        return raw[1:-1]
    if raw in _WORDS:
        return _WORDS[raw]
    return _read_number(raw)


def _read_number(raw: str) -> Value:
    if re.fullmatch(r"-?\d{1,30}", raw):
        return int(raw)
    if re.fullmatch(r"-?\d{0,30}\.\d{1,30}", raw):
        return float(raw)
    if human := _HUMAN.fullmatch(raw):
        power = "kmgt".index(human[2].lower()) + 1
        return int(float(human[1]) * (1000 if human[2].islower() else 1024) ** power)
    return raw


def is_command(text: str) -> bool:
    """True for a line that starts vLLM: ``vllm serve ...``, ``python -m vllm.entrypoints...``, ``docker run ... --model``."""
    return bool(_COMMAND.search(text)) and ("--" in text or "vllm serve " in text) and "usage:" not in text


def read_typed(text: str, line: int) -> dict[str, Setting]:
    """The options of a typed command, and the variables set in front of it or with ``-e``."""
    from fitserve.facts.command import read_command

    found = read_environment(text, line)
    try:
        launch = read_command(_words(text))
    except UsageError:
        return found
    if launch.model is not None:
        found["model"] = Setting(value=launch.model, line=line, where="command")
    for option in launch.options:
        name = _RENAMED.get(option.name, option.name)
        found[name] = Setting(value=_scalar(option.value), line=line, where="command")
    return found


def _words(text: str) -> list[str]:
    """The words of a command line, without the prompt in front of it."""
    prompt = _PROMPT.match(text)
    command = text[prompt.end() :] if prompt else text
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


def _scalar(value: object) -> Value:
    return value if isinstance(value, int | float | str) or value is None else str(value)


def read_environment(text: str, line: int) -> dict[str, Setting]:
    """The environment variables of vLLM and its libraries that a line sets or dumps."""
    return {
        variable[1]: Setting(value=read_value(variable[2].strip("'\"")), line=line, where="environment")
        for variable in _EXPORT.finditer(text)
        if variable[1].startswith(_ENVIRONMENT)
    }
