"""Lengths that vLLM refuses: context-beyond-model-limit, batched-tokens-below-context."""

from . import boot, fail, v0, wrap
from .case import Advice, Case
from .machine import (
    COBALT_MOE,
    KESTREL_7B,
    MIRADOR_7B,
    ONDINE_VL,
    TARN_32B,
)
from .story import Story
from .weights import until_load

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


def cases() -> list[Case]:
    """This family's cases."""
    return [*lengths(), *batches()]
