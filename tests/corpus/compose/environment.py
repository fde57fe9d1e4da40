"""What the machine refuses: memory of others, devices, drivers, NCCL, shared memory, host memory, compilers, ports, disks, signals."""

from . import boot, fail, v0, wrap
from .case import DOWN, Advice, Case, act
from .kv import start, too_small
from .machine import (
    BRISA_8B,
    COBALT_MOE,
    DEVICES,
    GIB,
    KESTREL_7B,
    MIRADOR_7B,
    MIRADOR_13B,
    SOLANO_24B,
    TARN_32B,
    TARN_70B,
    Budget,
    Model,
    fit_tokens,
)
from .memory import until_load
from .story import Line, Story

INIT = (*fail.MODEL_EXECUTOR, *fail.INIT_DEVICE)


def until_device(
    story: Story, model: Model, args: dict[str, object], *, length: int, world: int = 1, batched: int = 2048
) -> None:
    """From the banner to the engine's first words."""
    boot.banner(story, model, args)
    boot.configured(story, model, length=length, batched=batched)
    boot.engine(story, model, length=length, world=world)


def too_little(story: Story, free: float, total: float, util: float, index: int) -> str:
    """The start-up check of free memory (0.9.1+)."""
    device = f"cuda:{index} " if story.at_least("0.14.0") else ""
    wanted = round(total * util, 2)
    return (
        f"ValueError: Free memory on device {device}({round(free, 2)}/{round(total, 2)} GiB) on startup is less than desired GPU memory utilization ({util}, {wanted} GiB). "
        "Decrease GPU memory utilization or reduce GPU memory used by other processes."
    )


def taken() -> list[Case]:
    """gpu-memory-taken."""
    out = []
    for id_, release, seed, device, free, util, wrapper, tag in (
        ("taken-092-desktop", "0.9.2", 201, "RTX4090", 20.11, 0.9, None, "bare"),
        (
            "taken-0171-jupyter",
            "0.17.1",
            202,
            "A100-40",
            31.2,
            0.9,
            wrap.fence(
                "Second notebook cell fails:", "nvidia-smi shows python3 with 8 GB (my first kernel)."
            ),
            "markdown-fence",
        ),
        (
            "taken-0330-journal",
            "0.33.0",
            203,
            "H100",
            41.72,
            0.92,
            wrap.journald("hgx1", "vllm-chat"),
            "journald",
        ),
    ):
        story = Story(release, seed=seed)
        until_device(story, KESTREL_7B, {"max_model_len": 16384}, length=16384)
        boot.distribute(story)
        fail.fail_in_core(story, INIT, too_little(story, free, DEVICES[device], util, 0))
        fail.leaked(story)
        numbers = {
            "gpu_free_gib": free,
            "gpu_total_gib": DEVICES[device],
            "requested_gib": round(DEVICES[device] * util, 2),
            "gpu_memory_utilization": util,
        }
        out.append(
            Case(
                id_,
                f"{free} of {DEVICES[device]} GiB are free",
                release,
                "gpu-memory-taken",
                wrap.chain(story.lines, *([wrapper] if wrapper else [])),
                [tag],
                numbers,
            )
        )

    story = Story("0.27.1", seed=204)
    until_device(story, TARN_70B, {"tensor_parallel_size": 8, "max_model_len": 32768}, length=32768, world=8)
    boot.distribute(story)
    story.workers_named = False
    fail.fail_at_worker_start(
        story, 5, "init_device", fail.INIT_DEVICE, too_little(story, 60.2, DEVICES["H100"], 0.92, 5)
    )
    story.raw("node1:412:1990 [3] NCCL INFO [Service thread] Connection closed by localRank 5")
    fail.fail_after_worker_start(story)
    out.append(
        Case(
            "taken-0270-rank5",
            "one of eight cards has a tenant",
            "0.27.1",
            "gpu-memory-taken",
            wrap.chain(story.lines, wrap.kubectl()),
            ["kubectl", "multi-rank"],
            {
                "gpu_free_gib": 60.2,
                "gpu_total_gib": DEVICES["H100"],
                "gpu_memory_utilization": 0.92,
                "tensor_parallel_size": 8,
            },
        )
    )

    story = Story("0.20.2", seed=205)
    until_device(story, COBALT_MOE, {"max_model_len": 32768, "gpu_memory_utilization": 0.9}, length=32768)
    boot.distribute(story)
    fail.fail_in_core(story, INIT, too_little(story, 92.4, 119.67, 0.9, 0))
    shell = "user@spark:~$ free -g | head -2\n               total        used        free      shared  buff/cache   available\nMem:             119          27          12           0          80          92\nuser@spark:~$ vllm serve cobalt-ml/Cobalt-30B-A3B --max-model-len 32768 --gpu-memory-utilization 0.9"
    out.append(
        Case(
            "taken-0202-unified",
            "unified memory: the host itself holds 27 GB",
            "0.20.2",
            "gpu-memory-taken",
            wrap.chain(story.lines, wrap.around(shell)),
            ["shell", "unified-memory"],
            {"gpu_free_gib": 92.4, "gpu_total_gib": 119.67, "gpu_memory_utilization": 0.9},
        )
    )

    story = Story("0.19.1", seed=206)
    length = 65536
    start(story, BRISA_8B, {"max_model_len": length}, length=length)
    budget = Budget(DEVICES["L4"], 0.9, 14.96, 1.19, 0.2)
    boot.profiled(story, budget)
    refused = too_small(
        story,
        length,
        BRISA_8B.token_bytes() * length,
        budget.kv_bytes,
        fit_tokens(budget.kv_bytes, BRISA_8B.token_bytes()),
    )
    fail.fail_in_core(story, fail.KV_CHECK, refused, mark="", again="")
    story.raw("[entrypoint] vllm exited with 1, restarting in 5 s with --max-model-len 16384")
    second = Story("0.19.1", seed=207, start="2026-03-14 09:23:40")
    until_device(second, BRISA_8B, {"max_model_len": 16384}, length=16384)
    boot.distribute(second)
    fail.fail_in_core(second, INIT, too_little(second, 3.02, DEVICES["L4"], 0.9, 0))
    out.append(
        Case(
            "taken-0191-orphan",
            "the first try's engine core still holds the card",
            "0.19.1",
            "gpu-memory-taken",
            wrap.chain([*story.lines, *second.lines], wrap.compose("serve-1")),
            ["compose", "tricky-zombie", "two-boots"],
            {"gpu_free_gib": 3.02, "gpu_total_gib": DEVICES["L4"]},
            act("free-other-process"),
            [{"flag": "gpu_memory_utilization", "direction": "up"}],
            ["kv-cache-smaller-than-context"],
        )
    )
    return out


def changed() -> list[Case]:
    """gpu-memory-changed-while-profiling."""
    out = []
    why = "This happens when other processes sharing the same container release GPU memory while vLLM is profiling during initialization. To fix this, ensure consistent GPU memory allocation or isolate vLLM in its own container."
    for id_, release, seed, before, after, wrapper, tag in (
        ("changed-0112-docker", "0.11.2", 211, "60.42", "71.05", wrap.docker_json(), "docker-json"),
        ("changed-0310-plain", "0.31.0", 212, "20.4", "22.9", None, "bare"),
    ):
        story = Story(release, seed=seed)
        start(story, KESTREL_7B, {"max_model_len": 8192}, length=8192)
        error = f"AssertionError: Error in memory profiling. Initial free memory {before} GiB, current free memory {after} GiB. {why}"
        fail.fail_in_core(
            story,
            (
                *fail.KV_CACHES,
                "v1/engine/core.py:EngineCore._initialize_kv_caches:self.model_executor.determine_available_memory(",
                "v1/executor/abstract.py:Executor.determine_available_memory:self.collective_rpc(",
                *fail.UNIPROC,
                "v1/worker/gpu_worker.py:Worker.determine_available_memory:assert self.init_snapshot.free_memory",
            ),
            error,
        )
        out.append(
            Case(
                id_,
                f"free memory rose from {before} to {after} GiB",
                release,
                "gpu-memory-changed-while-profiling",
                wrap.chain(story.lines, *([wrapper] if wrapper else [])),
                [tag],
                {"initial_free_gib": float(before), "current_free_gib": float(after)},
            )
        )
    story = Story("0.5.4", seed=213, site="/opt/conda/lib/python3.10/site-packages")
    v0.banner(story, MIRADOR_7B, {"gpu_memory_utilization": 0.5})
    v0.engine(story, MIRADOR_7B, length=4096, dtype="float16")
    v0.load(story, MIRADOR_7B, 12.55)
    error = "AssertionError: Error in memory profiling. Initial free memory 23622320128, current free memory 30064771072. This happens when the GPU memory was not properly cleaned up before initializing the vLLM instance."
    v0.fail(
        story,
        (*v0.PROFILE[:6], "worker/worker.py:Worker.determine_num_available_blocks:assert peak_memory > 0"),
        error,
    )
    out.append(
        Case(
            "changed-054-bytes",
            "V0 prints bytes: 22 GiB before, 28 after",
            "0.5.4",
            "gpu-memory-changed-while-profiling",
            wrap.chain(story.lines, wrap.stamped("2026-03-14 09:21:{s} | INFO | stderr | ")),
            ["logger-prefix", "v0"],
            {"initial_free_gib": 22.0, "current_free_gib": 28.0},
        )
    )
    return out


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
        f'  File "/usr/local/bin/vllm", line 10, in <module>',
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


def collectives() -> list[Case]:
    """nccl-failed, shm-too-small."""
    out = []
    pynccl = (
        "!~/vllm/distributed/parallel_state.py:1320:init_model_parallel_group:return GroupCoordinator(",
        "device_communicators/pynccl.py:PyNcclCommunicator.__init__:self.all_reduce(data)",
        "device_communicators/pynccl_wrapper.py:NCCLLibrary.NCCL_CHECK:raise RuntimeError(",
    )
    story = Story("0.9.2", seed=241)
    until_device(story, TARN_32B, {"tensor_parallel_size": 2}, length=8192, world=2)
    boot.distribute(story)
    story.lines = story.lines[:-2]
    story.raw(
        "ip-10-8-1-4:221:377 [0] misc/socket.cc:494 NCCL WARN socketStartConnect: Connect to 10.8.1.7<44213> failed : No route to host",
        mark="cause",
    )
    for rank in (0, 1):
        fail.fail_at_worker_start(
            story,
            rank,
            "init_device",
            pynccl,
            "RuntimeError: NCCL error: remote process exited or there was a network error",
            mark="echo",
        )
    fail.fail_after_worker_start(story)
    out.append(
        Case(
            "nccl-092-route",
            "NCCL picks an interface without a route",
            "0.9.2",
            "nccl-failed",
            story.lines,
            ["bare", "multi-rank"],
            {"tensor_parallel_size": 2},
            [*act("fix-nccl"), {"flag": "NCCL_SOCKET_IFNAME"}],
        )
    )

    story = Story("0.12.0", seed=242)
    until_device(story, TARN_32B, {"tensor_parallel_size": 2}, length=8192, world=2)
    for rank in (1, 0):
        fail.fail_at_worker_start(
            story,
            rank,
            "init_device",
            pynccl,
            "RuntimeError: NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
            mark="cause" if rank == 1 else "echo",
        )
    fail.fail_after_worker_start(story)
    out.append(
        Case(
            "nccl-0122-cuda",
            "unhandled cuda error in the first all-reduce",
            "0.12.0",
            "nccl-failed",
            wrap.chain(story.lines, wrap.docker_json()),
            ["docker-json", "multi-rank"],
            {"tensor_parallel_size": 2},
            [*act("fix-nccl"), {"flag": "NCCL_P2P_DISABLE"}],
        )
    )

    story = Story("0.6.6.post1", seed=243, site="/opt/venv/lib/python3.10/site-packages")
    v0.banner(story, TARN_32B, {"tensor_parallel_size": 2})
    v0.engine(story, TARN_32B, length=8192, world=2)
    v0.fail_in_process(
        story,
        (
            *v0.LOADING[:1],
            "distributed/parallel_state.py:init_distributed_environment:torch.distributed.init_process_group(",
            "!~/torch/distributed/distributed_c10d.py:1741:init_process_group:barrier()",
        ),
        "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:317, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5\nncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error. \nLast error:\nError: failed to open /sys/class/infiniband: permission denied",
    )
    out.append(
        Case(
            "nccl-066-system",
            "ncclSystemError in a container",
            "0.6.6.post1",
            "nccl-failed",
            wrap.chain(story.lines, wrap.compose("tp2")),
            ["compose", "v0"],
            {"tensor_parallel_size": 2},
        )
    )

    story = Story("0.8.5", seed=244)
    until_device(story, TARN_32B, {"tensor_parallel_size": 4}, length=8192, world=4)
    boot.distribute(story)
    story.lines = story.lines[:-2]
    story.raw(
        "7f21b0c4d5:301:501 [2] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-Xq1TbV to 33030532 bytes",
        mark="cause",
    )
    story.raw(
        "7f21b0c4d5:301:501 [2] misc/shmutils.cc:113 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-Xq1TbV (size 33030528)",
        mark="echo",
    )
    fail.fail_at_worker_start(
        story,
        2,
        "init_device",
        pynccl,
        "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",
        mark="",
    )
    fail.fail_after_worker_start(story)
    out.append(
        Case(
            "shm-085-nccl",
            "NCCL cannot extend its segment in /dev/shm",
            "0.8.5",
            "shm-too-small",
            wrap.chain(story.lines, wrap.compose("llm-tp4")),
            ["compose", "multi-rank", "tricky-nccl-shm"],
            {"tensor_parallel_size": 4},
            harmful=[{"flag": "gpu_memory_utilization", "direction": "up"}, DOWN, *act("free-disk")],
        )
    )

    story = Story("0.4.2", seed=245, site="/usr/local/lib/python3.10/dist-packages")
    v0.banner(story, TARN_32B, {"tensor_parallel_size": 2})
    v0.engine(story, TARN_32B, length=8192, world=2)
    story.raw(
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
        mark="cause",
    )
    story.raw(
        "[2026-03-14 09:21:33,118 E 88 402] logging.cc:108: Stack trace: \n*** SIGBUS received at time=1773480093 on cpu 14 ***\nFatal Python error: Bus error\n\nThread 0x00007f0b2d7fa640 (most recent call first):\n  <no Python frame>\nBus error (core dumped)"
    )
    out.append(
        Case(
            "shm-042-bus",
            "bus error in a container with 64 MB of shared memory",
            "0.4.2",
            "shm-too-small",
            story.lines,
            ["bare", "v0"],
            {"tensor_parallel_size": 2},
        )
    )

    story = Story("0.29.0", seed=246)
    until_device(story, TARN_32B, {"tensor_parallel_size": 2}, length=8192, world=2)
    fail.fail_in_core(
        story,
        (
            *fail.MODEL_EXECUTOR,
            "v1/executor/multiproc_executor.py:MultiprocExecutor._init_executor:MessageQueue(",
            "device_communicators/shm_broadcast.py:MessageQueue.__init__:ShmRingBuffer(",
            "device_communicators/shm_broadcast.py:ShmRingBuffer.__init__:shared_memory.SharedMemory(",
            "!%/multiprocessing/shared_memory.py:118:__init__:os.ftruncate(self._fd, size)",
        ),
        "OSError: [Errno 28] No space left on device: '/dev/shm/psm_41be77d0'",
    )
    out.append(
        Case(
            "shm-0290-queue",
            "the message queue's segment does not fit /dev/shm",
            "0.29.0",
            "shm-too-small",
            wrap.chain(story.lines, wrap.kubectl()),
            ["kubectl"],
            {"tensor_parallel_size": 2},
        )
    )
    return out


def host() -> list[Case]:
    """host-memory-exhausted."""
    out = []
    story = Story("0.15.1", seed=251)
    until_load(story, TARN_70B, {"tensor_parallel_size": 2, "max_model_len": 8192}, length=8192, world=2)
    boot.shards(story, TARN_70B, upto=11)
    story.raw(
        "[Sat Mar 14 09:22:31 2026] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=docker-9f1.scope,mems_allowed=0,oom_memcg=/system.slice/docker-9f1.scope,task_memcg=/system.slice/docker-9f1.scope,task=VLLM::Worker_TP,pid=8810,uid=0",
        mark="cause",
    )
    story.raw(
        "[Sat Mar 14 09:22:31 2026] Memory cgroup out of memory: Killed process 8810 (VLLM::Worker_TP) total-vm:201932484kB, anon-rss:66941120kB, file-rss:98212kB, shmem-rss:12kB, UID:0 pgtables:140120kB oom_score_adj:0",
        mark="echo",
    )
    story.say(
        "ERROR",
        "v1/executor/multiproc_executor.py",
        "died unexpectedly",
        "Worker proc VllmWorker-1 died unexpectedly, shutting down executor.",
    )
    fail.fail_in_client(story)
    out.append(
        Case(
            "host-0151-dmesg",
            "the kernel's memcg killer takes a worker while loading",
            "0.15.1",
            "host-memory-exhausted",
            story.lines,
            ["bare", "dmesg", "multi-rank"],
            {"tensor_parallel_size": 2},
        )
    )

    story = Story("0.26.0", seed=252)
    until_load(story, SOLANO_24B, {"cpu_offload_gb": 40}, length=32768)
    boot.shards(story, SOLANO_24B, upto=7)
    story.raw(
        "slurmstepd: error: Detected 1 oom_kill event in StepId=481516.0. Some of the step tasks have been OOM Killed.",
        mark="cause",
    )
    story.raw("srun: error: gpu-node07: task 0: Out Of Memory", mark="echo")
    out.append(
        Case(
            "host-0260-slurm",
            "slurm's memory limit",
            "0.26.0",
            "host-memory-exhausted",
            wrap.chain(
                story.lines,
                wrap.around(
                    "#SBATCH --mem=32G\n#SBATCH --gres=gpu:1\n+ srun vllm serve solano/Solano-24B-2506 --cpu-offload-gb 40"
                ),
            ),
            ["slurm"],
            {"cpu_offload_gb": 40},
        )
    )

    story = Story("0.10.2", seed=253)
    until_load(story, TARN_32B, {"max_model_len": 8192}, length=8192)
    boot.shards(story, TARN_32B, upto=5)
    lines = wrap.chain(story.lines, wrap.journald("nuc-9", "vllm"))
    lines += [
        Line(
            "Mar 14 09:22:40 nuc-9 systemd[1]: vllm.service: A process of this unit has been killed by the OOM killer.",
            "cause",
        ),
        Line(
            "Mar 14 09:22:40 nuc-9 systemd[1]: vllm.service: Main process exited, code=killed, status=9/KILL"
        ),
        Line("Mar 14 09:22:40 nuc-9 systemd[1]: vllm.service: Failed with result 'oom-kill'.", "echo"),
    ]
    out.append(
        Case(
            "host-0102-systemd",
            "systemd reports the OOM killer",
            "0.10.2",
            "host-memory-exhausted",
            lines,
            ["journald"],
        )
    )

    story = Story("0.31.0", seed=254)
    until_load(story, COBALT_MOE, {"max_model_len": 8192}, length=8192)
    boot.shards(story, COBALT_MOE, upto=9)
    lines = wrap.chain(story.lines, wrap.kubectl())
    lines += [
        Line(t, m)
        for t, m in (
            ("---", ""),
            ("$ kubectl describe pod moe-0 | grep -A6 'Last State'", ""),
            ("    Last State:     Terminated", ""),
            ("      Reason:       OOMKilled", "cause"),
            ("      Exit Code:    137", "echo"),
            ("      Started:      Sat, 14 Mar 2026 09:21:02 +0000", ""),
            ("    Limits:  memory: 24Gi, nvidia.com/gpu: 1", ""),
        )
    ]
    out.append(
        Case(
            "host-0310-describe",
            "the pod's description tells what the log does not",
            "0.31.0",
            "host-memory-exhausted",
            lines,
            ["kubectl"],
            {"exit_code": 137},
        )
    )
    return out


def compilers() -> list[Case]:
    """kernel-compile-failed."""
    out = []
    forward = (*fail.PROFILE, *fail.FORWARD)
    for id_, release, seed, error, first, wrapper, tag, title in (
        (
            "compile-085-cc",
            "0.8.5",
            261,
            "RuntimeError: Failed to find C compiler. Please specify via CC environment variable or set triton.knobs.build.impl.",
            0,
            None,
            "bare",
            "Triton finds no C compiler",
        ),
        (
            "compile-0141-cxx",
            "0.14.1",
            262,
            "torch._inductor.exc.InductorError: InvalidCxxCompiler: No working C++ compiler found in torch._inductor.config.cpp.cxx: (None, 'g++')",
            0,
            wrap.compose("slim"),
            "compose",
            "a slim image without g++",
        ),
        (
            "compile-0220-python",
            "0.22.1",
            263,
            "subprocess.CalledProcessError: Command '['/usr/bin/gcc', '/tmp/tmp9x2m/cuda_utils.c', '-O3', '-shared', '-fPIC', '-o', '/tmp/tmp9x2m/cuda_utils.so', '-lcuda', '-I/usr/include/python3.12']' returned non-zero exit status 1.",
            0,
            wrap.ansi(),
            "ansi",
            "Python.h is missing",
        ),
        (
            "compile-0290-ptxas",
            "0.29.0",
            264,
            "triton.runtime.errors.PTXASError: PTXAS error: Internal Triton PTX codegen error\n`ptxas` stderr:\nptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'\n\nRepro command: /usr/local/lib/python3.12/dist-packages/triton/backends/nvidia/bin/ptxas -lineinfo -v --gpu-name=sm_121a /tmp/tmpq1.ptx -o /tmp/tmpq1.ptx.o",
            2,
            wrap.fence("DGX Spark, fresh container:"),
            "markdown-fence",
            "ptxas does not know the card",
        ),
        (
            "compile-0112-nvcc",
            "0.11.2",
            265,
            "RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist",
            0,
            wrap.actions(),
            "github-actions",
            "FlashInfer wants nvcc",
        ),
    ):
        story = Story(release, seed=seed)
        until_load(story, KESTREL_7B, {"max_model_len": 8192}, length=8192)
        boot.shards(story, KESTREL_7B)
        boot.loaded(story, 14.25)
        if id_.endswith("python"):
            story.raw(
                "/tmp/tmp9x2m/cuda_utils.c:6:10: fatal error: Python.h: No such file or directory\n    6 | #include <Python.h>\n      |          ^~~~~~~~~~\ncompilation terminated.",
                proc="core",
                mark="",
            )
            story.lines[-4] = Line(story.lines[-4].text, "cause")
        before = len(story.lines)
        fail.fail_in_core(story, forward, error, mark="echo" if id_.endswith("python") else "cause")
        if first:
            _move(story.lines, before, first)
        out.append(
            Case(
                id_,
                title,
                release,
                "kernel-compile-failed",
                wrap.chain(story.lines, *([wrapper] if wrapper else [])),
                [tag],
                suggest=[
                    *act("newer-cuda-toolkit", "install-compiler"),
                    {"flag": "enforce_eager"},
                    {"flag": "VLLM_USE_FLASHINFER_SAMPLER"},
                ],
            )
        )
    return out


def _move(lines: list[Line], start_at: int, down: int) -> None:
    """Put the marks of a message `down` lines lower, where it becomes specific."""
    for at in [n for n in range(start_at, len(lines)) if lines[n].mark]:
        lines[at + down], lines[at] = Line(lines[at + down].text, lines[at].mark), Line(lines[at].text)


def ports_and_disks() -> list[Case]:
    """port-in-use, disk-full."""
    out = []
    story = Story("0.5.4", seed=271, site="/opt/conda/lib/python3.10/site-packages")
    v0.banner(story, MIRADOR_7B, {"port": 8000})
    v0.engine(story, MIRADOR_7B, length=4096, dtype="float16")
    v0.load(story, MIRADOR_7B, 12.55)
    v0.blocks(story, 2711, 512, 4096)
    v0.captured(story)
    story.raw(
        "INFO:     Started server process [2214]\nINFO:     Waiting for application startup.\nINFO:     Application startup complete."
    )
    story.raw(
        "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use",
        mark="cause",
    )
    story.raw("INFO:     Waiting for application shutdown.\nINFO:     Application shutdown complete.")
    out.append(
        Case(
            "port-054-late",
            "all went well until the bind; looks healthy at first",
            "0.5.4",
            "port-in-use",
            story.lines,
            ["bare", "v0"],
            {"port": 8000},
        )
    )

    story = Story("0.14.1", seed=272)
    boot.banner(story, BRISA_8B, {"port": 8080})
    story.trace(
        story.frames(
            *fail.SERVE,
            "openai/api_server.py:run_server:setup_server(args)",
            "openai/api_server.py:setup_server:create_server_socket(",
            "openai/api_server.py:create_server_socket:sock.bind(addr)",
        ),
        "OSError: [Errno 98] Address already in use",
        proc="api",
        mark="cause",
    )
    out.append(
        Case(
            "port-0141-early",
            "the socket is bound before anything loads",
            "0.14.1",
            "port-in-use",
            wrap.chain(story.lines, wrap.journald("edge3", "vllm")),
            ["journald"],
            {"port": 8080},
        )
    )

    story = Story("0.10.2", seed=273)
    until_device(story, TARN_32B, {"data_parallel_size": 2, "data_parallel_rpc_port": 13345}, length=8192)
    fail.fail_in_core(
        story,
        (
            "v1/engine/core.py:DPEngineCoreProc._init_data_parallel:stateless_init_dp_group()",
            "!~/torch/distributed/rendezvous.py:189:_create_c10d_store:return TCPStore(",
        ),
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 13345, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
    )
    out.append(
        Case(
            "port-0102-dp",
            "the data-parallel port is still held",
            "0.10.2",
            "port-in-use",
            wrap.chain(story.lines, wrap.ray("ServeReplica:llm", 4410)),
            ["ray-serve"],
            {"port": 13345},
        )
    )

    story = Story("0.11.2", seed=274)
    until_load(story, TARN_32B, {"max_model_len": 8192}, length=8192)
    fail.fail_in_core(
        story,
        (
            *fail.MODEL_EXECUTOR,
            *fail.LOAD[:8],
            "!~/huggingface_hub/file_download.py:1797:_download_to_tmp_and_move:http_get(",
            "!~/huggingface_hub/file_download.py:494:http_get:temp_file.write(chunk)",
        ),
        "OSError: [Errno 28] No space left on device",
    )
    case = Case(
        "disk-0112-download",
        "the volume fills while the weights come down",
        "0.11.2",
        "disk-full",
        wrap.chain(story.lines, wrap.kubectl()),
        ["kubectl"],
        suggest=[*act("free-disk"), {"flag": "download_dir"}, {"flag": "HF_HOME"}],
    )
    out.append(case)

    story = Story("0.24.0", seed=275)
    until_load(story, SOLANO_24B, {"max_model_len": 8192}, length=8192)
    fail.fail_in_core(
        story,
        (
            *fail.MODEL_EXECUTOR,
            *fail.LOAD[:8],
            "!~/huggingface_hub/file_download.py:628:xet_get:download_files(",
        ),
        "RuntimeError: Data processing error: I/O error: No space left on device (os error 28)",
    )
    out.append(
        Case(
            "disk-0240-xet",
            "the Xet downloader's words",
            "0.24.0",
            "disk-full",
            wrap.chain(story.lines, wrap.compose("dl")),
            ["compose"],
            suggest=[*act("free-disk"), {"flag": "download_dir"}, {"flag": "HF_HOME"}],
        )
    )

    story = Story("0.19.1", seed=276)
    until_load(story, KESTREL_7B, {"max_model_len": 8192}, length=8192)
    boot.shards(story, KESTREL_7B)
    boot.loaded(story, 14.25)
    fail.fail_in_core(
        story,
        (*fail.PROFILE, *fail.FORWARD),
        "OSError: [Errno 28] No space left on device: '/root/.triton/cache/NXQ3J5/tmp.pid_412_99'",
    )
    out.append(
        Case(
            "disk-0191-triton",
            "Triton's cache on a full disk",
            "0.19.1",
            "disk-full",
            wrap.chain(story.lines, wrap.docker_json()),
            ["docker-json"],
            suggest=[*act("free-disk"), {"flag": "TRITON_CACHE_DIR"}, {"flag": "VLLM_CACHE_ROOT"}],
        )
    )
    return out


def interrupted() -> list[Case]:
    """interrupted."""
    out = []
    story = Story("0.17.1", seed=281)
    start(story, TARN_32B, {"tensor_parallel_size": 2}, length=8192, world=2)
    lines = wrap.chain(story.lines, wrap.kubectl())
    lines += [
        Line(
            '2026-03-14T09:31:10Z Warning  Unhealthy  pod/tarn-6f4d  Startup probe failed: Get "http://10.42.1.19:8000/health": dial tcp 10.42.1.19:8000: connect: connection refused',
            "cause",
        ),
        Line(
            "2026-03-14T09:31:10Z Normal   Killing    pod/tarn-6f4d  Container vllm failed startup probe, will be restarted",
            "echo",
        ),
    ]
    out.append(
        Case(
            "stop-0171-probe",
            "the startup probe loses patience while it compiles",
            "0.17.1",
            "interrupted",
            lines,
            ["kubectl", "tricky-probe-kill"],
            {},
            act("longer-startup-probe"),
        )
    )

    story = Story("0.20.2", seed=282)
    until_load(story, TARN_70B, {"tensor_parallel_size": 4}, length=8192, world=4)
    boot.shards(story, TARN_70B, upto=12)
    story.raw(
        "slurmstepd: error: *** STEP 481601.0 ON gpu-node11 CANCELLED AT 2026-03-14T09:36:02 DUE TO TIME LIMIT ***",
        mark="cause",
    )
    story.raw(
        "slurmstepd: error: *** JOB 481601 ON gpu-node11 CANCELLED AT 2026-03-14T09:36:02 DUE TO TIME LIMIT ***",
        mark="echo",
    )
    out.append(
        Case(
            "stop-0202-slurm",
            "slurm's time limit",
            "0.20.2",
            "interrupted",
            story.lines,
            ["multi-rank", "slurm"],
            {},
            act("longer-time-limit", "retry", "restart"),
        )
    )

    story = Story("0.12.0", seed=283)
    until_load(story, BRISA_8B, {"max_model_len": 8192}, length=8192)
    boot.shards(story, BRISA_8B, upto=1)
    story.raw("^C", mark="")
    story.trace(
        [*story.frames(*fail.SERVE[2:5]), "    self._run_once()"],
        "KeyboardInterrupt",
        proc="api",
        mark="cause",
    )
    story.say("INFO", "v1/engine/core.py", "EngineCore exiting", "EngineCore exiting.") if story.place(
        "v1/engine/core.py", "EngineCore exiting"
    ) else None
    fail.leaked(story)
    out.append(
        Case(
            "stop-0120-ctrl-c",
            "Ctrl-C while the weights load",
            "0.12.0",
            "interrupted",
            story.lines,
            ["bare"],
            {},
            act("retry", "restart", "longer-startup-probe", "longer-time-limit"),
        )
    )
    return out


def cases() -> list[Case]:
    """This family's cases."""
    return [
        *taken(),
        *changed(),
        *devices(),
        *drivers(),
        *collectives(),
        *host(),
        *compilers(),
        *ports_and_disks(),
        *interrupted(),
    ]


__all__ = ["GIB", "MIRADOR_13B", "cases"]
