"""weights-do-not-fit."""

from . import boot, fail, v0, wrap
from .case import Case
from .machine import (
    DEVICES,
    MIRADOR_13B,
    SOLANO_24B,
    TARN_32B,
    TARN_70B,
    Model,
)
from .oom import oom
from .story import Story

TOO_BIG = (
    "Failed to load model - not enough GPU memory. Try lowering --gpu-memory-utilization to free memory for weights, increasing --tensor-parallel-size, or using --quantization. "
    "See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more tips. (original error: {error})"
)


def _numbers(want: float, device: str, free: float, **more: object) -> dict[str, object]:
    return {
        "tried_to_allocate_gib": round(want / 1024, 4),
        "gpu_total_gib": DEVICES[device],
        "gpu_free_gib": round(free / 1024, 4),
        **more,
    }


def until_load(
    story: Story, model: Model, args: dict[str, object], *, length: int, world: int = 1, batched: int = 2048
) -> None:
    """From the banner to the start of loading."""
    boot.banner(story, model, args)
    boot.configured(story, model, length=length, batched=batched)
    boot.engine(story, model, length=length, world=world)
    boot.distribute(story)
    boot.begin_load(story, model)


def weights() -> list[Case]:
    """weights-do-not-fit."""
    out = []
    mlp = (
        "models/llama.py:LlamaForCausalLM.__init__:self.model = ",
        "models/llama.py:LlamaModel.__init__:make_layers(",
        "models/llama.py:LlamaDecoderLayer.__init__:self.mlp = ",
        "models/llama.py:LlamaMLP.__init__:self.gate_up_proj = ",
        "layers/linear.py:MergedColumnParallelLinear.__init__:super().__init__(",
        "layers/linear.py:ColumnParallelLinear.__init__:self.quant_method.create_weights(",
        "layers/linear.py:UnquantizedLinearMethod.create_weights:torch.empty(",
    )
    for id_, release, seed, model, device, want, free, wrapper, tag in (
        ("weights-0141-workspace", "0.14.1", 101, TARN_70B, "A100-80", 448.0, 301.6, wrap.ansi(), "ansi"),
        ("weights-0260-cri", "0.26.0", 102, SOLANO_24B, "A100-40", 320.0, 207.1, wrap.cri(), "cri"),
        ("weights-0330-html", "0.33.0", 103, TARN_70B, "H100", 448.0, 95.3, wrap.escaped(), "html"),
    ):
        story = Story(release, seed=seed)
        until_load(story, model, {"max_model_len": 8192}, length=8192)
        story.wait(2)
        error = oom(release, want_mib=want, total_gib=DEVICES[device], free_mib=free, unused_mib=11.2)
        story.say(
            "ERROR",
            "v1/worker/gpu_model_runner.py",
            "Failed to load model - not enough",
            TOO_BIG.format(error=error.split(": ", 1)[1]),
            mark="cause",
        )
        fail.fail_in_core(story, (*fail.MODEL_EXECUTOR, *fail.LOAD, *mlp), error, mark="echo")
        out.append(
            Case(
                id_,
                f"{model.weights_gib} GiB of weights for {device}; vLLM's own hint points the wrong way",
                release,
                "weights-do-not-fit",
                wrap.chain(story.lines, wrapper),
                [tag, "tricky-wrong-hint"],
                _numbers(want, device, free),
            )
        )

    release, device = "0.8.5", "RTX4090"
    story = Story(release, seed=104, site="/home/tessa/miniconda3/envs/vllm/lib/python3.11/site-packages")
    until_load(story, TARN_32B, {"max_model_len": 4096, "enforce_eager": True}, length=4096)
    error = oom(release, want_mib=270.0, total_gib=DEVICES[device], free_mib=118.6, unused_mib=9.9)
    fail.fail_in_core(
        story,
        (
            *fail.MODEL_EXECUTOR,
            *fail.LOAD,
            *(f.replace("llama", "qwen2").replace("Llama", "Qwen2") for f in mlp),
        ),
        error,
    )
    out.append(
        Case(
            "weights-085-indented",
            "32B bf16 on one 24 GB card",
            release,
            "weights-do-not-fit",
            wrap.chain(story.lines, wrap.indent(8)),
            ["indented"],
            _numbers(270, device, 118.6),
        )
    )

    release, device = "0.2.7", "T4"
    story = Story(release, seed=105, site="/usr/local/lib/python3.10/dist-packages")
    v0.banner(story, MIRADOR_13B, {"dtype": "half"})
    v0.engine(story, MIRADOR_13B, length=4096, dtype="float16")
    v0.fail(
        story,
        v0.LOADING,
        oom(release, want_mib=136.0, total_gib=DEVICES[device], free_mib=76.8, unused_mib=2.1),
    )
    out.append(
        Case(
            "weights-027-colab",
            "13B fp16 on a T4",
            release,
            "weights-do-not-fit",
            wrap.chain(story.lines, wrap.columns(120)),
            ["terminal-wrap", "v0"],
            _numbers(136, device, 76.8),
        )
    )

    release, device = "0.6.6.post1", "V100-16"
    story = Story(release, seed=106, site="/opt/venv/lib/python3.10/site-packages")
    v0.banner(story, TARN_32B, {"tensor_parallel_size": 2, "dtype": "half"})
    v0.engine(story, TARN_32B, length=32768, world=2, dtype="float16")
    v0.load(story, TARN_32B, 30.5, world=2, upto=0)
    v0.fail_in_process(
        story,
        v0.LOADING,
        oom(release, want_mib=136.0, total_gib=DEVICES[device], free_mib=64.4, unused_mib=2.6),
    )
    out.append(
        Case(
            "weights-066-two-v100",
            "32B over two 16 GB cards",
            release,
            "weights-do-not-fit",
            wrap.chain(story.lines, wrap.compose("qwen")),
            ["compose", "multi-rank", "v0"],
            _numbers(136, device, 64.4, tensor_parallel_size=2),
        )
    )

    release, device = "0.11.2", "L40S"
    story = Story(release, seed=107)
    until_load(story, TARN_70B, {"tensor_parallel_size": 2, "max_model_len": 4096}, length=4096, world=2)
    story.wait(3)
    for rank in (1, 0):
        error = oom(
            release,
            want_mib=224.0,
            total_gib=DEVICES[device],
            free_mib=150.1 + rank * 18,
            unused_mib=3.4,
            gpu=rank,
        )
        fail.fail_at_worker_start(
            story, rank, "load_model", (*fail.LOAD, *mlp), error, mark="cause" if rank == 1 else "echo"
        )
    fail.fail_after_worker_start(story)
    out.append(
        Case(
            "weights-0112-two-ranks",
            "70B bf16 over two 48 GB cards, both ranks say so",
            release,
            "weights-do-not-fit",
            wrap.chain(story.lines, wrap.syslog("gpu4", "vllm")),
            ["multi-rank", "syslog"],
            _numbers(224, device, 168.1, tensor_parallel_size=2),
        )
    )
    return out


def cases() -> list[Case]:
    """This family's cases."""
    return [*weights()]
