"""Settings are read from whatever shape a log shows them in."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitserve.facts.settings import is_command, read_environment, read_pairs, read_typed, read_value


def values(settings: dict[str, Any]) -> dict[str, Any]:
    """The bare values."""
    return {name: setting.value for name, setting in settings.items()}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("131072", 131072),
        ("32k", 32000),
        ("32K", 32768),
        ("1.5m", 1500000),
        ("2G", 2 << 30),
        ("0.9", 0.9),
        ("-1", -1),
        ("True", True),
        ("None", None),
        ("'auto'", "auto"),
        ("torch.bfloat16", "torch.bfloat16"),
        ("", None),
    ],
)
def test_values_are_vllms(raw: str, expected: Any) -> None:
    """A value is read as vLLM reads it: lower-case suffixes are decimal, upper-case ones binary."""
    assert expected == read_value(raw)


def test_a_namespace_may_be_cut_off() -> None:
    """The arguments are read as far as the text goes, nested ones as they stand."""
    text = "host=None, port=8000, allowed_origins=['*', 'a, b'], model='org/m', max_model_len=65536, gpu_mem"

    found = values(read_pairs(text, 7, "arguments"))

    assert {
        "host": None,
        "port": 8000,
        "allowed_origins": "['*', 'a, b']",
        "model": "org/m",
        "max_model_len": 65536,
    } == found


def test_a_dict_is_read_like_a_namespace() -> None:
    """The dict of arguments that differ from the defaults gives the same names."""
    text = "'model': 'org/m', 'speculative_config': {'method': 'ngram', 'n': 4}, 'kv_cache_memory_bytes': 35433480192}"

    found = values(read_pairs(text, 7, "arguments"))

    assert found["kv_cache_memory_bytes"] == 35433480192
    assert found["speculative_config"] == "{'method': 'ngram', 'n': 4}"


def test_an_engines_config_uses_its_own_names() -> None:
    """``max_seq_len`` is ``max_model_len``, and what is None there is not set."""
    found = values(
        read_pairs("model='m', quantization=None, max_seq_len=8192, dtype=torch.float16", 1, "engine")
    )

    assert {"model": "m", "max_model_len": 8192, "dtype": "torch.float16"} == found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "$ vllm serve org/m --max-model-len 32k --enforce-eager -tp 2 --gpu-memory-utilization=0.9",
            {
                "model": "org/m",
                "max_model_len": 32000,
                "enforce_eager": True,
                "tensor_parallel_size": 2,
                "gpu_memory_utilization": 0.9,
            },
        ),
        (
            "python -m vllm.entrypoints.openai.api_server --model /m --kv-cache-memory 2G",
            {"model": "/m", "kv_cache_memory_bytes": 2 << 30},
        ),
        (
            "docker run --gpus all -e VLLM_USE_V1=0 vllm/vllm-openai:v0.8.5 --model org/m --max-num-seqs 8",
            {"VLLM_USE_V1": 0, "model": "org/m", "max_num_seqs": 8},
        ),
    ],
)
def test_commands_are_read(text: str, expected: dict[str, Any]) -> None:
    """A typed command gives its options and the variables in front of it."""
    assert is_command(text)
    assert expected == values(read_typed(text, 1))


@pytest.mark.parametrize(
    "text", ["usage: vllm serve [model_tag] [options]", "see vllm.entrypoints", "vllm is fast"]
)
def test_other_mentions_are_no_commands(text: str) -> None:
    """A usage line or a mention is no command."""
    assert not is_command(text)


def test_only_known_variables_count() -> None:
    """A dump of the environment gives the variables of vLLM and its libraries, no others."""
    assert {"VLLM_CPU_KVCACHE_SPACE": 0.5} == values(
        read_environment("+ export VLLM_CPU_KVCACHE_SPACE=0.5 HOME=/x", 1)
    )


@given(st.text())
def test_no_text_raises(text: str) -> None:
    """Any text gives settings or none."""
    read_pairs(text, 1, "arguments")
    read_typed(f"vllm serve {text}", 1)
    read_environment(text, 1)
