"""Refusals by other libraries, in rarer words."""

from . import boot, fail, wrap
from .case import Case, act
from .fail import FORWARD, LOAD, MODEL_EXECUTOR, PROFILE
from .lengths import refused
from .machine import (
    BRISA_8B,
    COBALT_MOE,
    KESTREL_7B,
    SOLANO_24B,
    TARN_70B,
)
from .occupied import until_device
from .story import Line, Story
from .weights import until_load


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


def cases() -> list[Case]:
    """This family's cases."""
    return [*refusals()]
