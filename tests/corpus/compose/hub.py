"""Models, flags, access and tokenizers."""

from . import boot, v0, wrap
from .case import Case, act
from .lengths import CREATE, CREATE_V0, refused
from .machine import (
    BRISA_8B,
    KESTREL_7B,
    MIRADOR_7B,
    SOLANO_24B,
    TARN_70B,
    Model,
)
from .story import Line, Story


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
                wrap.around("你好，用最新镜像部署自研模型时报错，日志如下：", "请问怎么解决？谢谢"),  # noqa: RUF001
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
    return [*models(), *hub()]
