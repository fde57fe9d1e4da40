"""The same causes in rarer words: other allocators, other devices, other libraries."""

from . import boot, fail, v0, wrap
from .case import DOWN, Advice, Case, act
from .config import refused
from .environment import until_device
from .fail import CAPTURE, FORWARD, KV_CHECK, LOAD, MODEL_EXECUTOR, PROFILE
from .kv import NO_BLOCKS, no_blocks, start, too_small
from .machine import (
    BRISA_8B,
    COBALT_H,
    COBALT_MOE,
    DEVICES,
    GIB,
    KESTREL_2B,
    KESTREL_7B,
    MIRADOR_7B,
    SOLANO_24B,
    TARN_32B,
    TARN_70B,
    Budget,
    fit_tokens,
)
from .memory import until_load
from .oom import oom
from .story import Line, Story

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


def refusals() -> list[Case]:
    """Refusals by other libraries or in rarer words."""
    out = []
    story = Story("0.9.2", seed=721)
    story.trace(
        story.frames(
            '!/home/tessa/batch.py:12:<module>:llm = LLM(model="kestrelml/Kestrel-7B-Instruct", swap_spaces=8)',
            "entrypoints/llm.py:LLM.__init__:engine_args = EngineArgs(",
        ),
        "TypeError: EngineArgs.__init__() got an unexpected keyword argument 'swap_spaces'",
        proc="none",
        mark="cause",
    )
    out.append(
        Case(
            "flag-092-keyword",
            "LLM() with a keyword that does not exist",
            None,
            "unknown-flag",
            story.lines,
            ["bare", "python-llm"],
        )
    )

    lines = [
        Line("usage: vllm serve [model_tag] [options]"),
        Line("vllm serve: error: argument --max-model-len: invalid int value: '32kb'", "cause"),
    ]
    out.append(
        Case(
            "flag-unit",
            "a length with a unit that is no number",
            None,
            "unknown-flag",
            wrap.chain(lines, wrap.docker_json()),
            ["docker-json"],
            suggest=[*act("remove-flag"), {"flag": "max_model_len"}],
            harmful=[{"action": "free-other-process"}],
        )
    )

    story = Story("0.24.0", seed=722)
    until_load(story, COBALT_MOE, {"attention_backend": "FLASHMLA"}, length=8192)
    story.lines.pop()
    fail.fail_in_core(
        story,
        (*MODEL_EXECUTOR, *LOAD, "platforms/cuda.py:CudaPlatformBase.get_attn_backend_cls:raise ValueError("),
        "ValueError: Selected backend AttentionBackendEnum.FLASHMLA is not valid for this configuration. Reason: ['head_size not supported', 'non-MLA not supported']",
    )
    out.append(
        Case(
            "attention-0240-forced",
            "a backend forced on a model that cannot use it",
            "0.24.0",
            "attention-backend-unsupported",
            wrap.chain(story.lines, wrap.compose("x")),
            ["compose"],
        )
    )

    story = Story("0.11.2", seed=723)
    until_load(
        story, KESTREL_7B, {"quantization": "gptq_marlin", "tensor_parallel_size": 4}, length=8192, world=4
    )
    for rank in (0, 2):
        fail.fail_at_worker_start(
            story,
            rank,
            "load_model",
            (*LOAD, "quantization/utils/marlin_utils.py:verify_marlin_supports_shape:raise ValueError("),
            "ValueError: Weight input_size_per_partition = 4736 is not divisible by min_thread_k = 128. Consider reducing tensor_parallel_size or running with --quantization gptq.",
            mark="cause" if rank == 0 else "echo",
        )
    fail.fail_after_worker_start(story)
    out.append(
        Case(
            "split-0112-marlin",
            "a Marlin weight cannot be cut in four",
            "0.11.2",
            "heads-not-divisible",
            wrap.chain(story.lines, wrap.docker_json()),
            ["docker-json", "multi-rank"],
            {"tensor_parallel_size": 4},
            acceptable=["quantization-unsupported"],
            suggest=[
                {"flag": "tensor_parallel_size", "direction": "down"},
                {"flag": "quantization"},
                {"action": "other-quantization-or-gpu"},
            ],
        )
    )

    story = Story("0.17.1", seed=724)
    until_device(story, BRISA_8B, {}, length=8192)
    fail.fail_in_core(
        story,
        (*MODEL_EXECUTOR, *fail.INIT_DEVICE[:-1], "v1/worker/gpu_worker.py:Worker.init_device:set_device("),
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that might have already set an error? Error 804: forward compatibility was attempted on non supported HW",
    )
    out.append(
        Case(
            "driver-0171-804",
            "compat libraries on a consumer card",
            "0.17.1",
            "cuda-driver-mismatch",
            wrap.chain(story.lines, wrap.quote()),
            ["markdown-quote"],
        )
    )

    story = Story("0.14.1", seed=725)
    until_load(story, KESTREL_7B, {}, length=8192)
    boot.shards(story, KESTREL_7B)
    boot.loaded(story, 14.25)
    fail.fail_in_core(
        story,
        (*PROFILE, *FORWARD),
        "RuntimeError: HIP error: invalid device function\nHIP kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.\nFor debugging consider passing AMD_SERIALIZE_KERNEL=3\nCompile with `TORCH_USE_HIP_DSA` to enable device-side assertions.",
    )
    out.append(
        Case(
            "driver-0141-hip",
            "the ROCm build has no code for this card",
            "0.14.1",
            "cuda-driver-mismatch",
            story.lines,
            ["bare", "rocm"],
        )
    )

    story = Story("0.12.0", seed=726)
    until_load(story, KESTREL_7B, {}, length=8192)
    boot.shards(story, KESTREL_7B)
    boot.loaded(story, 14.25)
    fail.fail_in_core(
        story,
        (
            *PROFILE,
            *FORWARD,
            "!~/flashinfer/jit/core.py:144:build:run_ninja(self.build_dir, self.ninja_path, verbose)",
            "!%/subprocess.py:1955:_execute_child:raise child_exception_type(errno_num, err_msg, err_filename)",
        ),
        "FileNotFoundError: [Errno 2] No such file or directory: 'ninja'",
    )
    out.append(
        Case(
            "compile-0120-ninja",
            "FlashInfer wants ninja",
            "0.12.0",
            "kernel-compile-failed",
            wrap.chain(story.lines, wrap.cri()),
            ["cri"],
            suggest=[*act("install-compiler", "newer-cuda-toolkit"), {"flag": "VLLM_USE_FLASHINFER_SAMPLER"}],
            harmful=act("check-model-path", "re-download-weights"),
        )
    )

    story = Story("0.19.1", seed=727)
    until_load(story, SOLANO_24B, {}, length=8192)
    fail.fail_in_core(
        story,
        (
            *MODEL_EXECUTOR,
            *LOAD[:7],
            "!~/huggingface_hub/file_download.py:494:http_get:temp_file.write(chunk)",
        ),
        "OSError: [Errno 122] Disk quota exceeded",
    )
    out.append(
        Case(
            "disk-0191-quota",
            "the home directory's quota",
            "0.19.1",
            "disk-full",
            wrap.chain(
                story.lines,
                wrap.around(
                    "#SBATCH --gres=gpu:1\n+ export HF_HOME=/home/tessa/.cache/huggingface\n+ srun vllm serve solano/Solano-24B-2506"
                ),
            ),
            ["slurm"],
            suggest=[*act("free-disk"), {"flag": "HF_HOME"}, {"flag": "download_dir"}],
        )
    )

    story = Story("0.22.1", seed=728)
    boot.banner(story, TARN_70B, {})
    refused(
        story,
        "tarn-labs/Tarn-70b is not a local folder and is not a valid model identifier listed on 'https://huggingface.co/models'\nIf this is a private repository, make sure to pass a token having permission to this repo either by logging in with `hf auth login` or by passing `token=<your_token>`",
    )
    out.append(
        Case(
            "model-0220-case",
            "a wrong capital in the id",
            "0.22.1",
            "model-not-found",
            wrap.chain(story.lines, wrap.kubectl()),
            ["kubectl"],
            acceptable=["model-access-denied"],
            suggest=act("check-model-path"),
        )
    )

    lines = [
        Line(t, m)
        for t, m in (
            ("$ ./serve.sh", ""),
            ("INFO 03-14 09:21:07 [api_server.py:1043] vLLM API server version 0.8.5", ""),
            (
                "INFO 03-14 09:21:20 [gpu_model_runner.py:1329] Starting to load model tarn-labs/Tarn-32B-Instruct...",
                "",
            ),
            ("Loading safetensors checkpoint shards:   0% Completed | 0/14 [00:00<?, ?it/s]", ""),
            ("Loading safetensors checkpoint shards:  42% Completed | 6/14 [01:10<01:33, 11.70s/it]", ""),
            (
                "./serve.sh: line 7:  2214 Killed                  vllm serve tarn-labs/Tarn-32B-Instruct",
                "cause",
            ),
            ("$ dmesg | tail -1", ""),
            (
                "[ 8841.118] Out of memory: Killed process 2214 (vllm) total-vm:118304412kB, anon-rss:30811240kB",
                "echo",
            ),
        )
    ]
    out.append(
        Case(
            "host-085-killed",
            "the shell says Killed, dmesg says why",
            "0.8.5",
            "host-memory-exhausted",
            lines,
            ["shell"],
        )
    )
    out[-1].lined = False
    return out


def caches() -> list[Case]:
    """KV refusals whose numbers need care."""
    out = []
    story = Story("0.8.5", seed=741)
    budget = Budget(DEVICES["A10"], 0.9, 14.96, 1.22, 0.1)
    start(story, BRISA_8B, {"max_model_len": 65536}, length=65536)
    text = f"ValueError: To serve at least one request with the models's max seq len (65536), (8.00 GiB KV cache is needed, which is larger than the available KV cache memory ({budget.kv_bytes / GIB:.2f} GiB). Based on the available memory,  Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."
    fail.fail_in_core(story, KV_CHECK, text)
    fits = fit_tokens(budget.kv_bytes, BRISA_8B.token_bytes())
    out.append(
        Case(
            "kv-context-085-lost-estimate",
            "0.8.5 loses its own estimate by a slip; the arithmetic gives it",
            "0.8.5",
            "kv-cache-smaller-than-context",
            wrap.chain(story.lines, wrap.columns(120)),
            ["terminal-wrap", "tricky-no-estimate"],
            {"max_model_len": 65536, "needed_gib": 8.0, "available_gib": round(budget.kv_bytes / GIB, 2)},
            [{"flag": "max_model_len", "at_most": fits + 16}],
        )
    )

    story = Story("0.17.1", seed=742)
    tp, pp, length = 2, 2, 32768
    token = TARN_32B.token_bytes(tp, pp)
    budget = Budget(DEVICES["RTX4090"], 0.9, TARN_32B.weights_gib / 4, 1.6, 2.1)
    available = budget.kv_bytes
    start(
        story,
        TARN_32B,
        {"tensor_parallel_size": 2, "pipeline_parallel_size": 2, "max_model_len": 131072},
        length=131072,
        world=2,
        pp=2,
    )
    boot.profiled(story, budget)
    fits = fit_tokens(available, token)
    fail.fail_in_core(story, KV_CHECK, too_small(story, 131072, token * 131072, available, fits))
    out.append(
        Case(
            "kv-context-0171-stages",
            "two stages of two ranks; 0.17 counts a stage's own layers",
            "0.17.1",
            "kv-cache-smaller-than-context",
            wrap.chain(story.lines, wrap.syslog("pp", "vllm")),
            ["multi-rank", "pipeline", "syslog"],
            {
                "max_model_len": 131072,
                "needed_gib": round(token * 131072 / GIB, 2),
                "available_gib": round(available / GIB, 2),
                "pipeline_parallel_size": 2,
            },
            [{"flag": "max_model_len", "at_most": fits}],
        )
    )

    story = Story("0.22.1", seed=743)
    start(
        story,
        COBALT_H,
        {"tensor_parallel_size": 4, "max_model_len": 262144},
        length=262144,
        world=4,
        batched=8192,
        weights=37.2,
    )
    available = int(2.11 * GIB)
    story.lines.append(
        Line(
            f"{story.tag('rank0')}{story.prefix('INFO', 'gpu_worker.py:440')}Available KV cache memory: 2.11 GiB"
        )
    )
    fail.fail_in_core(story, KV_CHECK, too_small(story, 262144, 4.02 * GIB, available, 61440))
    out.append(
        Case(
            "kv-context-0220-hybrid",
            "a hybrid: 2.11 of 4.02 GiB would be 137,000 tokens by rule of three, 61,440 fit",
            "0.22.1",
            "kv-cache-smaller-than-context",
            wrap.chain(story.lines, wrap.compose("next")),
            ["compose", "multi-rank", "tricky-fixed-state"],
            {
                "max_model_len": 262144,
                "needed_gib": 4.02,
                "available_gib": 2.11,
                "estimated_max_model_len": 61440,
            },
            [{"flag": "max_model_len", "at_most": 61440}],
            [{"flag": "max_model_len", "at_least": 70000}],
        )
    )

    story = Story("0.24.0", seed=744)
    per_block = KESTREL_7B.token_bytes() * 16
    budget = Budget(DEVICES["L4"], 0.92, 14.25, 1.1, 0.3, 0.3)
    pin = 512 * per_block
    start(story, KESTREL_7B, {"num_gpu_blocks_override": 512, "max_model_len": 32768}, length=32768)
    boot.profiled(story, budget)
    story.say(
        "INFO",
        "v1/core/kv_cache_utils.py",
        "Overriding num_gpu_blocks=%d",
        f"Overriding num_gpu_blocks={budget.kv_bytes // per_block} with num_gpu_blocks_override=512",
    )
    fail.fail_in_core(story, KV_CHECK, too_small(story, 32768, KESTREL_7B.token_bytes() * 32768, pin, 8192))
    out.append(
        Case(
            "kv-pinned-0240-override",
            "512 blocks by hand; the memory would be there",
            "0.24.0",
            "kv-cache-pinned-too-small",
            wrap.chain(story.lines, wrap.cri()),
            ["cri", "tricky-override"],
            {"max_model_len": 32768, "num_gpu_blocks_override": 512},
            [
                {"flag": "num_gpu_blocks_override", "direction": "up"},
                {"action": "remove-flag"},
                {"flag": "max_model_len", "at_most": 8192},
            ],
        )
    )

    story = Story("0.16.0", seed=745)
    pin = 2 * GIB
    start(story, BRISA_8B, {"max_model_len": 32768}, length=32768)
    story.lines = [
        Line(
            line.text.replace("device_config=cuda", "device_config=cpu")
            .replace("backend=nccl", "backend=gloo")
            .replace("gpu_model_runner.py", "cpu_model_runner.py")
        )
        for line in story.lines
        if "FLASH_ATTN" not in line.text
    ]
    fail.fail_in_core(
        story,
        KV_CHECK,
        too_small(story, 32768, BRISA_8B.token_bytes() * 32768, pin, fit_tokens(pin, BRISA_8B.token_bytes())),
    )
    out.append(
        Case(
            "kv-pinned-0160-cpu",
            "2 GiB of VLLM_CPU_KVCACHE_SPACE",
            "0.16.0",
            "kv-cache-pinned-too-small",
            wrap.chain(
                story.lines,
                wrap.around(
                    "$ VLLM_CPU_KVCACHE_SPACE=2 vllm serve brisa-ai/Brisa-8B-Chat --max-model-len 32768"
                ),
            ),
            ["cpu", "shell"],
            {"max_model_len": 32768, "vllm_cpu_kvcache_space_gib": 2},
            [
                {"flag": "VLLM_CPU_KVCACHE_SPACE", "direction": "up"},
                {"flag": "max_model_len", "at_most": 16384},
            ],
        )
    )

    story = Story("0.27.1", seed=746)
    budget = Budget(DEVICES["L4"], 0.92, 20.6, 0.9, 0.2, 0.55)
    start(story, SOLANO_24B, {"quantization": "fp8", "max_model_len": 4096}, length=4096, weights=20.6)
    boot.profiled(story, budget)
    fail.fail_in_core(story, KV_CHECK, no_blocks(story))
    high: list[Advice] = [
        {"flag": "gpu_memory_utilization", "direction": "up"},
        *act("smaller-or-quantized-model"),
        {"flag": "tensor_parallel_size", "direction": "up"},
    ]
    out.append(
        Case(
            "kv-none-0271-small-estimate",
            "an estimate of 0.55 GiB is innocent: the weights alone exceed the share",
            "0.27.1",
            "no-kv-cache-blocks",
            wrap.chain(story.lines, wrap.kubectl()),
            ["kubectl", "tricky-innocent-estimate"],
            {"graph_estimate_gib": 0.55, "available_gib": round(budget.kv_bytes / GIB, 2)},
            high,
        )
    )

    story = Story("0.5.4", seed=747, site="/opt/conda/lib/python3.10/site-packages")
    v0.banner(story, MIRADOR_7B, {"gpu_memory_utilization": 0.3, "tensor_parallel_size": 2})
    v0.engine(story, MIRADOR_7B, length=4096, world=2, dtype="float16")
    story.world = 2
    v0.load(story, MIRADOR_7B, 6.3, world=2)
    v0.blocks(story, 0, 1024, 4096)
    v0.fail(story, v0.INIT_CACHE, NO_BLOCKS)
    story.raw(
        "ERROR 03-14 09:22:10 multiproc_worker_utils.py:120] Worker VllmWorkerProcess pid 4401 died, exit code: -15\nINFO 03-14 09:22:10 multiproc_worker_utils.py:123] Killing local vLLM worker processes"
    )
    out.append(
        Case(
            "kv-none-054-workers",
            "two ranks; the worker's death is only the end",
            "0.5.4",
            "no-kv-cache-blocks",
            wrap.chain(story.lines, wrap.stamped("[2026-03-14 09:21:{s}] ")),
            ["logger-prefix", "multi-rank", "v0"],
            {"gpu_blocks": 0, "gpu_memory_utilization": 0.3},
        )
    )
    return out


def cases() -> list[Case]:
    """This family's cases."""
    return [*allocators(), *refusals(), *caches()]


__all__ = ["KESTREL_2B", "cases"]
