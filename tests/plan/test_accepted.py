"""What a release's argument parser takes."""

from typing import Any

import pytest

from fitserve.errors import UsageError
from fitserve.facts.command import read_command
from fitserve.plan.accepted import check_words, refused_numbers, refused_values, removed_options


@pytest.mark.parametrize(
    "line",
    [
        "vllm serve m",
        "vllm serve m --max-model-len 4096 --enforce-eager",
        "vllm serve --max-model-len 4096 m",
        "vllm serve m --api-key a b c",
        "vllm serve m --unknown-option value",
        "python -m vllm.entrypoints.openai.api_server --model m",
        "docker run --gpus all vllm/vllm-openai:v0.19.0 --model m -tp 2",
        "vllm serve m -O3 -tp=2 --no-enable-prefix-caching",
    ],
)
def test_every_word_has_its_place(line: str) -> None:
    """The model, options and their values are all that a launch is made of."""
    assert check_words(read_command(line.split())) is None  # type: ignore[func-returns-value]


@pytest.mark.parametrize(
    ("line", "what", "where"),
    [
        (
            "vllm serve m --enforce-eager true",
            "vLLM takes no argument 'true' there",
            "behind --enforce-eager",
        ),
        ("vllm serve m --max-model-len 4 096", "vLLM takes no argument '096' there", "behind 4"),
        ("vllm serve m n", "vLLM takes no argument 'n' there", "behind m"),
        ("vllm serve m --max-model-len", "--max-model-len needs a value", "--max-model-len"),
        ("vllm serve m --max-model-len --enforce-eager", "--max-model-len needs a value", "--max-model-len"),
        (
            "python -m vllm.entrypoints.openai.api_server m",
            "vLLM takes no argument 'm' there",
            "behind vllm.entrypoints.openai.api_server",
        ),
    ],
)
def test_a_word_without_a_place_is_named(line: str, what: str, where: str) -> None:
    """A stray word, and an option without its value, are told with what stands before them."""
    with pytest.raises(UsageError) as caught:
        check_words(read_command(line.split()))

    assert (what, where) == (caught.value.what, caught.value.where)


@pytest.mark.parametrize(
    ("words", "version", "refused"),
    [
        ("--max-model-len 32k", "0.6.6", ["max_model_len"]),
        ("--max-model-len 32k", "0.8.5", []),
        ("--max-model-len 32000", "0.6.6", []),
        ("--max-num-batched-tokens 8k", "0.8.5", ["max_num_batched_tokens"]),
        ("--max-num-batched-tokens 8k", "0.9.2", []),
        ("--kv-cache-memory-bytes 20G", "0.10.2", []),
    ],
)
def test_suffixes_are_read_since_a_release(words: str, version: str, refused: list[str]) -> None:
    """A number with a suffix is no number before that."""
    launch = read_command(["vllm", "serve", "m", *words.split()])

    assert refused == list(refused_numbers(launch, version))


@pytest.mark.parametrize(
    ("given", "version", "refused"),
    [
        ({"dtype": "nope"}, "0.32.0", ["dtype"]),
        ({"dtype": "float8_e4m3fn"}, "0.32.0", ["dtype"]),
        ({"dtype": "half"}, "0.6.6", []),
        ({"kv_cache_dtype": "nope"}, "0.33.0", ["kv_cache_dtype"]),
        ({"kv_cache_dtype": "bfloat16"}, "0.10.2", ["kv_cache_dtype"]),
        ({"kv_cache_dtype": "bfloat16"}, "0.12.0", []),
        ({"kv_cache_dtype": "octave_k3v4"}, "0.32.0", ["kv_cache_dtype"]),
        ({"kv_cache_dtype": "octave_k3v4"}, "0.33.0", []),
        ({"kv_cache_dtype": "of_tomorrow"}, "0.99.0", []),
        ({"block_size": 7}, "0.12.0", ["block_size"]),
        ({"block_size": 256}, "0.10.2", ["block_size"]),
        ({"block_size": 256}, "0.12.0", []),
        ({"block_size": 48}, "0.19.0", []),
        ({}, "0.6.6", []),
    ],
)
def test_a_choice_has_its_values(given: dict[str, Any], version: str, refused: list[str]) -> None:
    """What argparse of that release does not have among its choices is refused."""
    assert refused == list(refused_values(given, version))


@pytest.mark.parametrize(
    ("name", "kept", "gone"),
    [
        ("num_scheduler_steps", "0.9.2", "0.12.0"),
        ("guided_decoding_backend", "0.9.2", "0.16.0"),
        ("lora_extra_vocab_size", "0.9.2", "0.12.0"),
        ("speculative_model", "0.6.6", "0.9.2"),
        ("swap_space", "0.9.2", None),
    ],
)
def test_an_option_ends_with_a_release(name: str, kept: str, gone: str | None) -> None:
    """Options that a release was read without are refused from it on, and not before a release that has them."""
    assert removed_options({name: 4}, kept) == {}
    if gone is not None:
        assert [name] == list(removed_options({name: 4}, gone))
        assert [name] == list(removed_options({name: 4}, "0.33.0"))
