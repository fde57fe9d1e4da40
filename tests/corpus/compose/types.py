"""Splits, types and methods that a device or a model cannot do."""

from . import boot, fail, v0, wrap
from .case import Advice, Case, act
from .lengths import CREATE_V0, refused
from .machine import (
    BRISA_8B,
    KESTREL_7B,
    MIRADOR_7B,
    TARN_70B,
)
from .occupied import until_device
from .story import Story
from .weights import until_load


def splits() -> list[Case]:
    """heads-not-divisible."""
    out = []
    story = Story("0.5.4", seed=321, site="/home/tessa/miniconda3/envs/v/lib/python3.10/site-packages")
    v0.banner(story, KESTREL_7B, {"tensor_parallel_size": 8})
    story.trace(
        story.frames(
            *CREATE_V0[2:3],
            "engine/arg_utils.py:EngineArgs.create_engine_config:EngineConfig(",
            "vllm/config.py:EngineConfig.__post_init__:self.model_config.verify_with_parallel_config(",
            "vllm/config.py:ModelConfig.verify_with_parallel_config:raise ValueError(",
        ),
        "ValueError: Total number of attention heads (28) must be divisible by tensor parallel size (8).",
        proc="none",
        mark="cause",
    )
    out.append(
        Case(
            "split-054-eight",
            "28 heads over 8 cards",
            "0.5.4",
            "heads-not-divisible",
            story.lines,
            ["bare", "v0"],
            {"attention_heads": 28, "tensor_parallel_size": 8},
            [{"flag": "tensor_parallel_size", "at_most": 7}],
        )
    )

    story = Story("0.19.1", seed=322)
    boot.banner(story, KESTREL_7B, {"tensor_parallel_size": 3})
    boot.configured(story, KESTREL_7B, length=32768, batched=2048)
    refused(
        story,
        "Total number of attention heads (28) must be divisible by tensor parallel size (3).",
        holder="VllmConfig",
    )
    out.append(
        Case(
            "split-0191-three",
            "28 heads over 3 cards",
            "0.19.1",
            "heads-not-divisible",
            wrap.chain(story.lines, wrap.journald("tri-gpu", "vllm")),
            ["journald"],
            {"attention_heads": 28, "tensor_parallel_size": 3},
            [
                {"flag": "tensor_parallel_size", "at_most": 2},
                {"flag": "tensor_parallel_size", "at_least": 4},
                {"flag": "pipeline_parallel_size"},
            ],
        )
    )

    story = Story("0.10.2", seed=323)
    until_load(story, BRISA_8B, {"tensor_parallel_size": 8, "quantization": "fp8"}, length=8192, world=8)
    text = "AssertionError: 128258 is not divisible by 8"
    for rank in (4, 0, 7):
        fail.fail_at_worker_start(
            story,
            rank,
            "load_model",
            (
                *fail.LOAD,
                "models/llama.py:LlamaModel.__init__:self.embed_tokens = ",
                "layers/vocab_parallel_embedding.py:VocabParallelEmbedding.__init__:divide(",
                "distributed/utils.py:divide:ensure_divisibility(numerator, denominator)",
                "distributed/utils.py:ensure_divisibility:assert numerator",
            ),
            text,
            mark="cause" if rank == 4 else "echo",
        )
    fail.fail_after_worker_start(story)
    out.append(
        Case(
            "split-0102-vocabulary",
            "a grown vocabulary of 128258 over 8",
            "0.10.2",
            "heads-not-divisible",
            wrap.chain(story.lines, wrap.compose("tp8")),
            ["compose", "multi-rank"],
            {"tensor_parallel_size": 8},
        )
    )
    return out


def types() -> list[Case]:
    """dtype-unsupported, quantization-unsupported, attention-backend-unsupported."""
    out = []
    half: list[Advice] = [{"flag": "dtype", "value": "half"}, {"flag": "dtype", "value": "float16"}]
    story = Story("0.4.2", seed=331, site="/usr/local/lib/python3.10/dist-packages")
    v0.banner(story, MIRADOR_7B, {"dtype": "bfloat16"})
    v0.engine(story, MIRADOR_7B, length=4096)
    text = "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your Tesla T4 GPU has compute capability 7.5. You can use float16 instead by explicitly setting the`dtype` flag in CLI, for example: --dtype=half."
    v0.fail(
        story,
        (
            "engine/llm_engine.py:LLMEngine.__init__:executor_class(",
            "executor/executor_base.py:ExecutorBase.__init__:self._init_executor()",
            "worker/worker.py:Worker.init_device:_check_if_gpu_supports_dtype(",
            "worker/worker.py:_check_if_gpu_supports_dtype:raise ValueError(",
        ),
        text,
    )
    out.append(
        Case(
            "dtype-042-t4",
            "bfloat16 on a T4",
            "0.4.2",
            "dtype-unsupported",
            wrap.chain(story.lines, wrap.quote()),
            ["markdown-quote", "v0"],
            {"compute_capability": "7.5"},
            half,
        )
    )

    story = Story("0.24.0", seed=332)
    until_device(story, KESTREL_7B, {"dtype": "bfloat16"}, length=8192)
    text = "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your Quadro RTX 6000 GPU has compute capability 7.5. You can use float16 instead by explicitly setting the `dtype` flag in CLI, for example: --dtype=half."
    fail.fail_in_core(
        story,
        (
            *fail.MODEL_EXECUTOR,
            "uniproc_executor.py:UniProcExecutor._init_executor:init_device",
            *fail.UNIPROC,
            "v1/worker/gpu_worker.py:Worker.init_device:check_if_supports_dtype(",
            "platforms/cuda.py:CudaPlatformBase.check_if_supports_dtype:raise ValueError(",
        ),
        text,
    )
    out.append(
        Case(
            "dtype-0240-quadro",
            "bfloat16 on a Quadro of capability 7.5",
            "0.24.0",
            "dtype-unsupported",
            wrap.chain(story.lines, wrap.cri()),
            ["cri"],
            {"compute_capability": "7.5"},
            half,
        )
    )

    story = Story("0.14.1", seed=333)
    until_device(story, KESTREL_7B, {"dtype": "bfloat16", "tensor_parallel_size": 2}, length=8192, world=2)
    text = "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your Tesla V100-PCIE-32GB GPU has compute capability 7.0. You can use float16 instead by explicitly setting the `dtype` flag in CLI, for example: --dtype=half."
    for rank in (0, 1):
        fail.fail_at_worker_start(
            story,
            rank,
            "init_device",
            (
                "v1/worker/gpu_worker.py:Worker.init_device:check_if_supports_dtype(",
                "platforms/cuda.py:CudaPlatformBase.check_if_supports_dtype:raise ValueError(",
            ),
            text,
            mark="cause" if rank == 0 else "echo",
        )
    fail.fail_after_worker_start(story)
    out.append(
        Case(
            "dtype-0141-two-v100",
            "bfloat16 on two V100",
            "0.14.1",
            "dtype-unsupported",
            wrap.chain(story.lines, wrap.syslog("v100b", "vllm")),
            ["multi-rank", "syslog"],
            {"compute_capability": "7.0", "tensor_parallel_size": 2},
            half,
        )
    )

    story = Story("0.5.4", seed=334, site="/usr/local/lib/python3.10/dist-packages")
    v0.banner(story, MIRADOR_7B, {"quantization": "awq"})
    v0.engine(story, MIRADOR_7B, length=4096, dtype="float16", quantization="awq")
    v0.fail(
        story,
        (*v0.LOADING, "model_loader/loader.py:_get_quantization_config:raise ValueError("),
        "ValueError: The quantization method awq is not supported for the current GPU. Minimum capability: 75. Current capability: 70.",
    )
    out.append(
        Case(
            "quant-054-awq",
            "AWQ on capability 7.0",
            "0.5.4",
            "quantization-unsupported",
            story.lines,
            ["bare", "v0"],
            {"min_capability": 75, "current_capability": 70},
        )
    )

    story = Story("0.11.2", seed=335)
    boot.banner(story, KESTREL_7B, {"quantization": "gptq"})
    refused(
        story,
        "Quantization method specified in the model config (awq) does not match the quantization method specified in the `quantization` argument (gptq).",
    )
    out.append(
        Case(
            "quant-0112-mismatch",
            "the checkpoint is AWQ, the flag says GPTQ",
            "0.11.2",
            "quantization-unsupported",
            wrap.chain(story.lines, wrap.compose("awq")),
            ["compose"],
            suggest=[*act("drop-quantization-flag"), {"flag": "quantization"}],
        )
    )

    story = Story("0.19.1", seed=336)
    boot.banner(story, TARN_70B, {"quantization": "modelopt_fp4"})
    boot.configured(story, TARN_70B, length=8192, batched=8192)
    refused(
        story,
        "The quantization method modelopt_fp4 is not supported for the current GPU. Minimum capability: 89. Current capability: 80.",
        holder="VllmConfig",
    )
    out.append(
        Case(
            "quant-0191-fp4",
            "NVFP4 on an A100",
            "0.19.1",
            "quantization-unsupported",
            wrap.chain(story.lines, wrap.actions()),
            ["github-actions"],
            {"min_capability": 89, "current_capability": 80},
        )
    )

    reasons = "{FLASH_ATTN: [kv_cache_dtype not supported], FLASHINFER: [head_size not supported], TRITON_ATTN: [kv_cache_dtype not supported], FLEX_ATTENTION: [kv_cache_dtype not supported]}"
    for id_, release, seed, head, wrapper, tag in (
        ("attention-0141-heads", "0.14.1", 337, 80, None, "bare"),
        (
            "attention-0270-fence",
            "0.27.1",
            338,
            40,
            wrap.fence("**vllm 0.27.1**, RTX 3090"),
            "markdown-fence",
        ),
    ):
        story = Story(release, seed=seed)
        until_load(story, KESTREL_7B, {"kv_cache_dtype": "fp8"}, length=8192)
        if "attention backend out" in story.lines[-1].text:
            story.lines.pop()
        text = f"ValueError: No valid attention backend found for cuda with AttentionSelectorConfig(head_size={head}, dtype=torch.bfloat16, kv_cache_dtype=fp8, block_size=None, use_mla=False, has_sink=False, use_sparse=False). Reasons: {reasons}."
        fail.fail_in_core(
            story,
            (
                *fail.MODEL_EXECUTOR,
                *fail.LOAD,
                "platforms/cuda.py:CudaPlatformBase.get_attn_backend_cls:raise ValueError(",
            ),
            text,
        )
        out.append(
            Case(
                id_,
                f"head size {head} with an fp8 cache",
                release,
                "attention-backend-unsupported",
                wrap.chain(story.lines, *([wrapper] if wrapper else [])),
                [tag],
                {"head_size": head},
                [
                    {"flag": "VLLM_ATTENTION_BACKEND"},
                    {"flag": "attention_backend"},
                    {"flag": "kv_cache_dtype"},
                ],
            )
        )
    return out


def cases() -> list[Case]:
    """This family's cases."""
    return [*splits(), *types()]
