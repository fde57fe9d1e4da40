"""Out of memory after profiling: KV tensors, graphs, the sampler."""

from . import boot, fail, v0, work, wrap
from .case import DOWN, Advice, Case
from .context import start
from .fail import CAPTURE, KV_ALLOCATE, SAMPLER
from .machine import (
    BRISA_8B,
    DEVICES,
    GIB,
    KESTREL_2B,
    KESTREL_7B,
    MIRADOR_7B,
    Budget,
    fit_tokens,
)
from .oom import oom
from .story import Story
from .weights import _numbers


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
        work.captured(story, 0.4)
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
    return [*tensors(), *graphs(), *samplers()]
