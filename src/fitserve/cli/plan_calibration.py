"""What ``--from-log`` and ``--from-run`` take from an earlier start."""

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fitserve.errors import InputError, UsageError

if TYPE_CHECKING:
    from fitserve.plan.from_log import Calibration


def calibration(log: Path | None, run: str | None) -> "Calibration | None":
    """The numbers of a log or of a run; None where neither is given.

    Raises:
        InputError: the file cannot be read or is no log of vLLM; there is no such run, or it shows no memory.
        UsageError: both are given.
    """
    if log is not None and run is not None:
        raise UsageError("one start at a time", where="--from-log, --from-run", hint="leave one of them out")
    if log is not None:
        return _of_log(log)
    return None if run is None else _of_run(run)


def _of_log(path: Path) -> "Calibration":
    from fitserve.diagnose.engine import diagnose_path
    from fitserve.plan.from_log import calibrate

    found = diagnose_path(path)
    if found.cause == "not-a-vllm-log":
        raise InputError(
            "no line of it is vLLM's", where=str(path), hint="give what the vLLM process printed"
        )
    return calibrate(found, path.name)


def _of_run(run: str) -> "Calibration":
    """The last start of a run that shows its memory, with the settings of its command."""
    from fitserve.cli.report_source import open_source
    from fitserve.facts.command import read_command
    from fitserve.plan.from_launch import given_settings
    from fitserve.plan.from_log import calibrate

    record = open_source(run).record
    shown = ((trial, trial.diagnosis) for trial in reversed(record.trials))
    for trial, diagnosis in shown:
        if diagnosis is None or not diagnosis.budget:
            continue
        found = calibrate(diagnosis, f"start {trial.n} of {record.run}")
        settings = {**found.settings, **(given_settings(read_command(trial.argv)) if trial.argv else {})}
        observed = msgspec.structs.replace(found.observed, given=settings)
        return msgspec.structs.replace(found, settings=settings, observed=observed)
    raise InputError("no start of it shows its memory", where=run, hint="fitserve runs lists the runs")
