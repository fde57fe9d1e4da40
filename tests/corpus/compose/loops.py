"""Restart loops, cut logs, Ray over nodes."""

from . import fail, v0, work, wrap
from .blocks import NO_BLOCKS
from .case import Case, act
from .context import start
from .exports import _context, refused_context
from .fail import FORWARD, PROFILE
from .forward import QWEN_MLP
from .machine import (
    DEVICES,
    KESTREL_7B,
    TARN_70B,
)
from .oom import oom
from .story import Line, Story
from .weights import until_load


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
        tags=["journald", "restart-loop"],
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
            tags=["head-truncated", "kubectl"],
        )
    )
    out[-1].version = None

    story = Story("0.8.5", seed=836)
    start(story, KESTREL_7B, {"gpu_memory_utilization": 0.2}, length=8192)
    fail.fail_in_core(story, fail.KV_NONE, NO_BLOCKS)
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
        {"tensor_parallel_size": 4, "distributed_executor_backend": "ray"},
    )
    story.raw(
        "2026-03-14 09:21:12,402\tINFO worker.py:1634 -- Connecting to existing Ray cluster at address: 10.4.0.2:6379..."
    )
    v0.engine(story, TARN_70B, length=8192, world=4)
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
            + "\x1b[32m [repeated 2x across cluster] (Ray deduplicates logs by default. Set RAY_DEDUP_LOGS=0 to disable log deduplication, or see https://docs.ray.io/en/master/ray-observability/user-guides/configure-logging.html#log-deduplication for more options.)\x1b[0m",
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
            "four Ray workers on two nodes, one speaks for two",
            "0.6.6.post1",
            "weights-do-not-fit",
            story.lines,
            ["ansi", "multi-node", "ray-worker", "v0"],
            {"gpu_total_gib": DEVICES["A10"], "tensor_parallel_size": 4},
        )
    )
    return out


def heads_cut() -> list[Case]:
    """The paste begins at the first statement: what comes below it tells the phase."""
    out = []
    story = Story("0.33.0", seed=841)
    start(story, KESTREL_7B, {"max_num_batched_tokens": 65536}, length=32768, batched=65536)
    at = len(story.lines)
    fail.fail_in_core(
        story,
        (*PROFILE, *FORWARD, *QWEN_MLP),
        oom("0.33.0", want_mib=4736.0, total_gib=DEVICES["L4"], free_mib=2216.0),
    )
    first = next(n for n in range(at, len(story.lines)) if story.lines[n].mark)
    out.append(
        Case(
            "cut-0330-second-trace",
            "only the raw traceback below still has the frames of the dummy pass",
            None,
            "profile-run-oom",
            wrap.chain(story.lines[first:], wrap.kubectl()),
            ["head-truncated", "kubectl"],
            {"gpu_total_gib": DEVICES["L4"]},
            [{"flag": "max_num_batched_tokens", "direction": "down"}],
            act("free-other-process"),
        )
    )

    story = Story("0.26.0", seed=842)
    until_load(story, TARN_70B, {"max_model_len": 8192}, length=8192)
    error = oom("0.26.0", want_mib=448.0, total_gib=DEVICES["H100"], free_mib=120.0, unused_mib=5.0)
    text = "Failed to load model - not enough GPU memory. Try lowering --gpu-memory-utilization to free memory for weights, increasing --tensor-parallel-size, or using --quantization. See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more tips."
    story.say(
        "ERROR",
        "v1/worker/gpu_model_runner.py",
        "Failed to load model - not enough",
        f"{text} (original error: {error.split(': ', 1)[1]})",
        mark="cause",
    )
    out.append(
        Case(
            "cut-0260-record",
            "one record is all that was pasted",
            None,
            "weights-do-not-fit",
            wrap.chain(story.lines[-1:], wrap.quote()),
            ["head-truncated", "markdown-quote", "tail-truncated", "tricky-wrong-hint"],
            {"gpu_total_gib": DEVICES["H100"]},
        )
    )

    story = Story("0.19.1", seed=843)
    error = oom("0.19.1", want_mib=1190.0, total_gib=DEVICES["A10"], free_mib=640.3)
    place = story.place("v1/engine/core.py", "EngineCore encountered a fatal error") or "core.py:1100"
    story.trace(
        story.frames("v1/worker/gpu_model_runner.py:GPUModelRunner.execute_model:self.model.compute_logits("),
        error,
        proc="core",
        place=place,
        mark="cause",
    )
    place = story.place("v1/engine/async_llm.py", "AsyncLLM output_handler failed") or "async_llm.py:700"
    story.trace(
        [],
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.",
        proc="api",
        place=place,
        head="AsyncLLM output_handler failed.",
    )
    for _ in range(4):
        work.access(story, status="500 Internal Server Error")
    out.append(
        Case(
            "cut-0191-serving",
            "the end of a served engine: execute_model, then answers of 500",
            None,
            "serving-oom",
            story.lines,
            ["bare", "head-truncated"],
            {"gpu_total_gib": DEVICES["A10"]},
        )
    )
    return out


def cases() -> list[Case]:
    """This family's cases."""
    return [*loops(), *heads_cut()]
