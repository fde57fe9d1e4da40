"""profile-run-oom and multimodal-profile-oom."""

from . import boot, fail, v0, wrap
from .case import Advice, Case
from .context import start
from .fail import ENCODER, FORWARD, PROFILE
from .machine import (
    BRISA_8B,
    DEVICES,
    KESTREL_7B,
    ONDINE_VL,
    TARN_32B,
)
from .oom import oom
from .story import Story
from .weights import _numbers, until_load

LLAMA_MLP = (
    "models/llama.py:LlamaForCausalLM.forward:self.model(", "models/llama.py:LlamaModel.forward:layer(", "models/llama.py:LlamaDecoderLayer.forward:self.mlp(", "models/llama.py:LlamaMLP.forward:self.act_fn(",
)  # fmt: skip


QWEN_MLP = (
    "models/qwen2.py:Qwen2ForCausalLM.forward:self.model(", "models/qwen2.py:Qwen2Model.forward:layer(", "models/qwen2.py:Qwen2DecoderLayer.forward:self.mlp(", "models/qwen2.py:Qwen2MLP.forward:self.act_fn(",
)  # fmt: skip


def forwards() -> list[Case]:
    """profile-run-oom."""
    out = []
    for id_, release, seed, model, device, batched, want, free, wrapper, tag, ending in (
        ("profile-0101-plain", "0.10.1.1", 111, BRISA_8B, "L4", 32768, 1792.0, 640.2, None, "bare", "\n"),
        ("profile-0160-cr", "0.16.0", 112, KESTREL_7B, "RTX4080", 16384, 1184.0, 402.4, None, "crlf", "\r\n"),
        (
            "profile-0220-journal",
            "0.22.1",
            113,
            BRISA_8B,
            "RTX4090",
            49152,
            2688.0,
            1711.3,
            wrap.journald("ws-17", "vllm"),
            "journald",
            "\n",
        ),
        (
            "profile-0330-tag",
            "0.33.0",
            114,
            KESTREL_7B,
            "L4",
            65536,
            4736.0,
            2216.0,
            wrap.logger("[serve] "),
            "logger-prefix",
            "\n",
        ),
    ):
        story = Story(release, seed=seed)
        start(
            story,
            model,
            {"max_model_len": 32768, "max_num_batched_tokens": batched, "gpu_memory_utilization": 0.95},
            length=32768,
            batched=batched,
        )
        for _ in range(
            sum(
                "compil" in line.text or "Dynamo" in line.text or "Compiling" in line.text
                for line in story.lines[-4:]
            )
        ):
            story.lines.pop()
        error = oom(release, want_mib=want, total_gib=DEVICES[device], free_mib=free)
        fail.fail_in_core(
            story, (*PROFILE, *FORWARD, *(LLAMA_MLP if model.file == "llama.py" else QWEN_MLP)), error
        )
        out.append(
            Case(
                id_,
                f"{batched} batched tokens on {device}",
                release,
                "profile-run-oom",
                wrap.chain(story.lines, *([wrapper] if wrapper else [])),
                [tag],
                _numbers(want, device, free, max_num_batched_tokens=batched),
                harmful=[{"flag": "gpu_memory_utilization", "direction": "up"}],
                ending=ending,
            )
        )

    release, device = "0.5.4", "A10"
    story = Story(release, seed=115, site="/opt/conda/lib/python3.10/site-packages")
    v0.banner(story, BRISA_8B, {"max_model_len": 32768, "enable_chunked_prefill": False})
    v0.engine(story, BRISA_8B, length=32768)
    v0.load(story, BRISA_8B, 14.96)
    v0.fail(
        story,
        (*v0.PROFILE, *LLAMA_MLP),
        oom(release, want_mib=1792.0, total_gib=DEVICES[device], free_mib=1011.5),
    )
    suggest: list[Advice] = [
        {"flag": "max_num_batched_tokens", "direction": "down"},
        {"flag": "enable_chunked_prefill"},
        {"flag": "max_model_len", "direction": "down"},
    ]
    out.append(
        Case(
            "profile-054-no-chunks",
            "without chunked prefill the whole context is one batch",
            release,
            "profile-run-oom",
            story.lines,
            ["bare", "v0"],
            _numbers(1792, device, 1011.5, max_model_len=32768),
            suggest,
        )
    )

    release, device = "0.13.0", "A6000"
    story = Story(release, seed=116)
    start(
        story,
        TARN_32B,
        {"tensor_parallel_size": 4, "max_num_batched_tokens": 131072, "gpu_memory_utilization": 0.9},
        length=32768,
        batched=131072,
        world=4,
    )
    error = oom(release, want_mib=6912.0, total_gib=DEVICES[device], free_mib=5120.9, gpu=2)
    for rank in (2, 0):
        fail.fail_in_worker(
            story,
            rank,
            (*PROFILE, *FORWARD, *QWEN_MLP),
            error
            if rank == 2
            else oom(release, want_mib=6912.0, total_gib=DEVICES[device], free_mib=5122.9, gpu=0),
            mark="cause" if rank == 2 else "echo",
        )
    fail.fail_call(story, "determine_available_memory", error)
    out.append(
        Case(
            "profile-0130-rank2",
            "131072 batched tokens, rank 2 says it first",
            release,
            "profile-run-oom",
            wrap.chain(story.lines, wrap.docker_json()),
            ["docker-json", "multi-rank"],
            _numbers(6912, device, 5120.9, max_num_batched_tokens=131072, tensor_parallel_size=4),
        )
    )
    return out


def encoders() -> list[Case]:
    """multimodal-profile-oom."""
    out = []
    for id_, release, seed, device, want, free, wrapper, tag in (
        ("vision-092-plain", "0.9.2", 121, "A10", 4096.0, 2201.0, None, "bare"),
        ("vision-0140-actions", "0.14.1", 122, "L4", 6144.0, 3300.7, wrap.actions(), "github-actions"),
        (
            "vision-0240-ray",
            "0.24.0",
            123,
            "RTX4090",
            5530.0,
            4090.1,
            wrap.ray("ServeReplica:app:Vision", 5521),
            "ray-serve",
        ),
    ):
        story = Story(release, seed=seed)
        until_load(
            story, ONDINE_VL, {"max_model_len": 16384, "limit_mm_per_prompt": {"image": 8}}, length=16384
        )
        boot.shards(story, ONDINE_VL)
        boot.loaded(story, ONDINE_VL.weights_gib)
        story.maybe(
            "INFO",
            "v1/worker/gpu_model_runner.py",
            "Encoder cache will be initialized",
            "Encoder cache will be initialized with a budget of 16384 tokens, and profiled with 1 image items of the maximum feature size.",
        )
        error = oom(release, want_mib=want, total_gib=DEVICES[device], free_mib=free)
        fail.fail_in_core(story, (*PROFILE, *ENCODER), error)
        out.append(
            Case(
                id_,
                "the largest image does not fit the dry pass",
                release,
                "multimodal-profile-oom",
                wrap.chain(story.lines, *([wrapper] if wrapper else [])),
                [tag],
                _numbers(want, device, free),
            )
        )
    return out


def cases() -> list[Case]:
    """This family's cases."""
    return [*forwards(), *encoders()]
