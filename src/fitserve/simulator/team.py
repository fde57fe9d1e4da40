"""The ranks of an engine: one in its own process, or a worker process for each (o: processes).

Source: ``v1/executor/*.py`` of vLLM 0.8.5 to 0.32.0.
"""

import json
import os
import signal
from collections.abc import Sequence

import msgspec

from fitserve.simulator.play import Play, StartFailed
from fitserve.simulator.rank import Rank
from fitserve.simulator.settings import Settings
from fitserve.simulator.start import Start
from fitserve.simulator.voice import Frame, Voice, traceback


class Solo:
    """The only rank, in the engine's own process."""

    def __init__(self, play: Play, voice: Voice) -> None:
        self.rank = Rank(play, 0, voice)

    def step(self, name: str, start: Start) -> None:
        """Do it here."""
        self.rank.step(name, start)


class Workers:
    """A process for each rank, led over pipes; each ends when its leader is gone."""

    def __init__(self, play: Play, voice: Voice, ready: int) -> None:
        self.voice = voice
        self.pids: list[int] = []
        self.pipes: list[tuple[int, int]] = []
        for index in range(play.settings.world_size):
            orders, order = os.pipe()
            answers, answer = os.pipe()
            pid = os.fork()
            if pid == 0:
                others = [end for pipes in self.pipes for end in pipes]
                for end in (*others, order, answers, ready):
                    os.close(end)
                _obey(play, index, orders, answer)
            os.close(orders)
            os.close(answer)
            self.pids.append(pid)
            self.pipes.append((order, answers))

    def step(self, name: str, start: Start) -> None:
        """Let every rank do it; raise StartFailed for the first that fails."""
        order = msgspec.json.encode({"step": name, "start": start}) + b"\n"
        for pipe, _ in self.pipes:
            os.write(pipe, len(order).to_bytes(8, "big") + order)
        answers = [_read_message(pipe) for _, pipe in self.pipes]
        failed = [answer for answer in answers if answer != b"ok"]
        if failed:
            error = failed[0].decode() or "RuntimeError: a worker is gone"
            if name in ("device", "load"):
                words_of_leader = (
                    "Exception: WorkerProc initialization failed due to an exception in a background process. "
                    "See stack trace for root cause."
                )
                raise StartFailed(words_of_leader, (), f"multi-{name}")
            message = error.partition(": ")[2]
            raise StartFailed(
                f"RuntimeError: Worker failed with error '{message}', please check the stack trace above for the root cause",
                (),
                name,
            )


def _read_message(pipe: int) -> bytes:
    head = os.read(pipe, 8)
    if len(head) < 8:
        return b""
    left, parts = int.from_bytes(head, "big"), []
    while left:
        part = os.read(pipe, left)
        if not part:
            return b""
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _obey(play: Play, index: int, orders: int, answer: int) -> None:
    """A worker's life."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    voice = Voice(play.settings.version, _rank_name(play.settings, index))
    rank = Rank(play, index, voice)
    while message := _read_message(orders):
        order = json.loads(message)
        reply = b"ok"
        try:
            rank.step(order["step"], msgspec.convert(order["start"], Start))
        except StartFailed as failed:
            early = order["step"] in ("device", "load")
            place, head = (
                ("worker_failed", "WorkerProc failed to start.")
                if early
                else ("worker_exception", "WorkerProc hit an exception.")
            )
            first = ("worker_init", f"worker_{order['step']}") if early else ("worker_busy",)
            voice.exception(place, head, traceback_of(voice, first, failed))
            reply = failed.error.encode()
        os.write(answer, len(reply).to_bytes(8, "big") + reply)
    os._exit(0)


def _rank_name(settings: Settings, index: int) -> str:
    stage, rank = divmod(index, settings.tensor_parallel_size)
    parts = [f"PP{stage}"] if settings.pipeline_parallel_size > 1 else []
    parts += [f"TP{rank}"] if settings.tensor_parallel_size > 1 else []
    return "_".join(["Worker", *parts])


def traceback_of(voice: Voice, first: Sequence[str], failed: StartFailed) -> list[str]:
    """The lines of a failure: the frames that led to it, and the error that it came from."""
    frames: list[Frame] = voice.frames(*first, *failed.frames)
    chained = traceback(voice.frames("sampling"), failed.chained) if failed.chained else ()
    return traceback(frames, failed.error, chained=chained)
