"""Memory that others hold or let go: gpu-memory-taken, gpu-memory-changed-while-profiling."""

from . import boot, fail, v0, wrap
from .case import Case, act
from .context import start, too_small
from .machine import (
    BRISA_8B,
    COBALT_MOE,
    DEVICES,
    KESTREL_7B,
    MIRADOR_7B,
    TARN_70B,
    Budget,
    Model,
    fit_tokens,
)
from .story import Story

INIT = (*fail.MODEL_EXECUTOR, *fail.INIT_DEVICE)


def until_device(
    story: Story, model: Model, args: dict[str, object], *, length: int, world: int = 1, batched: int = 2048
) -> None:
    """From the banner to the engine's first words."""
    boot.banner(story, model, args)
    boot.configured(story, model, length=length, batched=batched)
    boot.engine(story, model, length=length, world=world)


def too_little(story: Story, free: float, total: float, util: float, index: int) -> str:
    """The start-up check of free memory (0.9.1+)."""
    device = f"cuda:{index} " if story.at_least("0.14.0") else ""
    wanted = round(total * util, 2)
    return (
        f"ValueError: Free memory on device {device}({round(free, 2)}/{round(total, 2)} GiB) on startup is less than desired GPU memory utilization ({util}, {wanted} GiB). "
        "Decrease GPU memory utilization or reduce GPU memory used by other processes."
    )


def taken() -> list[Case]:
    """gpu-memory-taken."""
    out = []
    for id_, release, seed, device, free, util, wrapper, tag in (
        ("taken-092-desktop", "0.9.2", 201, "RTX4090", 20.11, 0.9, None, "bare"),
        (
            "taken-0171-jupyter",
            "0.17.1",
            202,
            "A100-40",
            31.2,
            0.9,
            wrap.fence(
                "Second notebook cell fails:", "nvidia-smi shows python3 with 8 GB (my first kernel)."
            ),
            "markdown-fence",
        ),
        (
            "taken-0330-journal",
            "0.33.0",
            203,
            "H100",
            41.72,
            0.92,
            wrap.journald("hgx1", "vllm-chat"),
            "journald",
        ),
    ):
        story = Story(release, seed=seed)
        until_device(story, KESTREL_7B, {"max_model_len": 16384}, length=16384)
        boot.distribute(story)
        fail.fail_in_core(story, INIT, too_little(story, free, DEVICES[device], util, 0))
        fail.leaked(story)
        numbers = {
            "gpu_free_gib": free,
            "gpu_total_gib": DEVICES[device],
            "requested_gib": round(DEVICES[device] * util, 2),
            "gpu_memory_utilization": util,
        }
        out.append(
            Case(
                id_,
                f"{free} of {DEVICES[device]} GiB are free",
                release,
                "gpu-memory-taken",
                wrap.chain(story.lines, *([wrapper] if wrapper else [])),
                [tag],
                numbers,
            )
        )

    story = Story("0.27.1", seed=204)
    until_device(story, TARN_70B, {"tensor_parallel_size": 8, "max_model_len": 32768}, length=32768, world=8)
    boot.distribute(story)
    story.workers_named = False
    fail.fail_at_worker_start(
        story, 5, "init_device", fail.INIT_DEVICE, too_little(story, 60.2, DEVICES["H100"], 0.92, 5)
    )
    story.raw("node1:412:1990 [3] NCCL INFO [Service thread] Connection closed by localRank 5")
    fail.fail_after_worker_start(story)
    out.append(
        Case(
            "taken-0270-rank5",
            "one of eight cards has a tenant",
            "0.27.1",
            "gpu-memory-taken",
            wrap.chain(story.lines, wrap.kubectl()),
            ["kubectl", "multi-rank"],
            {
                "gpu_free_gib": 60.2,
                "gpu_total_gib": DEVICES["H100"],
                "gpu_memory_utilization": 0.92,
                "tensor_parallel_size": 8,
            },
        )
    )

    story = Story("0.20.2", seed=205)
    until_device(story, COBALT_MOE, {"max_model_len": 32768, "gpu_memory_utilization": 0.9}, length=32768)
    boot.distribute(story)
    fail.fail_in_core(story, INIT, too_little(story, 92.4, 119.67, 0.9, 0))
    shell = "user@spark:~$ free -g | head -2\n               total        used        free      shared  buff/cache   available\nMem:             119          27          12           0          80          92\nuser@spark:~$ vllm serve cobalt-ml/Cobalt-30B-A3B --max-model-len 32768 --gpu-memory-utilization 0.9"
    out.append(
        Case(
            "taken-0202-unified",
            "unified memory: the host itself holds 27 GB",
            "0.20.2",
            "gpu-memory-taken",
            wrap.chain(story.lines, wrap.around(shell)),
            ["shell", "unified-memory"],
            {"gpu_free_gib": 92.4, "gpu_total_gib": 119.67, "gpu_memory_utilization": 0.9},
        )
    )

    story = Story("0.19.1", seed=206)
    length = 65536
    start(story, BRISA_8B, {"max_model_len": length}, length=length)
    budget = Budget(DEVICES["L4"], 0.9, 14.96, 1.19, 0.2)
    boot.profiled(story, budget)
    refused = too_small(
        story,
        length,
        BRISA_8B.token_bytes() * length,
        budget.kv_bytes,
        fit_tokens(budget.kv_bytes, BRISA_8B.token_bytes()),
    )
    fail.fail_in_core(story, fail.KV_CHECK, refused, mark="", again="")
    story.raw("[entrypoint] vllm exited with 1, restarting in 5 s with --max-model-len 16384")
    second = Story("0.19.1", seed=207, start="2026-03-14 09:23:40")
    until_device(second, BRISA_8B, {"max_model_len": 16384}, length=16384)
    boot.distribute(second)
    fail.fail_in_core(second, INIT, too_little(second, 3.02, DEVICES["L4"], 0.9, 0))
    out.append(
        Case(
            "taken-0191-orphan",
            "the first try's engine core still holds the card",
            "0.19.1",
            "gpu-memory-taken",
            wrap.chain([*story.lines, *second.lines], wrap.compose("serve-1")),
            ["compose", "tricky-zombie", "two-boots"],
            {"gpu_free_gib": 3.02, "gpu_total_gib": DEVICES["L4"]},
            act("free-other-process"),
            [{"flag": "gpu_memory_utilization", "direction": "up"}],
            ["kv-cache-smaller-than-context"],
        )
    )
    return out


def changed() -> list[Case]:
    """gpu-memory-changed-while-profiling."""
    out = []
    why = "This happens when other processes sharing the same container release GPU memory while vLLM is profiling during initialization. To fix this, ensure consistent GPU memory allocation or isolate vLLM in its own container."
    for id_, release, seed, before, after, wrapper, tag in (
        ("changed-0112-docker", "0.11.2", 211, "60.42", "71.05", wrap.docker_json(), "docker-json"),
        ("changed-0310-plain", "0.31.0", 212, "20.4", "22.9", None, "bare"),
    ):
        story = Story(release, seed=seed)
        start(story, KESTREL_7B, {"max_model_len": 8192}, length=8192)
        error = f"AssertionError: Error in memory profiling. Initial free memory {before} GiB, current free memory {after} GiB. {why}"
        fail.fail_in_core(
            story,
            (
                *fail.KV_CACHES,
                "v1/engine/core.py:EngineCore._initialize_kv_caches:self.model_executor.determine_available_memory(",
                "v1/executor/abstract.py:Executor.determine_available_memory:self.collective_rpc(",
                *fail.UNIPROC,
                "v1/worker/gpu_worker.py:Worker.determine_available_memory:assert self.init_snapshot.free_memory",
            ),
            error,
        )
        out.append(
            Case(
                id_,
                f"free memory rose from {before} to {after} GiB",
                release,
                "gpu-memory-changed-while-profiling",
                wrap.chain(story.lines, *([wrapper] if wrapper else [])),
                [tag],
                {"initial_free_gib": float(before), "current_free_gib": float(after)},
            )
        )
    story = Story("0.5.4", seed=213, site="/opt/conda/lib/python3.10/site-packages")
    v0.banner(story, MIRADOR_7B, {"gpu_memory_utilization": 0.5})
    v0.engine(story, MIRADOR_7B, length=4096, dtype="float16")
    v0.load(story, MIRADOR_7B, 12.55)
    error = "AssertionError: Error in memory profiling. Initial free memory 23622320128, current free memory 30064771072. This happens when the GPU memory was not properly cleaned up before initializing the vLLM instance."
    v0.fail(
        story,
        (*v0.PROFILE[:6], "worker/worker.py:Worker.determine_num_available_blocks:assert peak_memory > 0"),
        error,
    )
    out.append(
        Case(
            "changed-054-bytes",
            "V0 prints bytes: 22 GiB before, 28 after",
            "0.5.4",
            "gpu-memory-changed-while-profiling",
            wrap.chain(story.lines, wrap.stamped("2026-03-14 09:21:{s} | INFO | stderr | ")),
            ["logger-prefix", "v0"],
            {"initial_free_gib": 22.0, "current_free_gib": 28.0},
        )
    )
    return out


def cases() -> list[Case]:
    """This family's cases."""
    return [*taken(), *changed()]
