"""Requests and stops in rarer shapes."""

from . import boot, fail, work, wrap
from .case import Advice, Case, act
from .healthy import L4
from .lengths import refused
from .machine import (
    COBALT_MOE,
    DEVICES,
    KESTREL_7B,
    MIRADOR_7B,
    ONDINE_VL,
    Budget,
)
from .occupied import until_device
from .oom import oom
from .serving import serve, serve_v0
from .story import Line, Story


def asked() -> list[Case]:
    """Refused requests in rarer shapes, and failures while serving."""
    out = []
    story = Story("0.9.2", seed=941, site="/home/tessa/.venv/lib/python3.12/site-packages")
    boot.engine(story, MIRADOR_7B, length=4096)
    boot.distribute(story)
    boot.begin_load(story, MIRADOR_7B)
    boot.shards(story, MIRADOR_7B)
    boot.loaded(story, 12.55)
    boot.compiled(story, batched=8192)
    boot.sized(story, 40960, 4096)
    work.captured(story, 0.4)
    story.trace(
        story.frames(
            "!/home/tessa/sum.py:40:<module>:outs = llm.generate(prompts, params)",
            "entrypoints/llm.py:LLM.generate:self._validate_and_add_requests(",
            "v1/engine/processor.py:Processor._validate_model_input:raise ValueError(",
        ),
        "ValueError: The decoder prompt (length 5212) is longer than the maximum model length of 4096. Make sure that `max_model_len` is no smaller than the number of text tokens.",
        proc="none",
        mark="cause",
    )
    out.append(
        Case(
            "toolong-092-generate",
            "LLM.generate with a prompt of 5212",
            "0.9.2",
            "request-too-long",
            story.lines,
            ["bare", "python-llm"],
            {"max_model_len": 4096, "prompt_tokens": 5212},
        )
    )

    story = Story("0.16.0", seed=942)
    serve(
        story,
        ONDINE_VL,
        {"max_model_len": 16384, "gpu_memory_utilization": 0.97, "tensor_parallel_size": 2},
        length=16384,
        budget=Budget(DEVICES["L4"], 0.97, 7.9, 3.0, 0.5),
        world=2,
    )
    work.traffic(story, 3)
    error = oom("0.16.0", want_mib=1411.0, total_gib=DEVICES["L4"], free_mib=502.5, gpu=1)
    fail.fail_in_worker(
        story,
        1,
        (
            "v1/worker/gpu_worker.py:Worker.execute_model:self.model_runner.execute_model(",
            "v1/worker/gpu_model_runner.py:GPUModelRunner._execute_mm_encoder:self.model.embed_multimodal(",
            "models/qwen2_5_vl.py:Qwen2_5_VisionTransformer.forward:blk(",
        ),
        error,
    )
    place = story.place("v1/engine/core.py", "EngineCore encountered a fatal error") or "core.py:1000"
    story.trace(
        story.frames("v1/engine/core.py:EngineCoreProc.run_engine_core:engine_core.run_busy_loop()"),
        f"RuntimeError: Worker failed with error '{error.split(': ', 1)[1]}', please check the stack trace above for the root cause",
        proc="core",
        place=place,
        mark="echo",
        head="EngineCore encountered a fatal error.",
    )
    work.access(story, status="500 Internal Server Error")
    out.append(
        Case(
            "serving-0160-image",
            "a big picture under load, rank 1",
            "0.16.0",
            "serving-oom",
            wrap.chain(story.lines, wrap.docker_json()),
            ["docker-json", "multi-rank"],
            {"gpu_memory_utilization": 0.97, "tensor_parallel_size": 2},
            [
                {"flag": "gpu_memory_utilization", "direction": "down"},
                {"flag": "max_num_seqs", "direction": "down"},
                {"flag": "max_num_batched_tokens", "direction": "down"},
                {"flag": "limit_mm_per_prompt"},
                {"flag": "mm_pixels", "direction": "down"},
            ],
        )
    )

    story = Story("0.12.0", seed=943)
    serve(story, KESTREL_7B, {"max_model_len": 8192}, length=8192, budget=L4)
    work.traffic(story, 4)
    story.raw(
        "2026-03-14T10:11:09Z kubelet: Container vllm in pod chat-0 was OOMKilled (exit code 137), memory limit 16Gi",
        mark="cause",
    )
    out.append(
        Case(
            "host-0120-serving",
            "the pod's memory limit is met after hours of work",
            "0.12.0",
            "host-memory-exhausted",
            story.lines,
            ["kubernetes"],
            {"exit_code": 137},
        )
    )

    story = Story("0.19.1", seed=944)
    until_device(story, COBALT_MOE, {"tensor_parallel_size": 2}, length=8192, world=2)
    boot.distribute(story)
    story.raw(
        "2026-03-14T09:21:40Z Normal  Preempted  pod/moe-0  Preempted by pod 7c1 on node spot-14",
        mark="cause",
    )
    story.trace(
        story.frames(
            *fail.SERVE[2:5],
            "openai/api_server.py:setup_server.signal_handler:raise KeyboardInterrupt(",
        ),
        "KeyboardInterrupt: terminated",
        proc="api",
        mark="echo",
    )
    out.append(
        Case(
            "stop-0191-preempted",
            "a scheduler preempts the pod while it loads",
            "0.19.1",
            "interrupted",
            story.lines,
            ["kubernetes"],
            {},
            act("retry", "restart", "longer-startup-probe", "longer-time-limit"),
        )
    )
    out[-1].lined = False

    story = Story("0.20.2", seed=945)
    boot.banner(story, KESTREL_7B, {"max_model_len": 40960})
    text = "User-specified max_model_len (40960) is greater than the derived max_model_len (max_position_embeddings=32768 or model_max_length=None in model's config.json). To allow overriding this maximum, set the env var VLLM_ALLOW_LONG_MAX_MODEL_LEN=1. VLLM_ALLOW_LONG_MAX_MODEL_LEN must be used with extreme caution. If the model uses relative position encoding (RoPE), positions exceeding derived_max_model_len lead to nan. If the model uses absolute position encoding, positions exceeding derived_max_model_len will cause a CUDA array out-of-bounds error."
    refused(story, text)
    lines = wrap.chain(
        story.lines,
        wrap.around(
            "您好，按照文档设置 --max-model-len 40960 后启动失败：",  # noqa: RUF001
            "显存充足（A100 80G），请问是什么原因？",  # noqa: RUF001
        ),
        wrap.columns(100),
    )
    suggest: list[Advice] = [
        {"flag": "max_model_len", "at_most": 32768},
        {"flag": "rope_scaling"},
        {"flag": "hf_overrides"},
    ]
    out.append(
        Case(
            "length-0202-chinese",
            "Chinese around it, 100 columns",
            "0.20.2",
            "context-beyond-model-limit",
            lines,
            ["chinese", "terminal-wrap"],
            {"max_model_len": 40960, "derived_max_model_len": 32768},
            suggest,
        )
    )

    story = Story("0.4.2", seed=946, site="/opt/conda/lib/python3.10/site-packages")
    serve_v0(
        story,
        KESTREL_7B,
        {"max_model_len": 16384, "served_model_name": ["kestrel"]},
        length=16384,
        blocks=3000,
    )
    for _ in range(2):
        work.access(story, status="200 OK")
        story.lines.append(
            Line('INFO:     10.61.1.4:51122 - "POST /v1/chat/completions HTTP/1.1" 404 Not Found')
        )
    story.raw(
        'client> {"object":"error","message":"The model `kestrelml/Kestrel-7B-Instruct` does not exist.","type":"NotFoundError","param":null,"code":404}',
        mark="cause",
    )
    out.append(
        Case(
            "name-042-client",
            "V0 logs nothing; the client's line tells",
            "0.4.2",
            "model-name-unknown",
            story.lines,
            ["bare", "v0"],
        )
    )
    return out


def cases() -> list[Case]:
    """This family's cases."""
    return [*asked()]
