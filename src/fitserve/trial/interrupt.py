"""Signals that reach the tool while a program runs (o: the process's signal handlers)."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fitserve.trial.launch import Process

_STOPPING = (signal.SIGTERM, signal.SIGHUP)
_FORWARDED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)


@contextmanager
def stopping_like_ctrl_c() -> Iterator[None]:
    """TERM and HUP interrupt as Ctrl-C does, so that every way to stop the tool tidies up in the same way.

    A signal that was ignored before (``nohup``) stays ignored.
    """
    with _handled(_STOPPING, _interrupt):
        yield


class Relay:
    """Hands signals on to a program, those too that came before it was there.

    Attributes:
        came: the numbers of those that came.
    """

    def __init__(self) -> None:
        self.came: set[int] = set()
        self._process: Process | None = None

    def take(self, number: int, _frame: object) -> None:
        """A signal has come."""
        self.came.add(number)
        if self._process is not None:
            self._process.signal(number)

    def hand_to(self, process: Process) -> None:
        """The program is there: it gets what has come, and what will."""
        early = sorted(self.came)
        self._process = process
        for number in early:
            process.signal(number)


@contextmanager
def relaying() -> Iterator[Relay]:
    """Signals go on to the program that the relay will be told of, which decides what they mean.

    A signal that was ignored before (``nohup``) stays ignored.
    """
    relay = Relay()
    with _handled(_FORWARDED, relay.take):
        yield relay


@contextmanager
def undisturbed() -> Iterator[None]:
    """Signals that stop the tool wait until the block is through: what is half written would be left so.

    They are held by handlers, not by a mask: another thread of the process would take what this one masks.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    try:
        with _handled((signal.SIGINT, *_STOPPING), lambda number, _: came.append(number)):
            yield
    finally:
        for number in came:
            signal.raise_signal(number)


@contextmanager
def _handled(numbers: tuple[int, ...], handler: Callable[[int, object], None]) -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in numbers}
    for number, present in before.items():
        if present is not signal.SIG_IGN:
            signal.signal(number, handler)
    try:
        yield
    finally:
        for number, present in before.items():
            signal.signal(number, present)


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt
