"""The question that a launch and its failure put to the memory model (o: the model's files, the devices)."""

import os
from collections.abc import Mapping, Sequence
from functools import cache

import msgspec

from fitserve.diagnose.finding import Diagnosis
from fitserve.errors import FitserveError
from fitserve.facts.checkpoint import Checkpoint, read_checkpoint
from fitserve.facts.command import Launch
from fitserve.memory.options import Device
from fitserve.plan.device import described_device, probed_device
from fitserve.plan.from_launch import VARIABLES, given_settings, image_release, plan_variables
from fitserve.plan.from_log import Calibration, calibrate
from fitserve.plan.observed import Observed
from fitserve.plan.overrides import overridden
from fitserve.plan.request import Request
from fitserve.plan.values import Goal
from fitserve.trial.choice import Bounds
from fitserve.units import Unknown

_SAME_SIZE = 0.05
"""How far a device's memory may be from what a log says for it to be the same device."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What the memory model is asked, and what this start adds to what is known.

    Attributes:
        request: the launch as it is now.
        observed: what the start has shown.
    """

    request: Request
    observed: Observed


def question(
    launch: Launch,
    diagnosis: Diagnosis,
    *,
    bounds: Bounds,
    earlier: Sequence[Observed] = (),
    device: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Question | Unknown:
    """What to ask the memory model after a start.

    Args:
        launch: the command that was started.
        diagnosis: what its log says.
        bounds: the goal, and how many devices there are.
        earlier: what earlier starts have shown.
        device: the device's name where it is given.
        environ: the user's environment.

    Returns:
        The question, or why the model cannot be asked.
    """
    if launch.model is None:
        return Unknown("the command names no model")
    calibration = calibrate(diagnosis, "the start before")
    version = calibration.version or image_release(launch)
    if version is None:
        return Unknown("the log does not show the release")
    try:
        there, count = _device(calibration, device)
        given = {**calibration.settings, **given_settings(launch)}
        checkpoint = overridden(_read(launch.model, launch.value("revision")), given)
    except FitserveError as error:
        return Unknown(error.what)
    inherited = {name: environ[name] for name in VARIABLES if name in environ and launch.container is None}
    observed = msgspec.structs.replace(calibration.observed, given=given | plan_variables(launch))
    request = Request(
        checkpoint=checkpoint,
        model=launch.model,
        device=there,
        given=given,
        version=version,
        gpus=bounds.devices if bounds.devices is not None else count,
        environment=inherited | plan_variables(launch),
        goal=Goal(context=bounds.goal_context, concurrency=bounds.goal_concurrency, first=bounds.first),
        observed=(*earlier, observed),
    )
    return Question(request=request, observed=observed)


@cache
def _read(model: str, revision: str | None) -> Checkpoint:
    """A model's files, which do not change while a command is being fixed; vLLM has fetched what it needs of the Hub's."""
    return read_checkpoint(model, revision=revision, fetch=False)


def _device(calibration: Calibration, name: str | None) -> tuple[Device, int | None]:
    """The device by its given name, as this machine has it, or as the log shows it; and how many there are.

    Raises:
        FitserveError: none of them tells.
    """
    shown = calibration.total_bytes
    if name is not None:
        return described_device(name, shown), None
    try:
        device, count = probed_device()
    except FitserveError:
        if shown is None:
            raise
        return described_device(None, shown), None
    if shown is not None and abs(shown - device.total_bytes) < _SAME_SIZE * shown:
        device = msgspec.structs.replace(device, total_bytes=shown)
    return device, count
