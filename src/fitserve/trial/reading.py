"""Understands a log while it is written, in a thread of its own: a flood of lines never keeps the watch waiting."""

import threading
from typing import BinaryIO, cast

from fitserve.diagnose.engine import Watcher
from fitserve.diagnose.finding import Diagnosis
from fitserve.facts.reading.shape import Shape
from fitserve.facts.reading.stream import chunks, physical_lines
from fitserve.facts.reading.taking import take_apart
from fitserve.trial.advance import advance_after
from fitserve.trial.capture import Capture

_PHASES = ("weights", "profiling", "kv_cache", "graph_capture", "warmup", "serving")
"""The stages that a start goes through; a failure in one of them says that it was reached."""


class Reading:
    """What the lines have said so far.

    Attributes:
        phase: the stage that the start has reached.
        ready: True once the server has said that it is up.
        certain: True once a line says for certain that the start has failed.
        last_line: the last line with words in it.
        advance: how far it is in something long: ``weights 50%``; empty where nothing says it.
    """

    def __init__(self, output: Capture) -> None:
        self.phase = "config"
        self.ready = False
        self.certain = False
        self.last_line = ""
        self.advance = ""
        self._output = output
        self._watcher = Watcher()
        self._lock = threading.Lock()
        self._defect: Exception | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="reading", daemon=True)
        self._thread.start()

    def diagnosis(self) -> Diagnosis:
        """What all lines so far say."""
        if self._defect is not None:
            raise self._defect
        with self._lock:
            return self._watcher.diagnosis()

    def close(self, patience_seconds: float) -> None:
        """Understand no more lines; an output that has ended is read on for so long first.

        The thread must be over when the interpreter ends: one that is caught in native code then aborts it.
        """
        self._thread.join(patience_seconds)
        self._closed = True
        self._output.wake()
        self._thread.join()

    def read(self, most_bytes: int = -1) -> bytes:
        """The next bytes; the lines before them have been understood by now."""
        with self._lock:
            certain = self._watcher.certain
            self.phase = certain.stage if certain and certain.stage in _PHASES else self._watcher.phase
            self.ready = self._watcher.ready
            self.certain = self.certain or certain is not None
        data = b"" if self._closed else self._output.read(most_bytes)
        self.advance = advance_after(self.advance, data)
        return data

    def _run(self) -> None:
        try:
            # A program's own output has no shape to be found out first: each line is understood when it comes.
            for line in take_apart(physical_lines(chunks(cast("BinaryIO", self))), Shape()):
                if self._closed:
                    return
                with self._lock:
                    self._watcher.feed(line)
                if line.text.strip():
                    self.last_line = line.text
        except Exception as defect:  # noqa: BLE001 - it is raised where the diagnosis is asked for
            self._defect = defect
