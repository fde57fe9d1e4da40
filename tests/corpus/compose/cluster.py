"""Between processes and in the host: nccl-failed, shm-too-small, host-memory-exhausted."""

from . import boot, fail, v0, wrap
from .case import DOWN, Case, act
from .machine import (
    COBALT_MOE,
    SOLANO_24B,
    TARN_32B,
    TARN_70B,
)
from .occupied import until_device
from .story import Line, Story
from .weights import until_load


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


def cases() -> list[Case]:
    """This family's cases."""
    return [*collectives(), *host()]
