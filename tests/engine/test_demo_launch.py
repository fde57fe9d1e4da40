"""The launch that the demo starts, for engines of other kinds."""

from pathlib import Path

import msgspec
import pytest

from fitserve.demo import demo_command, demo_environment
from fitserve.errors import MachineError
from fitserve.facts.engine.find import Engine

GPU = Engine(
    python=Path("/opt/vllm/bin/python"),
    distribution="vllm",
    version="0.24.0",
    launch=["/opt/vllm/bin/vllm", "serve"],
    on_cpu=False,
)


def test_a_gpu_engine_gets_its_own_script_and_passes_the_check_of_free_memory() -> None:
    """On a GPU the launch is ``vllm serve``, with a utilization that a shared device can give; nothing binds CPU cores."""
    command = demo_command(GPU, Path("/models/tiny"), 8000)

    assert ["/opt/vllm/bin/vllm", "serve", "/models/tiny"] == command[:3]
    assert ["--gpu-memory-utilization", "0.1"] == command[-2:]


def test_an_engine_without_the_option_is_refused() -> None:
    """An engine of 0.10.1 has no ``--kv-cache-memory-bytes``: the demo says which version it needs."""
    with pytest.raises(MachineError, match=r"needs vLLM 0\.10\.2 or newer, this is 0\.10\.1"):
        demo_command(msgspec.structs.replace(GPU, version="0.10.1"), Path("/models/tiny"), 8000)


def test_a_variable_that_overrules_the_option_is_left_out() -> None:
    """``VLLM_CPU_KVCACHE_SPACE`` would decide the cache's size on a CPU: the demo does not pass it on."""
    environment = demo_environment({"VLLM_CPU_KVCACHE_SPACE": "4", "PATH": "/bin"})

    assert "VLLM_CPU_KVCACHE_SPACE" not in environment
    assert ("/bin", "1") == (environment["PATH"], environment["HF_HUB_OFFLINE"])
