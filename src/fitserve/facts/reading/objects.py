"""Lines that are JSON objects: container runtimes, log shippers and vLLM's own JSON logging."""

from typing import Any

import msgspec

_TEXT_KEYS = ("log", "message", "MESSAGE", "msg", "@message", "textPayload", "line", "event", "body")
_TIME_KEYS = ("asctime", "time", "timestamp", "@timestamp", "ts")
_LEVEL_KEYS = ("levelname", "level", "severity")
_PROCESS_KEYS = ("processName", "process_name", "SYSLOG_IDENTIFIER")
_PID_KEYS = ("process", "pid", "_PID")
_PAYLOAD_KEYS = ("jsonPayload", "record", "attributes")

DOCKER_PART_CHARACTERS = 16_000
"""A docker entry at least this long and without a line end goes on in the next one.

Source: moby ``daemon/logger/copier.go``: lines are split at 16 KiB.
"""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What a JSON object says about one entry of a log; None where it says nothing."""

    text: str
    time: str | None = None
    level: str | None = None
    process: str | None = None
    pid: int | None = None
    source: str | None = None
    is_part: bool = False


def entry_in(text: str) -> Entry | None:
    """The entry in a line that is one JSON object; None if it is none, or logs no text.

    Source: docker's json-file driver; fluent-bit, Cloud Logging, CloudWatch and journald exports; vLLM 0.32.0
    ``logging_utils/formatter.py`` (``JSON_FORMAT``: ``asctime``, ``levelname``, ``name``, ``processName``, ``process``).
    """
    text = text.strip().removesuffix(",")
    if not (text.startswith("{") and text.endswith("}")):
        return None
    try:
        found = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None
    for key in _PAYLOAD_KEYS:
        if isinstance(found.get(key), dict):
            found |= found[key]
    if (logged := _first(found, _TEXT_KEYS)) is None:
        return None
    level = _first(found, _LEVEL_KEYS)
    return Entry(
        text=logged.removesuffix("\n"),
        time=_first(found, _TIME_KEYS),
        level=level.upper() if level else None,
        process=_first(found, _PROCESS_KEYS),
        pid=_pid(found),
        source=_source(found) if "levelname" in found else None,
        is_part="log" in found and len(logged) >= DOCKER_PART_CHARACTERS and not logged.endswith("\n"),
    )


def _first(found: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    return next((found[key] for key in keys if isinstance(found.get(key), str)), None)


def _pid(found: dict[str, Any]) -> int | None:
    for key in _PID_KEYS:
        value = found.get(key)
        if isinstance(value, str) and value.isdecimal() and len(value) <= 10:
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def _source(found: dict[str, Any]) -> str | None:
    """The source position, or the logger's name: vLLM's JSON has no file."""
    file = _first(found, ("filename", "pathname", "fileinfo"))
    line = found.get("lineno")
    return f"{file}:{line}" if file and isinstance(line, int) else _first(found, ("name",))
