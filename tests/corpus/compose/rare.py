"""Rare statements of each cause, by libraries and programs beside vLLM. Short logs: a few records and the failure."""

from . import boot, fail, v0, wrap
from .case import DOWN, Advice, Case, act
from .config import refused
from .environment import until_device
from .fail import FORWARD, LOAD, MODEL_EXECUTOR, PROFILE
from .machine import BRISA_8B, COBALT_MOE, GIB, KESTREL_7B, MIRADOR_7B, SOLANO_24B, TARN_32B, TARN_70B, Model
from .memory import until_load
from .story import Line, Story

OLD = "/opt/conda/lib/python3.10/site-packages"


def short(
    release: str, seed: int, model: Model, args: dict[str, object], *, world: int = 1, device: bool = False
) -> Story:
    """A V1 start to the loading of weights, or to the device."""
    story = Story(release, seed=seed)
    (until_device if device else until_load)(story, model, args, length=8192, world=world)
    return story


def _failed(
    id_: str,
    title: str,
    cause: str,
    release: str,
    seed: int,
    error: str,
    *,
    model: Model = KESTREL_7B,
    frames: tuple[str, ...] = LOAD,
    args: dict[str, object] | None = None,
    wrapper: wrap.Wrapper | None = None,
    tag: str = "bare",
    device: bool = False,
    marked: int = 0,
    **more: object,
) -> Case:
    """One engine core that dies of `error` while it loads; `marked` is the line of the text that says it."""
    story = short(release, seed, model, args or {}, device=device)
    before = len(story.lines)
    fail.fail_in_core(
        story, (*(() if frames[:1] == PROFILE[:1] else MODEL_EXECUTOR), *frames), error, raw=False
    )
    if marked:
        at = next(n for n in range(before, len(story.lines)) if story.lines[n].mark)
        story.lines[at + marked], story.lines[at] = (
            Line(story.lines[at + marked].text, "cause"),
            Line(story.lines[at].text),
        )
    return Case(
        id_, title, release, cause, wrap.chain(story.lines, *([wrapper] if wrapper else [])), [tag], **more
    )


def weights() -> list[Case]:
    """checkpoint-broken, tokenizer-failed, types and methods."""
    out = [
        _failed("rare-checkpoint-zip", "a torn .bin file", "checkpoint-broken", "0.10.2", 1001, "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory", frames=(*LOAD[:7], "!~/torch/serialization.py:1432:load:with _open_zipfile_reader(opened_file) as opened_zipfile:")),
        _failed("rare-checkpoint-pickle", "a pointer file of git-lfs as .bin", "checkpoint-broken", "0.8.5", 1002, "_pickle.UnpicklingError: invalid load key, 'v'.", frames=(*LOAD[:7], "!~/torch/serialization.py:1580:_legacy_load:magic_number = pickle_module.load(f, **pickle_load_args)"), wrapper=wrap.compose("b"), tag="compose"),
        _failed("rare-quant-scheme", "a scheme that compressed-tensors does not have", "quantization-unsupported", "0.14.1", 1003, "NotImplementedError: No compressed-tensors compatible scheme was found.", frames=(*LOAD, "compressed_tensors/compressed_tensors.py:CompressedTensorsConfig._get_scheme_from_parts:raise NotImplementedError("), wrapper=wrap.kubectl(), tag="kubectl"),
        _failed("rare-attention-fp8", "FlashAttention 2 with an fp8 cache", "attention-backend-unsupported", "0.10.2", 1004, "NotImplementedError: FlashAttention does not support fp8 kv-cache on this device.", frames=(*LOAD, "v1/attention/backends/flash_attn.py:FlashAttentionImpl.__init__:raise NotImplementedError("), args={"kv_cache_dtype": "fp8"}, suggest=[{"flag": "VLLM_ATTENTION_BACKEND"}, {"flag": "attention_backend"}, {"flag": "kv_cache_dtype"}]),
    ]  # fmt: skip
    story = Story("0.14.1", seed=1005)
    boot.banner(story, MIRADOR_7B, {"dtype": "half"})
    refused(
        story,
        "The model type 'gemma3' does not support float16. Reason: Numerical instability. Please use bfloat16 or float32 instead.",
    )
    out.append(
        Case(
            "rare-dtype-gemma",
            "a model that float16 breaks",
            "0.14.1",
            "dtype-unsupported",
            wrap.chain(story.lines, wrap.quote()),
            ["markdown-quote"],
            suggest=[{"flag": "dtype"}],
        )
    )

    story = Story("0.11.2", seed=1006)
    boot.banner(story, MIRADOR_7B, {"dtype": "half"})
    refused(
        story,
        "torch.float16 is not supported for quantization method mxfp4. Supported dtypes: [torch.bfloat16]",
        holder="VllmConfig",
    )
    out.append(
        Case(
            "rare-dtype-mxfp4",
            "a method that wants bfloat16",
            "0.11.2",
            "dtype-unsupported",
            wrap.chain(story.lines, wrap.compose("oss")),
            ["compose"],
            suggest=[{"flag": "dtype"}],
            acceptable=["quantization-unsupported"],
        )
    )

    story = Story("0.9.2", seed=1007)
    boot.banner(story, KESTREL_7B, {})
    refused(
        story,
        "The repository `kestrelml/Kestrel-7B-Instruct` contains custom code which must be executed to correctly load the model. You can inspect the repository content at https://hf.co/kestrelml/Kestrel-7B-Instruct.\nPlease pass the argument `trust_remote_code=True` to allow custom code to be run.",
    )
    out.append(
        Case(
            "rare-remote-code",
            "custom code is not trusted",
            "0.9.2",
            "tokenizer-failed",
            wrap.chain(story.lines, wrap.docker_json()),
            ["docker-json"],
            suggest=[{"flag": "trust_remote_code"}],
        )
    )

    story = Story("0.5.4", seed=1008, site=OLD)
    v0.banner(story, MIRADOR_7B, {})
    story.trace(
        story.frames(
            "transformers_utils/tokenizer.py:get_tokenizer:AutoTokenizer.from_pretrained(",
            "!~/transformers/models/auto/tokenization_auto.py:889:from_pretrained:raise ValueError(",
        ),
        "ValueError: Tokenizer class KestrelTokenizer does not exist or is not currently imported.",
        proc="none",
        mark="cause",
    )
    out.append(
        Case(
            "rare-tokenizer-class",
            "a tokenizer class that this transformers has not",
            "0.5.4",
            "tokenizer-failed",
            story.lines,
            ["bare", "v0"],
            suggest=[*act("upgrade-transformers", "fix-tokenizer-files"), {"flag": "trust_remote_code"}],
        )
    )

    story = Story("0.17.1", seed=1009)
    boot.banner(story, KESTREL_7B, {"compilation_config": {"cudagraph_modes": "FULL"}})
    story.trace(
        story.frames(*fail.SERVE[:2]),
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for CompilationConfig\ncudagraph_modes\n  Unexpected keyword argument [type=unexpected_keyword_argument, input_value='FULL', input_type=str]\n    For further information visit https://errors.pydantic.dev/2.12/v/unexpected_keyword_argument",
        proc="api",
    )
    at = next(n for n, line in enumerate(story.lines) if "Unexpected keyword argument" in line.text)
    story.lines[at] = Line(story.lines[at].text, "cause")
    out.append(
        Case(
            "rare-flag-compilation",
            "a key that the compilation config has not",
            "0.17.1",
            "unknown-flag",
            wrap.chain(story.lines, wrap.actions()),
            ["github-actions"],
        )
    )
    return out


def machines() -> list[Case]:
    """The environment in the words of others."""
    port = "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect to (10.4.0.2, 29500)."
    out = [
        _failed("rare-nccl-rendezvous", "the second node cannot reach the first", "nccl-failed", "0.12.0", 1021, port, frames=("v1/worker/gpu_worker.py:Worker.init_device:init_worker_distributed_environment(", "!~/torch/distributed/rendezvous.py:278:_env_rendezvous_handler:store = _create_c10d_store("), model=TARN_70B, device=True, args={"nnodes": 2, "node_rank": 1, "master_addr": "10.4.0.2"}, suggest=[*act("fix-nccl", "check-network"), {"flag": "VLLM_HOST_IP"}]),
        _failed("rare-nccl-gloo", "gloo binds the wrong interface", "nccl-failed", "0.9.2", 1022, "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error", frames=("v1/worker/gpu_worker.py:Worker.init_device:init_worker_distributed_environment(", "distributed/parallel_state.py:GroupCoordinator.__init__:torch.distributed.new_group("), model=TARN_32B, device=True, wrapper=wrap.compose("n2"), tag="compose", suggest=[*act("fix-nccl"), {"flag": "GLOO_SOCKET_IFNAME"}, {"flag": "VLLM_HOST_IP"}]),
        _failed("rare-hip-none", "no AMD device in the container", "no-gpu-visible", "0.14.1", 1023, "RuntimeError: No HIP GPUs are available", frames=("v1/worker/gpu_worker.py:Worker.init_device:set_device(",), device=True, wrapper=wrap.kubectl(), tag="kubectl"),
        _failed("rare-driver-ptx", "PTX newer than the driver", "cuda-driver-mismatch", "0.10.2", 1024, "RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.", frames=(*PROFILE, *FORWARD), wrapper=wrap.quote(), tag="markdown-quote"),
        _failed("rare-driver-insufficient", "the driver is behind the runtime", "cuda-driver-mismatch", "0.8.5", 1025, "RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version", frames=("v1/worker/gpu_worker.py:Worker.init_device:set_device(",), device=True, wrapper=wrap.syslog("old", "vllm"), tag="syslog"),
        _failed("rare-host-alloc", "offloading 40 GB into too little RAM", "host-memory-exhausted", "0.11.2", 1026, "RuntimeError: [enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 42949672960 bytes. Error code 12 (Cannot allocate memory)", frames=(*LOAD, "models/utils.py:maybe_offload_to_cpu:torch.empty_strided("), args={"cpu_offload_gb": 40}, wrapper=wrap.docker_json(), tag="docker-json", suggest=[*act("raise-memory-limit", "more-host-memory"), {"flag": "cpu_offload_gb", "direction": "down"}]),
        _failed("rare-shm-torch", "torch cannot open a shared memory object", "shm-too-small", "0.9.2", 1027, "RuntimeError: unable to write to file </torch_402_118233_0>: No space left on device (28)", frames=("!~/torch/multiprocessing/reductions.py:569:reduce_storage:fd, size = storage._share_fd_cpu_()",), wrapper=wrap.compose("mm"), tag="compose"),
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


def others() -> list[Case]:
    """Boundaries between causes."""
    out = []
    story = short("0.11.2", 1041, COBALT_MOE, {"tensor_parallel_size": 2}, world=2)
    story.raw(
        "2026-03-14 09:21:25,118 WARNING worker.py:2100 -- WARNING: The object store is using /tmp instead of /dev/shm because /dev/shm has only 67108864 bytes available. This will harm performance!"
    )
    boot.shards(story, COBALT_MOE, upto=6)
    fail.fail_at_worker_start(
        story,
        1,
        "load_model",
        LOAD,
        "safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer",
    )
    fail.fail_after_worker_start(story)
    out.append(
        Case(
            "edge-shm-warning",
            "Ray's /dev/shm warning is not the cause, the torn shard is",
            "0.11.2",
            "checkpoint-broken",
            wrap.chain(story.lines, wrap.kubectl()),
            ["kubectl", "multi-rank", "tricky-shm-warning"],
            {"tensor_parallel_size": 2},
        )
    )

    story = short("0.19.1", 1042, BRISA_8B, {})
    boot.shards(story, BRISA_8B)
    boot.loaded(story, 14.96)
    story.raw(
        "WARNING: Tried to allocate workspace; torch.OutOfMemoryError caught, falling back to chunked copy",
        proc="core",
    )
    fail.fail_in_core(
        story,
        (*PROFILE, *FORWARD),
        "RuntimeError: Failed to find C compiler. Please specify via CC environment variable or set triton.knobs.build.impl.",
        raw=False,
    )
    out.append(
        Case(
            "edge-caught-oom",
            "an out-of-memory that was caught, then no C compiler",
            "0.19.1",
            "kernel-compile-failed",
            story.lines,
            ["bare", "tricky-caught"],
            suggest=[*act("install-compiler", "newer-cuda-toolkit"), {"flag": "enforce_eager"}],
        )
    )

    story = Story("0.14.1", seed=1043)
    boot.banner(story, TARN_70B, {"tensor_parallel_size": 2})
    for n in range(3):
        story.raw(
            f"huggingface_hub.utils._http WARNING: '(ReadTimeoutError(\"HTTPSConnectionPool(host='huggingface.co', port=443): Read timed out. (read timeout=10)\"), '(Request ID: {n})')' thrown while requesting HEAD https://huggingface.co/tarn-labs/Tarn-70B/resolve/main/config.json",
            proc="api",
        )
        story.raw(f"Retrying in {2**n}s [Retry {n + 1}/5].", proc="api")
    refused(
        story,
        "You are trying to access a gated repo.\nMake sure to have access to it at https://huggingface.co/tarn-labs/Tarn-70B.\n401 Client Error. (Request ID: Root=1)",
    )
    out.append(
        Case(
            "edge-retries-then-gated",
            "time-outs were retried; the gate is what stops it",
            "0.14.1",
            "model-access-denied",
            wrap.chain(story.lines, wrap.journald("h", "vllm")),
            ["journald", "tricky-retries"],
        )
    )

    story = short("0.16.0", 1044, KESTREL_7B, {"kv_cache_memory_bytes": 20 * GIB})
    boot.shards(story, KESTREL_7B)
    boot.loaded(story, 14.25)
    fail.fail_in_core(
        story,
        (*PROFILE, *FORWARD),
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.31 GiB. GPU 0 has a total capacity of 15.58 GiB of which 512.00 MiB is free. Including non-PyTorch memory, this process has 15.08 GiB memory in use. Of the allocated memory 14.61 GiB is allocated by PyTorch, and 91.20 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.",
        raw=False,
    )
    out.append(
        Case(
            "edge-profile-despite-pin",
            "KV is pinned, but the dummy pass runs first and fails",
            "0.16.0",
            "profile-run-oom",
            story.lines,
            ["bare", "tricky-pinned-but-profile"],
            {"tried_to_allocate_gib": 2.31, "gpu_total_gib": 15.58},
        )
    )

    story = short("0.20.2", 1045, KESTREL_7B, {"enforce_eager": True})
    boot.shards(story, KESTREL_7B)
    boot.loaded(story, 14.25)
    story.raw(
        'Traceback (most recent call last):\n  File "/srv/sidecar/export.py", line 9, in <module>\n    push(metrics)\nOSError: [Errno 98] Address already in use',
        proc="none",
    )
    fail.fail_in_core(
        story,
        (
            *fail.KV_CACHES,
            "v1/engine/core.py:EngineCore._initialize_kv_caches:self.model_executor.determine_available_memory(",
            "v1/worker/gpu_worker.py:Worker.determine_available_memory:assert self.init_snapshot.free_memory",
        ),
        "AssertionError: Error in memory profiling. Initial free memory 18.02 GiB, current free memory 21.9 GiB. This happens when other processes sharing the same container release GPU memory while vLLM is profiling during initialization. To fix this, ensure consistent GPU memory allocation or isolate vLLM in its own container.",
        raw=False,
    )
    out.append(
        Case(
            "edge-sidecar-port",
            "a sidecar's port conflict before the engine's own failure",
            "0.20.2",
            "gpu-memory-changed-while-profiling",
            story.lines,
            ["bare", "tricky-sidecar"],
            {"initial_free_gib": 18.02, "current_free_gib": 21.9},
        )
    )

    lines = [
        Line(t)
        for t in (
            "$ curl -s localhost:8000/v1/chat/completions -d @q.json",
            '{"object":"error","message":"This model\'s maximum context length is 8192 tokens. However, you requested 9120 tokens (8608 in the messages, 512 in the completion). Please reduce the length of the messages or completion.","type":"BadRequestError","param":null,"code":400}',
        )
    ]
    lines[1] = Line(lines[1].text, "cause")
    out.append(
        Case(
            "edge-client-too-long",
            "only the client's view of the refusal",
            None,
            "request-too-long",
            lines,
            ["shell"],
            {"max_model_len": 8192, "prompt_tokens": 8608},
        )
    )
    suggest: list[Advice] = [{"flag": "max_tokens", "at_most": 7800}]
    lines = [
        Line(
            "openai.BadRequestError: Error code: 400 - {'object': 'error', 'message': \"'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context length is 8192 tokens and your request has 392 input tokens (8192 > 8192 - 392).\", 'type': 'BadRequestError', 'param': None, 'code': 400}",
            "cause",
        )
    ]
    out.append(
        Case(
            "edge-client-max-tokens",
            "the OpenAI client's exception",
            None,
            "max-tokens-too-large",
            lines,
            ["bare"],
            {"max_model_len": 8192, "max_tokens": 8192, "prompt_tokens": 392},
            suggest,
        )
    )
    lines = [
        Line(
            "openai.NotFoundError: Error code: 404 - {'object': 'error', 'message': 'The model `gpt-4o` does not exist.', 'type': 'NotFoundError', 'param': None, 'code': 404}",
            "cause",
        )
    ]
    out.append(
        Case(
            "edge-client-name",
            "a client that asks vLLM for gpt-4o",
            None,
            "model-name-unknown",
            lines,
            ["bare"],
        )
    )
    return out


def cases() -> list[Case]:
    """This family's cases."""
    return [*weights(), *machines(), *others()]
