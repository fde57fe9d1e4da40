"""The same refusal in log stores' formats, encodings and nested carriers."""

import json
from typing import Any

from . import boot, fail, wrap
from .case import Case
from .context import start, too_small
from .fail import KV_CHECK
from .machine import (
    BRISA_8B,
    DEVICES,
    GIB,
    Budget,
    fit_tokens,
)
from .story import Line, Story

L4_8B = Budget(DEVICES["L4"], 0.9, 14.96, 1.2, 0.2)


def refused_context(
    release: str, seed: int, length: int = 65536, *, raw: bool = True, client: bool = True
) -> tuple[Story, int]:
    """An 8B model with too long a context on an L4."""
    story = Story(release, seed=seed)
    start(story, BRISA_8B, {"max_model_len": length}, length=length)
    boot.profiled(story, L4_8B)
    fits = fit_tokens(L4_8B.kv_bytes, BRISA_8B.token_bytes(), null_block=story.at_least("0.29.0"))
    fail.fail_in_core(
        story,
        KV_CHECK,
        too_small(story, length, BRISA_8B.token_bytes() * length, L4_8B.kv_bytes, fits),
        raw=raw,
        client=client,
    )
    return story, fits


def _context(
    id_: str, title: str, release: str, lines: list[Line], fits: int, *, tags: list[str], **more: Any
) -> Case:
    numbers = {"max_model_len": 65536, "needed_gib": 8.0, "available_gib": round(L4_8B.kv_bytes / GIB, 2)}
    return Case(
        id_,
        title,
        release,
        "kv-cache-smaller-than-context",
        lines,
        tags,
        numbers,
        [{"flag": "max_model_len", "at_most": fits}],
        [{"action": "free-other-process"}],
        **more,
    )


def exports() -> list[Case]:
    """Log stores' own formats and other encodings."""
    out = []
    story, fits = refused_context("0.19.1", 801)
    rows = [Line("Date,Line")]
    rows += [
        Line(
            f'2026-03-14T09:21:{n // 7 % 60:02d}.{n % 7 * 139:03d}Z,"{line.text.replace(chr(34), chr(34) * 2)}"',
            line.mark,
        )
        for n, line in enumerate(story.lines)
    ]
    out.append(_context("shape-csv", "exported as CSV from a log store", "0.19.1", rows, fits, tags=["csv"]))

    story, fits = refused_context("0.24.0", 802)
    rows = [
        Line(
            json.dumps(
                {
                    "insertId": f"1x{n}",
                    "resource": {"type": "k8s_container", "labels": {"container_name": "vllm"}},
                    "severity": "ERROR" if "ERROR" in line.text else "INFO",
                    "textPayload": line.text,
                    "timestamp": f"2026-03-14T09:21:{n // 7 % 60:02d}.{n % 7:03d}Z",
                },
                ensure_ascii=False,
            ),
            line.mark,
        )
        for n, line in enumerate(story.lines)
    ]
    out.append(
        _context(
            "shape-cloud-json",
            "a cloud's JSON lines with textPayload",
            "0.24.0",
            rows,
            fits,
            tags=["cloud-json"],
        )
    )

    story, fits = refused_context("0.12.0", 803)
    rows = [
        Line(
            json.dumps(
                {
                    "__CURSOR": f"s=1;i={n}",
                    "_HOSTNAME": "gpu-a",
                    "SYSLOG_IDENTIFIER": "vllm",
                    "PRIORITY": "6",
                    "MESSAGE": line.text,
                    "__REALTIME_TIMESTAMP": str(1773480067000000 + n * 140000),
                }
            ),
            line.mark,
        )
        for n, line in enumerate(story.lines)
    ]
    out.append(
        _context("shape-journal-json", "journalctl -o json", "0.12.0", rows, fits, tags=["journald-json"])
    )

    story, fits = refused_context("0.17.1", 804)
    out.append(
        _context(
            "shape-utf16",
            "redirected by PowerShell: UTF-16 and CRLF",
            "0.17.1",
            story.lines,
            fits,
            tags=["crlf", "utf16"],
            ending="\r\n",
            encoding="utf-16",
        )
    )

    story, fits = refused_context("0.14.1", 805)
    lines = [
        Line(line.text.replace(" ", "\u00a0") if n % 2 else line.text.replace("`", "\u2018"), line.mark)
        for n, line in enumerate(story.lines)
    ]
    out.append(
        _context(
            "shape-chat-paste",
            "pasted through a chat: no-break blanks and curly quotes",
            "0.14.1",
            lines,
            fits,
            tags=["chat-paste"],
        )
    )

    story, fits = refused_context("0.10.2", 806)
    lines = wrap.chain(
        story.lines,
        wrap.escaped(),
        wrap.each(lambda _, t: f'<span class="l">{t.replace("  ", "&nbsp;&nbsp;")}</span><br>'),
        wrap.around("<html><body><pre>", "</pre></body></html>"),
    )
    out.append(
        _context(
            "shape-html-spans", "a saved web page: spans, br and nbsp", "0.10.2", lines, fits, tags=["html"]
        )
    )

    story, fits = refused_context("0.26.0", 807)
    head = wrap.around(
        "##[group]Run docker compose up --abort-on-container-exit\ndocker compose up --abort-on-container-exit\nshell: /usr/bin/bash -e {0}\n##[endgroup]",
        "##[error]Process completed with exit code 1.",
    )
    out.append(
        _context(
            "shape-actions-compose",
            "compose inside GitHub Actions: two prefixes",
            "0.26.0",
            wrap.chain(story.lines, wrap.compose("engine-1"), head, wrap.actions()),
            fits,
            tags=["compose", "github-actions"],
        )
    )

    story, fits = refused_context("0.18.1", 808)
    out.append(
        _context(
            "shape-journal-compose-ansi",
            "journald around compose around colours",
            "0.18.1",
            wrap.chain(story.lines, wrap.ansi(), wrap.compose("v"), wrap.journald("box", "docker-compose")),
            fits,
            tags=["ansi", "compose", "journald"],
        )
    )

    story, fits = refused_context("0.20.2", 809)
    out.append(
        _context(
            "shape-compose-narrow",
            "compose, copied from a terminal of 80 columns",
            "0.20.2",
            wrap.chain(story.lines, wrap.compose("vllm-openai"), wrap.columns(80)),
            fits,
            tags=["compose", "terminal-wrap"],
        )
    )

    story, fits = refused_context("0.16.0", 810, raw=False, client=False)
    lines = wrap.chain(story.lines, wrap.newest_first())
    out.append(
        _context(
            "shape-newest-first",
            "newest line first, one statement",
            "0.16.0",
            wrap.chain(
                lines, wrap.each(lambda n, t: f"2026-03-14 09:{59 - n // 7:02d}:{59 - n % 7 * 8:02d} | {t}")
            ),
            fits,
            tags=["newest-first"],
        )
    )

    story, fits = refused_context("0.32.0", 811)
    rows = []
    for line in story.lines:
        record, _, rest = line.text.partition("] ")
        if line.text.startswith("(") and " 03-14 " in record:
            proc = line.text[1:].split(" ", 1)[0]
            rows.append(
                Line(
                    json.dumps(
                        {
                            "asctime": "2026-03-14 09:21:30",
                            "levelname": record.split(") ", 1)[1].split(" ", 1)[0],
                            "name": "vllm.v1.engine.core"
                            if proc == "EngineCore"
                            else "vllm.entrypoints.openai.api_server",
                            "processName": proc,
                            "process": 77,
                            "message": rest,
                        }
                    ),
                    line.mark,
                )
            )
        else:
            rows.append(line)
    out.append(
        _context(
            "shape-json-logging",
            "vLLM's own JSON records, raw tracebacks between",
            "0.32.0",
            rows,
            fits,
            tags=["json-logging"],
        )
    )
    return out


def cases() -> list[Case]:
    """This family's cases."""
    return [*exports()]
