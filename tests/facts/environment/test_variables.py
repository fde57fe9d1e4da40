"""Which variables are shown, and which of their values."""

import pytest

from fitserve.facts.environment.variables import relevant

SHOWN = {
    "VLLM_USE_V1": "1",
    "CUDA_VISIBLE_DEVICES": "0,1",
    "VLLM_ATTENTION_BACKEND": "FLASH_ATTN",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:512",
    "OMP_NUM_THREADS": "8",
    "NCCL_SOCKET_IFNAME": "eth0",
    "VLLM_ENGINE_ITERATION_TIMEOUT_S": "60.5",
    "HF_HUB_OFFLINE": "",
}
NAMED = {
    "HF_TOKEN": "hf_abcdefghijklmnopqrstuvwxyzabcdefgh",
    "VLLM_API_KEY": "tiger",
    "HF_HOME": "/home/anna/.cache",
    "VLLM_HOST_IP": "10.0.0.7",
    "HTTPS_PROXY": "http://anna:tiger@proxy:3128",
    "MASTER_ADDR": "node7",
    "HF_ENDPOINT": "https://hub.acme.example",
    "VLLM_SOMETHING_NEW": "8f2b8c9d0e1f2a3b4c5d6e7f8091a2b3",
    "VLLM_NOTE": "written by anna",
}
NOT_RELEVANT = {"PATH": "/usr/bin", "EDITOR": "vi", "DB_PASSWORD": "tiger", "MY_VLLM": "1"}


@pytest.mark.parametrize(("name", "value"), SHOWN.items())
def test_harmless_values_are_shown(name: str, value: str) -> None:
    """Switches, numbers, words, devices."""
    assert [(name, value)] == [(one.name, one.value) for one in relevant({name: value})]


@pytest.mark.parametrize(("name", "value"), NAMED.items())
def test_others_are_only_named(name: str, value: str) -> None:
    """Keys, paths, addresses, and whatever looks like one of them."""
    assert [(name, None)] == [(one.name, one.value) for one in relevant({name: value})]


def test_the_rest_is_not_there() -> None:
    """What vLLM and its libraries do not read is nobody's business."""
    assert ["VLLM_USE_V1"] == [one.name for one in relevant({**NOT_RELEVANT, "VLLM_USE_V1": "1"})]
