"""Out of memory in rarer words and on other devices."""

from . import boot, fail, wrap
from .case import DOWN, Case, act
from .context import start
from .fail import CAPTURE, FORWARD, LOAD, MODEL_EXECUTOR, PROFILE
from .machine import (
    BRISA_8B,
    COBALT_MOE,
    DEVICES,
    KESTREL_7B,
    SOLANO_24B,
    TARN_32B,
    TARN_70B,
    Budget,
    fit_tokens,
)
from .oom import oom
from .story import Line, Story
from .weights import until_load

CUDA_OOM = "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"


def allocators() -> list[Case]:
    """Out of memory without torch's usual sentence."""
    out = []
    story = Story("0.9.2", seed=701)
    until_load(story, TARN_32B, {"max_model_len": 4096}, length=4096)
    fail.fail_in_core(story, (*MODEL_EXECUTOR, *LOAD), f"RuntimeError: {CUDA_OOM}")
    out.append(
        Case(
            "weights-092-cuda-error",
            "32B on 24 GB; CUDA's own words",
            "0.9.2",
            "weights-do-not-fit",
            wrap.chain(story.lines, wrap.compose("w")),
            ["compose"],
        )
    )

    story = Story("0.14.1", seed=702)
    budget = Budget(DEVICES["RTX4090"], 0.985, 14.25, 1.1, 0.1)
    start(story, KESTREL_7B, {"gpu_memory_utilization": 0.985, "max_model_len": 16384}, length=16384)
    boot.profiled(story, budget)
    boot.sized(story, fit_tokens(budget.kv_bytes, KESTREL_7B.token_bytes()), 16384)
    story.raw(
        "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  12%|█▏        | 6/51 [00:00<00:05,  8.31it/s]",
        proc="core",
    )
    fail.fail_in_core(story, CAPTURE, f"torch.AcceleratorError: {CUDA_OOM}")
    out.append(
        Case(
            "graphs-0141-accelerator",
            "capture ends in an AcceleratorError",
            "0.14.1",
            "graph-capture-oom",
            wrap.chain(story.lines, wrap.kubectl()),
            ["kubectl"],
            {"gpu_memory_utilization": 0.985},
        )
    )

    story = Story("0.8.5", seed=703)
    start(
        story,
        KESTREL_7B,
        {"max_num_batched_tokens": 32768, "gpu_memory_utilization": 0.95},
        length=32768,
        batched=32768,
    )
    fail.fail_in_core(
        story,
        (
            *PROFILE,
            *FORWARD,
            "models/qwen2.py:Qwen2MLP.forward:self.gate_up_proj(",
            "layers/linear.py:UnquantizedLinearMethod.apply:return ",
        ),
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    )
    out.append(
        Case(
            "profile-085-cublas",
            "cuBLAS cannot get its workspace in the dummy pass",
            "0.8.5",
            "profile-run-oom",
            wrap.chain(story.lines, wrap.ansi()),
            ["ansi"],
            {"max_num_batched_tokens": 32768},
            [{"flag": "max_num_batched_tokens", "direction": "down"}, DOWN],
        )
    )

    story = Story("0.19.1", seed=704)
    start(
        story,
        COBALT_MOE,
        {"max_num_batched_tokens": 65536, "tensor_parallel_size": 2},
        length=32768,
        batched=65536,
        world=2,
    )
    text = "RuntimeError: Triton Error [CUDA]: out of memory"
    for rank in (1, 0):
        fail.fail_in_worker(
            story,
            rank,
            (
                *PROFILE,
                *FORWARD,
                "models/qwen3_moe.py:Qwen3MoeSparseMoeBlock.forward:self.experts(",
                "fused_moe/fused_moe.py:invoke_fused_moe_triton_kernel:fused_moe_kernel[",
            ),
            text,
            mark="cause" if rank == 1 else "echo",
        )
    fail.fail_call(story, "determine_available_memory", text)
    out.append(
        Case(
            "profile-0191-triton",
            "Triton's kernel launch finds no memory",
            "0.19.1",
            "profile-run-oom",
            wrap.chain(story.lines, wrap.compose("moe-1")),
            ["compose", "multi-rank"],
            {"max_num_batched_tokens": 65536, "tensor_parallel_size": 2},
        )
    )

    story = Story("0.11.2", seed=705)
    until_load(story, TARN_70B, {"max_model_len": 4096}, length=4096)
    for n, line in enumerate(story.lines):
        story.lines[n] = Line(line.text.replace("[cuda.py:", "[rocm.py:"), line.mark)
    fail.fail_in_core(
        story,
        (*MODEL_EXECUTOR, *LOAD),
        oom("0.11.2", want_mib=448.0, total_gib=63.98, free_mib=201.5, unused_mib=3.3, hip=True),
    )
    out.append(
        Case(
            "weights-0112-hip",
            "70B on an AMD card of 64 GB",
            "0.11.2",
            "weights-do-not-fit",
            wrap.chain(story.lines, wrap.docker_json()),
            ["docker-json", "rocm"],
            {"tried_to_allocate_gib": 0.4375, "gpu_total_gib": 63.98},
        )
    )

    story = Story("0.14.1", seed=706)
    until_load(story, KESTREL_7B, {"max_num_batched_tokens": 16384}, length=16384, batched=16384)
    boot.shards(story, KESTREL_7B)
    boot.loaded(story, 14.25)
    fail.fail_in_core(
        story,
        (
            *PROFILE[:3],
            *fail.UNIPROC,
            "v1/worker/xpu_worker.py:XPUWorker.determine_available_memory:self.model_runner.profile_run()",
            *FORWARD,
        ),
        "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 1.18 GiB. GPU 0 has a total capacity of 15.91 GiB. Of the allocated memory 15.02 GiB is allocated by PyTorch, and 210.11 MiB is reserved by PyTorch but unallocated. Please use `empty_cache` to release all unoccupied cached memory.",
    )
    out.append(
        Case(
            "profile-0141-xpu",
            "an Intel card",
            "0.14.1",
            "profile-run-oom",
            story.lines,
            ["bare", "xpu"],
            {"tried_to_allocate_gib": 1.18, "gpu_total_gib": 15.91},
        )
    )
    return out


def loads() -> list[Case]:
    """Out of memory while weights are repacked, a draft is loaded, or a neighbour is there."""
    out = []
    story = Story("0.16.0", seed=707)
    until_load(story, TARN_32B, {"quantization": "gptq_marlin", "max_model_len": 8192}, length=8192)
    boot.shards(story, TARN_32B)
    story.maybe(
        "INFO", "model_loader/default_loader.py", "Loading weights took", "Loading weights took 22.10 seconds"
    )
    fail.fail_in_core(
        story,
        (
            *MODEL_EXECUTOR,
            *LOAD[:8],
            "model_loader/base_loader.py:BaseModelLoader.load_model:process_weights_after_loading(",
            "model_loader/utils.py:process_weights_after_loading:quant_method.process_weights_after_loading(",
            "quantization/utils/marlin_utils.py:marlin_permute_scales:",
        ),
        oom("0.16.0", want_mib=135.0, total_gib=DEVICES["RTX4080"], free_mib=88.2, unused_mib=21.0),
    )
    out.append(
        Case(
            "weights-0160-repack",
            "all shards are in, repacking them needs more",
            "0.16.0",
            "weights-do-not-fit",
            wrap.chain(story.lines, wrap.journald("g", "vllm")),
            ["journald"],
            {"tried_to_allocate_gib": 0.1318, "gpu_total_gib": DEVICES["RTX4080"]},
        )
    )

    story = Story("0.24.0", seed=708)
    until_load(
        story,
        SOLANO_24B,
        {
            "speculative_config": {
                "method": "draft_model",
                "model": BRISA_8B.name,
                "num_speculative_tokens": 4,
            }
        },
        length=8192,
    )
    boot.shards(story, SOLANO_24B)
    story.maybe(
        "INFO", "model_loader/default_loader.py", "Loading weights took", "Loading weights took 31.55 seconds"
    )
    story.say("INFO", "v1/worker/gpu_model_runner.py", "Loading drafter model", "Loading drafter model...")
    error = oom("0.24.0", want_mib=112.0, total_gib=DEVICES["A6000"], free_mib=63.1, unused_mib=9.0)
    story.say(
        "ERROR",
        "v1/worker/gpu_model_runner.py",
        "Failed to load model - not enough",
        f"Failed to load model - not enough GPU memory. Try lowering --gpu-memory-utilization to free memory for weights, increasing --tensor-parallel-size, or using --quantization. See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more tips. (original error: {error.split(': ', 1)[1]})",
        mark="cause",
    )
    fail.fail_in_core(
        story,
        (
            *MODEL_EXECUTOR,
            *LOAD[:7],
            "v1/worker/gpu_model_runner.py:GPUModelRunner.load_model:self.drafter.load_model(",
        ),
        error,
        mark="echo",
    )
    out.append(
        Case(
            "weights-0240-draft",
            "target fits, the draft beside it does not",
            "0.24.0",
            "weights-do-not-fit",
            wrap.chain(story.lines, wrap.actions()),
            ["github-actions"],
            {"gpu_total_gib": DEVICES["A6000"]},
            [
                {"action": "smaller-or-quantized-model"},
                {"flag": "tensor_parallel_size", "direction": "up"},
                {"flag": "speculative_config"},
                {"action": "change-block-size-or-draft"},
            ],
        )
    )

    story = Story("0.8.5", seed=709)
    until_load(story, BRISA_8B, {"max_model_len": 8192}, length=8192)
    boot.shards(story, BRISA_8B, upto=1)
    fail.fail_in_core(
        story,
        (*MODEL_EXECUTOR, *LOAD),
        oom(
            "0.8.5",
            want_mib=112.0,
            total_gib=DEVICES["A100-80"],
            free_mib=40.2,
            unused_mib=5.0,
            others_gib=73.1,
            pid=60123,
        ),
        mark="cause",
    )
    out.append(
        Case(
            "taken-085-while-loading",
            "0.8 has no start check: 73 of 79 GiB belong to another process",
            "0.8.5",
            "gpu-memory-taken",
            wrap.chain(story.lines, wrap.kubectl()),
            ["kubectl", "tricky-neighbour-oom"],
            {"gpu_total_gib": DEVICES["A100-80"]},
            act("free-other-process"),
            [{"action": "smaller-or-quantized-model"}, {"flag": "gpu_memory_utilization", "direction": "up"}],
            ["weights-do-not-fit"],
        )
    )
    return out


def cases() -> list[Case]:
    """This family's cases."""
    return [*allocators(), *loads()]
