"""What one start of a server was: the values, without the doing."""

from typing import Any, Literal

import msgspec

from fitserve.diagnose.finding import Diagnosis, Scalar

State = Literal["served", "failed", "silent", "timed-out", "stopped"]
"""How a trial ended: it answered; it died; it said nothing for too long; it took too long; we were told to stop."""


Purpose = Literal["fix", "isolation", "growth"]
"""Why a change is made: to get it to serve; to find out what fails, without keeping it; to spend what is left."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """The one difference between a trial and the one before it.

    Attributes:
        flag: vLLM's name with underscores, or the environment variable.
        value_from: the value before; None where it was not given.
        to: the new value.
        why: the arithmetic in one sentence.
        cost: what it costs.
        purpose: why it is made.
        predicted: what should be seen with it, by name (``kv_cache_tokens``).
    """

    flag: str
    value_from: Scalar = msgspec.field(name="from", default=None)
    to: Scalar = None
    why: str = ""
    cost: str = "free"
    purpose: Purpose = "fix"
    predicted: dict[str, Any] = {}


class PhaseTime(msgspec.Struct, frozen=True, kw_only=True):
    """A phase of the start and when it began, in seconds after the launch."""

    stage: str
    start_seconds: float


class PhasePeak(msgspec.Struct, frozen=True, kw_only=True):
    """The most memory of one phase.

    Attributes:
        stage: the phase.
        rss_bytes: resident memory of the trial's processes, together.
        own_bytes: the trial's processes on all devices together; None where no device was seen.
        used_bytes: everything on all devices together; None likewise.
    """

    stage: str
    rss_bytes: int = 0
    own_bytes: int | None = None
    used_bytes: int | None = None


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Memory that the trial's own processes held.

    Attributes:
        peak_rss_bytes: the largest sum of resident memory over the process tree.
        peak_gpu_bytes: the same on the devices, by process; None without a driver that tells it.
        peaks: the same by phase.
        printed: what vLLM printed about its memory, by name (``kv_cache_tokens``, ``weights_gib``).
    """

    peak_rss_bytes: int = 0
    peak_gpu_bytes: int | None = None
    peaks: list[PhasePeak] = []
    printed: dict[str, Any] = {}


class DeviceSamples(msgspec.Struct, frozen=True, kw_only=True):
    """One device's memory over a trial, one number a sample.

    Attributes:
        device: its UUID, or its number where the driver tells none.
        total_bytes: all of it.
        used_bytes: everything that is used.
        own_bytes: what the trial's own processes hold.
        others_bytes: what other processes hold, as far as the driver tells them apart.
    """

    device: str
    total_bytes: int
    used_bytes: list[int] = []
    own_bytes: list[int] = []
    others_bytes: list[int] = []


class Samples(msgspec.Struct, frozen=True, kw_only=True):
    """A trial's memory over time; every list is as long as ``seconds``. The phases stand in the trial.

    Attributes:
        source: who was asked: ``NVML``, ``nvidia-smi``, ``amd-smi``; ``proc`` where no device was seen.
        seconds: after the launch.
        rss_bytes: resident memory of the trial's processes.
        devices: the devices that the trial can see.
    """

    source: str = "proc"
    seconds: list[float] = []
    rss_bytes: list[int] = []
    devices: list[DeviceSamples] = []


class ProcessId(msgspec.Struct, frozen=True):
    """One process, for all time.

    Attributes:
        pid: its number.
        started: when it started, in clock ticks after the machine did. Source: proc(5), ``starttime``.
    """

    pid: int
    started: int


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """A trial that was under way when the record was saved; whoever goes on after a kill begins here.

    Attributes:
        n: its number.
        argv: the command.
        env: the environment variables that differ from the user's.
        change: the one difference to the trial before.
        boot: which boot of which machine the processes belong to.
        tool: the process that runs the loop.
        processes: what was seen of the trial's processes, the one above them first.
        container: the container engine's program and the file with the container's id.
        log_path: where its output is kept.
    """

    n: int
    argv: list[str]
    env: dict[str, str] = {}
    change: Change | None = None
    boot: str = ""
    tool: ProcessId | None = None
    processes: list[ProcessId] = []
    container: list[str] = []
    log_path: str | None = None


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One start, from launch to end.

    Attributes:
        n: 1-based number within the run.
        argv: the command as it was started.
        env: the environment variables that differ from the user's.
        change: the one difference to the trial before; None for the first.
        outcome: how it ended.
        cause: the diagnosis' cause; None where it served.
        exit_code: the child's exit code; None where it was still running or died by a signal.
        signal: the signal that ended the child.
        seconds: from launch to the end of the start (ready, or dead).
        phases: when each phase began.
        memory: what it held.
        diagnosis: what its log says.
        log_path: where its output is kept.
        url: where it answers, while it runs.
        samples: its memory over time; None where it was not watched.
        notes: what else was seen, one sentence each: a neighbour that took memory, a log that was cut.
    """

    n: int
    argv: list[str]
    env: dict[str, str] = {}
    change: Change | None = None
    outcome: State
    cause: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    seconds: float
    phases: list[PhaseTime] = []
    memory: Memory = Memory()
    diagnosis: Diagnosis | None = None
    log_path: str | None = None
    url: str | None = None
    samples: Samples | None = None
    notes: list[str] = []
