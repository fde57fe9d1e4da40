"""What ``report`` works out for its page: the frontier of the run's model, and the files that start what serves."""

import os

from fitserve.diagnose.finding import Diagnosis
from fitserve.errors import FitserveError
from fitserve.report.html.extras import Emitted, Frontier
from fitserve.report.record import Record
from fitserve.trial.outcome import Trial
from fitserve.units import Unknown


def frontier_of(record: Record) -> Frontier:
    """Context against concurrency for the last start whose memory is known; never an error, but a reason."""
    told = [(trial, trial.diagnosis) for trial in record.trials if trial.argv and trial.diagnosis is not None]
    if not told:
        return Frontier(reason="no start of this run shows which model it is")
    served = [each for each in told if each[0].outcome == "served"]
    try:
        return _frontier(record, *(served or told)[-1])
    except FitserveError as error:
        return Frontier(reason=error.what)


def _frontier(record: Record, trial: Trial, diagnosis: Diagnosis) -> Frontier:
    import msgspec

    from fitserve.facts.find_launch import find_launch
    from fitserve.fix.question import question
    from fitserve.plan.make import make_plan
    from fitserve.plan.values import KvPlan
    from fitserve.trial.choice import Bounds

    words = [*(f"{name}={value}" for name, value in trial.env.items()), *trial.argv]
    launch = find_launch(words, {}, watched=False)
    version = diagnosis.vllm_version or record.environment.get("vllm")
    diagnosis = msgspec.structs.replace(diagnosis, vllm_version=version)
    name, count = _devices(record)
    asked = question(launch, diagnosis, bounds=Bounds(devices=count), device=name, environ={})
    if isinstance(asked, Unknown):
        return Frontier(reason=f"{asked.unknown} ({launch.model or 'no model'})")
    plan = make_plan(msgspec.structs.replace(asked.request, with_frontier=True))
    cache, length = plan.kv_cache, plan.settings["max_model_len"].value
    chosen = (int(length), cache.max_concurrency) if isinstance(cache, KvPlan) else None
    return Frontier(
        points=plan.frontier, chosen=chosen, reason="no settings fit" if not plan.frontier else ""
    )


def _devices(record: Record) -> tuple[str | None, int | None]:
    """What the devices were called where the run was made, and how many there were; None where it does not say.

    A record is read on other machines too: what they have is asked last.
    """
    machine = record.environment.get("machine")
    devices = machine.get("devices") if isinstance(machine, dict) else None
    gpus = devices.get("gpus") if isinstance(devices, dict) else None
    given = record.options.get("device")
    if not gpus:
        return given, None
    return given or str(gpus[0].get("name")), len(gpus)


def emitted_of(record: Record) -> tuple[list[Emitted], str]:
    """The files that start what serves, or why there are none."""
    from fitserve.cli.emit_options import KINDS
    from fitserve.report.emit.from_record import deployment_of_record
    from fitserve.report.emit.kinds import file_name, written

    try:
        server = deployment_of_record(record, os.environ)
        return [Emitted(name=file_name(kind, server), text=written(kind, server)) for kind in KINDS], ""
    except FitserveError as error:
        return [], error.what
