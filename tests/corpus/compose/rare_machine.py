"""Rare statements about the machine."""

from . import boot, fail, wrap
from .case import DOWN, Case, act
from .fail import FORWARD, LOAD, MODEL_EXECUTOR, PROFILE
from .machine import KESTREL_7B, SOLANO_24B, TARN_32B, TARN_70B
from .occupied import until_device
from .rare_model import _failed, short
from .story import Line, Story


def machines() -> list[Case]:
    """The environment in the words of others."""
    port = "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect to (10.4.0.2, 29500)."
    out = [
        _failed("rare-nccl-rendezvous", "the second node cannot reach the first", "nccl-failed", "0.12.0", seed=1021, error=port, frames=("v1/worker/gpu_worker.py:Worker.init_device:init_worker_distributed_environment(", "!~/torch/distributed/rendezvous.py:278:_env_rendezvous_handler:store = _create_c10d_store("), model=TARN_70B, device=True, args={"nnodes": 2, "node_rank": 1, "master_addr": "10.4.0.2"}, suggest=[*act("fix-nccl", "check-network"), {"flag": "VLLM_HOST_IP"}]),
        _failed("rare-nccl-gloo", "gloo binds the wrong interface", "nccl-failed", "0.9.2", seed=1022, error="RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error", frames=("v1/worker/gpu_worker.py:Worker.init_device:init_worker_distributed_environment(", "distributed/parallel_state.py:GroupCoordinator.__init__:torch.distributed.new_group("), model=TARN_32B, device=True, wrapper=wrap.compose("n2"), tag="compose", suggest=[*act("fix-nccl"), {"flag": "GLOO_SOCKET_IFNAME"}, {"flag": "VLLM_HOST_IP"}]),
        _failed("rare-hip-none", "no AMD device in the container", "no-gpu-visible", "0.14.1", seed=1023, error="RuntimeError: No HIP GPUs are available", frames=("v1/worker/gpu_worker.py:Worker.init_device:set_device(",), device=True, wrapper=wrap.kubectl(), tag="kubectl"),
        _failed("rare-driver-ptx", "PTX newer than the driver", "cuda-driver-mismatch", "0.10.2", seed=1024, error="RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.", frames=(*PROFILE, *FORWARD), wrapper=wrap.quote(), tag="markdown-quote"),
        _failed("rare-driver-insufficient", "the driver is behind the runtime", "cuda-driver-mismatch", "0.8.5", seed=1025, error="RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version", frames=("v1/worker/gpu_worker.py:Worker.init_device:set_device(",), device=True, wrapper=wrap.syslog("old", "vllm"), tag="syslog"),
        _failed("rare-host-alloc", "offloading 40 GB into too little RAM", "host-memory-exhausted", "0.11.2", seed=1026, error="RuntimeError: [enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 42949672960 bytes. Error code 12 (Cannot allocate memory)", frames=(*LOAD, "models/utils.py:maybe_offload_to_cpu:torch.empty_strided("), args={"cpu_offload_gb": 40}, wrapper=wrap.docker_json(), tag="docker-json", suggest=[*act("raise-memory-limit", "more-host-memory"), {"flag": "cpu_offload_gb", "direction": "down"}]),
        _failed("rare-shm-torch", "torch cannot open a shared memory object", "shm-too-small", "0.9.2", seed=1027, error="RuntimeError: unable to write to file </torch_402_118233_0>: No space left on device (28)", frames=("!~/torch/multiprocessing/reductions.py:569:reduce_storage:fd, size = storage._share_fd_cpu_()",), wrapper=wrap.compose("mm"), tag="compose"),
    ]  # fmt: skip
    story = short(
        "0.10.2", 1028, TARN_70B, {"tensor_parallel_size": 4, "distributed_executor_backend": "ray"}, world=4
    )
    story.raw(
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
        mark="cause",
    )
    story.raw(
        "Memory on the node (IP: 10.4.0.9, ID: 5c1e) where the task (actor ID: 77aa, name=RayWorkerWrapper.__init__, pid=2213, memory used=61.20GB) was running was 121.64GB / 125.78GB (0.967077), which exceeds the memory usage threshold of 0.95. Ray killed this worker (ID: 41fe) because it was the most recently scheduled task; to see more information about memory usage on this node, use `ray logs raylet.out -ip 10.4.0.9`.",
        mark="echo",
    )
    out.append(
        Case(
            "rare-host-ray",
            "Ray's memory monitor: OutOfMemoryError of the host, not of the card",
            "0.10.2",
            "host-memory-exhausted",
            story.lines,
            ["bare", "ray-worker", "tricky-host-not-gpu"],
            {"tensor_parallel_size": 4},
        )
    )

    story = short("0.24.0", 1029, SOLANO_24B, {})
    boot.shards(story, SOLANO_24B, upto=4)
    story.raw("##[error]The operation was canceled.", mark="cause")
    out.append(
        Case(
            "rare-stop-actions",
            "the workflow was cancelled while it loads",
            "0.24.0",
            "interrupted",
            wrap.chain(story.lines, wrap.actions()),
            ["github-actions"],
            suggest=act("retry", "restart", "longer-time-limit", "longer-startup-probe"),
        )
    )

    for id_, title, cause, lines in (
        (
            "rare-docker-gpus",
            "docker has no GPU runtime",
            "no-gpu-visible",
            (
                "$ docker run --rm --gpus all -p 8000:8000 vllm/vllm-openai:v0.19.1 --model brisa-ai/Brisa-8B-Chat",
                'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
                "ERRO[0000] error waiting for container: context canceled",
            ),
        ),
        (
            "rare-docker-port",
            "docker's proxy holds the port",
            "port-in-use",
            (
                "$ docker run --rm --gpus all -p 8000:8000 vllm/vllm-openai:v0.19.1 --model brisa-ai/Brisa-8B-Chat",
                "docker: Error response from daemon: driver failed programming external connectivity on endpoint vllm (8b1c): Bind for 0.0.0.0:8000 failed: port is already allocated.",
            ),
        ),
        (
            "rare-docker-pull",
            "the image does not fit the disk",
            "disk-full",
            (
                "$ docker run --rm --gpus all vllm/vllm-openai:v0.19.1 --model brisa-ai/Brisa-8B-Chat",
                "Unable to find image 'vllm/vllm-openai:v0.19.1' locally",
                "v0.19.1: Pulling from vllm/vllm-openai",
                "docker: failed to register layer: write /usr/local/lib/python3.12/dist-packages/torch/lib/libtorch_cuda.so: no space left on device.",
            ),
        ),
    ):
        marked = [Line(text, "cause" if text.startswith("docker: ") else "") for text in lines]
        out.append(
            Case(
                id_,
                title,
                None,
                cause,
                marked,
                ["docker", "shell"],
                suggest=act("free-disk") if cause == "disk-full" else None,
            )
        )

    story = Story("0.24.0", seed=1030)
    until_device(story, KESTREL_7B, {}, length=8192)
    story.lines = [
        Line(line.text.replace("device_config=cuda", "device_config=cpu"), line.mark) for line in story.lines
    ]
    fail.fail_in_core(
        story,
        (
            *MODEL_EXECUTOR,
            "v1/worker/cpu_worker.py:CPUWorker.init_device:raise ValueError(",
            "v1/worker/cpu_worker.py:CPUWorker.__init__:raise ValueError(",
        ),
        "ValueError: Available memory on node 0 (21.4/62.7 GiB) on startup is less than desired CPU memory utilization (0.92, 57.69 GiB). Decrease --gpu-memory-utilization or reduce CPU memory used by other processes.",
        raw=False,
    )
    out.append(
        Case(
            "rare-cpu-node",
            "the CPU backend wants 0.92 of the node",
            "0.24.0",
            "gpu-memory-taken",
            story.lines,
            ["bare", "cpu"],
            acceptable=["host-memory-exhausted"],
            suggest=[DOWN, *act("free-other-process")],
        )
    )
    return out


def cases() -> list[Case]:
    """This family's cases."""
    return [*machines()]
