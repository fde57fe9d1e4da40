"""What an out-of-memory error says is consistent: more was asked than was free, and the parts fit the device."""

import re
from pathlib import Path

import pytest

from fitserve.simulator.machine import Machine, device_called
from fitserve.simulator.models import known_models
from fitserve.simulator.play import Play
from fitserve.simulator.rank import Rank
from fitserve.simulator.settings import resolve
from fitserve.simulator.start import would_start
from fitserve.simulator.voice import Voice

ASKED = re.compile(
    r"Tried to allocate ([\d.]+) (MiB|GiB)\. GPU 0 has a total capacity of ([\d.]+) GiB of which ([\d.]+) (MiB|GiB) is free"
)
UNIT = {"MiB": 1 << 20, "GiB": 1 << 30}


@pytest.mark.parametrize("sequences", [8, 32, 128, 1024])
def test_more_was_asked_than_was_free(sequences: int, tmp_path: Path) -> None:
    """However small the allocation that fails."""
    machine = Machine(device=device_called("A10"), vllm_version="0.10.2")
    model = known_models()["Qwen/Qwen2.5-0.5B-Instruct"]
    given = {"gpu_memory_utilization": 0.97, "max_num_seqs": sequences}
    settings = resolve(given, "0.10.2", machine.device, model, {})
    start = would_start(model, settings, machine.device, [machine.device.total_bytes], 1)
    play = Play(folder=tmp_path, machine=machine, model=model, place="m", settings=settings, devices=[0])
    _, memory = Rank(play, 0, Voice("0.10.2", "EngineCore"))._error("sampler-warmup-oom", start)
    found = ASKED.search(memory)

    assert found is not None
    asked, unit, _, free, free_unit = found.groups()
    assert float(asked) * UNIT[unit] > float(free) * UNIT[free_unit]
