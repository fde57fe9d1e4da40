"""Out of memory in each phase, with the same words of torch."""

from . import boot, fail, v0, wrap
from .case import DOWN, Advice, Case
from .fail import CAPTURE, ENCODER, FORWARD, KV_ALLOCATE, PROFILE, SAMPLER
from .kv import start
from .machine import (
    BRISA_8B,
    COBALT_MOE,
    DEVICES,
    GIB,
    KESTREL_2B,
    KESTREL_7B,
    MIRADOR_7B,
    MIRADOR_13B,
    ONDINE_VL,
    SOLANO_24B,
    TARN_32B,
    TARN_70B,
    Budget,
    Model,
    fit_tokens,
)
from .oom import oom
from .story import Story

LLAMA_MLP = (
    "models/llama.py:LlamaForCausalLM.forward:self.model(", "models/llama.py:LlamaModel.forward:layer(", "models/llama.py:LlamaDecoderLayer.forward:self.mlp(", "models/llama.py:LlamaMLP.forward:self.act_fn(",
)  # fmt: skip
QWEN_MLP = (
    "models/qwen2.py:Qwen2ForCausalLM.forward:self.model(", "models/qwen2.py:Qwen2Model.forward:layer(", "models/qwen2.py:Qwen2DecoderLayer.forward:self.mlp(", "models/qwen2.py:Qwen2MLP.forward:self.act_fn(",
)  # fmt: skip
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


def tensors() -> list[Case]:
    """kv-allocation-oom."""
    out = []
    for id_, release, seed, device, pin, want, free, wrapper, tag in (
        ("kv-alloc-0112-bytes", "0.11.2", 131, "A40", 31, 992.0, 402.1, wrap.kubectl(), "kubectl"),
        ("kv-alloc-0240-quote", "0.24.0", 132, "L40S", 30, 960.0, 511.2, wrap.quote(), "markdown-quote"),
    ):
        story = Story(release, seed=seed)
        start(story, BRISA_8B, {"kv_cache_memory_bytes": pin * GIB, "max_model_len": 32768}, length=32768)
        tokens = fit_tokens(pin * GIB, BRISA_8B.token_bytes())
        boot.sized(story, tokens, 32768)
        fail.fail_in_core(
            story,
            KV_ALLOCATE,
            oom(release, want_mib=want, total_gib=DEVICES[device], free_mib=free, unused_mib=40.1),
        )
        suggest: list[Advice] = [{"flag": "kv_cache_memory_bytes", "direction": "down"}]
        out.append(
            Case(
                id_,
                f"{pin} GiB of KV by hand beside 15 of weights",
                release,
                "kv-allocation-oom",
                wrap.chain(story.lines, wrapper),
                [tag],
                _numbers(want, device, free, kv_cache_memory_bytes=pin * GIB),
                suggest,
                [DOWN, {"flag": "gpu_memory_utilization", "direction": "up"}, {"flag": "enforce_eager"}],
            )
        )

    release, device = "0.4.2", "A100-40"
    story = Story(release, seed=133, site="/usr/local/lib/python3.10/dist-packages")
    v0.banner(story, MIRADOR_7B, {"gpu_memory_utilization": 0.98})
    v0.engine(story, MIRADOR_7B, length=4096, dtype="float16")
    v0.load(story, MIRADOR_7B, 12.55)
    v0.blocks(story, 3070, 512, 4096)
    frames = (
        "engine/llm_engine.py:LLMEngine.__init__:self._initialize_kv_caches()",
        "engine/llm_engine.py:LLMEngine._initialize_kv_caches:self.model_executor.initialize_cache(",
        "executor/gpu_executor.py:GPUExecutor.initialize_cache:self.driver_worker.initialize_cache(",
        "worker/worker.py:Worker.initialize_cache:self._init_cache_engine()",
        "worker/worker.py:Worker._init_cache_engine:CacheEngine(",
        "worker/cache_engine.py:CacheEngine.__init__:self._allocate_kv_cache(",
        "worker/cache_engine.py:CacheEngine._allocate_kv_cache:torch.empty(",
        "worker/cache_engine.py:CacheEngine._allocate_kv_cache:torch.zeros(",
    )
    v0.fail(
        story,
        frames,
        oom(
            release,
            want_mib=768.0,
            total_gib=DEVICES[device],
            free_mib=345.6,
            unused_mib=18.0,
            others_gib=2.31,
            pid=88123,
        ),
    )
    out.append(
        Case(
            "kv-alloc-042-neighbour",
            "a neighbour with 2.3 GiB and 0.98 of the card",
            release,
            "kv-allocation-oom",
            story.lines,
            ["bare", "v0"],
            _numbers(768, device, 345.6, gpu_memory_utilization=0.98),
            [DOWN, {"action": "free-other-process"}],
            [{"flag": "gpu_memory_utilization", "direction": "up"}],
        )
    )
    return out


def graphs() -> list[Case]:
    """graph-capture-oom."""
    out = []
    for id_, release, seed, device, util, want, free, wrapper, tag in (
        ("graphs-092-narrow", "0.9.2", 141, "RTX4090", 0.98, 28.0, 9.6, wrap.columns(80), "terminal-wrap"),
        ("graphs-0171-compose", "0.17.1", 142, "L4", 0.985, 22.0, 12.4, wrap.compose("chat"), "compose"),
    ):
        story = Story(release, seed=seed)
        budget = Budget(DEVICES[device], util, KESTREL_7B.weights_gib, 1.21, 0.12)
        start(story, KESTREL_7B, {"gpu_memory_utilization": util, "max_model_len": 16384}, length=16384)
        boot.profiled(story, budget)
        boot.sized(story, fit_tokens(budget.kv_bytes, KESTREL_7B.token_bytes()), 16384)
        story.raw(
            "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):   0%|          | 0/67 [00:00<?, ?it/s]",
            proc="core",
        )
        fail.fail_in_core(
            story,
            CAPTURE,
            oom(release, want_mib=want, total_gib=DEVICES[device], free_mib=free, unused_mib=77.7),
        )
        out.append(
            Case(
                id_,
                f"{util} leaves no room for the graphs",
                release,
                "graph-capture-oom",
                wrap.chain(story.lines, wrapper),
                [tag],
                _numbers(want, device, free, gpu_memory_utilization=util),
            )
        )

    release, device = "0.3.3", "RTX4090"
    story = Story(release, seed=143, site="/home/tessa/miniconda3/envs/llm/lib/python3.10/site-packages")
    v0.banner(story, MIRADOR_7B, {"gpu_memory_utilization": 0.97})
    v0.engine(story, MIRADOR_7B, length=4096, dtype="float16")
    v0.load(story, MIRADOR_7B, 12.55)
    v0.blocks(story, 1180, 512, 4096)
    text = "Capturing the model for CUDA graphs. This may lead to unexpected consequences if the model is not static. To run the model in eager mode, set 'enforce_eager=True' or use '--enforce-eager' in the CLI."
    story.say("INFO", "worker/model_runner.py", "Capturing the model for CUDA graphs", text, proc="none")
    story.say(
        "INFO",
        "worker/model_runner.py",
        "CUDA graphs can take additional",
        "CUDA graphs can take additional 1~3 GiB memory per GPU. If you are running out of memory, consider decreasing `gpu_memory_utilization` or enforcing eager mode. You can also reduce the `max_num_seqs` as needed to decrease memory usage.",
        proc="none",
    )
    v0.fail(
        story,
        v0.CAPTURE,
        oom(release, want_mib=16.0, total_gib=DEVICES[device], free_mib=6.9, unused_mib=30.0),
    )
    out.append(
        Case(
            "graphs-033-old",
            "0.97 and the old graphs of 1 to 3 GiB",
            release,
            "graph-capture-oom",
            story.lines,
            ["bare", "v0"],
            _numbers(16, device, 6.9, gpu_memory_utilization=0.97),
        )
    )
    return out


def samplers() -> list[Case]:
    """sampler-warmup-oom."""
    out = []
    for id_, release, seed, seqs, wrapper, tag in (
        ("sampler-085-plain", "0.8.5", 151, 512, None, "bare"),
        ("sampler-0202-kube", "0.20.2", 152, 2048, wrap.kubectl(), "kubectl"),
        ("sampler-0330-cut", "0.33.0", 153, 1536, wrap.cut_after("cause", 9), "tail-truncated"),
    ):
        story = Story(release, seed=seed)
        util = 0.96
        budget = Budget(DEVICES["L4"], util, KESTREL_2B.weights_gib, 1.6, 0.2)
        start(story, KESTREL_2B, {"max_num_seqs": seqs, "gpu_memory_utilization": util}, length=32768)
        boot.profiled(story, budget)
        boot.sized(
            story,
            fit_tokens(budget.kv_bytes, KESTREL_2B.token_bytes(), null_block=story.at_least("0.29.0")),
            32768,
        )
        boot.captured(story, 0.4)
        if story.lines[-1].text.find("init engine") > 0:
            story.lines.pop()
        error = f"RuntimeError: CUDA out of memory occurred when warming up sampler with {seqs} dummy requests. Please try lowering `max_num_seqs` or `gpu_memory_utilization` when initializing the engine."
        fail.fail_in_core(story, SAMPLER, error)
        out.append(
            Case(
                id_,
                f"{seqs} sequences in the sampler's warm-up",
                release,
                "sampler-warmup-oom",
                wrap.chain(story.lines, *([wrapper] if wrapper else [])),
                [tag],
                {"dummy_requests": seqs, "gpu_memory_utilization": util},
            )
        )
    return out


def cases() -> list[Case]:
    """This family's cases."""
    return [*weights(), *forwards(), *encoders(), *tensors(), *graphs(), *samplers()]


__all__ = ["COBALT_MOE", "cases"]
