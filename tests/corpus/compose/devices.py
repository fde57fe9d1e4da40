"""Devices and drivers: no-gpu-visible, not-enough-gpus, cuda-driver-mismatch."""

from . import fail, v0, wrap
from .case import Advice, Case, act
from .machine import (
    BRISA_8B,
    MIRADOR_7B,
    TARN_32B,
    TARN_70B,
)
from .occupied import until_device
from .story import Story


def devices() -> list[Case]:
    """no-gpu-visible, not-enough-gpus, cuda-driver-mismatch."""
    out = []
    story = Story("0.4.2", seed=221, site="/usr/local/lib/python3.10/dist-packages")
    v0.banner(story, MIRADOR_7B, {"dtype": "half"})
    v0.engine(story, MIRADOR_7B, length=4096, dtype="float16")
    v0.fail(
        story,
        (
            *v0.LOADING[:4],
            "worker/worker.py:Worker.init_device:torch.cuda.set_device(",
            "!~/torch/cuda/__init__.py:399:set_device:torch._C._cuda_setDevice(device)",
            "!~/torch/cuda/__init__.py:293:_lazy_init:torch._C._cuda_init()",
        ),
        "RuntimeError: No CUDA GPUs are available",
    )
    out.append(
        Case(
            "nogpu-042-plain",
            "CUDA_VISIBLE_DEVICES is empty",
            "0.4.2",
            "no-gpu-visible",
            wrap.chain(
                story.lines,
                wrap.around(
                    "+ export CUDA_VISIBLE_DEVICES=\n+ python -m vllm.entrypoints.openai.api_server --model mirador/mirador-7b-hf --dtype half"
                ),
            ),
            ["shell", "v0"],
        )
    )

    story = Story("0.19.1", seed=222)
    story.raw(
        "/usr/local/lib/python3.12/dist-packages/torch/cuda/__init__.py:1064: UserWarning: Can't initialize NVML\n  raw_cnt = _raw_device_count_nvml()"
    )
    head = [
        '  File "/usr/local/bin/vllm", line 10, in <module>',
        "    sys.exit(main())",
        "             ^^^^^^",
    ]
    story.trace(
        [
            *head,
            *story.frames(
                "entrypoints/cli/main.py:main:cmd.subparser_init(subparsers)",
                "entrypoints/cli/serve.py:ServeSubcommand.subparser_init:make_arg_parser(",
                "engine/arg_utils.py:AsyncEngineArgs.add_cli_args:EngineArgs.add_cli_args(",
                "engine/arg_utils.py:EngineArgs.add_cli_args:get_kwargs(VllmConfig)",
                "config/device.py:DeviceConfig.__post_init__:raise RuntimeError(",
            ),
        ],
        "RuntimeError: Failed to infer device type, please set the environment variable `VLLM_LOGGING_LEVEL=DEBUG` to turn on verbose logging to help debug the issue.",
        proc="none",
        mark="cause",
    )
    out.append(
        Case(
            "nogpu-0191-compose",
            "compose file without a device reservation",
            "0.19.1",
            "no-gpu-visible",
            wrap.chain(story.lines, wrap.compose("vllm-openai-1")),
            ["compose"],
        )
    )
    out[-1].version = None

    story = Story("0.10.2", seed=223)
    until_device(story, BRISA_8B, {"max_model_len": 8192}, length=8192)
    fail.fail_in_core(
        story,
        (
            *fail.MODEL_EXECUTOR,
            "uniproc_executor.py:UniProcExecutor._init_executor:init_device",
            *fail.UNIPROC,
            "worker_base.py:WorkerWrapperBase.init_device:self.worker.init_device()",
            "v1/worker/gpu_worker.py:Worker.init_device:current_platform.set_device(",
            "platforms/cuda.py:CudaPlatformBase.set_device:torch.cuda.set_device(",
            "!~/torch/cuda/__init__.py:412:_lazy_init:torch._C._cuda_init()",
        ),
        "RuntimeError: No CUDA GPUs are available",
    )
    out.append(
        Case(
            "nogpu-0102-mig",
            "a MIG id that no longer exists",
            "0.10.2",
            "no-gpu-visible",
            wrap.chain(
                story.lines,
                wrap.around('declare -x CUDA_VISIBLE_DEVICES="MIG-0fd1a2c4-51e3-5a0e-9f25-2d1b7c1a99e0"'),
            ),
            ["shell"],
        )
    )

    story = Story("0.16.0", seed=224)
    until_device(story, TARN_70B, {"tensor_parallel_size": 4}, length=8192, world=4)
    for rank in range(4):
        fail.fail_at_worker_start(
            story,
            rank,
            "init_device",
            (
                "worker_base.py:WorkerWrapperBase.init_device:self.worker.init_device()",
                "v1/worker/gpu_worker.py:Worker.init_device:assert self.parallel_config.local_world_size",
            ),
            "AssertionError: local_world_size (4) must be less than or equal to the number of visible devices (2).",
            mark="cause" if rank == 0 else "echo",
        )
    fail.fail_after_worker_start(story)
    few: list[Advice] = [{"flag": "tensor_parallel_size", "at_most": 2}]
    out.append(
        Case(
            "fewgpu-0160-four-of-two",
            "four ranks, two visible cards",
            "0.16.0",
            "not-enough-gpus",
            wrap.chain(story.lines, wrap.cri()),
            ["cri", "multi-rank"],
            {"tensor_parallel_size": 4},
            few,
        )
    )

    story = Story("0.5.4", seed=225, site="/home/ray/anaconda3/lib/python3.10/site-packages")
    v0.banner(story, TARN_70B, {"tensor_parallel_size": 8, "distributed_executor_backend": "ray"})
    story.raw("2026-03-14 09:21:12,402\tINFO worker.py:1786 -- Started a local Ray instance.")
    story.trace(
        story.frames(
            "!%/runpy.py:196:_run_module_as_main:return _run_code(code, main_globals, None,",
            "executor/ray_utils.py:initialize_ray_cluster:raise ValueError(",
        ),
        "ValueError: The number of required GPUs exceeds the total number of available GPUs in the placement group.",
        proc="none",
        mark="cause",
    )
    out.append(
        Case(
            "fewgpu-054-ray",
            "eight ranks on a Ray node with fewer cards",
            "0.5.4",
            "not-enough-gpus",
            story.lines,
            ["bare", "ray", "v0"],
            {"tensor_parallel_size": 8},
            [{"flag": "tensor_parallel_size", "direction": "down"}, *act("add-nodes")],
        )
    )

    story = Story("0.8.5", seed=226)
    until_device(story, TARN_32B, {"tensor_parallel_size": 2}, length=8192, world=2)
    fail.fail_at_worker_start(
        story,
        1,
        "init_device",
        (
            "v1/worker/gpu_worker.py:Worker.init_device:torch.cuda.set_device(",
            "!~/torch/cuda/__init__.py:476:set_device:torch._C._cuda_setDevice(device)",
        ),
        "RuntimeError: CUDA error: invalid device ordinal\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
    )
    fail.fail_after_worker_start(story)
    out.append(
        Case(
            "fewgpu-085-ordinal",
            "rank 1 finds no second card",
            "0.8.5",
            "not-enough-gpus",
            wrap.chain(story.lines, wrap.ansi()),
            ["ansi", "multi-rank"],
            {"tensor_parallel_size": 2},
            [{"flag": "tensor_parallel_size", "at_most": 1}, {"flag": "CUDA_VISIBLE_DEVICES"}],
        )
    )
    return out


def drivers() -> list[Case]:
    """cuda-driver-mismatch."""
    out = []
    for id_, release, seed, error, wrapper, tag, title in (
        (
            "driver-0112-old",
            "0.11.2",
            231,
            "RuntimeError: The NVIDIA driver on your system is too old (found version 12020). Please update your GPU driver by downloading and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx Alternatively, go to: https://pytorch.org to install a PyTorch version that has been compiled with your version of the CUDA driver.",
            wrap.syslog("dl-02", "vllm"),
            "syslog",
            "driver of CUDA 12.2",
        ),
        (
            "driver-0092-image",
            "0.9.2",
            232,
            "RuntimeError: CUDA error: no kernel image is available for execution on the device\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n",
            wrap.quote(),
            "markdown-quote",
            "the build has no kernels for this card",
        ),
        (
            "driver-0240-803",
            "0.24.0",
            233,
            "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that might have already set an error? Error 803: system has unsupported display driver / cuda driver combination",
            wrap.kubectl(),
            "kubectl",
            "compat libraries in the image against a newer driver",
        ),
    ):
        story = Story(release, seed=seed)
        until_device(story, BRISA_8B, {"max_model_len": 8192}, length=8192)
        fail.fail_in_core(
            story,
            (
                *fail.MODEL_EXECUTOR,
                "uniproc_executor.py:UniProcExecutor._init_executor:init_device",
                *fail.UNIPROC,
                "worker_base.py:WorkerWrapperBase.init_device:self.worker.init_device()",
                "v1/worker/gpu_worker.py:Worker.init_device:set_device(",
            ),
            error,
        )
        out.append(Case(id_, title, release, "cuda-driver-mismatch", wrap.chain(story.lines, wrapper), [tag]))
    return out


def cases() -> list[Case]:
    """This family's cases."""
    return [*devices(), *drivers()]
