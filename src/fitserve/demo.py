"""The whole loop on a real vLLM: a launch that really fails, one change, a start that serves, the proof (o: processes, files)."""

import shutil
import socket
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from fitserve.errors import MachineError
from fitserve.facts.engine.find import Engine
from fitserve.fix.loop import fix
from fitserve.fix.options import Options
from fitserve.memory.history import at_least
from fitserve.report.record import Record
from fitserve.report.text import render_diagnosis
from fitserve.store.journal import Journal
from fitserve.trial.outcome import Trial
from fitserve.trial.progress import Progress

MAX_MODEL_LEN = 32_768
"""The context that the demo asks for. Proving it reads the whole of it on a CPU, in a time that grows with its square."""

KV_CACHE_MEMORY = "40M"
"""Too little for it: 32,768 tokens of the tiny model take 64 MiB."""

REQUEST_SECONDS = 300.0
"""The longest that one check may take: reading 32,768 tokens took 11 to 17 s on two free cores, 43 s on two that six servers shared."""

OLDEST_VLLM = "0.10.2"
"""``--kv-cache-memory-bytes`` came with it."""

QUIET_VARIABLES = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
"""Nothing is fetched, nothing is reported."""


def demo_command(engine: Engine, model: Path, port: int) -> list[str]:
    """The launch that fails: its KV cache, set by hand, does not hold one sequence of ``max_model_len``.

    On a CPU all cores work (vLLM keeps one for itself otherwise, which is half of a small machine). On a GPU that others use too,
    a small ``gpu_memory_utilization`` lets the start pass vLLM's check of free memory; the pinned cache makes it mean nothing else.

    Raises:
        MachineError: the engine is older than the option that is shown.
    """
    if not at_least(engine.version, OLDEST_VLLM):
        raise MachineError(
            f"the demo needs vLLM {OLDEST_VLLM} or newer, this is {engine.version}",
            where=str(engine.python),
            hint="name a newer one with --engine, or leave --engine out",
        )
    device = [] if engine.on_cpu else ["--gpu-memory-utilization", "0.1"]
    return [
        *(["env", "VLLM_CPU_OMP_THREADS_BIND=nobind"] if engine.on_cpu else []),
        *engine.launch,
        str(model),
        *("--served-model-name", "tiny"),
        *("--load-format", "dummy"),
        "--enforce-eager",
        *("--host", "127.0.0.1"),
        *("--port", str(port)),
        *("--max-model-len", str(MAX_MODEL_LEN)),
        *("--kv-cache-memory-bytes", KV_CACHE_MEMORY),
        *device,
    ]


def free_port() -> int:
    """A port that the system gives out: two demos at once do not take the same one, as they would with a fixed first choice."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def demo_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The user's environment, offline, and without the variable that would overrule ``--kv-cache-memory-bytes``.

    **Source**: vLLM 0.32.0 ``platforms/cpu.py`` ``check_and_update_config``.
    """
    kept = {name: value for name, value in environ.items() if name != "VLLM_CPU_KVCACHE_SPACE"}
    return {**kept, **QUIET_VARIABLES}


def run_demo(
    engine: Engine,
    model: Path,
    *,
    journal: Journal,
    run: str,
    progress: Progress,
    environ: Mapping[str, str],
    keep_logs: bool,
) -> Record:
    """Fail, change one thing, serve, prove; nothing is left running.

    Args:
        engine: the vLLM to run.
        model: the tiny model's directory.
        journal: gets the record and the logs.
        run: the run's id.
        progress: is told how it goes on.
        environ: the user's environment.
        keep_logs: the trials' output stays in a folder too, not in the journal alone.

    Raises:
        MachineError: the engine is too old or cannot be started, or there is no place for logs.
    """
    return tell_the_loop(
        demo_command(engine, model, free_port()),
        options=Options(request_deadline_seconds=REQUEST_SECONDS),
        journal=journal,
        run=run,
        progress=progress,
        environ=demo_environment(environ),
        keep_logs=keep_logs,
    )


def tell_the_loop(
    command: Sequence[str],
    *,
    options: Options,
    journal: Journal,
    run: str,
    progress: Progress,
    environ: Mapping[str, str],
    keep_logs: bool,
) -> Record:
    """The loop over a command, each failure told as soon as it is known.

    Args:
        command: the launch.
        options: how far to go; its folder for logs is chosen here.
        journal: gets the record and the logs.
        run: the run's id.
        progress: is told how it goes on.
        environ: of what is started.
        keep_logs: the trials' output stays in a folder too, not in the journal alone.

    Raises:
        MachineError: the engine cannot be started, or there is no place for logs.
    """
    folder = _log_folder(run)
    try:
        record = fix(
            command,
            options=msgspec.structs.replace(options, log_dir=folder),
            progress=_Story(progress),
            journal=journal,
            run=run,
            kind="demo",
            environ=environ,
        )
    finally:
        if not keep_logs:
            shutil.rmtree(folder, ignore_errors=True)
    if not keep_logs:
        record = _without_log_paths(record)
        journal.save(record)
    return record


def _log_folder(run: str) -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix=f"fitserve-{run}-"))
    except OSError as error:
        raise MachineError(
            f"there is no place for logs: {error.strerror}", hint="free space, or set TMPDIR"
        ) from error


def _without_log_paths(record: Record) -> Record:
    """The record without the paths of files that are gone."""
    trials = [msgspec.structs.replace(trial, log_path=None) for trial in record.trials]
    return msgspec.structs.replace(record, trials=trials)


class _Story:
    """Tells the diagnosis of a failed trial as soon as it is known, beside what the progress tells anyway."""

    def __init__(self, progress: Progress) -> None:
        self.trial_started = progress.trial_started
        self.phase = progress.phase
        self.tick = progress.tick
        self.note = progress.note
        self._trial_ended = progress.trial_ended

    def trial_ended(self, trial: Trial) -> None:
        """The trial, then its diagnosis."""
        self._trial_ended(trial)
        if trial.diagnosis is not None and trial.diagnosis.failed and trial.outcome != "stopped":
            self.note(f"\n{render_diagnosis(trial.diagnosis, f'trial-{trial.n}.log')}")
