"""What vLLM refuses before any memory is asked for: lengths, splits, types, methods, models, flags, access."""

from . import boot, fail, v0, wrap
from .case import Advice, Case, act
from .environment import until_device
from .machine import (
    BRISA_8B,
    COBALT_MOE,
    KESTREL_7B,
    MIRADOR_7B,
    ONDINE_VL,
    SOLANO_24B,
    TARN_32B,
    TARN_70B,
    Model,
)
from .memory import until_load
from .story import Line, Story

CREATE = (
    *fail.SERVE,
    "openai/api_server.py:run_server:await run_server_worker(",
    "launchers/api_server/entry.py:run_server:await run_server_worker(",
    "openai/api_server.py:run_server_worker:async with build_async_engine_client(",
    "launchers/api_server/entry.py:run_server_worker:async with build_async_engine_client(",
    "openai/api_server.py:build_async_engine_client:async with build_async_engine_client_from_engine_args(",
    "openai/api_server.py:build_async_engine_client_from_engine_args:engine_args.create_engine_config(",
    "engine/arg_utils.py:EngineArgs.create_engine_config:self.create_model_config()",
    "engine/arg_utils.py:EngineArgs.create_model_config:return ModelConfig(",
)
CREATE_V0 = (
    "!%/runpy.py:196:_run_module_as_main:return _run_code(code, main_globals, None,",
    "!%/runpy.py:86:_run_code:exec(code, run_globals)",
    "async_llm_engine.py:AsyncLLMEngine.from_engine_args:engine_args.create_engine_config",
    "engine/arg_utils.py:EngineArgs.create_engine_config:model_config = ModelConfig(",
)
PYDANTIC = "!~/pydantic/_internal/_dataclasses.py:121:__init__:s.__pydantic_validator__.validate_python(ArgsKwargs(args, kwargs), self_instance=s)"


def refused(story: Story, text: str, *, holder: str = "ModelConfig") -> None:
    """A ValueError inside a pydantic configuration (0.9.0+)."""
    lines = text.split("\n")
    story.trace(
        story.frames(*CREATE, PYDANTIC),
        f"pydantic_core._pydantic_core.ValidationError: 1 validation error for {holder}",
        proc="api",
    )
    for number, line in enumerate(lines):
        last = (
            " [type=value_error, input_value=ArgsKwargs((), {'model': '...', ...}), input_type=ArgsKwargs]"
            if number == len(lines) - 1
            else ""
        )
        story.raw(
            ("  Value error, " if number == 0 else "") + line + last,
            proc="api",
            mark="cause" if number == 0 else "",
        )
    story.raw("    For further information visit https://errors.pydantic.dev/2.12/v/value_error", proc="api")


def beyond(story: Story, asked: int, derived: int) -> str:
    """User-specified max_model_len is greater ..., as each release says it."""
    old = not story.at_least("0.4.0")
    start = (
        f"User-specified max_model_len ({asked}) is greater than the derived max_model_len (max_position_embeddings={derived}"
        + ("" if old else " or model_max_length=None")
        + " in model's config.json). "
    )
    if not story.at_least("0.5.4"):
        return (
            start
            + "This may lead to incorrect model outputs or CUDA errors. Make sure the value is correct and within the model context size."
        )
    middle = "" if story.at_least("0.10.2") else "This may lead to incorrect model outputs or CUDA errors. "
    caution = (
        " VLLM_ALLOW_LONG_MAX_MODEL_LEN must be used with extreme caution. If the model uses relative position encoding (RoPE), positions exceeding derived_max_model_len lead to nan. If the model uses absolute position encoding, positions exceeding derived_max_model_len will cause a CUDA array out-of-bounds error."
        if story.at_least("0.10.2")
        else ""
    )
    return (
        start
        + middle
        + "To allow overriding this maximum, set the env var VLLM_ALLOW_LONG_MAX_MODEL_LEN=1"
        + ("." if caution else "")
        + caution
    )


def lengths() -> list[Case]:
    """context-beyond-model-limit."""
    out = []
    harmful: list[Advice] = [
        {"flag": "gpu_memory_utilization", "direction": "up"},
        {"flag": "gpu_memory_utilization", "direction": "down"},
        {"flag": "VLLM_ALLOW_LONG_MAX_MODEL_LEN"},
    ]
    for id_, release, seed, model, asked, wrapper, tag in (
        ("length-033-plain", "0.3.3", 301, MIRADOR_7B, 8192, None, "bare"),
        ("length-085-compose", "0.8.5", 302, KESTREL_7B, 131072, wrap.compose("llm"), "compose"),
        ("length-0171-html", "0.17.1", 303, COBALT_MOE, 262144, wrap.escaped(), "html"),
        ("length-0330-narrow", "0.33.0", 304, TARN_32B, 65536, wrap.columns(100), "terminal-wrap"),
    ):
        story = Story(
            release,
            seed=seed,
            site="/usr/local/lib/python3.10/dist-packages"
            if release == "0.3.3"
            else "/usr/local/lib/python3.12/dist-packages",
        )
        text = beyond(story, asked, model.context)
        if story.at_least("0.9.0"):
            boot.banner(story, model, {"max_model_len": asked})
            boot.api(story, "Resolved architecture: %s", "")
            refused(story, text)
        else:
            (boot if story.at_least("0.8.0") else v0).banner(story, model, {"max_model_len": asked})
            story.trace(
                story.frames(
                    *CREATE_V0,
                    "vllm/config.py:ModelConfig.__init__:_get_and_verify_max_len(",
                    "vllm/config.py:_get_and_verify_max_len:<raise ValueError(",
                ),
                f"ValueError: {text}",
                proc="none",
                mark="cause",
            )
        suggest: list[Advice] = [
            {"flag": "max_model_len", "at_most": model.context},
            {"flag": "rope_scaling"},
            {"flag": "hf_overrides"},
        ]
        out.append(
            Case(
                id_,
                f"{asked} asked, the checkpoint has {model.context}",
                release,
                "context-beyond-model-limit",
                wrap.chain(story.lines, *([wrapper] if wrapper else [])),
                [tag],
                {"max_model_len": asked, "derived_max_model_len": model.context},
                suggest,
                harmful,
            )
        )
    return out


def batches() -> list[Case]:
    """batched-tokens-below-context."""
    out = []
    up: list[Advice] = [{"flag": "max_num_batched_tokens", "direction": "up"}]
    story = Story("0.4.2", seed=311, site="/opt/conda/lib/python3.10/site-packages")
    v0.banner(story, MIRADOR_7B, {"max_num_batched_tokens": 1024})
    text = "max_num_batched_tokens (1024) is smaller than max_model_len (4096). This effectively limits the maximum sequence length to max_num_batched_tokens and makes vLLM reject longer sequences. Please increase max_num_batched_tokens or decrease max_model_len."
    story.trace(
        story.frames(
            *CREATE_V0,
            "vllm/config.py:SchedulerConfig.__init__:self._verify_args()",
            "vllm/config.py:SchedulerConfig._verify_args:raise ValueError(",
        ),
        f"ValueError: {text}",
        proc="none",
        mark="cause",
    )
    out.append(
        Case(
            "batch-042-short",
            "1024 batched tokens, 4096 context",
            "0.4.2",
            "batched-tokens-below-context",
            story.lines,
            ["bare", "v0"],
            {"max_num_batched_tokens": 1024, "max_model_len": 4096},
            [*up, {"flag": "enable_chunked_prefill"}, {"flag": "max_model_len", "direction": "down"}],
        )
    )

    story = Story("0.12.0", seed=312)
    boot.banner(story, KESTREL_7B, {"max_num_batched_tokens": 128, "max_num_seqs": 512})
    refused(
        story,
        "max_num_batched_tokens (128) must be greater than or equal to max_num_seqs (512).",
        holder="SchedulerConfig",
    )
    out.append(
        Case(
            "batch-0120-seqs",
            "128 batched tokens, 512 sequences",
            "0.12.0",
            "batched-tokens-below-context",
            wrap.chain(story.lines, wrap.kubectl()),
            ["kubectl"],
            {"max_num_batched_tokens": 128, "max_num_seqs": 512},
            [*up, {"flag": "max_num_seqs", "direction": "down"}],
        )
    )

    story = Story("0.24.0", seed=313)
    until_load(
        story,
        ONDINE_VL,
        {"disable_chunked_mm_input": True, "max_num_batched_tokens": 8192},
        length=16384,
        batched=8192,
    )
    fail.fail_in_core(
        story,
        (
            *fail.MODEL_EXECUTOR,
            "v1/core/encoder_cache_manager.py:compute_mm_encoder_budget:raise ValueError(",
        ),
        "ValueError: Chunked MM input disabled but max_tokens_per_mm_item (16384) is larger than max_num_batched_tokens (8192). Please increase max_num_batched_tokens.",
    )
    out.append(
        Case(
            "batch-0240-image",
            "one image is 16384 tokens, the batch 8192",
            "0.24.0",
            "batched-tokens-below-context",
            wrap.chain(story.lines, wrap.docker_json()),
            ["docker-json"],
            {"max_num_batched_tokens": 8192},
            up,
        )
    )
    return out


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


def models() -> list[Case]:
    """architecture-unsupported, unknown-flag."""
    out = []
    story = Story("0.4.2", seed=341, site="/opt/conda/lib/python3.10/site-packages")
    v0.banner(story, MIRADOR_7B, {})
    v0.engine(story, MIRADOR_7B, length=8192)
    v0.fail(
        story,
        (*v0.LOADING, "model_loader/utils.py:get_model_architecture:raise ValueError("),
        "ValueError: Model architectures ['Gemma2ForCausalLM'] are not supported for now. Supported architectures: ['AquilaModel', 'BaiChuanForCausalLM', 'BloomForCausalLM', 'GemmaForCausalLM', 'LlamaForCausalLM', 'MistralForCausalLM', 'MixtralForCausalLM', 'Qwen2ForCausalLM']",
    )
    out.append(
        Case(
            "arch-042-younger",
            "a model younger than the release",
            "0.4.2",
            "architecture-unsupported",
            story.lines,
            ["bare", "v0"],
        )
    )

    story = Story("0.12.0", seed=342)
    boot.banner(
        story,
        Model("kestrelml/Kestrel-5-9B", "Kestrel5ForCausalLM", 17, 32, 8, 128, 32768, 4, "llama.py"),
        {},
    )
    refused(
        story,
        "The checkpoint you are trying to load has model type `kestrel5` but Transformers does not recognize this architecture. This could be because of an issue with the checkpoint, or because your version of Transformers is out of date.\n\nYou can update Transformers with the command `pip install --upgrade transformers`.",
    )
    out.append(
        Case(
            "arch-0120-transformers",
            "Transformers does not know the model type",
            "0.12.0",
            "architecture-unsupported",
            wrap.chain(story.lines, wrap.compose("vllm")),
            ["compose"],
        )
    )

    story = Story("0.24.0", seed=343)
    boot.banner(
        story,
        Model("mirador/mirador-next", "MiradorNextForCausalLM", 17, 32, 8, 128, 32768, 4, "llama.py"),
        {},
    )
    refused(
        story,
        "Model architectures ['MiradorNextForCausalLM'] are not supported for now. Supported architectures: dict_keys(['ArceeForCausalLM', 'LlamaForCausalLM', 'MistralForCausalLM', 'Qwen3ForCausalLM', 'Qwen3MoeForCausalLM'])",
    )
    out.append(
        Case(
            "arch-0240-own",
            "an in-house architecture",
            "0.24.0",
            "architecture-unsupported",
            wrap.chain(
                story.lines,
                wrap.around("你好，用最新镜像部署自研模型时报错，日志如下：", "请问怎么解决？谢谢"),
            ),
            ["chinese"],
        )
    )

    usage = "usage: vllm serve [model_tag] [options]"
    for id_, text, title, wrapper, tag in (
        (
            "flag-plain-scheduler",
            "vllm serve: error: unrecognized arguments: --num-scheduler-steps 8 --use-v2-block-manager",
            "flags of the old engine",
            wrap.around(
                "$ vllm serve tarn-labs/Tarn-32B-Instruct --num-scheduler-steps 8 --use-v2-block-manager"
            ),
            "shell",
        ),
        (
            "flag-module-typo",
            "api_server.py: error: unrecognized arguments: --gpu-memory-utilisation 0.9",
            "British spelling",
            wrap.compose("a"),
            "compose",
        ),
        (
            "flag-choice",
            "vllm serve: error: argument --kv-cache-dtype: invalid choice: 'int4' (choose from 'auto', 'bfloat16', 'fp8', 'fp8_e4m3', 'fp8_e5m2')",
            "a value that is no choice",
            wrap.journald("b", "vllm"),
            "journald",
        ),
    ):
        lines = [
            Line(usage if "serve" in text else "usage: api_server.py [-h] [--host HOST] [--port PORT]"),
            Line(text, "cause"),
        ]
        out.append(
            Case(
                id_,
                title,
                None,
                "unknown-flag",
                wrap.chain(lines, wrapper),
                [tag],
                suggest=[
                    *act("remove-flag", "upgrade-vllm"),
                    *([{"flag": "kv_cache_dtype"}] if "choice" in text else []),
                    *([{"flag": "gpu_memory_utilization"}] if "utilisation" in text else []),
                ],
                harmful=[{"action": "free-other-process"}, {"flag": "enforce_eager"}],
            )
        )
    return out


def hub() -> list[Case]:
    """model-not-found, model-access-denied, tokenizer-failed."""
    out = []
    story = Story("0.8.5", seed=351)
    boot.banner(story, Model("/models/tarn-32b", "", 1, 1, 1, 1, 1, 1, ""), {})
    story.trace(
        story.frames(*CREATE_V0[2:], "transformers_utils/config.py:get_config:raise ValueError("),
        "ValueError: Invalid repository ID or local directory specified: '/models/tarn-32b'.\nPlease verify the following requirements:\n1. Provide a valid Hugging Face repository ID.\n2. Specify a local directory that contains a recognized configuration file.\n   - For Hugging Face models: ensure the presence of a 'config.json'.\n   - For Mistral models: ensure the presence of a 'params.json'.",
        proc="none",
        mark="cause",
    )
    out.append(
        Case(
            "model-085-mount",
            "the volume is mounted elsewhere",
            "0.8.5",
            "model-not-found",
            wrap.chain(story.lines, wrap.kubectl()),
            ["kubectl"],
            suggest=act("check-model-path"),
        )
    )

    story = Story("0.17.1", seed=352)
    boot.banner(story, SOLANO_24B, {})
    refused(
        story,
        "We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the cached files.\nCheck your internet connection or see how to run the library in offline mode at 'https://huggingface.co/docs/transformers/installation#offline-mode'.",
    )
    out.append(
        Case(
            "model-0171-offline",
            "no way to the Hub",
            "0.17.1",
            "model-not-found",
            wrap.chain(story.lines, wrap.docker_json()),
            ["docker-json"],
            suggest=act("check-network"),
        )
    )

    story = Story("0.5.4", seed=353, site="/opt/conda/lib/python3.10/site-packages")
    v0.banner(story, KESTREL_7B, {"revision": "v2.1"})
    story.trace(
        story.frames(
            *CREATE_V0,
            "vllm/config.py:ModelConfig.__init__:get_config(",
            "transformers_utils/config.py:get_config:AutoConfig.from_pretrained(",
            "!~/transformers/utils/hub.py:464:cached_file:raise EnvironmentError(",
        ),
        "OSError: v2.1 is not a valid git identifier (branch name, tag name or commit id) that exists for this model name. Check the model page at 'https://huggingface.co/kestrelml/Kestrel-7B-Instruct' for available revisions.",
        proc="none",
        mark="cause",
    )
    out.append(
        Case(
            "model-054-revision",
            "a revision that does not exist",
            "0.5.4",
            "model-not-found",
            story.lines,
            ["bare", "v0"],
            suggest=[*act("check-model-path"), {"flag": "revision"}],
        )
    )

    token = "hf_" + "QwErTyUiOpAsDfGhJkLzXcVbNmQwErTyUi"
    story = Story("0.26.0", seed=354)
    boot.banner(story, TARN_70B, {})
    refused(
        story,
        "You are trying to access a gated repo.\nMake sure to have access to it at https://huggingface.co/tarn-labs/Tarn-70B.\n403 Client Error. (Request ID: Root=1-67d4;4411)\n\nCannot access gated repo for url https://huggingface.co/tarn-labs/Tarn-70B/resolve/main/config.json.\nYour request to access model tarn-labs/Tarn-70B is awaiting a review from the repo authors.",
    )
    secret = wrap.around(
        f"+ env\nHF_TOKEN={token}\nSHELL=/bin/bash\nOPENAI_API_KEY=sk-proj-aaaaBBBBccccDDDDeeeeFFFF0000111122223333\n+ vllm serve tarn-labs/Tarn-70B"
    )
    out.append(
        Case(
            "access-0260-review",
            "the access request is not granted yet; secrets in an env dump",
            "0.26.0",
            "model-access-denied",
            wrap.chain(story.lines, secret),
            ["secrets", "shell"],
            secrets=[token, "sk-proj-aaaaBBBBccccDDDDeeeeFFFF0000111122223333"],
        )
    )

    story = Story("0.6.6.post1", seed=355, site="/opt/venv/lib/python3.10/site-packages")
    v0.banner(story, TARN_70B, {})
    story.trace(
        story.frames(*CREATE_V0[2:], "transformers_utils/config.py:get_config:AutoConfig.from_pretrained("),
        "OSError: You are trying to access a gated repo.\nMake sure to have access to it at https://huggingface.co/tarn-labs/Tarn-70B.\n401 Client Error. (Request ID: Root=1-6612;aa)",
        proc="none",
        mark="cause",
    )
    out.append(
        Case(
            "access-066-401",
            "no token at all",
            "0.6.6.post1",
            "model-access-denied",
            wrap.chain(story.lines, wrap.compose("gated")),
            ["compose", "v0"],
        )
    )

    story = Story("0.14.1", seed=356)
    boot.banner(story, KESTREL_7B, {})
    boot.configured(story, KESTREL_7B, length=8192, batched=2048)
    story.trace(
        story.frames(
            *CREATE[:-3],
            "v1/engine/async_llm.py:AsyncLLM.from_vllm_config:return cls(",
            "!~/transformers/tokenization_utils_base.py:2046:from_pretrained:raise EnvironmentError(",
        ),
        "OSError: Can't load tokenizer for 'kestrelml/Kestrel-7B-Instruct'. If you were trying to load it from 'https://huggingface.co/models', make sure you don't have a local directory with the same name. Otherwise, make sure 'kestrelml/Kestrel-7B-Instruct' is the correct path to a directory containing all relevant files for a Qwen2TokenizerFast tokenizer.",
        proc="api",
        mark="cause",
    )
    out.append(
        Case(
            "tokenizer-0141-files",
            "the copy has no tokenizer files",
            "0.14.1",
            "tokenizer-failed",
            wrap.chain(story.lines, wrap.indent(2)),
            ["indented"],
        )
    )

    story = Story("0.6.6.post1", seed=357, site="/opt/venv/lib/python3.10/site-packages")
    v0.banner(story, BRISA_8B, {})
    v0.engine(story, BRISA_8B, length=8192)
    story.trace(
        story.frames(
            "engine/llm_engine.py:LLMEngine.__init__:self._init_tokenizer()",
            "transformers_utils/tokenizer.py:get_tokenizer:AutoTokenizer.from_pretrained(",
            "!~/transformers/tokenization_utils_fast.py:115:__init__:fast_tokenizer = TokenizerFast.from_file(fast_tokenizer_file)",
        ),
        "Exception: data did not match any variant of untagged enum ModelWrapper at line 1251003 column 3",
        proc="none",
        mark="cause",
    )
    out.append(
        Case(
            "tokenizer-066-enum",
            "tokenizer.json is newer than tokenizers",
            "0.6.6.post1",
            "tokenizer-failed",
            wrap.chain(story.lines, wrap.docker_json()),
            ["docker-json", "v0"],
        )
    )

    story = Story("0.2.7", seed=358, site="/usr/local/lib/python3.10/dist-packages")
    v0.banner(story, MIRADOR_7B, {})
    story.trace(
        story.frames(
            "transformers_utils/tokenizer.py:get_tokenizer:AutoTokenizer.from_pretrained(",
            "transformers_utils/tokenizer.py:get_tokenizer:raise RuntimeError(",
        ),
        "RuntimeError: Failed to load the tokenizer. If the tokenizer is a custom tokenizer not yet available in the HuggingFace transformers library, consider setting `trust_remote_code=True` in LLM or using the `--trust-remote-code` flag in the CLI.",
        proc="none",
        mark="cause",
    )
    out.append(
        Case(
            "tokenizer-027-remote",
            "a custom tokenizer without trust",
            "0.2.7",
            "tokenizer-failed",
            story.lines,
            ["bare", "v0"],
            suggest=[{"flag": "trust_remote_code"}, *act("fix-tokenizer-files")],
        )
    )
    return out


def cases() -> list[Case]:
    """This family's cases."""
    return [*lengths(), *batches(), *splits(), *types(), *models(), *hub()]
