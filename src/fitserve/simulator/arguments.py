"""The command line of a release: its flags, the values that they take, its usage errors.

Source: ``engine/arg_utils.py``, ``entrypoints/openai/cli_args.py`` and ``utils/argparse_utils.py`` of the releases in ``data/flags.json``.
"""

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from fitserve.simulator.releases import at_least, nearest, read_data

_WHOLE = [
    "--port",
    "--max-num-seqs",
    "--tensor-parallel-size",
    "--pipeline-parallel-size",
    "--data-parallel-size",
    "--seed",
    "--block-size",
    "--num-gpu-blocks-override",
    "--api-server-count",
    "--max-seq-len-to-capture",
    "--max-logprobs",
    "--max-cudagraph-capture-size",
]
_FRACTIONS = ["--gpu-memory-utilization", "--cpu-offload-gb", "--swap-space", "--kv-offloading-size"]
_SIZES = ["--max-model-len", "--max-num-batched-tokens", "--kv-cache-memory-bytes"]
_SWITCHES = [
    "--enforce-eager",
    "--trust-remote-code",
    "--enable-prefix-caching",
    "--enable-chunked-prefill",
    "--disable-log-requests",
    "--disable-log-stats",
    "--enable-expert-parallel",
    "--disable-hybrid-kv-cache-manager",
    "--enable-sleep-mode",
    "--async-scheduling",
    "--enable-auto-tool-choice",
    "--language-model-only",
    "--skip-mm-profiling",
    "--calculate-kv-scales",
    "--enable-log-requests",
    "--disable-uvicorn-access-log",
    "--enable-lora",
    "--disable-custom-all-reduce",
    "--disable-sliding-window",
    "--headless",
]
_LISTS = [
    "--served-model-name",
    "--cudagraph-capture-sizes",
    "--cuda-graph-sizes",
    "--api-key",
    "--lora-modules",
    "--middleware",
]
_VALUES = ["--model", "--host", "--config", "--chat-template", "--quantization"]
_SHORT = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
    "-q": "--quantization",
    "-O": "--compilation-config",
    "-cc": "--compilation-config",
    "-ac": "--attention-config",
}
_DTYPES = ("auto", "half", "float16", "bfloat16", "float", "float32")
_KV_DTYPES = (
    ("auto", "0.3.0"),
    ("fp8", "0.4.1"),
    ("fp8_e4m3", "0.4.3"),
    ("fp8_e5m2", "0.3.0"),
    ("fp8_inc", "0.10.0"),
    ("bfloat16", "0.11.0"),
    ("fp8_ds_mla", "0.11.1"),
    ("float16", "0.18.0"),
    ("nvfp4", "0.20.0"),
)
_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class Parser(argparse.ArgumentParser):
    """vLLM's parser: underscores in flags, and its own first line of usage."""

    def error(self, message: str) -> NoReturn:
        """The usage and the error, exit code 2."""
        self.exit(2, f"usage: {self.usage}\n{self.prog}: error: {message}\n")


def human_readable(text: str) -> int:
    """``32k`` is 32,000, ``32K`` is 32,768; decimals with the small letters alone.

    Source: ``human_readable_int``, vLLM 0.8.4 and newer.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgGtT]?)", text.strip())
    if match is None:
        return int(text)
    number, suffix = match.groups()
    if suffix in _DECIMAL:
        return int(float(number) * _DECIMAL[suffix])
    if "." in number:
        raise argparse.ArgumentTypeError("Decimals are not allowed with binary suffixes")
    return int(number) * _BINARY.get(suffix, 1)


def length_or_auto(text: str) -> int:
    """``--max-model-len``: -1 and ``auto`` let vLLM choose (0.14 and newer)."""
    return -1 if text in ("auto", "-1") else human_readable(text)


def build_parser(version: str, *, module: bool = False) -> Parser:
    """The parser of a release, for ``vllm serve`` or for the module."""
    name = "api_server.py" if module else "vllm serve"
    parser = Parser(prog=name, usage=f"{name} [model_tag] [options]", add_help=False, allow_abbrev=True)
    parser.add_argument("model_tag", nargs="?")
    known = set(read_data("flags.json")[nearest(version, read_data("flags.json"))])
    known |= {
        "--model",
        "--port",
        "--host",
        "--config",
        "--api-key",
        "--chat-template",
        "--served-model-name",
    }
    for flag in sorted(known):
        parser.add_argument(*_spellings(flag), dest=flag[2:].replace("-", "_"), **_takes(flag, version))
    return parser


def _spellings(flag: str) -> list[str]:
    return [flag, *(short for short, long in _SHORT.items() if long == flag)]


def _takes(flag: str, version: str) -> dict[str, Any]:
    """How argparse reads a flag; one that this module does not know may have a value or none."""
    human = human_readable if at_least(version, "0.8.4") else int
    kinds: dict[str, dict[str, Any]] = {
        **{name: {"action": argparse.BooleanOptionalAction, "default": None} for name in _SWITCHES},
        **{name: {"type": int} for name in _WHOLE},
        **{name: {"type": float} for name in _FRACTIONS},
        **{name: {"type": human} for name in _SIZES},
        **{name: {"nargs": "+"} for name in _LISTS},
        **{name: {} for name in _VALUES},
        "--dtype": {"choices": _DTYPES},
        "--kv-cache-dtype": {"choices": [name for name, first in _KV_DTYPES if at_least(version, first)]},
    }
    if at_least(version, "0.14.0"):
        kinds["--max-model-len"] = {"type": length_or_auto}
    return kinds.get(flag, {"nargs": "?", "const": True})


def with_config_file(words: Sequence[str]) -> list[str]:
    """The words with the entries of ``--config FILE`` before them: what is typed counts more."""
    words = list(words)
    for position, word in enumerate(words):
        name, _, given = word.partition("=")
        if name == "--config":
            place = given or words[position + 1]
            rest = words[:position] + words[position + (1 if given else 2) :]
            return _place_model_first(_from_file(Path(place)), rest)
    return words


def _place_model_first(entries: list[str], rest: list[str]) -> list[str]:
    model = [word for word in rest[:1] if not word.startswith("-")]
    return [*model, *entries, *rest[len(model) :]]


def _from_file(path: Path) -> list[str]:
    import yaml

    found: list[str] = []
    for key, value in (yaml.safe_load(path.read_text(encoding="utf-8")) or {}).items():
        if value is True:
            found.append(f"--{key}")
        elif isinstance(value, list):
            found += [f"--{key}", *map(str, value)]
        elif value is not False:
            found += [f"--{key}", json.dumps(value) if isinstance(value, dict) else str(value)]
    return found


def read_arguments(words: Sequence[str], version: str, *, module: bool = False) -> dict[str, Any]:
    """What was given, by the argument's name; ends the program with code 2 where it is refused."""
    spelled = [_dashed(word) for word in with_config_file(words)]
    plain, nested = _without_nested(spelled)
    parser = build_parser(version, module=module)
    known, unknown = parser.parse_known_args(plain)
    if unknown:
        if not module:
            parser.prog, parser.usage = (
                "vllm",
                "vllm [-h] [-v] {chat,complete,serve,bench,collect-env,run-batch} ...",
            )
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    given = {name: value for name, value in vars(known).items() if value is not None}
    tag = given.pop("model_tag", None)
    if tag is not None:
        given["model"] = tag
    for name, entries in nested.items():
        given[name] = {**_as_json(given.get(name)), **entries}
    return given


def _dashed(word: str) -> str:
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value if name.startswith("--") else word


def _without_nested(words: list[str]) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """``-cc.mode=none`` and ``--compilation-config.mode none`` taken out, as a dictionary by argument."""
    plain: list[str] = []
    nested: dict[str, dict[str, Any]] = {}
    rest = iter(words)
    for word in rest:
        match = re.fullmatch(r"(-cc|-O|--[a-z-]+)\.([a-z_-]+)(?:=(.*))?", word)
        if match is None:
            glued = re.fullmatch(r"-O\.?(\d)", word)
            plain += ["--optimization-level", glued[1]] if glued else [word]
            continue
        flag = _SHORT.get(match[1], match[1])[2:].replace("-", "_")
        value = match[3] if match[3] is not None else next(rest, "")
        nested.setdefault(flag, {})[match[2].replace("-", "_")] = _value(value)
    return plain, nested


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _as_json(given: Any) -> dict[str, Any]:
    if isinstance(given, str):
        found = _value(given)
        return found if isinstance(found, dict) else {}
    return given if isinstance(given, dict) else {}
