"""The options of ``vllm serve``: their names, how many arguments each takes, and how their values read.

Source: the argument parser of vLLM 0.32.0 (``entrypoints/launchers/cli_args.py``, ``engine/arg_utils.py``), and
options of earlier releases that it no longer has.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

Arity = Literal["none", "one", "several"]

SHORT = {
    "-ac": "attention_config",
    "-asc": "api_server_count",
    "-cc": "compilation_config",
    "-dc": "diffusion_config",
    "-dcp": "decode_context_parallel_size",
    "-dp": "data_parallel_size",
    "-dpa": "data_parallel_address",
    "-dpb": "data_parallel_backend",
    "-dpe": "data_parallel_external_lb",
    "-dph": "data_parallel_hybrid_lb",
    "-dpl": "data_parallel_size_local",
    "-dpm": "data_parallel_multi_port_external_lb",
    "-dpn": "data_parallel_rank",
    "-dpp": "data_parallel_rpc_port",
    "-dpr": "data_parallel_start_rank",
    "-ep": "enable_expert_parallel",
    "-h": "help",
    "-n": "nnodes",
    "-O": "optimization_level",
    "-pcp": "prefill_context_parallel_size",
    "-pp": "pipeline_parallel_size",
    "-q": "quantization",
    "-r": "node_rank",
    "-sc": "speculative_config",
    "-tp": "tensor_parallel_size",
}

_SAME = (
    frozenset({"cuda_graph_sizes", "cudagraph_capture_sizes"}),
    frozenset({"max_context_len_to_capture", "max_seq_len_to_capture"}),
    frozenset({"cp_kv_cache_interleave_size", "dcp_kv_cache_interleave_size"}),
)
"""Names of one option in different releases, with values of one meaning.

Source: the argument parsers of vLLM 0.8.5, 0.10.2, 0.12.0, 0.19.0 and 0.32.0 (``engine/arg_utils.py``).
"""

ALIASES = {"device_memory_utilization": "gpu_memory_utilization"}


def _tables() -> dict[str, frozenset[str]]:
    """The sections of the table beside this module."""
    text = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
    sections = text.split("\n[")[1:]
    return {title: frozenset(names.split()) for title, _, names in (part.partition("]") for part in sections)}


_TABLES = _tables()
SWITCHES = _TABLES["switch"] | _TABLES["old-switch"]
"""Options without a value; most have a ``--no-`` twin."""

HUMAN_INTEGERS = _TABLES["human-integer"]
"""Options whose value may carry a suffix. Source: vLLM 0.32.0 ``engine/arg_utils.py``."""

_CURRENT = _TABLES["switch"] | _TABLES["several"] | _TABLES["one"]
_EVERY = _CURRENT | SWITCHES | _TABLES["old-one"] | _TABLES["old-several"]
_HUMAN = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_MULTIPLIER = {
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "K": 1 << 10,
    "M": 1 << 20,
    "G": 1 << 30,
    "T": 1 << 40,
}


def full_name(spelled: str) -> str:
    """The name that vLLM gives to an option, however it is spelled.

    Args:
        spelled: the option without its value: ``--max-model-len``, ``--max_model_len``, ``--max-model`` (any
            unambiguous beginning), ``-tp``, ``--no-enable-prefix-caching`` (the name of its twin).

    Returns:
        The name with underscores. A dotted part (``--compilation-config.mode``) stays behind the name; an option that no
        release has keeps the name as it was spelled.
    """
    head, dot, rest = spelled.partition(".")
    if not head.startswith("--"):
        name = SHORT.get(head, head.lstrip("-").replace("-", "_"))
    else:
        name = _completed(head[2:].replace("-", "_"))
    return ALIASES.get(name, name) + dot + rest


def names_of(name: str) -> frozenset[str]:
    """Every name that an option has had; a dotted part makes it another option."""
    return next((names for names in _SAME if name in names), frozenset({name}))


def known_options() -> frozenset[str]:
    """The options that the newest release has."""
    return _CURRENT


def arity(name: str) -> Arity | None:
    """How many arguments follow an option; None for an option that no release has."""
    head = name.partition(".")[0]
    if head in _TABLES["several"] | _TABLES["old-several"]:
        return "several"
    if head in SWITCHES:
        return "none"
    return "one" if head in _EVERY else None


def is_negation(spelled: str) -> bool:
    """True for the ``--no-`` twin of a switch."""
    name = spelled.partition(".")[0].replace("_", "-")
    return name.startswith("--no-") and full_name(spelled) in SWITCHES


def read_integer(text: str) -> int:
    """A whole number as vLLM reads it: ``32k`` is 32,000, ``32K`` is 32,768, ``25.6k`` is 25,600.

    Raises:
        ValueError: it is no number, or has decimals before a binary suffix.

    Source: vLLM 0.32.0 ``utils/argparse_utils.py`` ``human_readable_int``.
    """
    if match := _HUMAN.fullmatch(text.strip()):
        number, suffix = match.groups()
        if suffix.isupper():
            return int(number) * _MULTIPLIER[suffix]
        return int(float(number) * _MULTIPLIER[suffix])
    return int(text)


def read_value(name: str, text: str) -> Any:
    """An option's value as vLLM takes it.

    Returns:
        An int, a float, a dict or list (JSON), or the text. ``auto`` as ``max_model_len`` is -1, as in vLLM.
    """
    if name == "max_model_len" and text.strip().lower() == "auto":
        return -1
    readers: list[Callable[[str], Any]] = [read_integer if name in HUMAN_INTEGERS else int, float]
    if text.lstrip().startswith(("{", "[")):
        readers.append(json.loads)
    for read in readers:
        try:
            return read(text)
        except ValueError:
            continue
    return text


def _completed(name: str) -> str:
    """The option that a name or its beginning stands for; the name itself where none or several do."""
    bare = name.removeprefix("no_")
    if name in _EVERY or (bare != name and bare in SWITCHES):
        return name if name in _EVERY else bare
    for known in (_CURRENT, _EVERY):
        spellings = known | {f"no_{switch}" for switch in known & SWITCHES}
        found = {spelling for spelling in spellings if spelling.startswith(name)}
        if len(found) == 1:
            only = found.pop()
            return only if only in _EVERY else only.removeprefix("no_")
    return name
