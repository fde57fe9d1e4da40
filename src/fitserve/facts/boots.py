"""Splits the lines of one log into boots: start-ups of one server or engine, each with its own story."""

import re
from collections.abc import Iterable, Iterator

import msgspec

from fitserve.facts.line import Line

_SERVER_STARTS = {
    "vLLM API server version": "version",
    "vLLM gRPC server version": "version",
    "\N{FULL BLOCK}\N{LOWER HALF BLOCK}   \N{LOWER HALF BLOCK}\N{FULL BLOCK}": "logo",
}
_ENDS = (
    "Engine core initialization failed",
    "EngineCore failed to start",
    "Engine process failed to start",
    "Application shutdown complete",
    "Finished server process",
    "exited with code",
    "terminated with exit code",
    "Main process exited",
    "Scheduled restart job",
    "Back-off restarting",
    "OOMKilled",
    "error: unrecognized arguments",
)
_ENGINE = re.compile(r"Initializing an? (?:V[01] )?LLM engine ")
_ARGUMENTS = re.compile(r"(?:non-default )?args: ")
_COMMAND = re.compile(
    r"(?:\S{0,80}[$#%] |\+{1,4} |exec ){0,3}(?:\S{0,200}/)?(?:vllm serve |python[\d.]{0,5} -m vllm\.entry)"
)
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]{0,200}(?:Error|Exception|Interrupt|Exit)(?::|$)|Killed$")
_PLATFORM = "Automatically detected platform"
_SUPERVISOR = re.compile(r"Start(?:ing|ed) ")
_MAIN_PROCESSES = (None, "APIServer", "MainProcess")
_OWN_PROCESS = re.compile(
    r"(?:API|Api)Server|Engine(?:Core)?|Vllm?Worker|Worker|MainProcess|DPSupervisor|SpawnProcess"
)
_ONE_START_SECONDS = 60

BOOT_NEEDLES: tuple[bytes, ...] = tuple(
    word.encode()
    for word in (
        *_SERVER_STARTS,
        *_ENDS,
        _PLATFORM,
        "LLM engine (v",
        "LLM engine with config",
        "non-default args: ",
        "args: Namespace(",
        "vllm serve ",
        "-m vllm.entrypoints",
    )
)
"""What a prefilter must let through for a log to be split in the same way."""


class _Boot(msgspec.Struct):
    """A boot while its lines arrive."""

    number: int
    seen: dict[tuple[str, str | None], int | None] = {}
    ended: bool = False


def number_boots(lines: Iterable[Line]) -> Iterator[tuple[int, Line]]:
    """Give every line the number of its boot, from 0, in constant memory.

    A boot begins where a server prints its banner, its arguments or an engine its configuration for a second time, or
    after the server before it has ended. What several engines, ranks and actors of one start-up print belongs together.
    Containers in one log have boots of their own; lines of others go with the boot that spoke last.

    Source: vLLM 0.2.0-0.33.0 ``api_server.py``, ``llm_engine.py``, ``v1/engine/core.py`` (banners, once a start-up);
    docker, systemd and Kubernetes (the words of an end).
    """
    by_origin: dict[str, _Boot] = {}
    latest = _Boot(number=0)
    count = 1
    blank: Line | None = None
    for line in lines:
        boot = latest if line.origin is None else by_origin.get(line.origin, latest)
        start = _start_of(line)
        is_new = start is not None and _is_new(boot, start, line)
        if line.origin is not None and line.origin not in by_origin and (start or line.source):
            is_new = bool(by_origin)
            by_origin[line.origin] = boot
        if blank:
            yield count if is_new and start and start[0] == "logo" else latest.number, blank
            blank = None
        if is_new:
            boot = _Boot(number=count)
            count += 1
            if line.origin is not None:
                by_origin[line.origin] = boot
        if start:
            boot.seen[start] = _seconds(line.time)
        boot.ended = boot.ended or _ends(line)
        latest = boot
        if line.source and not line.text:
            blank = line
        else:
            yield boot.number, line
    if blank:
        yield latest.number, blank


def _start_of(line: Line) -> tuple[str, str | None] | None:
    """What kind of beginning the line is, and who speaks; None for any other line."""
    text = line.text
    for word, kind in _SERVER_STARTS.items():
        if word in text:
            return kind, _speaker(line)
    if _ENGINE.match(text):
        return "engine", _speaker(line)
    if found := _ARGUMENTS.match(text):
        return found[0], _speaker(line)
    if line.process in _MAIN_PROCESSES and text.startswith(_PLATFORM):
        return "platform", None
    if line.source is None and _COMMAND.match(text):
        return "command", None
    return ("supervisor", None) if line.process == "systemd" and _SUPERVISOR.match(text) else None


def _speaker(line: Line) -> str | None:
    """The process that speaks; actors of Ray that share a name are told apart."""
    if line.process is None or _OWN_PROCESS.match(line.process):
        return line.process
    return f"{line.process} {line.pid}"


def _is_new(boot: _Boot, start: tuple[str, str | None], line: Line) -> bool:
    kind, _ = start
    kinds = {seen for seen, _ in boot.seen}
    has_server = bool(kinds - {"engine", "platform", "command", "supervisor"})
    if kind in {"platform", "supervisor"}:
        return boot.ended
    if kind == "command":
        return boot.ended or "engine" in kinds or has_server
    if kind == "engine":
        return _is_repeated(boot, start, line) if start in boot.seen else boot.ended and not has_server
    return start in boot.seen or boot.ended or ("engine" in kinds and not has_server)


def _is_repeated(boot: _Boot, start: tuple[str, str | None], line: Line) -> bool:
    """True unless several engines without a name of their own start together."""
    before, now = boot.seen[start], _seconds(line.time)
    return boot.ended or before is None or now is None or abs(now - before) > _ONE_START_SECONDS


def _ends(line: Line) -> bool:
    return any(word in line.text for word in _ENDS) or (
        line.source is None and bool(_EXCEPTION.match(line.text))
    )


def _seconds(stamp: str | None) -> int | None:
    """The seconds of the day in a stamp."""
    if not stamp or not (clock := re.search(r"(\d\d):(\d\d):(\d\d)", stamp)):
        return None
    return int(clock[1]) * 3600 + int(clock[2]) * 60 + int(clock[3])
