"""Other people's prefixes and pastes, and refused requests whose two halves compete."""

import json

from . import boot, fail, v0, wrap
from .allocators import CUDA_OOM
from .case import Advice, Case, act
from .context import start, too_small
from .exports import refused_context
from .fail import CAPTURE, ENCODER, FORWARD, KV_CHECK, LOAD, MODEL_EXECUTOR, PROFILE
from .forward import QWEN_MLP
from .healthy import L4
from .machine import BRISA_8B, DEVICES, GIB, KESTREL_7B, ONDINE_VL, TARN_32B, Budget, fit_tokens
from .oom import oom
from .serving import serve, serve_v0
from .story import Line, Story
from .weights import until_load
from .work import access, captured, load_line, ready, traffic


def _context(id_: str, title: str, release: str, seed: int, *wrappers: wrap.Wrapper, tags: list[str]) -> Case:
    story, fits = refused_context(release, seed)
    return Case(
        id_,
        title,
        release,
        "kv-cache-smaller-than-context",
        wrap.chain(story.lines, *wrappers),
        tags,
        {"max_model_len": 65536, "needed_gib": 8.0},
        [{"flag": "max_model_len", "at_most": fits}],
        [{"action": "free-other-process"}],
    )


def pastes() -> list[Case]:
    """The same refusal through a dozen hands."""
    return [
        _context("paste-nbsp", "every blank is a no-break blank", "0.19.1", 1101, wrap.each(lambda n, t: t.replace(" ", "\u00a0")), tags=["nbsp"]),
        _context("paste-zero-width", "zero-width blanks after underscores, from a wiki", "0.12.0", 1102, wrap.each(lambda n, t: t.replace("_", "_\u200b")), tags=["zero-width"]),
        _context("paste-loguru", "a supervisor that logs through loguru", "0.14.1", 1103, wrap.logger("2026-03-14 09:21:07.113 | INFO     | engine:run:88 - "), tags=["logger-prefix"]),
        _context("paste-sky", "SkyPilot's task prefix", "0.24.0", 1104, wrap.logger("\x1b[36m(head, rank=0, pid=3126)\x1b[0m "), tags=["ansi", "skypilot"]),
        _context("paste-pm2", "pm2", "0.17.1", 1105, wrap.logger("0|vllm  | "), tags=["pm2"]),
        _context("paste-gitlab", "GitLab's job log", "0.26.0", 1106, wrap.each(lambda n, t: f"2026-03-14T09:21:{n // 7 % 60:02d}.{n % 7 * 13:06d}Z 01{'O' if n % 4 else 'E'} {t}"), tags=["gitlab"]),
        _context("paste-numbered", "cat -n", "0.10.2", 1107, wrap.each(lambda n, t: f"{n + 1:6d}\t{t}"), tags=["numbered"]),
        _context("paste-diff", "a diff of two runs", "0.31.0", 1108, wrap.each(lambda n, t: "+" + t), wrap.around("--- ok.log\n+++ bad.log\n@@ -1,40 +1,90 @@"), tags=["diff"]),
        _context("paste-srun-label", "srun --label", "0.22.1", 1109, wrap.logger("0: "), tags=["slurm"]),
        _context("paste-mail", "a mail thread: two levels of quotation, 78 columns", "0.18.1", 1110, wrap.columns(74), wrap.quote(), wrap.quote(), wrap.around("Am 14.03.2026 um 09:40 schrieb Betrieb:"), tags=["german", "mail", "terminal-wrap"]),
    ]  # fmt: skip


def prefixed() -> list[Case]:
    """Lines without vLLM's own head, behind a supervisor's."""
    out = []
    logged = wrap.logger("2026-03-14 09:21:07,113 - launcher - INFO - ")
    lines = [
        Line("usage: vllm serve [model_tag] [options]"),
        Line("vllm serve: error: unrecognized arguments: --disable-log-requests", "cause"),
    ]
    out.append(
        Case(
            "paste-argparse-logged",
            "argparse behind a Python logger",
            None,
            "unknown-flag",
            wrap.chain(lines, logged),
            ["logger-prefix"],
        )
    )

    story = Story("0.19.1", seed=1121)
    until_load(story, ONDINE_VL, {"limit_mm_per_prompt": {"video": 2}}, length=16384)
    boot.shards(story, ONDINE_VL)
    boot.loaded(story, 15.63)
    fail.fail_in_core(
        story,
        (*PROFILE, *ENCODER),
        oom("0.19.1", want_mib=3900.0, total_gib=DEVICES["L4"], free_mib=2100.0),
        raw=False,
    )
    out.append(
        Case(
            "paste-vision-numbered",
            "the encoder's frames behind line numbers",
            "0.19.1",
            "multimodal-profile-oom",
            wrap.chain(story.lines, wrap.each(lambda n, t: f"{n + 1:5d}  {t}")),
            ["numbered"],
            {"gpu_total_gib": DEVICES["L4"]},
        )
    )

    lines = [
        Line(t)
        for t in (
            "{'loss': 1.91, 'epoch': 0.02}",
            "Traceback (most recent call last):",
            '  File "/app/finetune.py", line 61, in <module>',
            "    trainer.train()",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 896.00 MiB. GPU 0 has a total capacity of 22.03 GiB of which 301.19 MiB is free.",
        )
    ]
    out.append(
        Case(
            "foreign-training-stern",
            "a training pod whose name holds vllm",
            None,
            "not-a-vllm-log",
            wrap.chain(lines, wrap.logger("vllm-lora-train-7c9f trainer ")),
            ["kubernetes", "not-vllm"],
        )
    )
    return out


def halves() -> list[Case]:
    """Which half of a request is too much; quiet servers; echoes in another order."""
    out = []
    story = Story("0.4.2", seed=1131, site="/opt/conda/lib/python3.10/site-packages")
    serve_v0(story, KESTREL_7B, {"max_model_len": 4096}, length=4096, blocks=2900)
    text = "This model's maximum context length is 4096 tokens. However, you requested 4196 tokens (196 in the messages, 4000 in the completion). Please reduce the length of the messages or completion."
    story.raw(
        f"client> openai.BadRequestError: Error code: 400 - {{'object': 'error', 'message': \"{text}\", 'type': 'BadRequestError', 'param': None, 'code': 400}}",
        mark="cause",
    )
    suggest: list[Advice] = [
        {"flag": "max_tokens", "at_most": 3900},
        *act("shorten-prompt"),
        {"flag": "max_model_len", "direction": "up"},
    ]
    out.append(
        Case(
            "halves-042-completion",
            "196 of prompt, 4000 of completion",
            "0.4.2",
            "max-tokens-too-large",
            story.lines,
            ["bare", "v0"],
            {"max_model_len": 4096, "prompt_tokens": 196, "max_tokens": 4000},
            suggest,
            acceptable=["request-too-long"],
        )
    )

    story = Story("0.27.1", seed=1132)
    serve(story, KESTREL_7B, {"max_model_len": 8192, "runner": "pooling"}, length=8192, budget=L4)
    for _ in range(3):
        access(story, "POST /v1/embeddings")
    text = "This model's maximum context length is 8192 tokens. However, you requested 11021 tokens in the input for embedding generation. Please reduce the length of the input."
    story.lines.append(
        Line(
            story.tag("api")
            + story.prefix("ERROR", "serving.py:188")
            + f"Error with model error=ErrorInfo(message=\"{text}\", type='BadRequestError', param=None, code=400)",
            "cause",
        )
    )
    access(story, "POST /v1/embeddings", "400 Bad Request")
    access(story, "POST /v1/embeddings")
    out.append(
        Case(
            "halves-0271-embedding",
            "an input too long for embeddings",
            "0.27.1",
            "request-too-long",
            wrap.chain(story.lines, wrap.compose("emb")),
            ["compose"],
            {"max_model_len": 8192, "prompt_tokens": 11021},
        )
    )

    story = Story("0.6.6.post1", seed=1133, site="/opt/venv/lib/python3.10/site-packages")
    serve_v0(story, KESTREL_7B, {}, length=32768, blocks=4100)
    for _ in range(2):
        access(story)
        v0.load_line(story, running=2, pending=0, usage=1.4)
    for n in range(13):
        v0.load_line(story, running=0, pending=2, usage=0.0)
        story.lines[-1] = Line(
            story.lines[-1].text.split("Avg prompt")[0]
            + "Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 0 reqs, Swapped: 0 reqs, Pending: 2 reqs, GPU KV cache usage: 0.0%, CPU KV cache usage: 0.0%.",
            "cause" if n == 0 else "echo",
        )
    out.append(
        Case(
            "stall-066-pending",
            "V0: two requests pend for a minute, nothing runs",
            "0.6.6.post1",
            "request-never-scheduled",
            story.lines,
            ["bare", "v0"],
            {"running_reqs": 0, "waiting_reqs": 2},
        )
    )

    story = Story("0.24.0", seed=1134)
    serve(
        story,
        KESTREL_7B,
        {"max_model_len": 16384},
        length=16384,
        budget=Budget(DEVICES["L4"], 0.92, 14.25, 1.0, 0.2, 0.3),
    )
    traffic(story, 2)
    rows = []
    for line in story.lines:
        rows.append(
            Line(
                json.dumps(
                    {
                        "ts": "2026-03-14T09:21:07Z",
                        "level": "info",
                        "service": "dynamo.vllm",
                        "msg": line.text,
                    }
                ),
                line.mark,
            )
        )
    out.append(
        Case(
            "healthy-0240-dynamo",
            "another server's JSON around a good start",
            "0.24.0",
            "healthy",
            rows,
            ["cloud-json"],
        )
    )
    return out


def late() -> list[Case]:
    """Two boots with two causes; an echo printed before its cause; graphs by another allocator."""
    out = []
    first = Story("0.16.0", seed=1141)
    start(
        first,
        KESTREL_7B,
        {"max_num_batched_tokens": 32768, "gpu_memory_utilization": 0.98},
        length=16384,
        batched=32768,
    )
    fail.fail_in_core(
        first,
        (*PROFILE, *FORWARD, *QWEN_MLP),
        oom("0.16.0", want_mib=2368.0, total_gib=DEVICES["RTX4080"], free_mib=801.0),
        mark="",
        again="",
        raw=False,
    )
    second = Story("0.16.0", seed=1142, start="2026-03-14 09:26:10")
    budget = Budget(DEVICES["RTX4080"], 0.98, 14.25, 0.42, 0.1)
    start(
        second,
        KESTREL_7B,
        {"max_num_batched_tokens": 2048, "gpu_memory_utilization": 0.98, "max_model_len": 4096},
        length=4096,
    )
    boot.profiled(second, budget)
    boot.sized(second, fit_tokens(budget.kv_bytes, KESTREL_7B.token_bytes()), 4096)
    fail.fail_in_core(second, CAPTURE, f"torch.AcceleratorError: {CUDA_OOM}", raw=False)
    out.append(
        Case(
            "boots-0160-two-causes",
            "the smaller batch got further: now the graphs",
            "0.16.0",
            "graph-capture-oom",
            wrap.chain([*first.lines, *second.lines], wrap.journald("pc", "vllm")),
            ["journald", "two-boots"],
            {"gpu_memory_utilization": 0.98},
            acceptable=["profile-run-oom"],
        )
    )

    story = Story("0.20.2", seed=1143)
    until_load(story, TARN_32B, {"tensor_parallel_size": 2, "max_model_len": 8192}, length=8192, world=2)
    error = oom("0.20.2", want_mib=270.0, total_gib=DEVICES["RTX4090"], free_mib=110.0, unused_mib=4.0, gpu=1)
    fail.fail_after_worker_start(story)
    late_lines = Story("0.20.2", seed=1143)
    late_lines.world, late_lines.workers_named, late_lines.pids, late_lines.now = (
        2,
        True,
        story.pids,
        story.now,
    )
    fail.fail_at_worker_start(late_lines, 1, "load_model", LOAD, error)
    case = Case(
        "order-0202-flushed-late",
        "the worker's lines come after the engine core's echo",
        "0.20.2",
        "weights-do-not-fit",
        wrap.chain([*story.lines, *late_lines.lines], wrap.docker_json()),
        ["docker-json", "multi-rank", "tricky-order"],
        {"tensor_parallel_size": 2},
    )
    out.append(case)

    story = Story("0.14.1", seed=1144)
    budget = Budget(DEVICES["A10"], 0.9, 14.96, 1.2, 0.2)
    start(story, BRISA_8B, {"max_model_len": -1}, length=131072)
    boot.profiled(story, budget)
    fits = fit_tokens(budget.kv_bytes, BRISA_8B.token_bytes())
    story.maybe(
        "INFO",
        "v1/core/kv_cache_utils.py",
        "Auto-fit max_model_len: reduced from",
        f"Auto-fit max_model_len: reduced from 131072 to {fits} to fit in available GPU memory ({budget.kv_bytes / GIB:.2f} GiB available for KV cache)",
    )
    boot.sized(story, fits, fits)
    captured(story, 0.4)
    ready(story)
    for _ in range(4):
        access(story)
        load_line(story, running=1, waiting=0, usage=12.0)
    out.append(
        Case(
            "healthy-0141-autofit",
            "the length was fitted, nothing failed",
            "0.14.1",
            "healthy",
            wrap.chain(story.lines, wrap.kubectl()),
            ["kubectl"],
            {"auto_fit_max_model_len": fits},
        )
    )

    story = Story("0.11.2", seed=1145)
    until_load(story, BRISA_8B, {"max_model_len": 131072}, length=131072)
    boot.shards(story, BRISA_8B)
    boot.loaded(story, 14.96)
    boot.compiled(story, batched=2048)
    budget = Budget(DEVICES["L4"], 0.9, 14.96, 1.2, 0.2)
    boot.profiled(story, budget)
    fits = fit_tokens(budget.kv_bytes, BRISA_8B.token_bytes())
    fail.fail_in_core(
        story,
        (*MODEL_EXECUTOR, *KV_CHECK),
        too_small(story, 131072, BRISA_8B.token_bytes() * 131072, budget.kv_bytes, fits),
        client=False,
        raw=False,
    )
    noise = [
        Line(f'INFO:     10.1.0.{n % 200 + 2}:5{n % 10}112 - "GET /healthz HTTP/1.1" 200 OK')
        for n in range(30)
    ]
    noise.append(Line("INFO:     Application startup complete."))
    out.append(
        Case(
            "mixed-0112-other-uvicorn",
            "another uvicorn program in the same stream is ready; vLLM is not",
            "0.11.2",
            "kv-cache-smaller-than-context",
            [*noise, *story.lines, *noise[:10]],
            ["bare", "tricky-other-uvicorn"],
            {"max_model_len": 131072},
            [{"flag": "max_model_len", "at_most": fits}],
        )
    )
    return out


def cases() -> list[Case]:
    """This family's cases."""
    return [*pastes(), *prefixed(), *halves(), *late()]
