"""The same failures in other shapes: exports, encodings, several programs, order, no tags, wrapped tracebacks."""

import json

from . import boot, fail, v0, wrap
from .case import Advice, Case, act
from .environment import too_little, until_device
from .fail import FORWARD, KV_CHECK, LOAD, MODEL_EXECUTOR, PROFILE
from .kv import NO_BLOCKS, no_blocks, start, too_small
from .machine import (
    BRISA_8B,
    COBALT_MOE,
    DEVICES,
    GIB,
    KESTREL_7B,
    SOLANO_24B,
    TARN_32B,
    TARN_70B,
    Budget,
    Model,
    fit_tokens,
)
from .memory import LLAMA_MLP, QWEN_MLP, until_load
from .oom import oom
from .serving import serve
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
    id_: str, title: str, release: str, lines: list[Line], fits: int, tags: list[str], **more: object
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
    out.append(_context("shape-csv", "exported as CSV from a log store", "0.19.1", rows, fits, ["csv"]))

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
            "shape-cloud-json", "a cloud's JSON lines with textPayload", "0.24.0", rows, fits, ["cloud-json"]
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
    out.append(_context("shape-journal-json", "journalctl -o json", "0.12.0", rows, fits, ["journald-json"]))

    story, fits = refused_context("0.17.1", 804)
    out.append(
        _context(
            "shape-utf16",
            "redirected by PowerShell: UTF-16 and CRLF",
            "0.17.1",
            story.lines,
            fits,
            ["crlf", "utf16"],
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
            ["chat-paste"],
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
        _context("shape-html-spans", "a saved web page: spans, br and nbsp", "0.10.2", lines, fits, ["html"])
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
            ["compose", "github-actions"],
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
            ["ansi", "compose", "journald"],
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
            ["compose", "terminal-wrap"],
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
            ["newest-first"],
        )
    )

    story, fits = refused_context("0.32.0", 811)
    rows = []
    for line in story.lines:
        head, _, rest = line.text.partition("] ")
        if line.text.startswith("(") and " 03-14 " in head:
            proc = line.text[1:].split(" ", 1)[0]
            rows.append(
                Line(
                    json.dumps(
                        {
                            "asctime": "2026-03-14 09:21:30",
                            "levelname": head.split(") ", 1)[1].split(" ", 1)[0],
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
            ["json-logging"],
        )
    )
    return out


def programs() -> list[Case]:
    """LLM() from Python, in-process engines, boxes around tracebacks, two servers in one stream."""
    out = []
    story = Story("0.11.2", seed=821, site="/home/tessa/proj/.venv/lib/python3.12/site-packages")
    boot.engine(story, KESTREL_7B, length=32768)
    boot.distribute(story)
    boot.begin_load(story, KESTREL_7B)
    boot.shards(story, KESTREL_7B)
    boot.loaded(story, 14.25)
    frames = story.frames(
        "!/home/tessa/proj/eval.py:31:<module>:llm = LLM(model=MODEL, max_num_batched_tokens=65536)",
        "entrypoints/llm.py:LLM.__init__:self.llm_engine = LLMEngine.from_engine_args(",
        "v1/engine/llm_engine.py:LLMEngine.from_engine_args:return cls(",
        "v1/engine/llm_engine.py:LLMEngine.__init__:self.engine_core = EngineCoreClient.make_client(",
        "v1/engine/core_client.py:EngineCoreClient.make_client:return InprocClient(",
        "v1/engine/core_client.py:InprocClient.__init__:self.engine_core = EngineCore(",
        *PROFILE,
        *FORWARD,
        *QWEN_MLP,
    )
    story.trace(
        frames,
        oom("0.11.2", want_mib=4736.0, total_gib=DEVICES["A10"], free_mib=3001.0),
        proc="none",
        mark="cause",
    )
    lines = [
        Line(line.text.split(") ", 1)[1] if line.text.startswith("(EngineCore") else line.text, line.mark)
        for line in story.lines
    ]
    out.append(
        Case(
            "python-0112-inproc",
            "LLM() with the engine in the same process",
            "0.11.2",
            "profile-run-oom",
            lines,
            ["bare", "python-llm"],
            {"tried_to_allocate_gib": 4.625, "gpu_total_gib": DEVICES["A10"]},
        )
    )

    story = Story("0.20.2", seed=822, site="/opt/conda/lib/python3.12/site-packages")
    boot.engine(story, BRISA_8B, length=131072)
    boot.distribute(story)
    boot.begin_load(story, BRISA_8B)
    boot.shards(story, BRISA_8B)
    boot.loaded(story, 14.96)
    boot.compiled(story, batched=8192)
    budget = Budget(DEVICES["A40"], 0.5, 14.96, 1.2, 0.3, 0.4)
    boot.profiled(story, budget)
    fits = fit_tokens(budget.kv_bytes, BRISA_8B.token_bytes())
    fail.fail_in_core(
        story,
        KV_CHECK,
        too_small(story, 131072, BRISA_8B.token_bytes() * 131072, budget.kv_bytes, fits),
        client=False,
    )
    box = [
        "╭───────────────────── Traceback (most recent call last) ──────────────────────╮",
        "│ /app/generate.py:44 in main                                                  │",
        "│                                                                              │",
        "│   41 │   from vllm import LLM                                                │",
        "│ ❱ 44 │   llm = LLM(model=cfg.model, gpu_memory_utilization=0.5)               │",
        "│ /opt/conda/lib/python3.12/site-packages/vllm/entrypoints/llm.py:346 in       │",
        "│ __init__                                                                     │",
        "╰──────────────────────────────────────────────────────────────────────────────╯",
        "RuntimeError: Engine core initialization failed. See root cause above. Failed ",
        "core proc(s): {}",
    ]
    out.append(
        Case(
            "python-0202-typer",
            "a typer program boxes the last traceback",
            "0.20.2",
            "kv-cache-smaller-than-context",
            [*story.lines, *[Line(t) for t in box]],
            ["bare", "python-llm", "rich-box"],
            {
                "max_model_len": 131072,
                "available_gib": round(budget.kv_bytes / GIB, 2),
                "gpu_memory_utilization": 0.5,
            },
            [
                {"flag": "max_model_len", "at_most": fits},
                {"flag": "gpu_memory_utilization", "direction": "up"},
            ],
        )
    )

    good = Story("0.14.1", seed=823)
    serve(
        good,
        KESTREL_7B,
        {"max_model_len": 8192, "port": 8001},
        length=8192,
        budget=Budget(DEVICES["L4"], 0.9, 14.25, 1.0, 0.2),
    )
    boot.traffic(good, 3)
    bad = Story("0.14.1", seed=824)
    until_device(bad, KESTREL_7B, {"max_model_len": 8192, "port": 8002}, length=8192)
    boot.distribute(bad)
    fail.fail_in_core(bad, (*MODEL_EXECUTOR, *fail.INIT_DEVICE), too_little(bad, 2.4, DEVICES["L4"], 0.9, 0))
    left, right = (
        wrap.chain(good.lines, wrap.compose("prefill-1")),
        wrap.chain(bad.lines, wrap.compose("decode-1 ")),
    )
    mixed = []
    while left or right:
        mixed += left[:3]
        mixed += right[:4]
        left, right = left[3:], right[4:]
    out.append(
        Case(
            "mixed-0141-two-servers",
            "two servers in one compose: one serves, the other finds the card taken",
            "0.14.1",
            "gpu-memory-taken",
            mixed,
            ["compose", "interleaved", "tricky-two-servers"],
            {"gpu_free_gib": 2.4, "gpu_total_gib": DEVICES["L4"]},
        )
    )

    story = Story("0.12.0", seed=825)
    until_load(story, TARN_70B, {"tensor_parallel_size": 4, "max_model_len": 8192}, length=8192, world=4)
    boot.shards(story, TARN_70B, upto=9)
    for rank in (0, 1, 3):
        story.raw(
            f"[rank{rank}]:[W314 09:21:58.90{rank} TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=94, addr=[localhost]:52834, remote=[localhost]:45123): failed to recv, got 0 bytes",
            proc=f"rank{rank}",
        )
        story.raw(
            f'[rank{rank}]:[W314 09:21:58.91{rank} ProcessGroupNCCL.cpp:1771] [PG ID 0 PG GUID 0 Rank {rank}] Failed to check the "should dump" flag on TCPStore, (maybe TCPStore server has shut down too early), with error: failed to recv, got 0 bytes',
            proc=f"rank{rank}",
        )
    fail.fail_at_worker_start(
        story,
        2,
        "load_model",
        LOAD,
        oom("0.12.0", want_mib=224.0, total_gib=DEVICES["V100-32"], free_mib=101.0, unused_mib=4.0, gpu=2),
    )
    fail.fail_after_worker_start(story)
    out.append(
        Case(
            "order-0120-rank2-late",
            "the others' TCPStore warnings are printed before rank 2's own trace",
            "0.12.0",
            "weights-do-not-fit",
            wrap.chain(story.lines, wrap.docker_json()),
            ["docker-json", "multi-rank", "tricky-order"],
            {"tensor_parallel_size": 4, "gpu_total_gib": DEVICES["V100-32"]},
        )
    )

    story = Story("0.16.0", seed=826)
    story.data_parallel = 4
    boot.banner(story, COBALT_MOE, {"data_parallel_size": 4, "enable_expert_parallel": True})
    boot.configured(story, COBALT_MOE, length=40960, batched=8192)
    for rank in range(4):
        boot.engine(story, COBALT_MOE, length=40960, proc=f"core{rank}")
    fail.fail_in_core(
        story,
        (*MODEL_EXECUTOR, *fail.INIT_DEVICE),
        too_little(story, 11.9, DEVICES["H100"], 0.9, 3),
        proc="core3",
        client=False,
    )
    for rank in (0, 1, 2):
        fail.fail_in_core(
            story,
            ("v1/engine/core.py:DPEngineCoreProc._init_data_parallel:stateless_init_dp_group()",),
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:44213",
            proc=f"core{rank}",
            mark="",
            again="",
            client=False,
        )
    fail.fail_in_client(story, cores="{'EngineCore_DP3': 1}")
    out.append(
        Case(
            "order-0160-dp3",
            "engine 3 of 4 finds its card taken, the others lose their peer",
            "0.16.0",
            "gpu-memory-taken",
            wrap.chain(story.lines, wrap.kubectl()),
            ["data-parallel", "kubectl", "multi-rank"],
            {"gpu_free_gib": 11.9, "gpu_total_gib": DEVICES["H100"], "data_parallel_size": 4},
        )
    )
    return out


def loops() -> list[Case]:
    """Restart loops, cut logs, Ray over nodes."""
    out = []
    lines: list[Line] = []
    fits = 0
    for n in range(4):
        story, fits = refused_context("0.19.1", 830 + n)
        lines += [
            *story.lines,
            Line(f"systemd[1]: vllm.service: Scheduled restart job, restart counter is at {n + 1}."),
        ]
    case = _context(
        "loop-0191-systemd",
        "four boots, four times the same",
        "0.19.1",
        wrap.chain(lines, wrap.journald("loop", "vllm")),
        fits,
        ["journald", "restart-loop"],
    )
    case.lined = False
    out.append(case)

    story, fits = refused_context("0.24.0", 835)
    at = next(n for n, line in enumerate(story.lines) if line.mark == "cause")
    out.append(
        _context(
            "cut-0240-head",
            "the head is cut in the middle of the traceback",
            "0.24.0",
            wrap.chain(story.lines[at - 6 :], wrap.kubectl()),
            fits,
            ["head-truncated", "kubectl"],
        )
    )
    out[-1].version = None

    story = Story("0.8.5", seed=836)
    start(story, KESTREL_7B, {"gpu_memory_utilization": 0.2}, length=8192)
    fail.fail_in_core(story, KV_CHECK, NO_BLOCKS)
    out.append(
        Case(
            "cut-085-tail",
            "the paste ends with the cause",
            "0.8.5",
            "no-kv-cache-blocks",
            wrap.chain(
                story.lines, wrap.cut_after("cause"), wrap.fence("## Steps\n1. vllm serve\n2. see below")
            ),
            ["markdown-fence", "tail-truncated"],
            {"gpu_memory_utilization": 0.2},
        )
    )

    story = Story("0.6.6.post1", seed=837, site="/home/ray/anaconda3/lib/python3.10/site-packages")
    v0.banner(
        story,
        TARN_70B,
        {"tensor_parallel_size": 8, "pipeline_parallel_size": 2, "distributed_executor_backend": "ray"},
    )
    story.raw(
        "2026-03-14 09:21:12,402\tINFO worker.py:1634 -- Connecting to existing Ray cluster at address: 10.4.0.2:6379..."
    )
    v0.engine(story, TARN_70B, length=8192, world=8)
    error = oom(
        "0.6.6.post1", want_mib=448.0, total_gib=DEVICES["A10"], free_mib=137.7, unused_mib=5.0, gpu=1
    )
    tag = "\x1b[36m(RayWorkerWrapper pid=2213, ip=10.4.0.9)\x1b[0m "
    place = story.place("worker/worker_base.py", "Error executing method") or "worker_base.py:467"
    head = tag + story.prefix("ERROR", place)
    story.lines += [
        Line(head + "Error executing method load_model. This might cause deadlock in distributed execution."),
        Line(head + "Traceback (most recent call last):"),
    ]
    story.lines += [
        Line(head + t)
        for t in story.frames(
            "worker/worker_base.py:WorkerWrapperBase.execute_method:return run_method(", *v0.LOADING[5:]
        )
    ]
    story.lines.append(Line(head + error, "cause"))
    story.lines.append(
        Line(
            "\x1b[36m(RayWorkerWrapper pid=881, ip=10.4.0.11)\x1b[0m "
            + story.prefix("ERROR", place)
            + error.split(" GPU ", 1)[0]
            + "\x1b[32m [repeated 14x across cluster] (Ray deduplicates logs by default. Set RAY_DEDUP_LOGS=0 to disable log deduplication, or see https://docs.ray.io/en/master/ray-observability/user-guides/configure-logging.html#log-deduplication for more options.)\x1b[0m",
            "echo",
        )
    )
    story.trace(
        [
            '  File "/home/ray/anaconda3/lib/python3.10/site-packages/ray/_private/worker.py", line 2753, in get',
            "    values, debugger_breakpoint = worker.get_objects(object_refs, timeout=timeout)",
        ],
        "ray.exceptions.RayTaskError(OutOfMemoryError): \x1b[36mray::RayWorkerWrapper.execute_method()\x1b[39m (pid=2213, ip=10.4.0.9)",
        proc="none",
    )
    out.append(
        Case(
            "ray-066-nodes",
            "sixteen Ray workers on two nodes, one speaks for fourteen",
            "0.6.6.post1",
            "weights-do-not-fit",
            story.lines,
            ["ansi", "multi-node", "ray-worker", "v0"],
            {"gpu_total_gib": DEVICES["A10"], "tensor_parallel_size": 8},
        )
    )
    return out


def cases() -> list[Case]:
    """This family's cases."""
    return [*exports(), *programs(), *loops()]


__all__ = ["LLAMA_MLP", "SOLANO_24B", "TARN_32B", "Advice", "Model", "act", "cases", "no_blocks"]
