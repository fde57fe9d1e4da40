"""The command of a plan, with changes."""

import json
from typing import Any

import pytest

from fitserve.facts.checkpoint import Checkpoint
from fitserve.facts.model_config import parse_config
from fitserve.memory.options import Device
from fitserve.plan.command import command_with
from fitserve.plan.request import Request


@pytest.mark.parametrize(
    ("argv", "changes", "expected"),
    [
        ((), {"max_model_len": 4096}, "vllm serve model --dtype half --max-model-len 4096"),
        ((), {"enforce_eager": True}, "vllm serve model --dtype half --enforce-eager"),
        ((), {"VLLM_USE_V1": 0}, "VLLM_USE_V1=0 vllm serve model --dtype half"),
        (("vllm", "serve", "m", "-tp=2"), {"tensor_parallel_size": 4}, "vllm serve m -tp=4"),
        (
            ("docker", "run", "vllm/vllm-openai:v0.19.0", "--model", "m"),
            {"VLLM_USE_V1": 0},
            "docker run -e VLLM_USE_V1=0 vllm/vllm-openai:v0.19.0 --model m",
        ),
    ],
)
def test_changes_are_typed_as_vllm_takes_them(
    argv: tuple[str, ...], changes: dict[str, Any], expected: str
) -> None:
    """An option in its spelling, a variable before the program or with ``-e``."""
    request = Request(
        checkpoint=Checkpoint(config=parse_config(json.dumps({"architectures": ["A"]}).encode())),
        model="model",
        device=Device(name="L4", total_bytes=1 << 34),
        given={"dtype": "half"},
        version="0.32.0",
        argv=argv,
    )

    assert command_with(request, changes) == expected
