"""Ends what is no descendant of the command that starts it: containers, services, jobs of a cluster (o: processes).

A container is ended by the engine that runs it, a Slurm job that ``srun`` was given by ``scancel``. A Ray cluster that a
script starts on this machine is made of descendants, and ends with them; what a script starts on other machines can only
be told about.

Source: ``srun: job 17 queued and waiting for resources``, ``srun: job 17 has been allocated resources`` (Slurm,
``srun/allocate.c``); inside of an allocation srun makes a step, which ends with srun, and says neither.
"""

import contextlib
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath

from fitserve.errors import MachineError
from fitserve.facts.command import Launch
from fitserve.facts.command_edit import spliced
from fitserve.facts.container import Service
from fitserve.facts.shell_script import Script
from fitserve.trial.copies import placed

_ASKING_SECONDS = 30.0
_CANCEL_SECONDS = 10.0
_HEAD_BYTES = 1 << 16
_JOB = re.compile(rb"^srun: job (\d+) (?:queued and waiting|has been allocated)", re.MULTILINE)


def watched_container(launch: Launch, cid_file: Path) -> tuple[Sequence[str], tuple[str, Path] | None]:
    """The command as it is started: a container's id is written down, so that the container can be ended."""
    container = launch.container
    if container is None or isinstance(launch.host, Service):
        return launch.argv, None
    line = launch.argv if launch.around else launch.words
    engine, given = line[container.program], container.cid_file(line)
    if given is not None:
        return launch.argv, (engine, Path(given))
    cid_file.unlink(missing_ok=True)
    words = ["--cidfile", str(cid_file)]
    if launch.host is None or launch.around:
        return [*launch.argv[: container.image], *words, *launch.argv[container.image :]], (engine, cid_file)
    inside = placed(spliced(launch, container.image, 0, words), cid_file.parent, f"{cid_file.stem}-watched")
    return inside.argv, (engine, cid_file)


def stopping(launch: Launch) -> list[str]:
    """The command that ends the launch's service; empty where there is none."""
    if not isinstance(launch.host, Service):
        return []
    services = launch.host.compose.services or (launch.host.name,)
    return launch.host.compose.ending(launch.argv, services)


def refuse_running_service(launch: Launch, environ: Mapping[str, str]) -> None:
    """Leave a service alone that runs already: starting it anew would end it.

    Raises:
        MachineError: it runs.
    """
    if not isinstance(launch.host, Service):
        return
    host = launch.host
    running = ""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        running = subprocess.run(
            host.compose.asking(launch.argv, [host.name]),
            env={**environ, **launch.env},
            capture_output=True,
            text=True,
            check=False,
            timeout=_ASKING_SECONDS,
        ).stdout.strip()
    if running:
        raise MachineError(
            f"the service {host.name} runs already, and starting it anew would end it",
            where=f"container {running.splitlines()[0]}",
            hint=f"stop it first: docker compose stop {host.name}",
        )


def cancel_job(launch: Launch, log_path: Path, environ: Mapping[str, str]) -> None:
    """Cancel the job that the command's own srun was given; a job that the user is in stays."""
    words = (*launch.argv, *launch.words)
    if all(PurePath(word).name != "srun" for word in words) or "SLURM_JOB_ID" in environ:
        return
    scancel = shutil.which("scancel", path=environ.get("PATH"))
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        with log_path.open("rb") as log:
            job = _JOB.search(log.read(_HEAD_BYTES))
        if scancel is not None and job is not None:
            subprocess.run(
                [scancel, job[1].decode()],
                env=dict(environ),
                check=False,
                timeout=_CANCEL_SECONDS,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )


def not_ended_from_here(launch: Launch) -> str:
    """What the command may leave on other machines, in words; empty for nothing."""
    if isinstance(launch.host, Script) and launch.host.starts_ray:
        return "the script starts Ray: its processes on this machine end with it, those on other machines are yours to stop"
    return ""
