"""One line of a log, taken apart."""

import msgspec


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line as a process wrote it, without what loggers and wrappers put around it.

    Attributes:
        number: the 1-based number of the physical line in the text as it was given (of the first one, where a
            terminal has wrapped it).
        text: the message, without prefix, colours and escapes.
        process: who wrote it, as printed (``EngineCore_DP0``, ``Worker_TP1``, ``RayWorkerWrapper``); None if not said.
        pid: its process id.
        rank: its rank as printed (``TP1``, ``DP0_TP1``, ``1``); None if not said.
        level: ``INFO``, ``WARNING``, ``ERROR``...; None for bare output such as a raw traceback.
        time: the stamp as printed; None if there is none.
        source: vLLM's source position, such as ``core.py:936``; None for bare output.
        origin: the container, host or pod whose output it is, as a platform printed it (``vllm-1``); None if not said.
    """

    number: int
    text: str
    process: str | None = None
    pid: int | None = None
    rank: str | None = None
    level: str | None = None
    time: str | None = None
    source: str | None = None
    origin: str | None = None
