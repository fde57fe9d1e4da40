"""Whatever loggers, platforms and pages put around a line, the line that comes back is the one that was written.

The wrappers here are written from the formats' own descriptions, not from the code that takes them off.
"""

import html
import io
import json
import random
import zlib
from collections.abc import Callable, Iterator
from itertools import pairwise

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fitserve.facts.line import Line
from fitserve.facts.log import read_lines

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
TAGS = [
    (None, None, None, ""),
    ("VllmWorkerProcess", 972, None, "(VllmWorkerProcess pid=972) "),
    ("VllmWorker", 972, "3", "(VllmWorker rank=3 pid=972) "),
    ("VllmWorker", 972, "TP3", "(VllmWorker TP3 pid=972) "),
    ("EngineCore_0", 118, None, "(EngineCore_0 pid=118) "),
    ("EngineCore_DP0", 118, "DP0", "(EngineCore_DP0 pid=118) "),
    ("EngineCore", 118, None, "(EngineCore pid=118) "),
    ("APIServer", 1, None, "(APIServer pid=1) "),
    ("ApiServer_2", 77, None, "(ApiServer_2 pid=77) "),
    ("Worker_TP1", 334, "TP1", "(Worker_TP1 pid=334) "),
    ("Worker_DP0_PP1_TP0_EP0", 334, "DP0_PP1_TP0_EP0", "(Worker_DP0_PP1_TP0_EP0 pid=334) "),
    ("RayWorkerWrapper", 4101, None, "(RayWorkerWrapper pid=4101, ip=10.20.4.17) "),
    ("SpawnProcess-3", 88, None, "(SpawnProcess-3 pid=88) "),
]
SOURCES = [
    "core.py:936",
    "v1/worker/gpu_worker.py:298",
    "model_executor/.../fp8_utils.py:84",
    "__init__.py:711",
]
TRACEBACK = [
    "Traceback (most recent call last):",
    '  File "/usr/local/lib/python3.12/dist-packages/vllm/v1/engine/core.py", line 936, in run_engine_core',
    "    raise ValueError(",
    "    ^^^^^^^^^^^^^^^^^^",
    "ValueError: To serve at least one request with the model's max seq len (8192), 1.0 GiB KV cache is needed",
]
BARE = [
    TRACEBACK,
    ["", "During handling of the above exception, another exception occurred:", "", *TRACEBACK],
    ["Process EngineCore_DP0:", *TRACEBACK],
    ['torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. <unknown> & "free" memory'],
    ["Killed"],
]
MESSAGES = st.lists(
    st.sampled_from(
        [
            "model='lark-8b'",
            "max_seq_len=32768,",
            "Available KV cache memory:",
            "9.32 GiB",
            "non-default args: {'model_tag': 'a/b', \"x\": [1, 2]}",
            "<CompilationMode.VLLM_COMPILE: 3>",
            "C:\\path",
            "\N{FULL BLOCK}\N{LOWER HALF BLOCK}   \N{LOWER HALF BLOCK}\N{FULL BLOCK}",
            "a | b",
            "(most likely)",
            "> 0.9 & < 1",
            "\N{CJK UNIFIED IDEOGRAPH-4E2D}",
            "/root/.cache/vllm/torch_compile_cache/73bb568bbe/rank_0_0/backbone",
        ]
    ),
    max_size=8,
).map(" ".join)


class Written(msgspec.Struct):
    """One line as a process wrote it, and what must be read back."""

    text: str
    line: dict[str, object]


@st.composite
def written(draw: st.DrawFn) -> list[Written]:
    """A record of any generation of vLLM, or bare output of one process."""
    process, pid, rank, tag = draw(st.sampled_from(TAGS))
    who: dict[str, object] = {"process": process, "pid": pid, "rank": rank}
    if draw(st.integers(0, 3)) == 0:
        texts = draw(st.sampled_from(BARE))
        return [Written(tag + text, {**who, "text": text, "level": None, "source": None}) for text in texts]
    return [draw(record(who, tag))]


@st.composite
def record(draw: st.DrawFn, who: dict[str, object], tag: str) -> Written:
    """A record of any generation of vLLM."""
    level, source, message = draw(st.sampled_from(LEVELS)), draw(st.sampled_from(SOURCES)), draw(MESSAGES)
    place = draw(st.sampled_from([f"[{source}] ", f"{source}] "]))
    return Written(
        f"{tag}{level} 06-13 08:00:46 {place}{message}",
        {**who, "text": message, "level": level, "source": source},
    )


def documents(least: int = 1) -> st.SearchStrategy[list[Written]]:
    """Some lines."""
    return (
        st.lists(written(), min_size=1, max_size=8)
        .map(lambda blocks: [line for block in blocks for line in block])
        .filter(lambda lines: len(lines) >= least)
    )


def stamped(lines: list[str], prefix: Callable[[int], str]) -> list[str]:
    """Each line behind a prefix of its own."""
    return [prefix(place) + line for place, line in enumerate(lines)]


def docker_json(lines: list[str]) -> list[str]:
    """Docker's json-file driver: Go's JSON, which escapes <, > and &."""
    out = []
    for place, line in enumerate(lines):
        entry = {"log": line + "\n", "stream": "stderr", "time": f"2026-06-12T16:39:25.{place:09}Z"}
        keys = list(entry)
        random.Random(place).shuffle(keys)
        text = json.dumps({key: entry[key] for key in keys}, ensure_ascii=False)
        out.append(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))
    return out


def coloured(lines: list[str]) -> list[str]:
    """Colours as vLLM 0.12 and Ray write them."""
    out = []
    for line in lines:
        tag, closed, rest = line.partition(") ")
        text = f"\x1b[0;36m{tag})\x1b[0;0m {rest}" if closed and line.startswith("(") else line
        for level in LEVELS:
            text = text.replace(f"{level} 06-13", f"\x1b[32m{level}\x1b[0m \x1b[90m06-13", 1)
        out.append(text)
    return out


PREFIXES: dict[str, Callable[[list[str]], list[str]]] = {
    "compose": lambda lines: stamped(lines, lambda _: "vllm-openai-1  | "),
    "compose, coloured": lambda lines: stamped(lines, lambda _: "\x1b[36mvllm_1  |\x1b[0m "),
    "cri": lambda lines: stamped(lines, lambda n: f"2026-06-12T16:39:25.{n:09}Z stdout F "),
    "kubectl": lambda lines: stamped(lines, lambda n: f"2026-06-12T16:39:25.{n:09}+02:00 "),
    "kubectl --prefix": lambda lines: stamped(lines, lambda _: "[pod/vllm-7d9f8b6c5-x2v4q/server] "),
    "github": lambda lines: stamped(lines, lambda n: f"2026-10-16T10:14:11.{n:07}Z "),
    "gitlab": lambda lines: stamped(lines, lambda n: f"2026-10-16T10:14:11.{n:06}Z 01O "),
    "journald": lambda lines: stamped(lines, lambda _: "Jan  2 21:54:55 infer02 vllm-serve[18342]: "),
    "journald iso": lambda lines: stamped(lines, lambda _: "2026-01-02T21:54:55+0000 infer02 vllm[18342]: "),
    "journald full": lambda lines: stamped(
        lines, lambda _: "Fri 2026-01-02 21:54:55 UTC infer02 vllm[18342]: "
    ),
    "journald monotonic": lambda lines: stamped(lines, lambda _: "[ 5123.456789] infer02 vllm[18342]: "),
    "ts": lambda lines: stamped(lines, lambda _: "Jan 02 21:54:55 "),
    "clock": lambda lines: stamped(lines, lambda _: "[21:54:55] "),
    "fastchat": lambda lines: stamped(lines, lambda _: "2026-02-27 22:03:02 | ERROR | stderr | "),
    "runpod": lambda lines: stamped(
        lines, lambda n: f"2026-11-22 11:44:21 [w7p2k9x4ra] [{('info', 'error')[n % 2]}] "
    ),
    "jenkins": lambda lines: stamped(lines, lambda _: "[2026-11-22T11:44:21.123Z] "),
    "actor": lambda lines: stamped(lines, lambda _: "(LLMRayActor pid=20931, ip=10.20.4.31) "),
    "torchrun": lambda lines: stamped(lines, lambda _: "[default0]:"),
    "docker json": docker_json,
    "csv": lambda lines: ['2026-03-14T09:21:00.139Z,"' + line.replace('"', '""') + '"' for line in lines],
    "rfc 5424": lambda lines: stamped(
        lines, lambda _: "<30>1 2026-03-14T09:21:07.123+01:00 dl-02 vllm 7712 - - "
    ),
    "rfc 3164": lambda lines: stamped(lines, lambda _: "<30>Mar 14 09:21:07 dl-02 vllm[7712]: "),
    "pm2": lambda lines: stamped(lines, lambda _: "0|vllm-serve  | "),
    "quote": lambda lines: stamped(lines, lambda _: "> "),
    "colours": coloured,
}
OWN_TAG = {
    "rfc 5424",
    "rfc 3164",
    "journald",
    "journald iso",
    "journald full",
    "journald monotonic",
    "actor",
    "torchrun",
}
"""Wrappers that name a process, or a rank, themselves."""


def read(text: str, encoding: str = "utf-8") -> list[Line]:
    """The lines of a text."""
    return list(read_lines(io.BytesIO(text.encode(encoding))))


def facts(line: Line, keys: dict[str, object]) -> dict[str, object]:
    """The fields of a line that are named."""
    return {key: getattr(line, key) for key in keys}


def expected(document: list[Written], *, owned: bool = False) -> list[dict[str, object]]:
    """What must be read back; without the process where a wrapper names its own."""
    hidden = {"process", "pid", "rank"} if owned else set()
    return [{key: value for key, value in each.line.items() if key not in hidden} for each in document]


def check(document: list[Written], lines: list[Line], numbers: list[int], *, owned: bool = False) -> None:
    """The lines read are those written, under the numbers of their physical lines."""
    wanted = expected(document, owned=owned)

    assert numbers == [line.number for line in lines]
    assert wanted == [facts(line, keys) for line, keys in zip(lines, wanted, strict=True)]


@given(documents())
def test_plain(document: list[Written]) -> None:
    """A log without wrappers gives its lines."""
    check(document, read("\n".join(each.text for each in document) + "\n"), list(range(1, len(document) + 1)))


@pytest.mark.parametrize("name", PREFIXES)
@settings(max_examples=40)
@given(document=documents())
def test_one_wrapper(name: str, document: list[Written]) -> None:
    """One wrapper around every line is taken off."""
    lines = PREFIXES[name]([each.text for each in document])

    check(document, read("\n".join(lines)), list(range(1, len(lines) + 1)), owned=name in OWN_TAG)


@given(documents(), st.lists(st.sampled_from(sorted(PREFIXES)), min_size=2, max_size=3, unique=True))
def test_nested_wrappers(document: list[Written], names: list[str]) -> None:
    """Wrappers around wrappers are taken off, in whatever order they were put on."""
    assume("docker json" not in names[1:] or "colours" not in names)
    lines = [each.text for each in document]
    for name in names:
        lines = PREFIXES[name](lines)

    check(document, read("\n".join(lines)), list(range(1, len(lines) + 1)), owned=bool(OWN_TAG & set(names)))


@given(documents(), st.sampled_from(["utf-8-sig", "utf-16", "utf-16-be"]))
def test_encodings(document: list[Written], encoding: str) -> None:
    """A byte order mark tells the encoding."""
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    lines = read(mark + "\r\n".join(each.text for each in document), encoding)

    check(document, lines, list(range(1, len(document) + 1)))


@given(documents(), st.integers(1, 8))
def test_indented(document: list[Written], columns: int) -> None:
    """A paste that is indented as a whole is read as if it were not."""
    assume(any(each.line["source"] for each in document))
    lines = read("\n".join(" " * columns + each.text if each.text else "" for each in document))

    check(document, lines, list(range(1, len(document) + 1)))


@given(documents())
def test_fenced(document: list[Written]) -> None:
    """The fences of Markdown are no lines of the log."""
    lines = read("```text\n" + "\n".join(each.text for each in document) + "\n```\n")

    check(document, lines, list(range(2, len(document) + 2)))


@given(documents())
def test_html(document: list[Written]) -> None:
    """A page's escapes are undone, its elements are no lines."""
    body = "\n".join(html.escape(each.text) for each in document)
    lines = read(f'<div class="output_area"><pre>\n{body}\n</pre></div>\n')

    check(document, lines, list(range(2, len(document) + 2)))


@given(documents())
def test_html_spans(document: list[Written]) -> None:
    """A page that puts every line into an element of its own, with spaces that do not break."""
    body = "\n".join(
        f'<span class="l">{html.escape(each.text).replace("  ", "&nbsp;&nbsp;")}</span><br>'
        for each in document
    )

    check(
        document, read(f"<html><body><pre>\n{body}\n</pre></body></html>"), list(range(2, len(document) + 2))
    )


@given(documents(), st.sets(st.integers(0, 400)))
def test_spaces_of_a_chat(document: list[Written], places: set[int]) -> None:
    """Spaces that a chat has made unbreakable, and marks it has put between, are undone."""
    text = "\n".join(each.text for each in document)
    changed = "".join(
        {" ": "\N{NO-BREAK SPACE}"}.get(sign, sign + "\N{ZERO WIDTH SPACE}")
        if place in places and sign != "\n"
        else sign
        for place, sign in enumerate(text)
    )

    check(document, read(changed), list(range(1, len(document) + 1)))


@given(documents(2))
def test_html_breaks(document: list[Written]) -> None:
    """Lines that a page has put into one, with its own line breaks, all carry the number of that one."""
    lines = read("<br>".join(html.escape(each.text) for each in document))

    check(document, lines, [1] * len(document))


@given(documents())
def test_carriage_returns(document: list[Written]) -> None:
    """Line ends of Windows, and vLLM's own inside a message, are no part of a line."""
    lines = read("\r\n".join(each.text for each in document) + "\r\n")

    check(document, lines, list(range(1, len(document) + 1)))


@given(documents(4), st.sampled_from(["kubectl", "runpod"]))
def test_newest_first(document: list[Written], name: str) -> None:
    """A log whose newest line stands first is read from its oldest line on, which keeps its number."""
    texts = [each.text for each in document]
    stamps = [f"2026-11-22T11:44:{second:02}.000Z " for second in range(len(texts))]
    lines = [stamp + text for stamp, text in zip(stamps, texts, strict=True)][::-1]

    check(document, read("\n".join(lines)), list(range(len(lines), 0, -1)))


def wrapped(lines: list[str], columns: int) -> Iterator[tuple[int, str]]:
    """Break lines at a width, as a terminal does; each piece with the place of its line."""
    for place, line in enumerate(lines):
        for start in range(0, max(len(line), 1), columns):
            yield place, line[start : start + columns]


CONFIG = "INFO 06-13 08:00:45 [core.py:58] Initializing a V1 LLM engine (v0.8.5) with config: " + ", ".join(
    f"{zlib.crc32(bytes([number])):x}_field={zlib.adler32(bytes([number])):x}" for number in range(60)
)


@settings(derandomize=True)
@given(document=documents(), columns=st.sampled_from([72, 80, 100, 132]))
def test_wrapped_by_a_terminal(document: list[Written], columns: int) -> None:
    """Lines that a terminal has broken at its width are joined; the number is that of their first piece."""
    texts = [CONFIG, *(each.text for each in document)]
    assume(all(text.isascii() for text in texts))
    assume(not any(len(a) % columns == 0 and not b.startswith(("(", *LEVELS)) for a, b in pairwise(texts)))
    pieces = list(wrapped(texts, columns))
    assume(all(piece == texts[place][: len(piece)] or "pid=" not in piece for place, piece in pieces))
    lines = read("\n".join(piece for _, piece in pieces))
    places = [place for place, _ in pieces]

    check(document, lines[1:], [places.index(place) + 1 for place in range(1, len(texts))])


@given(record({"process": "EngineCore", "pid": 7}, "(EngineCore pid=7) "))
def test_progress_before_a_record(document: Written) -> None:
    """A progress bar that was left standing on its line does not hide the record behind it."""
    bar = "Loading safetensors checkpoint shards:  33% Completed | 1/3 [00:01<00:03,  1.79s/it]"
    stuck, after_return = read(bar + document.text), read(f"a: 0%\r{bar}\r" + document.text)

    assert [bar, document.line["text"]] == [line.text for line in stuck]
    assert document.line == facts(stuck[1], document.line)
    assert document.line in [facts(line, document.line) for line in after_return]


@given(documents(2).filter(lambda document: sum(bool(each.line["source"]) for each in document) >= 2))
def test_a_prefix_of_ones_own(document: list[Written]) -> None:
    """A prefix that only this log has is learned from the records behind it and taken off all lines."""
    lines = read("\n".join(f"gpu-node/7 <vllm> {each.text}" for each in document))

    check(document, lines, list(range(1, len(document) + 1)))
