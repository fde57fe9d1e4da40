"""A start to show: a simulated machine, and a command that fails there for want of KV cache (o: files)."""

from pathlib import Path
from typing import Any

import msgspec

from fitserve.errors import UsageError
from fitserve.simulator.machine import Machine, device_called, make_machine
from fitserve.simulator.models import Model, known_models, make_model
from fitserve.simulator.refusals import refuse_settings
from fitserve.simulator.releases import at_least, nearest, read_data
from fitserve.simulator.settings import resolve
from fitserve.simulator.start import would_start

_FAMOUS = ("meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-32B", "Qwen/Qwen2.5-72B-Instruct", "Qwen/Qwen3-8B")
NEWEST = max(read_data("places.json"), key=lambda version: tuple(map(int, version.split("."))))
OLDEST = "0.10.2"


class Show(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown.

    Attributes:
        machine: the simulated one; programs: its folder for ``PATH``.
        model: its name; command: the launch that fails.
        goal_context: what is asked of it.
    """

    machine: Machine
    programs: Path
    model: str
    command: list[str]
    goal_context: int

    @property
    def headline(self) -> str:
        """What must be said before anything else."""
        return (
            f"SIMULATED: no GPU, no vLLM and no weights are at work here. The machine is a made-up one with {self.machine.count} x "
            f"{self.machine.device.name}, its vLLM {self.machine.vllm_version} a program that behaves like it, its model {self.model}."
        )


def prepare_show(folder: Path, *, device: str, version: str | None, seed: int, port: int) -> Show:
    """Make the machine and the model's folder.

    Raises:
        UsageError: the device is unknown, the release cannot be simulated, or everything fits the device.
    """
    version = version or NEWEST
    if not at_least(version, OLDEST) or nearest(version, read_data("places.json")) != version:
        known = [each for each in read_data("places.json") if at_least(each, OLDEST)]
        raise UsageError(f"vLLM {version} cannot be simulated", hint=f"there are: {', '.join(known)}")
    machine = Machine(device=device_called(device), vllm_version=version, seed=seed)
    half = {"dtype": "half"} if machine.device.capability < (8, 0) else {}
    for share in (None, 0.5, 0.3, 0.2, 0.1):
        given = {**half, **({} if share is None else {"gpu_memory_utilization": share})}
        for name in [*_FAMOUS, *known_models()]:
            model = known_models()[name]
            if _fails_for_its_context(machine, model, given):
                place = make_model(folder / "model", name)
                words = ["--served-model-name", name, "--host", "127.0.0.1", "--port", str(port)]
                words += [
                    word
                    for key, value in given.items()
                    for word in (f"--{key.replace('_', '-')}", str(value))
                ]
                return Show(
                    machine=machine,
                    programs=make_machine(folder / "machine", machine),
                    model=name,
                    command=["vllm", "serve", str(place), *words, "--max-model-len", str(model.longest)],
                    goal_context=model.longest // 4,
                )
    raise UsageError(f"every model that can be simulated fits {machine.device.name} with its whole context")


def _fails_for_its_context(machine: Machine, model: Model, given: dict[str, Any]) -> bool:
    settings = resolve(given, machine.vllm_version, machine.device, model, {})
    if refuse_settings(settings, model, machine, 1, {}) is not None:
        return False
    total = machine.device.total_bytes
    start = would_start(model, settings, machine.device, [total], machine.seed)
    shorter = msgspec.structs.replace(settings, max_model_len=model.longest // 4)
    again = would_start(model, shorter, machine.device, [total], machine.seed)
    return start.cause == "kv-cache-smaller-than-context" and again.cause is None
