"""Programs around vLLM, quiet logs that look bad, and requests in rarer shapes."""

from . import boot, fail, v0, wrap
from .case import Advice, Case, act
from .config import refused
from .environment import until_device
from .fail import FORWARD, KV_CHECK, LOAD, MODEL_EXECUTOR, PROFILE
from .kv import start, too_small
from .machine import (
    BRISA_8B,
    COBALT_MOE,
    DEVICES,
    GIB,
    KESTREL_7B,
    MIRADOR_7B,
    ONDINE_VL,
    SOLANO_24B,
    TARN_32B,
    Budget,
    fit_tokens,
)
from .memory import LLAMA_MLP, QWEN_MLP, until_load
from .oom import oom
from .quiet import L4
from .serving import serve, serve_v0
from .story import Line, Story


def around() -> list[Case]:
    """Failures inside other people's programs."""
    out = []
    story = Story("0.9.2", seed=901)
    until_load(story, SOLANO_24B, {"max_model_len": 8192}, length=8192)
    fail.fail_in_core(
        story,
        (*MODEL_EXECUTOR, *LOAD),
        oom("0.9.2", want_mib=320.0, total_gib=DEVICES["A10"], free_mib=200.2, unused_mib=8.0),
        client=False,
    )
    lines = wrap.chain(
        story.lines,
        wrap.each(
            lambda n, t: (
                f"[INFO ] PyProcess - W-211-3f1e-stdout: {t}"
                if n % 5
                else f"[WARN ] PyProcess - W-211-3f1e-stderr: {t}"
            )
        ),
    )
    lines += [
        Line("[ERROR] ModelServer - Failed register workflow"),
        Line(
            "java.util.concurrent.CompletionException: ai.djl.engine.EngineException: Failed to initialize model: prediction failure"
        ),
    ]
    out.append(
        Case(
            "program-sagemaker-lmi",
            "an LMI container: the Java server only sees a failed model",
            "0.9.2",
            "weights-do-not-fit",
            lines,
            ["sagemaker"],
            {"gpu_total_gib": DEVICES["A10"]},
        )
    )

    story = Story("0.11.2", seed=902)
    start(story, BRISA_8B, {"max_model_len": 131072}, length=131072)
    budget = Budget(DEVICES["A10"], 0.9, 14.96, 1.2, 0.2)
    boot.profiled(story, budget)
    fits = fit_tokens(budget.kv_bytes, BRISA_8B.token_bytes())
    fail.fail_in_core(
        story,
        KV_CHECK,
        too_small(story, 131072, BRISA_8B.token_bytes() * 131072, budget.kv_bytes, fits),
        client=False,
    )
    lines = [
        Line(
            "2026-03-14 09:21:05.101 1 kserve INFO [storage.py:copy():64] Copying contents of s3://models/brisa to local"
        ),
        *story.lines,
        Line(
            "2026-03-14 09:22:20.004 1 kserve ERROR [__main__.py:<module>():300] Failed to start model server: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
        ),
    ]
    out.append(
        Case(
            "program-kserve",
            "KServe's huggingface server",
            "0.11.2",
            "kv-cache-smaller-than-context",
            wrap.chain(lines, wrap.kubectl()),
            ["kserve", "kubectl"],
            {"max_model_len": 131072, "available_gib": round(budget.kv_bytes / GIB, 2)},
            [{"flag": "max_model_len", "at_most": fits}],
        )
    )

    story = Story("0.8.5", seed=903)
    start(story, KESTREL_7B, {"gpu_memory_utilization": 0.3}, length=8192)
    fail.fail_in_core(
        story,
        KV_CHECK,
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.",
        client=False,
    )
    lines = wrap.chain(story.lines, wrap.ray("LLMRayActor", 30551))
    lines += [
        Line(t)
        for t in (
            "Traceback (most recent call last):",
            '  File "/openrlhf/openrlhf/cli/train_ppo_ray.py", line 440, in <module>',
            "    train(args)",
            "ray.exceptions.ActorDiedError: The actor died because of an error raised in its creation task, \x1b[36mray::LLMRayActor.__init__()\x1b[39m (pid=30551, ip=10.4.0.17)",
            "RuntimeError: Engine core initialization failed. See root cause above.",
        )
    ]
    out.append(
        Case(
            "program-openrlhf",
            "an RLHF trainer gives vLLM 0.3 of the card",
            "0.8.5",
            "no-kv-cache-blocks",
            lines,
            ["ansi", "openrlhf", "ray-actor"],
            {"gpu_memory_utilization": 0.3},
        )
    )

    story = Story("0.7.3", seed=904, site="/usr/local/lib/python3.11/site-packages")
    lines = [
        Line(
            "[INFO|2026-03-14 09:21:03] llamafactory.hparams.parser:386 >> Process rank: 0, device: cuda:0, n_gpu: 1, distributed training: False, compute dtype: torch.bfloat16"
        )
    ]
    v0.engine(story, ONDINE_VL, length=8192)
    v0.load(story, ONDINE_VL, 15.63)
    frames = (
        "entrypoints/llm.py:LLM.__init__:self.llm_engine = ",
        *v0.PROFILE[:3],
        "worker/worker.py:Worker.determine_num_available_blocks:self.model_runner.profile_run()",
        "worker/model_runner.py:GPUModelRunnerBase.profile_run:self._dummy_run(",
        "worker/model_runner.py:ModelRunner.execute_model:model_executable(",
        "models/qwen2_5_vl.py:Qwen2_5_VLForConditionalGeneration._process_image_input:self.visual(",
        "models/qwen2_5_vl.py:Qwen2_5_VisionTransformer.forward:blk(",
        "models/qwen2_5_vl.py:Qwen2_5_VisionBlock.forward:self.attn(",
    )
    story.trace(
        story.frames(*frames),
        oom("0.7.3", want_mib=8192.0, total_gib=DEVICES["RTX4090"], free_mib=5900.0),
        proc="none",
        mark="cause",
    )
    out.append(
        Case(
            "program-llamafactory",
            "LLaMA-Factory's batch inference; the picture's attention",
            "0.7.3",
            "multimodal-profile-oom",
            [*lines, *story.lines],
            ["bare", "llamafactory", "v0"],
            {"tried_to_allocate_gib": 8.0, "gpu_total_gib": DEVICES["RTX4090"]},
        )
    )

    story = Story("0.14.1", seed=905)
    until_load(story, TARN_32B, {"max_model_len": 8192}, length=8192)
    boot.shards(story, TARN_32B, upto=3)
    fail.fail_in_core(
        story,
        (*MODEL_EXECUTOR, *LOAD),
        oom("0.14.1", want_mib=270.0, total_gib=DEVICES["L40S"], free_mib=80.0, unused_mib=6.0),
    )
    lines = [
        Line("✓ Created objects."),
        Line("├── 🔨 Created mount /root/serve.py"),
        Line("└── 🔨 Created web function serve => https://acme--vllm-serve.modal.run"),
        *story.lines,
        Line(
            "Stopping app - uncaught exception raised in remote container: CalledProcessError(1, ['vllm', 'serve', 'tarn-labs/Tarn-32B-Instruct'])."
        ),
        Line("Runner failed with exit code: 1"),
    ]
    out.append(
        Case(
            "program-modal",
            "a serverless platform's marks around it",
            "0.14.1",
            "weights-do-not-fit",
            lines,
            ["modal"],
            {"gpu_total_gib": DEVICES["L40S"]},
        )
    )

    story = Story("0.10.2", seed=906)
    start(story, KESTREL_7B, {"max_num_batched_tokens": 32768}, length=32768, batched=32768)
    fail.fail_in_core(
        story,
        (*PROFILE, *FORWARD, *QWEN_MLP),
        oom("0.10.2", want_mib=2368.0, total_gib=DEVICES["RTX4080"], free_mib=701.0),
        client=False,
    )
    out.append(
        Case(
            "program-ray-serve",
            "Ray Serve's replica",
            "0.10.2",
            "profile-run-oom",
            [
                *wrap.chain(story.lines, wrap.ray("ServeReplica:llm:VLLMDeployment", 7781)),
                Line(
                    "\x1b[36m(ServeController pid=7011)\x1b[0m ERROR 2026-03-14 09:22:31,018 controller 7011 -- Exception in Replica(id='k2x', deployment='VLLMDeployment', app='llm'), the replica will be stopped."
                ),
                Line("RuntimeError: Deployment VLLMDeployment failed to start 3 times in a row."),
            ],
            ["ansi", "ray-serve"],
            {"max_num_batched_tokens": 32768, "gpu_total_gib": DEVICES["RTX4080"]},
        )
    )
    return out


def busy() -> list[Case]:
    """Healthy though it looks bad; thrash in V1's words."""
    out = []
    story = Story("0.17.1", seed=921)
    serve(story, KESTREL_7B, {"max_model_len": 16384}, length=16384, budget=L4)
    for n in range(10):
        boot.access(story)
        boot.load_line(story, running=256, waiting=900 - 20 * n, usage=71.0 + n % 3)
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
    boot.traffic(story, 3)
    boot.load_line(story, running=0, waiting=1, usage=0.0, prompt=0.0, generated=0.0)
    boot.traffic(story, 5)
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
    boot.traffic(rest, 3)
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
    boot.traffic(story, 4)
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
    boot.traffic(story, 2)
    for n in range(12):
        boot.load_line(story, running=60 + n, waiting=300 + 5 * n, usage=min(99.9, 97.5 + n / 4))
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
    boot.captured(story, 0.4)
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
    boot.traffic(story, 3)
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
    boot.access(story, status="500 Internal Server Error")
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
    boot.traffic(story, 4)
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
            "您好，按照文档设置 --max-model-len 40960 后启动失败：", "显存充足（A100 80G），请问是什么原因？"
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
    for n in range(2):
        boot.access(story, status="200 OK")
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
    return [*around(), *busy(), *asked()]


__all__ = ["LLAMA_MLP", "cases"]
