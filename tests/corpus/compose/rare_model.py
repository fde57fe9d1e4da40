"""Rare statements about models: checkpoints, tokenizers, types, methods."""

from typing import Any

from . import boot, fail, v0, wrap
from .case import Case, act
from .fail import LOAD, MODEL_EXECUTOR, PROFILE
from .lengths import refused
from .machine import KESTREL_7B, MIRADOR_7B, Model
from .occupied import until_device
from .story import Line, Story
from .weights import until_load

OLD = "/opt/conda/lib/python3.10/site-packages"


def short(
    release: str, seed: int, model: Model, args: dict[str, object], *, world: int = 1, device: bool = False
) -> Story:
    """A V1 start to the loading of weights, or to the device."""
    story = Story(release, seed=seed)
    (until_device if device else until_load)(story, model, args, length=8192, world=world)
    return story


def _failed(
    id_: str,
    title: str,
    cause: str,
    release: str,
    *,
    seed: int,
    error: str,
    model: Model = KESTREL_7B,
    frames: tuple[str, ...] = LOAD,
    args: dict[str, object] | None = None,
    wrapper: wrap.Wrapper | None = None,
    tag: str = "bare",
    device: bool = False,
    marked: int = 0,
    **more: Any,
) -> Case:
    """One engine core that dies of `error` while it loads; `marked` is the line of the text that says it."""
    story = short(release, seed, model, args or {}, device=device)
    before = len(story.lines)
    fail.fail_in_core(
        story, (*(() if frames[:1] == PROFILE[:1] else MODEL_EXECUTOR), *frames), error, raw=False
    )
    if marked:
        at = next(n for n in range(before, len(story.lines)) if story.lines[n].mark)
        story.lines[at + marked], story.lines[at] = (
            Line(story.lines[at + marked].text, "cause"),
            Line(story.lines[at].text),
        )
    return Case(
        id_, title, release, cause, wrap.chain(story.lines, *([wrapper] if wrapper else [])), [tag], **more
    )


def weights() -> list[Case]:
    """checkpoint-broken, tokenizer-failed, types and methods."""
    out = [
        _failed("rare-checkpoint-zip", "a torn .bin file", "checkpoint-broken", "0.10.2", seed=1001, error="RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory", frames=(*LOAD[:7], "!~/torch/serialization.py:1432:load:with _open_zipfile_reader(opened_file) as opened_zipfile:")),
        _failed("rare-checkpoint-pickle", "a pointer file of git-lfs as .bin", "checkpoint-broken", "0.8.5", seed=1002, error="_pickle.UnpicklingError: invalid load key, 'v'.", frames=(*LOAD[:7], "!~/torch/serialization.py:1580:_legacy_load:magic_number = pickle_module.load(f, **pickle_load_args)"), wrapper=wrap.compose("b"), tag="compose"),
        _failed("rare-quant-scheme", "a scheme that compressed-tensors does not have", "quantization-unsupported", "0.14.1", seed=1003, error="NotImplementedError: No compressed-tensors compatible scheme was found.", frames=(*LOAD, "compressed_tensors/compressed_tensors.py:CompressedTensorsConfig._get_scheme_from_parts:raise NotImplementedError("), wrapper=wrap.kubectl(), tag="kubectl"),
        _failed("rare-attention-fp8", "FlashAttention 2 with an fp8 cache", "attention-backend-unsupported", "0.10.2", seed=1004, error="NotImplementedError: FlashAttention does not support fp8 kv-cache on this device.", frames=(*LOAD, "v1/attention/backends/flash_attn.py:FlashAttentionImpl.__init__:raise NotImplementedError("), args={"kv_cache_dtype": "fp8"}, suggest=[{"flag": "VLLM_ATTENTION_BACKEND"}, {"flag": "attention_backend"}, {"flag": "kv_cache_dtype"}]),
    ]  # fmt: skip
    story = Story("0.14.1", seed=1005)
    boot.banner(story, MIRADOR_7B, {"dtype": "half"})
    refused(
        story,
        "The model type 'gemma3' does not support float16. Reason: Numerical instability. Please use bfloat16 or float32 instead.",
    )
    out.append(
        Case(
            "rare-dtype-gemma",
            "a model that float16 breaks",
            "0.14.1",
            "dtype-unsupported",
            wrap.chain(story.lines, wrap.quote()),
            ["markdown-quote"],
            suggest=[{"flag": "dtype"}],
        )
    )

    story = Story("0.11.2", seed=1006)
    boot.banner(story, MIRADOR_7B, {"dtype": "half"})
    refused(
        story,
        "torch.float16 is not supported for quantization method mxfp4. Supported dtypes: [torch.bfloat16]",
        holder="VllmConfig",
    )
    out.append(
        Case(
            "rare-dtype-mxfp4",
            "a method that wants bfloat16",
            "0.11.2",
            "dtype-unsupported",
            wrap.chain(story.lines, wrap.compose("oss")),
            ["compose"],
            suggest=[{"flag": "dtype"}],
            acceptable=["quantization-unsupported"],
        )
    )

    story = Story("0.9.2", seed=1007)
    boot.banner(story, KESTREL_7B, {})
    refused(
        story,
        "The repository `kestrelml/Kestrel-7B-Instruct` contains custom code which must be executed to correctly load the model. You can inspect the repository content at https://hf.co/kestrelml/Kestrel-7B-Instruct.\nPlease pass the argument `trust_remote_code=True` to allow custom code to be run.",
    )
    out.append(
        Case(
            "rare-remote-code",
            "custom code is not trusted",
            "0.9.2",
            "tokenizer-failed",
            wrap.chain(story.lines, wrap.docker_json()),
            ["docker-json"],
            suggest=[{"flag": "trust_remote_code"}],
        )
    )

    story = Story("0.5.4", seed=1008, site=OLD)
    v0.banner(story, MIRADOR_7B, {})
    story.trace(
        story.frames(
            "transformers_utils/tokenizer.py:get_tokenizer:AutoTokenizer.from_pretrained(",
            "!~/transformers/models/auto/tokenization_auto.py:889:from_pretrained:raise ValueError(",
        ),
        "ValueError: Tokenizer class KestrelTokenizer does not exist or is not currently imported.",
        proc="none",
        mark="cause",
    )
    out.append(
        Case(
            "rare-tokenizer-class",
            "a tokenizer class that this transformers has not",
            "0.5.4",
            "tokenizer-failed",
            story.lines,
            ["bare", "v0"],
            suggest=[*act("upgrade-transformers", "fix-tokenizer-files"), {"flag": "trust_remote_code"}],
        )
    )

    story = Story("0.17.1", seed=1009)
    boot.banner(story, KESTREL_7B, {"compilation_config": {"cudagraph_modes": "FULL"}})
    story.trace(
        story.frames(*fail.SERVE[:2]),
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for CompilationConfig\ncudagraph_modes\n  Unexpected keyword argument [type=unexpected_keyword_argument, input_value='FULL', input_type=str]\n    For further information visit https://errors.pydantic.dev/2.12/v/unexpected_keyword_argument",
        proc="api",
    )
    at = next(n for n, line in enumerate(story.lines) if "Unexpected keyword argument" in line.text)
    story.lines[at] = Line(story.lines[at].text, "cause")
    out.append(
        Case(
            "rare-flag-compilation",
            "a key that the compilation config has not",
            "0.17.1",
            "unknown-flag",
            wrap.chain(story.lines, wrap.actions()),
            ["github-actions"],
        )
    )
    return out


def cases() -> list[Case]:
    """This family's cases."""
    return [*weights()]
