"""After the server is ready: memory, preemption, stalls."""

from . import boot, fail, v0, work, wrap
from .case import Case
from .context import start
from .machine import (
    DEVICES,
    KESTREL_7B,
    Budget,
    Model,
    fit_tokens,
)
from .oom import oom
from .story import Story


def serve(
    story: Story,
    model: Model,
    args: dict[str, object],
    *,
    length: int,
    budget: Budget,
    world: int = 1,
    batched: int = 2048,
) -> int:
    """A whole good start of V1; gives the KV tokens."""
    start(story, model, args, length=length, world=world, batched=batched)
    boot.profiled(story, budget)
    tokens = fit_tokens(budget.kv_bytes, model.token_bytes(world), null_block=story.at_least("0.29.0"))
    boot.sized(story, tokens, length)
    work.captured(story, 0.49)
    work.ready(story)
    return tokens


def serve_v0(
    story: Story, model: Model, args: dict[str, object], *, length: int, blocks: int, dtype: str = "bfloat16"
) -> None:
    """A whole good start of V0."""
    v0.banner(story, model, args)
    v0.engine(story, model, length=length, dtype=dtype)
    v0.load(story, model, model.weights_gib)
    v0.blocks(story, blocks, 2048, length)
    v0.captured(story)
    v0.ready(story)


def ooms() -> list[Case]:
    """serving-oom."""
    out = []
    for id_, release, seed, frames, want, free, wrapper, tag in (
        (
            "serving-0112-logits",
            "0.11.2",
            501,
            ("v1/worker/gpu_model_runner.py:GPUModelRunner.execute_model:self.model.compute_logits(",),
            1190.0,
            640.3,
            wrap.docker_json(),
            "docker-json",
        ),
        (
            "serving-0240-logprobs",
            "0.24.0",
            502,
            (
                "v1/sample/sampler.py:Sampler.forward:self.compute_logprobs(",
                "v1/sample/sampler.py:Sampler.compute_logprobs:log_softmax(",
            ),
            2318.0,
            1502.9,
            None,
            "bare",
        ),
    ):
        story = Story(release, seed=seed)
        budget = Budget(DEVICES["L4"], 0.97, KESTREL_7B.weights_gib, 1.1, 0.2)
        serve(
            story,
            KESTREL_7B,
            {"gpu_memory_utilization": 0.97, "max_model_len": 16384},
            length=16384,
            budget=budget,
        )
        work.traffic(story, 4)
        error = oom(release, want_mib=want, total_gib=DEVICES["L4"], free_mib=free)
        place = story.place("v1/engine/core.py", "EngineCore encountered a fatal error") or "core.py:845"
        lines = story.frames(
            "v1/engine/core.py:EngineCoreProc.run_engine_core:engine_core.run_busy_loop()",
            "v1/engine/core.py:EngineCoreProc._process_engine_step:self.step_fn()",
            "v1/engine/core.py:EngineCore.step:execute_model(",
            *fail.UNIPROC,
            "v1/worker/gpu_worker.py:Worker.execute_model:self.model_runner.execute_model(",
            *frames,
        )
        story.trace(
            lines, error, proc="core", place=place, mark="cause", head="EngineCore encountered a fatal error."
        )
        place = story.place("v1/engine/async_llm.py", "AsyncLLM output_handler failed") or "async_llm.py:480"
        story.trace(
            story.frames(
                "v1/engine/async_llm.py:AsyncLLM._run_output_handler.output_handler:await engine_core.get_output_async()"
            ),
            "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.",
            proc="api",
            place=place,
            head="AsyncLLM output_handler failed.",
        )
        for _ in range(3):
            work.access(story, status="500 Internal Server Error")
        story.raw(
            "INFO:     Shutting down\nINFO:     Waiting for application shutdown.\nINFO:     Application shutdown complete.",
            proc="api",
        )
        out.append(
            Case(
                id_,
                "the share of 0.97 leaves too little for a big batch of logits",
                release,
                "serving-oom",
                wrap.chain(story.lines, *([wrapper] if wrapper else [])),
                [tag],
                {
                    "tried_to_allocate_gib": round(want / 1024, 4),
                    "gpu_total_gib": DEVICES["L4"],
                    "gpu_memory_utilization": 0.97,
                },
            )
        )

    story = Story("0.4.2", seed=503, site="/opt/conda/lib/python3.10/site-packages")
    serve_v0(story, KESTREL_7B, {"gpu_memory_utilization": 0.96}, length=32768, blocks=5120)
    for _ in range(4):
        v0.load_line(story, running=9, pending=0, usage=51.2)
        work.access(story)
    error = oom("0.4.2", want_mib=594.0, total_gib=DEVICES["L4"], free_mib=302.2)
    story.trace(
        story.frames(
            "async_llm_engine.py:_log_task_completion:return_value = task.result()",
            "async_llm_engine.py:AsyncLLMEngine.engine_step:await self.engine.step_async()",
            "worker/worker.py:Worker.execute_model:self.model_runner.execute_model(",
            "worker/model_runner.py:ModelRunner.execute_model:self.model.compute_logits(",
        ),
        error,
        proc="none",
        place=story.place("async_llm_engine.py", "Engine background task failed") or "async_llm_engine.py:43",
        mark="cause",
        head="Engine background task failed",
    )
    story.trace(
        story.frames("async_llm_engine.py:_log_task_completion:raise AsyncEngineDeadError("),
        "vllm.engine.async_llm_engine.AsyncEngineDeadError: Task finished unexpectedly. This should never happen! Please open an issue on Github. See stack trace above for the actual cause.",
        proc="none",
    )
    out.append(
        Case(
            "serving-042-logits",
            "V0's background task runs out of memory",
            "0.4.2",
            "serving-oom",
            wrap.chain(story.lines, wrap.syslog("srv", "vllm")),
            ["syslog", "v0"],
            {"tried_to_allocate_gib": 0.5801, "gpu_memory_utilization": 0.96},
        )
    )
    return out


def thrash() -> list[Case]:
    """preemption-thrash."""
    out = []
    for id_, release, seed, blocks, wrapper, tag in (
        ("preempt-054-plain", "0.5.4", 511, 611, None, "bare"),
        ("preempt-092-compose", "0.9.2", 512, 902, wrap.compose("chat"), "compose"),
    ):
        story = Story(release, seed=seed, site="/opt/conda/lib/python3.10/site-packages")
        serve_v0(story, KESTREL_7B, {"max_num_seqs": 256, "max_model_len": 8192}, length=8192, blocks=blocks)
        v0.load_line(story, running=4, pending=0, usage=21.0)
        first = True
        for n in range(1, 12):
            v0.load_line(story, running=18 + n, pending=30 + 4 * n, usage=min(99.7, 92 + n))
            if n % 2:
                text = f"Sequence group cmpl-{story.random.getrandbits(64):016x} is preempted by PreemptionMode.RECOMPUTE mode because there is not enough KV cache space. This can affect the end-to-end performance. Increase gpu_memory_utilization or tensor_parallel_size to provide more KV cache memory. total_num_cumulative_preemption={50 * (n // 2) + 1}"
                story.say(
                    "WARNING",
                    "core/scheduler.py",
                    "is preempted by",
                    text,
                    proc="none",
                    mark="cause" if first else "echo",
                )
                first = False
        out.append(
            Case(
                id_,
                f"{blocks} blocks for 256 sequences",
                release,
                "preemption-thrash",
                wrap.chain(story.lines, *([wrapper] if wrapper else [])),
                [tag, "v0"],
                {"gpu_blocks": blocks, "max_model_len": 8192},
            )
        )
    return out


def stalls() -> list[Case]:
    """request-never-scheduled."""
    out = []
    for id_, release, seed, wrapper, tag in (
        ("stall-0191-plain", "0.19.1", 521, None, "bare"),
        ("stall-0330-journal", "0.33.0", 522, wrap.journald("n4", "vllm"), "journald"),
        ("stall-0102-ansi", "0.10.2", 523, wrap.ansi(), "ansi"),
    ):
        story = Story(release, seed=seed)
        budget = Budget(DEVICES["A10"], 0.9, KESTREL_7B.weights_gib, 1.1, 0.2)
        tokens = serve(story, KESTREL_7B, {"max_model_len": 32768}, length=32768, budget=budget)
        work.traffic(story, 3)
        work.load_line(story, running=1, waiting=1, usage=9.0)
        for n in range(14):
            work.load_line(
                story,
                running=0,
                waiting=1,
                usage=0.0,
                prompt=0.0,
                generated=0.0,
                mark="cause" if n == 0 else "echo",
            )
            if n % 5 == 2:
                work.access(story, "GET /health")
        out.append(
            Case(
                id_,
                "one request waits for minutes while nothing runs",
                release,
                "request-never-scheduled",
                wrap.chain(story.lines, *([wrapper] if wrapper else [])),
                [tag],
                {"waiting_reqs": 1, "running_reqs": 0, "kv_tokens": tokens},
            )
        )
    return out


def cases() -> list[Case]:
    """This family's cases."""
    return [*ooms(), *thrash(), *stalls()]
