"""Questions with a time limit: to programs that may hang, and to functions that may."""

import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fitserve.errors import FitserveError
from fitserve.units import Unknown

_REASON_LETTERS = 300
_FAREWELL_SECONDS = 0.2
_MOST_BYTES = 16 << 20


def ask_program(
    command: Sequence[str | Path],
    seconds: float,
    *,
    environ: Mapping[str, str] | None = None,
    alone: bool = False,
) -> str | Unknown:
    """What a program prints, in time and of a sane size.

    Else it and everything that it started is killed, and not waited for where that does not help.

    Args:
        command: the program and its arguments.
        seconds: the limit.
        environ: its environment; None is this process's.
        alone: it stays in this process's group and is killed alone, for where this process may be killed with its group.
    """
    words = [str(word) for word in command]
    name = Path(words[0]).name
    try:
        child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=os.sep,
            env=environ,
            start_new_session=not alone,
        )
    except OSError as error:
        return Unknown(f"{name} cannot be started: {error.strerror}")
    try:
        told = _told(child, seconds)
        if isinstance(told, str):
            return Unknown(f"{name} {told}")
    finally:
        _end(child, alone=alone)
    out, errors = (text.decode(errors="replace") for text in told)
    if child.returncode:
        said = [line.strip() for line in errors.splitlines() if line.strip()]
        return Unknown(f"{name} ended with {child.returncode}: {(said or [''])[-1][:_REASON_LETTERS]}")
    return out


def _told(child: "subprocess.Popen[bytes]", seconds: float) -> tuple[bytes, bytes] | str:
    """Both streams of a program that ends in time; else why there is no answer."""
    end = time.monotonic() + seconds
    told: dict[Any, bytearray] = {child.stdout: bytearray(), child.stderr: bytearray()}
    late = f"did not answer within {seconds:g} s"
    with selectors.DefaultSelector() as selector:
        for stream in told:
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, end - time.monotonic()))
            if not ready:
                return late
            for key, _ in ready:
                part = os.read(key.fd, 1 << 16)
                if not part:
                    selector.unregister(key.fileobj)
                told[key.fileobj] += part
            if sum(map(len, told.values())) > _MOST_BYTES:
                return f"printed more than {_MOST_BYTES >> 20} MiB"
    try:
        child.wait(max(0.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        return late
    return bytes(told[child.stdout]), bytes(told[child.stderr])


def _end(child: "subprocess.Popen[bytes]", *, alone: bool) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if alone:
            child.kill()
        else:
            os.killpg(child.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(_FAREWELL_SECONDS)
    for stream in (child.stdout, child.stderr):
        if stream is not None:
            stream.close()


def all_within(probes: Mapping[str, Callable[[], Any]], seconds: float) -> dict[str, Any]:
    """The answers of functions that run at the same time; what is not there at the limit, or fails, is an unknown with its reason."""
    answers: dict[str, Any] = {}
    defects: list[Exception] = []

    def run(name: str, probe: Callable[[], Any]) -> None:
        try:
            answers[name] = probe()
        except FitserveError as error:
            answers[name] = Unknown(error.what)
        except OSError as error:
            answers[name] = Unknown(error.strerror or str(error))
        except Exception as error:  # noqa: BLE001 - raised again where it can be seen
            defects.append(error)

    threads = [
        threading.Thread(target=run, args=(name, probe), daemon=True) for name, probe in probes.items()
    ]
    end = time.monotonic() + seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    if defects:
        raise defects[0]
    late = Unknown(f"no answer within {seconds:g} s")
    return {name: answers.get(name, late) for name in probes}
