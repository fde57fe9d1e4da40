"""Healthy though it looks bad; preemption in V1's words."""

from . import boot, work, wrap
from .case import Case
from .healthy import L4
from .machine import (
    DEVICES,
    KESTREL_7B,
    TARN_32B,
    Budget,
)
from .serving import serve
from .story import Line, Story


def busy() -> list[Case]:
    """Healthy though it looks bad; thrash in V1's words."""
    out = []
    story = Story("0.17.1", seed=921)
    serve(story, KESTREL_7B, {"max_model_len": 16384}, length=16384, budget=L4)
    for n in range(10):
        work.access(story)
        work.load_line(story, running=256, waiting=900 - 20 * n, usage=71.0 + n % 3)
    out.append(
        Case(
            "healthy-0171-queue",
            "a long queue that moves",
            "0.17.1",
            "healthy",
            wrap.chain(story.lines, wrap.kubectl()),
            ["kubectl", "tricky-queue"],
        )
    )

    story = Story("0.24.0", seed=922)
    serve(story, KESTREL_7B, {"max_model_len": 16384}, length=16384, budget=L4)
    work.traffic(story, 3)
    work.load_line(story, running=0, waiting=1, usage=0.0, prompt=0.0, generated=0.0)
    work.traffic(story, 5)
    out.append(
        Case(
            "healthy-0240-blink",
            "one waiting request in one line, scheduled ten seconds later",
            "0.24.0",
            "healthy",
            story.lines,
            ["bare", "tricky-queue"],
        )
    )

    story = Story("0.12.0", seed=923)
    boot.banner(story, KESTREL_7B, {"max_model_len": 65536})
    story.lines.append(
        Line(
            story.tag("api")
            + story.prefix("WARNING", "model.py:2101")
            + "User-specified max_model_len (65536) is greater than the derived max_model_len (max_position_embeddings=32768 or model_max_length=None in model's config.json). VLLM_ALLOW_LONG_MAX_MODEL_LEN must be used with extreme caution. If the model uses relative position encoding (RoPE), positions exceeding derived_max_model_len lead to nan. If the model uses absolute position encoding, positions exceeding derived_max_model_len will cause a CUDA array out-of-bounds error."
        )
    )
    rest = Story("0.12.0", seed=923)
    serve(
        rest,
        KESTREL_7B,
        {"max_model_len": 65536},
        length=65536,
        budget=Budget(DEVICES["A40"], 0.9, 14.25, 1.0, 0.2),
    )
    work.traffic(rest, 3)
    out.append(
        Case(
            "healthy-0120-long-allowed",
            "the length was allowed by hand: a warning, no error",
            "0.12.0",
            "healthy",
            [*story.lines, *rest.lines[2:]],
            ["bare", "tricky-warnings"],
        )
    )

    story = Story("0.11.2", seed=924)
    serve(
        story,
        TARN_32B,
        {"tensor_parallel_size": 2},
        length=32768,
        budget=Budget(DEVICES["A100-80"], 0.9, 30.5, 1.6, 2.0),
        world=2,
    )
    story.lines.insert(
        14,
        Line(
            story.tag("rank0")
            + story.prefix("WARNING", "custom_all_reduce.py:154")
            + "Custom allreduce is disabled because your platform lacks GPU P2P capability or P2P test failed. To silence this warning, specify disable_custom_all_reduce=True explicitly."
        ),
    )
    story.lines.insert(
        15,
        Line(
            story.tag("rank1")
            + story.prefix("WARNING", "symm_mem.py:67")
            + "SymmMemCommunicator: Device capability 8.0 not supported, communicator is not available."
        ),
    )
    story.lines.insert(
        16,
        Line(
            "node3:190:190 [0] NCCL WARN NET/OFI Unable to find a protocol that worked. Failing initialization; falling back to sockets"
        ),
    )
    work.traffic(story, 4)
    out.append(
        Case(
            "healthy-0112-nccl-warn",
            "NCCL WARN, no P2P, no symmetric memory: it serves",
            "0.11.2",
            "healthy",
            wrap.chain(story.lines, wrap.compose("tp2")),
            ["compose", "multi-rank", "tricky-warnings"],
        )
    )

    story = Story("0.24.0", seed=925)
    budget = Budget(DEVICES["L4"], 0.92, 14.25, 1.1, 0.3, 0.3)
    serve(story, KESTREL_7B, {"max_model_len": 8192, "max_num_seqs": 512}, length=8192, budget=budget)
    work.traffic(story, 2)
    for n in range(12):
        work.load_line(story, running=60 + n, waiting=300 + 5 * n, usage=min(99.9, 97.5 + n / 4))
        line = story.lines[-1]
        story.lines[-1] = Line(
            line.text.replace("GPU KV cache usage", f"Preemptions: {80 * (n + 1)}, GPU KV cache usage"),
            "cause" if n == 0 else "echo",
        )
    case = Case(
        "preempt-0240-stats",
        "V1 counts preemptions in its statistics",
        "0.24.0",
        "preemption-thrash",
        story.lines,
        ["bare"],
        {"max_num_seqs": 512},
    )
    case.lined = False
    out.append(case)
    return out


def cases() -> list[Case]:
    """This family's cases."""
    return [*busy()]
