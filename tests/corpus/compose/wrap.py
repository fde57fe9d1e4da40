"""What log carriers do to lines. Each takes and gives lines; marks stay on the physical line that says it first."""

import html
import json
import random
from collections.abc import Callable

from .story import Line

Wrapper = Callable[[list[Line]], list[Line]]


def each(change: Callable[[int, str], str]) -> Wrapper:
    """A wrapper that rewrites every line by its number."""
    return lambda lines: [Line(change(n, line.text), line.mark) for n, line in enumerate(lines)]


def compose(name: str) -> Wrapper:
    """Docker compose logs."""
    return each(lambda n, t: f"{name}  | {t}")


def kubectl(day: str = "2026-03-14T09:21") -> Wrapper:
    """Kubectl logs --timestamps."""
    return each(lambda n, t: f"{day}:{n // 7 % 60:02d}.{n % 7 * 139_713_877 + n:09d}Z {t}")


def cri(day: str = "2026-03-14T09:21") -> Wrapper:
    """Containerd's file: time, stream, F or P; a long line is split into P parts (16 KiB; here 2000)."""

    def split(lines: list[Line]) -> list[Line]:
        out: list[Line] = []
        for n, line in enumerate(lines):
            parts = [line.text[i : i + 2000] for i in range(0, len(line.text), 2000)] or [""]
            for k, part in enumerate(parts):
                flag = "F" if k == len(parts) - 1 else "P"
                out.append(
                    Line(
                        f"{day}:{n // 7 % 60:02d}.{n % 7 * 139_713_877 + n:09d}+02:00 stderr {flag} {part}",
                        line.mark if k == 0 else "",
                    )
                )
        return out

    return split


def docker_json(day: str = "2026-03-14T09:21") -> Wrapper:
    """Docker's json-file driver."""
    return each(
        lambda n, t: json.dumps(
            {
                "log": t + "\n",
                "stream": "stderr" if n % 3 else "stdout",
                "time": f"{day}:{n // 7 % 60:02d}.{n % 7 * 139_713_877 + n:09d}Z",
            },
            ensure_ascii=False,
        )
    )


def journald(host: str, unit: str, pid: int = 7712) -> Wrapper:
    """Journalctl -u, short format."""
    return each(lambda n, t: f"Mar 14 09:{21 + n // 420:02d}:{n // 7 % 60:02d} {host} {unit}[{pid}]: {t}")


def syslog(host: str, unit: str) -> Wrapper:
    """Rsyslog with RFC 5424 head."""
    return each(
        lambda n, t: (
            f"<30>1 2026-03-14T09:21:{n // 7 % 60:02d}.{n % 7 * 139_713 + n % 99:06d}+01:00 {host} {unit} 7712 - - {t}"
        )
    )


def actions() -> Wrapper:
    """GitHub Actions stamps."""
    return each(lambda n, t: f"2026-03-14T08:21:{n // 7 % 60:02d}.{n % 7 * 1_397_138 + n % 99:07d}Z {t}")


def quote() -> Wrapper:
    """A Markdown quotation."""
    return each(lambda n, t: f"> {t}".rstrip())


def fence(before: str, after: str = "") -> Wrapper:
    """A Markdown issue with the log in a fence."""
    return lambda lines: [
        *[Line(t) for t in before.split("\n")],
        Line("```text"),
        *lines,
        Line("```"),
        *([Line(t) for t in after.split("\n")] if after else []),
    ]


def around(before: str = "", after: str = "") -> Wrapper:
    """Text above and below."""
    return lambda lines: [
        *([Line(t) for t in before.split("\n")] if before else []),
        *lines,
        *([Line(t) for t in after.split("\n")] if after else []),
    ]


def indent(blanks: int) -> Wrapper:
    """An indented paste."""
    return each(lambda n, t: " " * blanks + t if t else t)


def escaped() -> Wrapper:
    """Copied from the source of a web page."""
    return each(lambda n, t: html.escape(t))


def ansi(colour: str = "36") -> Wrapper:
    """Colours of vLLM's tag and level."""

    def paint(_: int, text: str) -> str:
        if text.startswith("(") and ") " in text:
            tag, rest = text.split(") ", 1)
            text = f"\x1b[0;{colour}m{tag})\x1b[0;0m {rest}"
        for level, code in (("INFO", "32"), ("WARNING", "33"), ("ERROR", "31")):
            text = text.replace(f"{level} ", f"\x1b[{code}m{level}\x1b[0m ", 1)
        return text

    return each(paint)


def columns(width: int) -> Wrapper:
    """A terminal's copy: cut at the width, in the middle of words."""

    def cut(lines: list[Line]) -> list[Line]:
        out: list[Line] = []
        for line in lines:
            parts = [line.text[i : i + width] for i in range(0, len(line.text), width)] or [""]
            out.extend(Line(part, line.mark if k == 0 else "") for k, part in enumerate(parts))
        return out

    return cut


def ray(actor: str, pid: int, ip: str = "10.4.0.17") -> Wrapper:
    """Ray's actor tag, coloured."""
    return each(lambda n, t: f"\x1b[36m({actor} pid={pid}, ip={ip})\x1b[0m {t}")


def newest_first() -> Wrapper:
    """A log viewer that shows the last line first."""
    return lambda lines: lines[::-1]


def head_cut(keep: int) -> Wrapper:
    """Only the last `keep` lines."""
    return lambda lines: lines[-keep:]


def cut_after(mark: str = "cause", more: int = 0) -> Wrapper:
    """The tail is missing: it ends `more` lines after the first marked line."""

    def cut(lines: list[Line]) -> list[Line]:
        at = next(n for n, line in enumerate(lines) if line.mark == mark)
        return lines[: at + 1 + more]

    return cut


def logger(prefix: str) -> Wrapper:
    """A supervisor that puts a fixed word before each line."""
    return each(lambda n, t: prefix + t)


def stamped(pattern: str) -> Wrapper:
    """A supervisor with its own time and level; `{s}` are the seconds."""
    return each(lambda n, t: pattern.format(s=f"{n // 7 % 60:02d}") + t)


def gateway_noise(lines: int, seed: int) -> Wrapper:
    """Many access lines of a reverse proxy below."""

    def add(head: list[Line]) -> list[Line]:
        rand = random.Random(seed)
        noise = []
        for n in range(lines):
            code = rand.choice((502, 502, 502, 503, 499, 200))
            path = rand.choice(("/v1/chat/completions", "/v1/models", "/healthz", "/metrics"))
            noise.append(
                Line(
                    f'gw-1     | 172.20.0.{rand.randint(2, 60)} - - [14/Mar/2026:{9 + n // 7200:02d}:{n // 120 % 60:02d}:{n // 2 % 60:02d} +0000] "POST {path} HTTP/1.1" {code} {rand.randint(120, 900)} "-" "python-httpx/0.27.0"'
                )
            )
        return [*head, *noise]

    return add


def chain(lines: list[Line], *wrappers: Wrapper) -> list[Line]:
    """Apply the wrappers in turn."""
    for wrapper in wrappers:
        lines = wrapper(lines)
    return lines
