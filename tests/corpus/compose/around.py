"""Failures inside other people's programs."""

from . import boot, fail, v0, wrap
from .case import Case
from .context import start, too_small
from .fail import FORWARD, KV_CHECK, LOAD, MODEL_EXECUTOR, PROFILE
from .forward import QWEN_MLP
from .machine import (
    BRISA_8B,
    DEVICES,
    GIB,
    KESTREL_7B,
    ONDINE_VL,
    SOLANO_24B,
    TARN_32B,
    Budget,
    fit_tokens,
)
from .oom import oom
from .story import Line, Story
from .weights import until_load


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
        fail.KV_NONE,
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


def cases() -> list[Case]:
    """This family's cases."""
    return [*around()]
