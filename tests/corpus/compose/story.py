"""A log as it is written: lines with marks, each with the prefix of its release and process."""

import datetime as dt
import random

import msgspec
from packaging.version import Version

from . import sources


class Line(msgspec.Struct, frozen=True):
    """One physical line. `mark` is "cause" (states the first cause), "echo" (repeats it) or empty."""

    text: str
    mark: str = ""


def _carets(code: str) -> str | None:
    """The marker line that Python 3.11+ prints when the failing call is only a part of its line."""
    for head in ("return await ", "return ", "raise ", "async with ", "with ", "await "):
        if code.startswith(head):
            start = 0 if head == "raise " else len(head)
            break
    else:
        start = code.find(" = ") + 3 if " = " in code.split("(", 1)[0] else 0
    return None if start == 0 else " " * start + "^" * (len(code) - start)


class Story:
    """Writes the lines of one vLLM program: prefix, process tags and tracebacks as the release does."""

    def __init__(
        self,
        release: str,
        *,
        seed: int,
        start: str = "2026-03-14 09:21:07",
        site: str = "/usr/local/lib/python3.12/dist-packages",
    ) -> None:
        self.release = release
        self.version = Version(release)
        self.site = site
        self.stdlib = (
            "/usr/lib/python3.12" if site.startswith("/usr") else site.rsplit("/site-packages", 1)[0]
        )
        self.random = random.Random(seed)
        self.now = dt.datetime.fromisoformat(start)
        self.lines: list[Line] = []
        self.world = 1
        self.data_parallel = 1
        self.workers_named = False
        base = self.random.randint(180, 60000)
        self.pids = {"api": base, "core": base + self.random.randint(60, 140)}
        self._next_pid = self.pids["core"] + self.random.randint(4, 70)

    def at_least(self, release: str) -> bool:
        """True where this release is `release` or newer."""
        return self.version >= Version(release)

    def pid(self, proc: str) -> int:
        """The process id of `proc`."""
        if proc not in self.pids:
            self.pids[proc] = self._next_pid
            self._next_pid += self.random.randint(2, 9)
        return self.pids[proc]

    def tag(self, proc: str) -> str:
        """The process tag with its blank. Source: decorate_logs of each release (0.31+: the formatter)."""
        if proc == "none" or not self.at_least("0.4.2"):
            return ""
        if proc.startswith("v0worker"):
            return f"(VllmWorkerProcess pid={self.pid(proc)}) "
        if proc == "api":
            return f"(APIServer pid={self.pid(proc)}) " if self.at_least("0.10.1") else ""
        if proc.startswith("core"):
            return self._core_tag(proc)
        return self._worker_tag(proc)

    def _worker_tag(self, proc: str) -> str:
        rank = proc.removeprefix("rank")
        if self.world == 1:
            return self._core_tag("core")
        if not self.at_least("0.10.1"):
            return f"(VllmWorker rank={rank} pid={self.pid(proc)}) "
        if not self.at_least("0.10.2"):
            return f"(VllmWorker TP{rank} pid={self.pid(proc)}) "
        name = f"Worker_TP{rank}" if self.workers_named else "Worker"
        return f"({name} pid={self.pid(proc)}) "

    def _core_tag(self, proc: str) -> str:
        index = proc.removeprefix("core") or "0"
        if not self.at_least("0.10.1"):
            return ""
        if not self.at_least("0.10.2"):
            return f"(EngineCore_{index} pid={self.pid(proc)}) "
        if not self.at_least("0.18.0") or self.data_parallel > 1:
            return f"(EngineCore_DP{index} pid={self.pid(proc)}) "
        return f"(EngineCore pid={self.pid(proc)}) "

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now += dt.timedelta(seconds=seconds)

    def prefix(self, level: str, place: str) -> str:
        """Level, time and place as this release prints them, with the blank."""
        stamp = self.now.strftime("%m-%d %H:%M:%S")
        return f"{level} {stamp} [{place}] " if self.at_least("0.8.0") else f"{level} {stamp} {place}] "

    def place(self, file: str, text: str) -> str | None:
        """`file.py:LINE` of the logger call that holds `text`; None where the release has none."""
        found = sources.record(self.release, file, text)
        return None if found is None else f"{found.path.rsplit('/', 1)[-1]}:{found.line}"

    def say(
        self, level: str, file: str, text: str, message: str, *, proc: str = "core", mark: str = ""
    ) -> None:
        """A record of vLLM's logger. Raises LookupError where the release has no such text."""
        place = self.place(file, text)
        if place is None:
            raise LookupError(f"vLLM {self.release} has no {text!r} in {file}")
        for part in message.split("\n"):
            self.lines.append(Line(self.tag(proc) + self.prefix(level, place) + part, mark))

    def maybe(self, level: str, file: str, text: str, message: str, *, proc: str = "core") -> bool:
        """As `say`, but silent where the release has no such text."""
        if self.place(file, text) is None:
            return False
        self.say(level, file, text, message, proc=proc)
        return True

    def raw(self, text: str, *, proc: str = "none", mark: str = "") -> None:
        """Text that is no record: a raw traceback, a progress bar, another program."""
        tag = "" if self.at_least("0.31.0") else self.tag(proc)
        for part in text.split("\n"):
            self.lines.append(Line(tag + part, mark))

    def frames(self, *specs: str) -> list[str]:
        """Traceback lines for `file:function:needle` specs that this release has, newest Python style by release."""
        out: list[str] = []
        for spec in specs:
            if spec.startswith("!"):
                out.extend(self._foreign(spec[1:]))
                continue
            file, function, needle = spec.split(":", 2)
            found = sources.frame(self.release, file, function, needle)
            if found is None:
                continue
            out.append(
                f'  File "{self.site}/{found.path}", line {found.line}, in {function.rsplit(".", 1)[-1]}'
            )
            out.extend(self._code(found.code))
        return out

    def _foreign(self, spec: str) -> list[str]:
        """`!path:line:function:code` of a library or of a user's own program; `~` is site-packages, `%` the stdlib."""
        path, line, function, code = spec.split(":", 3)
        path = path.replace("~", self.site, 1).replace("%", self.stdlib, 1)
        return (
            [f'  File "{path}", line {line}, in {function}', *self._code(code)]
            if code
            else [f'  File "{path}", line {line}, in {function}']
        )

    def _code(self, code: str) -> list[str]:
        carets = _carets(code) if "3.12" in self.site or "3.11" in self.site else None
        return ["    " + code] + (["    " + carets] if carets else [])

    def trace(
        self,
        frames: list[str],
        error: str,
        *,
        proc: str,
        place: str = "",
        level: str = "ERROR",
        mark: str = "",
        head: str = "",
    ) -> None:
        """A traceback: as records where `place` is given, else raw. `mark` is put on the error's first line."""
        lines = ["Traceback (most recent call last):", *frames]
        start = (
            (self.tag(proc) + self.prefix(level, place))
            if place
            else ("" if self.at_least("0.31.0") else self.tag(proc))
        )
        if head:
            self.lines.append(Line(start + head))
        self.lines.extend(Line(start + text) for text in lines)
        for number, part in enumerate(error.split("\n")):
            self.lines.append(Line(start + part, mark if number == 0 else ""))
