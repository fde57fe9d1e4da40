"""One boot of vLLM as its lines come: what they were, which traceback they ended, how far it came."""

import re

import msgspec

from fitserve.facts.case import Case, read_case
from fitserve.facts.line import Line
from fitserve.facts.messages.catalogue import catalogue
from fitserve.facts.messages.event import Event
from fitserve.facts.settings import Setting, is_command, read_environment, read_typed

_FRAME = re.compile(r'\s*File "(?P<path>[^"]{1,500})", line \d+, in (?P<function>[^\s(]{1,200})')
_EXCEPTION = re.compile(
    r"[A-Za-z_][\w.]{0,150}(?:Error|Exception|Exit|Interrupt|Unsupported|NotFound|Warning)(?::|$)"
)
_AFTER_CODE = re.compile(r"(?:\w{1,50}\.){0,8}[A-Z]\w{0,60}[a-z]\w{0,60}(?:: |:?$)")
"""An exception of any name, where it follows the code of a traceback."""

_USER_TEXT = re.compile(r"Received request |Generated response |Adding request ")
_ECHO = re.compile(
    r"(?:asyncio\.|concurrent\.futures\.|multiprocessing\.|zmq\.|ray\.|httpx\.|httpcore\.|requests\.|aiohttp\.|openai\.)"
    r"|(?:Connection\w+|BrokenPipe|Timeout|EOF|ChildProcess|Cancelled)Error\b|SystemExit|RuntimeError: cancelled"
)
_VLLMS_PROCESS = re.compile(
    r"A[Pp][Ii]Server|EngineCore|VllmWorker|Worker_(?:TP|PP|DP)|RayWorker(?:Vllm|Wrapper|Proc)"
)
_TRACEBACK = "Traceback (most recent call last)"

_SHUTDOWN_NOISE = frozenset(
    {
        "leaked-semaphore",
        "leaked-shared-memory",
        "nanobind-leak",
        "destroy-process-group",
        "multiproc-killing",
    }
)
_READY = frozenset({"server-startup-complete", "server-running"})
_REACHED = {
    "weights-start": "weights",
    "weights-shards": "weights",
    "weights-done": "profiling",
    "weights-done-v0": "profiling",
    "weights-done-gb": "profiling",
    "encoder-budget": "profiling",
    "available-kv": "kv_cache",
    "kv-bytes-pinned": "kv_cache",
    "kv-bytes-pinned-joined": "kv_cache",
    "profile-split": "kv_cache",
    "profile-results-064": "kv_cache",
    "kv-blocks": "kv_cache",
    "kv-blocks-device": "kv_cache",
    "kv-tokens": "kv_cache",
    "kv-tokens-concurrency": "kv_cache",
    "graph-capture-start": "graph_capture",
    "graph-capture-start-decode": "graph_capture",
    "graph-capture-note": "graph_capture",
    "graph-capture-bar": "graph_capture",
    "graph-capture-done": "warmup",
    "graph-capture-done-old": "warmup",
    "engine-ready": "warmup",
}
_ORDER = ("config", "weights", "profiling", "kv_cache", "graph_capture", "warmup", "serving")
_FULL_OOM = "torch-oom"
_KEPT_REPEATS = 200
_CODE = "    "
"""How a traceback indents the code of a frame; a message in that code is not printed, it is quoted."""

_Writer = tuple[str | None, int | None]


def _deciding(found: list[Event]) -> Event | None:
    """The message that a line is: the most specific one, but a cause before a wrapper, and any cause before bare OOM."""
    causes = [event for event in found if event.role == "cause"]
    if found[0].role == "cause":
        named = [event for event in causes if event.cause != "out-of-memory" and event.weight > 2]
        return named[0] if named else found[0]
    if found[0].role == "wrapper":
        return causes[0] if causes else None
    return found[0]


class Hit(msgspec.Struct, kw_only=True):
    """A message that names a cause, with where it stood.

    Attributes:
        event: the message.
        frames: ``path/file.py:function`` of the traceback that it ends or that follows it, outermost first.
        phase: how far the start had come.
        ready: the server was up.
    """

    event: Event
    frames: list[str]
    phase: str
    ready: bool


class Unrecognised(msgspec.Struct, frozen=True, kw_only=True):
    """The last line of a traceback through vLLM that no message of the catalogue is.

    Attributes:
        line: the exception's.
        phase: how far the start had come.
        ready: the server was up.
    """

    line: Line
    phase: str
    ready: bool


class Boot:
    """Collects one boot.

    Args:
        number: 1 for the first boot of a log.
        typed: settings of a command or an environment shown before it.
    """

    def __init__(self, number: int, typed: dict[str, Setting] | None = None) -> None:
        self.number = number
        self.phase = "config"
        self.ready = False
        self.shut_down = False
        self.events: list[Event] = []
        self.hits: list[Hit] = []
        self.wrappers: list[Event] = []
        self.deaths: list[Event] = []
        self.died_silently = False
        self.stats: list[Event] = []
        self.unrecognised: list[Unrecognised] = []
        self.echoes: list[Unrecognised] = []
        self.tracebacks = 0
        self.lines = 0
        self.typed: dict[str, Setting] = dict(typed or {})
        self.is_vllms = False
        self.mentions_vllm = False
        self.is_python = False
        self._origins: set[str] = set()
        self._frames: dict[_Writer, list[str]] = {}
        self._waiting: dict[_Writer, list[Hit]] = {}
        self._in_code: set[_Writer] = set()
        self._counts: dict[str, int] = {}

    def feed(self, line: Line) -> list[Event]:
        """Take one line; returns the messages that it is, the most specific first."""
        self.lines += 1
        if _USER_TEXT.match(line.text) or self._is_foreign(line):
            return []
        key = (line.process, line.pid)
        text = line.text
        if frame := _FRAME.match(text):
            self._add_frame(key, frame["path"], frame["function"])
            self._in_code.add(key)
            return []
        is_after_code = key in self._in_code
        if is_after_code and text.startswith(_CODE):
            return []
        self._in_code.discard(key)
        if _TRACEBACK in text:
            self._open_traceback(key)
        found = catalogue().events(line)
        self._read_typed(line)
        if found:
            self._add(found, key)
        elif self._is_through_vllm(key) and (
            _EXCEPTION.match(text) or (is_after_code and _AFTER_CODE.match(text))
        ):
            ended = self.echoes if _ECHO.match(text) else self.unrecognised
            ended.append(Unrecognised(line=line, phase=self.phase, ready=self.ready))
        if line.process is not None and _VLLMS_PROCESS.match(line.process):
            self.is_vllms = True
        if not self.mentions_vllm and "vllm" in text.lower():
            self.mentions_vllm = True
        return found

    @property
    def case(self) -> Case:
        """The facts of the boot so far."""
        return read_case(self.events, self.typed, is_python=self.is_python)

    @property
    def failed(self) -> bool:
        """True where a line says that something ended: a cause, a wrapper or a traceback."""
        return bool(self.hits or self.unrecognised or self.died)

    @property
    def died(self) -> bool:
        """True where a line says that a process died before anyone asked it to stop."""
        return bool(self.deaths)

    def _is_through_vllm(self, key: _Writer) -> bool:
        """True where the traceback that is being read goes through vLLM's code."""
        return any("/vllm/" in frame for frame in self._frames.get(key, ()))

    def _is_foreign(self, line: Line) -> bool:
        """True for what another container of the same log printed; platforms speak under names of their own too."""
        if line.origin is None or not self._origins or line.origin in self._origins:
            return False
        return line.source is None and not line.text.startswith("INFO: ")

    def _read_typed(self, line: Line) -> None:
        if line.level is not None:
            return
        if is_command(line.text):
            self.is_vllms = True
            self.typed.update(read_typed(line.text, line.number))
        elif "=" in line.text and len(self._counts) < 3:
            self.typed.update(read_environment(line.text, line.number))

    def _add_frame(self, key: _Writer, path: str, function: str) -> None:
        frames = self._frames.setdefault(key, [])
        frames.append(f"{path}:{function}")
        if "/vllm/" in path:
            self.is_vllms = True
            if path.endswith("/vllm/entrypoints/llm.py"):
                self.is_python = True

    def _open_traceback(self, key: _Writer) -> None:
        self.tracebacks += 1
        frames: list[str] = []
        self._frames[key] = frames
        for hit in self._waiting.pop(key, []):
            hit.frames = frames

    def _add(self, found: list[Event], key: _Writer) -> None:
        best = _deciding(found)
        wrappers = [event for event in found if event.role == "wrapper"]
        self.wrappers += wrappers
        if not self.shut_down:
            deaths = [event for event in wrappers if event.id not in _SHUTDOWN_NOISE]
            self.died_silently = self.died_silently or bool(deaths and not (self.deaths or self.unrecognised))
            self.deaths += deaths
        if any(catalogue()[event.id].is_vllms and event.weight > 0 for event in found):
            self.is_vllms = True
            if (origin := found[0].line.origin) is not None:
                self._origins.add(origin)
        if best is None:
            return
        if best.role == "cause":
            self._add_hit(best, key)
            for event in found:
                if event.id == _FULL_OOM != best.id:
                    self._add_hit(event, key)
        self._add_event(best)

    def _add_hit(self, event: Event, key: _Writer) -> None:
        frames = self._frames.get(key)
        hit = Hit(event=event, frames=frames or [], phase=self.phase, ready=self.ready)
        self.hits.append(hit)
        if not frames:
            self._waiting.setdefault(key, []).append(hit)

    def _add_event(self, event: Event) -> None:
        if event.id.startswith("stats-"):
            self.stats.append(event)
            self._serves()
            return
        if event.id in ("http-request", "offline-progress"):
            self._serves()
            return
        self._counts[event.id] = self._counts.get(event.id, 0) + 1
        if self._counts[event.id] <= _KEPT_REPEATS:
            self.events.append(event)
        if event.id in _READY:
            self.ready = True
            self.phase = "serving"
        if event.id in ("server-shutdown-complete", "server-shutting-down", "shutdown-triggered"):
            self.shut_down = True
        reached = _REACHED.get(event.id)
        if reached and _ORDER.index(reached) > _ORDER.index(self.phase):
            self.phase = reached

    def _serves(self) -> None:
        """A line that only a server that is up prints; after a failure it is another program's."""
        if not self.failed:
            self.ready = True
            self.phase = "serving"

    def seen(self, message_id: str) -> int:
        """How many lines were this message."""
        return self._counts.get(message_id, 0)

    def first(self, *message_ids: str) -> Event | None:
        """The first line that was one of these messages."""
        return next((event for event in self.events if event.id in message_ids), None)

    def last(self, *message_ids: str) -> Event | None:
        """The last line that was one of these messages (of those kept)."""
        return next((event for event in reversed(self.events) if event.id in message_ids), None)
