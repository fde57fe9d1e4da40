"""LLM() from Python, boxes around tracebacks, several servers and ranks in one stream."""

from . import boot, fail, work, wrap
from .case import Case
from .context import too_small
from .fail import FORWARD, KV_CHECK, LOAD, MODEL_EXECUTOR, PROFILE
from .forward import QWEN_MLP
from .machine import (
    BRISA_8B,
    COBALT_MOE,
    DEVICES,
    GIB,
    KESTREL_7B,
    TARN_70B,
    Budget,
    fit_tokens,
)
from .occupied import too_little, until_device
from .oom import oom
from .serving import serve
from .story import Line, Story
from .weights import until_load


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
    return out


def pairs() -> list[Case]:
    """Two servers in one stream; echoes before the cause."""
    out = []
    good = Story("0.14.1", seed=823)
    serve(
        good,
        KESTREL_7B,
        {"max_model_len": 8192, "port": 8001},
        length=8192,
        budget=Budget(DEVICES["L4"], 0.9, 14.25, 1.0, 0.2),
    )
    work.traffic(good, 3)
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
    return out


def ranks() -> list[Case]:
    """Engines and ranks whose echoes come first."""
    out = []
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


def cases() -> list[Case]:
    """This family's cases."""
    return [*programs(), *pairs(), *ranks()]
