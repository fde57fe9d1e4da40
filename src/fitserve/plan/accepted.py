"""What a release's argument parser takes: the words of a command, numbers with suffixes, and the values of a choice."""

import re
from collections.abc import Mapping
from typing import Any

from fitserve.errors import UsageError
from fitserve.facts.command import Launch, Option
from fitserve.facts.serve_options import SWITCHES, arity, known_options
from fitserve.memory.history import at_least, has_flag, release

_SUFFIXES_SINCE = {"max_model_len": "0.8.4", "max_num_batched_tokens": "0.9.0"}
"""The first release that reads ``32k``; other options with suffixes have read them from their own first release on.

Source: ``EngineArgs`` in ``engine/arg_utils.py`` of vLLM 0.6.6, 0.8.5, 0.9.2 and 0.10.2.
"""

_DTYPES = ("auto", "half", "float16", "bfloat16", "float", "float32")
"""Source: ``--dtype`` in ``engine/arg_utils.py`` of vLLM 0.6.6 and 0.8.5, ``ModelDType`` in ``config/model.py`` of 0.32."""

_CACHE_DTYPES = {
    "auto": "",
    "fp8": "",
    "fp8_e4m3": "",
    "fp8_e5m2": "",
    "fp8_inc": "0.9.2",
    "bfloat16": "0.10.2",
    "fp8_ds_mla": "0.10.2",
    "float16": "0.16.0",
    "turboquant_k8v4": "0.19.0",
    "turboquant_4bit_nc": "0.19.0",
    "turboquant_k3v4_nc": "0.19.0",
    "turboquant_3bit_nc": "0.19.0",
    "int8_per_token_head": "0.19.0",
    "fp8_per_token_head": "0.19.0",
    "nvfp4": "0.19.0",
    "int4_per_token_head": "0.24.0",
    "nvfp4_ds_mla": "0.26.0",
    "ultraquant_4bit": "0.26.0",
    "nvfp4_4over6": "0.26.0",
    "octave_k3v4": "0.32.0",
    "octave_k3v3": "0.32.0",
    "octave_k3v3_compact": "0.32.0",
}
"""Types of the cache, with the last release that is known not to take them.

Source: ``CacheDType`` in ``config/cache.py`` (``--kv-cache-dtype`` before) of vLLM 0.6.6, 0.8.5, 0.9.2, 0.10.2, 0.12, 0.16, 0.19,
0.20, 0.24, 0.26, 0.32 and 0.33. Between two of them a value counts as taken.
"""

_GRAPH_MODES = ("NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
"""Source: ``CUDAGraphMode`` in ``config/compilation.py`` of vLLM 0.10.2 and 0.32."""

_NEWEST_CACHE_DTYPES = "0.33.0"
"""A later release may take other types."""

_BLOCK_SIZES = (1, 8, 16, 32, 64, 128)
"""Sizes of a block up to 0.16, and 256 as well from 0.11 on; 0.19 takes any. Source: ``BlockSize`` in ``config/cache.py``."""

_TAKES_A_WORD = ("enable_chunked_prefill", "multi_step_stream_outputs")
"""Switches that took ``true`` or ``false`` in releases before 0.9."""

_JSON = {
    "attention_config": "",
    "compilation_config": r"[0-3]",
    "eplb_config": "",
    "hf_overrides": "",
    "limit_mm_per_prompt": r"\w+=\d+(,\w+=\d+)*",
    "mm_processor_kwargs": "",
    "rope_scaling": "",
    "speculative_config": "",
}
"""Options that decide memory and take a JSON object, with what earlier releases take besides: a level, or ``image=2``.

Source: ``engine/arg_utils.py`` of vLLM 0.6.6, 0.10.2 and 0.32.0.
"""

_TABLE_OF = "0.32.0"
"""The release whose options the table of options holds."""

_SHELL = frozenset("|&;<>$`(){}*")


_GONE_IN = {
    **dict.fromkeys(("speculative_model", "num_speculative_tokens"), "0.9.2"),
    **dict.fromkeys(
        (
            "device",
            "disable_async_output_proc",
            "enable_prompt_adapter",
            "enable_reasoning",
            "guided_decoding_backend",
            "lora_extra_vocab_size",
            "multi_step_stream_outputs",
            "num_lookahead_slots",
            "num_scheduler_steps",
            "preemption_mode",
            "tokenizer_pool_size",
            "use_v2_block_manager",
        ),
        "0.12.0",
    ),
}
"""The first release that was read without an option which earlier ones have; it may have gone a little before.

Source: ``engine/arg_utils.py`` and ``entrypoints/openai/cli_args.py`` of vLLM 0.6.6, 0.9.2 and 0.12.0.
"""


def check_words(launch: Launch) -> None:
    """Every word of the launch belongs to an option, or is the model.

    Raises:
        UsageError: a word belongs to nothing, or an option lacks its value.
    """
    words = launch.words
    taken: set[int] = set()
    switches: set[int] = set()
    for option in launch.options:
        if not option.texts and arity(option.name) == "one":
            raise UsageError(f"{option.spelled} needs a value", where=option.spelled)
        _check_value(option)
        taken.update(range(option.at, option.at + option.width))
        if arity(option.name) == "none":
            switches.add(option.at)
    free = [at for at in range(launch.first, len(words)) if at not in taken and words[at] != "--"]
    for at in free[1 if launch.takes_model else 0 :]:
        if _SHELL & set(words[at]):
            return
        before = words[at - 1]
        raise UsageError(
            f"vLLM takes no argument {words[at]!r} there",
            where=f"behind {before}",
            hint=f"{before} is a switch and takes no value"
            if at - 1 in switches
            else "put an option before it",
        )


def _check_value(option: Option) -> None:
    """A switch has no value, and an option that takes JSON has an object.

    Raises:
        UsageError: vLLM's parser refuses it.
    """
    if option.name in SWITCHES and option.joiner == "=" and option.name not in _TAKES_A_WORD:
        raise UsageError(
            f"{option.spelled} is a switch and takes no value",
            where=f"{option.spelled}={option.texts[0]}",
            hint=f"give {option.spelled}, or its --no- twin",
        )
    if option.name not in _JSON or not option.texts or "$" in option.texts[0]:
        return
    text = option.texts[0]
    other = _JSON[option.name]
    if not isinstance(option.value, Mapping) and not (other and re.fullmatch(other, text)):
        raise UsageError(f"{text!r} is no JSON object", where=option.spelled)


def refused_numbers(launch: Launch, version: str) -> dict[str, str]:
    """Numbers with a suffix that the release does not read, by option, as one sentence each."""
    found = {}
    for option in launch.options:
        since = _SUFFIXES_SINCE.get(option.name)
        if since is None or not option.texts or at_least(version, since):
            continue
        text = option.texts[0]
        if isinstance(option.value, int) and not text.lstrip("-").isdecimal() and option.value >= 0:
            found[option.name] = (
                f"vLLM {release(version)} takes no suffix in {option.spelled} {text}; {since} and later do"
            )
    return found


def refused_values(given: Mapping[str, Any], version: str) -> dict[str, str]:
    """Values that are none of those that the release takes, by option, as one sentence each."""
    found = {}
    dtype = given.get("dtype")
    if dtype is not None and dtype not in _DTYPES:
        found["dtype"] = f"--dtype takes {', '.join(_DTYPES)}, not {dtype!r}"
    cache = given.get("kv_cache_dtype")
    if cache is not None and not _takes_cache(cache, version):
        known = [name for name in _CACHE_DTYPES if _takes_cache(name, version)]
        found["kv_cache_dtype"] = (
            f"--kv-cache-dtype of vLLM {release(version)} takes {', '.join(known)}, not {cache!r}"
        )
    compilation = given.get("compilation_config")
    mode = compilation.get("cudagraph_mode") if isinstance(compilation, Mapping) else None
    if isinstance(mode, str) and mode.upper() not in _GRAPH_MODES:
        found["compilation_config"] = f"cudagraph_mode takes {', '.join(_GRAPH_MODES)}, not {mode!r}"
    size = given.get("block_size")
    if size is not None and not at_least(version, "0.17.0"):
        sizes = (*_BLOCK_SIZES, 256) if at_least(version, "0.11.0") else _BLOCK_SIZES
        if size not in sizes:
            found["block_size"] = (
                f"--block-size of vLLM {release(version)} takes {', '.join(map(str, sizes))}, not {size}"
            )
    return found


def removed_options(given: Mapping[str, Any], version: str) -> dict[str, str]:
    """Options of earlier releases that the newest ones lack, as one sentence each; others are told by the version table."""
    return {
        name: f"vLLM {release(version)} has no option --{name.replace('_', '-')} any more"
        for name, value in given.items()
        if value is not None and _is_removed(name, version)
    }


def _is_removed(name: str, version: str) -> bool:
    gone = _GONE_IN.get(name)
    if gone is not None and at_least(version, gone):
        return True
    if not at_least(version, _TABLE_OF):
        return False
    return arity(name) is not None and name not in known_options() and has_flag(name, version)


def _takes_cache(value: Any, version: str) -> bool:
    last_without = _CACHE_DTYPES.get(value) if isinstance(value, str) else None
    if last_without is None:
        return release(version) > release(_NEWEST_CACHE_DTYPES)
    return not last_without or release(version) > release(last_without)
