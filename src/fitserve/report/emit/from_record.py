"""A deployment out of a run's record: the command that served, and what its start has shown."""

from collections.abc import Mapping

from fitserve.errors import InputError
from fitserve.facts.find_launch import find_launch
from fitserve.report.emit.deployment import Deployment
from fitserve.report.emit.from_launch import deployment_of
from fitserve.report.record import Record


def deployment_of_record(record: Record, environ: Mapping[str, str]) -> Deployment:
    """The server that a run has found.

    Raises:
        InputError: the run has found none, or a file that its command names is gone.
        UsageError: its command starts no vLLM server that can be read.
    """
    if record.final_command is None:
        raise InputError(
            "no command of this run serves, so there is nothing to write",
            where=f"run {record.run}: {record.reason or 'it has not ended'}",
            hint=f"fitserve report {record.run}",
        )
    served = [trial for trial in record.trials if trial.outcome == "served"]
    last = served[-1] if served else None
    proven = record.verification is not None and record.verification.passed
    return deployment_of(
        find_launch(record.final_command, environ, watched=False),
        version=record.environment.get("vllm"),
        start_seconds=last.seconds if last and record.kind != "run" else None,
        host_bytes=(last.memory.peak_rss_bytes or None) if last else None,
        note=f"run {record.run}: {'every check passed' if proven else record.reason}",
    )
