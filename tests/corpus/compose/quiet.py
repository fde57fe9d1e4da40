"""Where nothing of vLLM failed, where the text is not vLLM's, and where only the echo is left."""

import random

from . import boot, fail, v0, wrap
from .case import Case
from .environment import too_little
from .kv import start
from .machine import BRISA_8B, COBALT_MOE, DEVICES, KESTREL_2B, KESTREL_7B, SOLANO_24B, TARN_32B, Budget
from .serving import serve, serve_v0
from .story import Line, Story

L4 = Budget(DEVICES["L4"], 0.9, KESTREL_7B.weights_gib, 1.0, 0.2, 0.0)


def frightening() -> list[Case]:
    """Healthy with warnings that name errors."""
    out = []
    story = Story("0.17.1", seed=601)
    boot.banner(story, KESTREL_7B, {"max_model_len": 16384})
    boot.api(story, "Found ulimit of", "")
    story.lines.append(
        Line(
            story.tag("api")
            + story.prefix("WARNING", "system_utils.py:211")
            + "Found ulimit of 4096 and failed to automatically increase with error current limit exceeds maximum limit. This can cause fd limit errors like `OSError: [Errno 24] Too many open files`. Consider increasing with ulimit -n"
        )
    )
    story.lines.append(
        Line(
            story.tag("api")
            + story.prefix("WARNING", "interface.py:171")
            + "Failed to import from vllm._C: ImportError('libcudart.so.12: cannot open shared object file: No such file or directory')"
        )
    )
    boot.configured(story, KESTREL_7B, length=16384, batched=2048)
    boot.engine(story, KESTREL_7B, length=16384)
    story.raw(
        "[W314 09:21:20.118 socket.cpp:767] [c10d] The client socket cannot be initialized to connect to [localhost]:51213 (errno: 97 - Address family not supported by protocol).",
        proc="core",
    )
    story.raw(
        "gpu1:211:211 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin."
    )
    boot.distribute(story)
    boot.begin_load(story, KESTREL_7B)
    boot.shards(story, KESTREL_7B)
    boot.loaded(story, 14.25)
    boot.compiled(story, batched=2048)
    story.raw(
        "[rank0]:W0314 09:21:55.220 torch/_inductor/utils.py:1436] [0/0] Not enough SMs to use max_autotune_gemm mode",
        proc="core",
    )
    boot.profiled(story, L4)
    boot.sized(story, 80_000, 16384)
    boot.captured(story, 0.5)
    boot.ready(story)
    boot.traffic(story, 4)
    out.append(
        Case(
            "healthy-0171-warnings",
            "ulimit, IPv6, NCCL plugin and import warnings",
            "0.17.1",
            "healthy",
            story.lines,
            ["bare", "tricky-warnings"],
        )
    )

    story = Story("0.6.6.post1", seed=602, site="/opt/venv/lib/python3.10/site-packages")
    serve_v0(story, KESTREL_7B, {}, length=32768, blocks=4100)
    story.lines.insert(
        len(story.lines) - 12,
        Line(
            story.prefix("INFO", "model_runner.py:1416")
            + "If out-of-memory error occurs during cudagraph capture, consider decreasing `gpu_memory_utilization` or switching to eager mode. You can also reduce the `max_num_seqs` as needed to decrease memory usage."
        ),
    )
    for n in range(4):
        boot.access(story)
        v0.load_line(story, running=3, pending=0, usage=3.0 + n)
    out.append(
        Case(
            "healthy-066-hint",
            "the hint says out-of-memory error, none occurred",
            "0.6.6.post1",
            "healthy",
            wrap.chain(story.lines, wrap.compose("v0")),
            ["compose", "tricky-warnings", "v0"],
        )
    )

    story = Story("0.11.2", seed=603)
    serve(story, KESTREL_7B, {"max_model_len": 16384, "enable_log_requests": True}, length=16384, budget=L4)
    prompts = (
        "Why do I get torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.65 GiB of which 1.12 GiB is free?",
        "Explain: ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.",
        "RuntimeError: Engine core initialization failed. See root cause above. What does it mean?",
    )
    for n, prompt in enumerate(prompts):
        story.say(
            "INFO",
            "entrypoints/logger.py",
            "Received request %s",
            f"Received request chatcmpl-{n}f3a: params: SamplingParams(n=1, temperature=0.7, max_tokens=512), lora_request: None. Prompt: '<|im_start|>user\\n{prompt}<|im_end|>\\n<|im_start|>assistant\\n'",
            proc="api",
        )
        boot.access(story)
        boot.load_line(story, running=1, waiting=0, usage=1.2)
    out.append(
        Case(
            "healthy-0112-prompts",
            "users ask about errors; request logging is on",
            "0.11.2",
            "healthy",
            story.lines,
            ["bare", "tricky-prompt-text"],
        )
    )

    story = Story("0.19.1", seed=604)
    serve(
        story,
        TARN_32B,
        {"tensor_parallel_size": 4, "max_model_len": 32768},
        length=32768,
        budget=Budget(DEVICES["A6000"], 0.9, 15.3, 1.4, 2.0),
        world=4,
    )
    story.say(
        "INFO",
        "device_communicators/shm_broadcast.py",
        "No available shared memory broadcast block found",
        "No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are hanging or doing some time-consuming work (e.g. compilation, weight/kv cache quantization).",
    )
    boot.traffic(story, 4)
    for _ in range(3):
        boot.access(story, "GET /robots.txt", "404 Not Found")
        boot.access(story, "POST /v1/chat/completions", "422 Unprocessable Entity")
    boot.traffic(story, 2)
    out.append(
        Case(
            "healthy-0191-broadcast",
            "the broadcast warning, crawlers and bad bodies",
            "0.19.1",
            "healthy",
            wrap.chain(story.lines, wrap.kubectl()),
            ["kubectl", "multi-rank", "tricky-warnings"],
        )
    )
    return out


def stopped() -> list[Case]:
    """Healthy, then stopped on purpose; a neighbour's failure in the same stream; a boot that failed before a good one."""
    out = []
    story = Story("0.12.0", seed=611)
    serve(story, KESTREL_7B, {"max_model_len": 16384}, length=16384, budget=L4)
    boot.traffic(story, 5)
    story.raw("^CINFO:     Shutting down", proc="api")
    story.raw(
        "INFO:     Waiting for application shutdown.\nINFO:     Application shutdown complete.", proc="api"
    )
    story.raw(
        "[rank0]:[W314 10:02:11.330 ProcessGroupNCCL.cpp:1538] Warning: WARNING: destroy_process_group() was not called before program exit, which can leak resources. For more info, please see https://pytorch.org/docs/stable/distributed.html#shutdown (function operator())",
        proc="core",
    )
    story.trace(
        story.frames(
            "!%/asyncio/runners.py:118:run:return self._loop.run_until_complete(task)",
            "!%/asyncio/tasks.py:385:__wakeup:future.result()",
        ),
        "asyncio.exceptions.CancelledError",
        proc="api",
    )
    story.raw("\nDuring handling of the above exception, another exception occurred:\n", proc="api")
    story.trace(
        story.frames("!~/uvloop/__init__.py:109:run:return __asyncio.run("), "KeyboardInterrupt", proc="api"
    )
    fail.leaked(story)
    out.append(
        Case(
            "healthy-0120-ctrl-c",
            "served, Ctrl-C, tracebacks of the shutdown",
            "0.12.0",
            "healthy",
            story.lines,
            ["bare", "tricky-shutdown"],
            acceptable=["interrupted"],
        )
    )

    story = Story("0.14.1", seed=612)
    serve(story, KESTREL_7B, {"max_model_len": 16384}, length=16384, budget=L4)
    boot.traffic(story, 2)
    for _ in range(4):
        rid = f"chatcmpl-{story.random.getrandbits(64):016x}"
        story.maybe(
            "INFO", "v1/engine/async_llm.py", "Request %s aborted", f"Request {rid} aborted.", proc="api"
        )
        story.maybe(
            "INFO", "v1/engine/async_llm.py", "Aborted request(s)", f"Aborted request(s) {rid}.", proc="api"
        )
    boot.traffic(story, 4)
    out.append(
        Case(
            "healthy-0141-aborts",
            "clients hang up",
            "0.14.1",
            "healthy",
            wrap.chain(story.lines, wrap.journald("a1", "vllm")),
            ["journald"],
        )
    )

    story = Story("0.20.2", seed=613)
    serve(
        story,
        KESTREL_7B,
        {"max_model_len": 16384},
        length=16384,
        budget=Budget(DEVICES["A40"], 0.5, 14.25, 1.0, 0.2, 0.4),
    )
    boot.traffic(story, 3)
    lines = wrap.chain(story.lines, wrap.compose("vllm   "))
    trainer = [
        "{'loss': 1.204, 'grad_norm': 0.81, 'learning_rate': 1.9e-05, 'epoch': 0.11}",
        "Traceback (most recent call last):",
        '  File "/app/train.py", line 88, in <module>',
        "    trainer.train()",
        '  File "/opt/conda/lib/python3.11/site-packages/torch/_tensor.py", line 581, in backward',
        "    torch.autograd.backward(",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB. GPU 0 has a total capacity of 44.45 GiB of which 704.00 MiB is free. Process 91 has 22.31 GiB memory in use. Including non-PyTorch memory, this process has 21.43 GiB memory in use.",
    ]
    middle = len(lines) - 4
    lines[middle:middle] = [Line(f"trainer  | {t}") for t in trainer]
    lines += wrap.chain(
        [Line('(APIServer pid=1) INFO:     10.61.3.9:40112 - "POST /v1/chat/completions HTTP/1.1" 200 OK')]
        * 2,
        wrap.compose("vllm   "),
    )
    out.append(
        Case(
            "healthy-0202-neighbour",
            "the trainer in the same compose file dies, vLLM serves on",
            "0.20.2",
            "healthy",
            lines,
            ["compose", "tricky-neighbour-fails"],
            acceptable=["not-a-vllm-log"],
        )
    )

    story = Story("0.24.0", seed=614)
    boot.banner(story, BRISA_8B, {"max_model_len": 8192})
    boot.configured(story, BRISA_8B, length=8192, batched=2048)
    boot.engine(story, BRISA_8B, length=8192)
    boot.distribute(story)
    fail.fail_in_core(
        story,
        (*fail.MODEL_EXECUTOR, *fail.INIT_DEVICE),
        too_little(story, 30.0, DEVICES["A40"], 0.92, 0),
        mark="",
        again="",
    )
    story.raw("Stopping old container ... done; retry 2/5")
    second = Story("0.24.0", seed=615, start="2026-03-14 09:25:00")
    serve(
        second,
        BRISA_8B,
        {"max_model_len": 8192},
        length=8192,
        budget=Budget(DEVICES["A40"], 0.92, 14.96, 1.0, 0.3, 0.4),
    )
    boot.traffic(second, 4)
    out.append(
        Case(
            "healthy-0240-second-try",
            "the first boot met the old container, the second serves",
            "0.24.0",
            "healthy",
            [*story.lines, *second.lines],
            ["bare", "tricky-second-boot-good", "two-boots"],
            acceptable=["gpu-memory-taken"],
        )
    )

    story = Story("0.31.0", seed=616)
    start(story, KESTREL_2B, {"runner": "pooling"}, length=8192)
    boot.profiled(story, Budget(DEVICES["T4"], 0.92, 3.36, 0.9, 0.1))
    boot.sized(story, 320_000, 8192)
    boot.captured(story, 0.2)
    boot.ready(story)
    for _ in range(8):
        boot.access(story, "POST /v1/embeddings")
    out.append(
        Case(
            "healthy-0310-embeddings",
            "a pooling server",
            "0.31.0",
            "healthy",
            wrap.chain(story.lines, wrap.docker_json()),
            ["docker-json"],
        )
    )

    story = Story("0.9.2", seed=617)
    serve(
        story,
        COBALT_MOE,
        {"max_model_len": 8192},
        length=8192,
        budget=Budget(DEVICES["H100"], 0.9, 56.93, 1.2, 0.2),
    )
    for _ in range(6):
        boot.load_line(story, running=0, waiting=0, usage=0.0, prompt=0.0, generated=0.0)
    out.append(
        Case(
            "healthy-092-idle",
            "nobody asks",
            "0.9.2",
            "healthy",
            wrap.chain(story.lines, wrap.quote()),
            ["markdown-quote"],
        )
    )
    return out


def foreign() -> list[Case]:
    """not-a-vllm-log."""
    rand = random.Random(7)
    texts: list[tuple[str, str, list[str]]] = [
        (
            "foreign-llamacpp",
            "llama.cpp runs out of memory",
            [
                "build: 4713 (a4f011e8) with cc (Ubuntu 11.4.0) 11.4.0 for x86_64-linux-gnu",
                "llama_model_loader: loaded meta data with 33 key-value pairs and 292 tensors from /models/q4.gguf (version GGUF V3 (latest))",
                "llm_load_tensors: offloading 33 repeating layers to GPU",
                "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 8192.00 MiB on device 0: cudaMalloc failed: out of memory",
                "llama_kv_cache_init: failed to allocate buffer for kv cache",
                "llama_new_context_with_model: llama_kv_cache_init() failed for self-attention cache",
                "common_init_from_params: failed to create context with model '/models/q4.gguf'",
                "srv    load_model: failed to load model, '/models/q4.gguf'",
                "main: exiting due to model loading error",
            ],
        ),
        (
            "foreign-sglang",
            "SGLang has too little memory",
            [
                "[2026-03-14 09:21:07] server_args=ServerArgs(model_path='tarn-labs/Tarn-32B-Instruct', tp_size=1, mem_fraction_static=0.88)",
                "[2026-03-14 09:21:31 TP0] Load weight begin. avail mem=43.90 GB",
                "[2026-03-14 09:22:02 TP0] Scheduler hit an exception: Traceback (most recent call last):",
                '  File "/sgl-workspace/sglang/python/sglang/srt/managers/scheduler.py", line 2261, in run_scheduler_process',
                "    scheduler = Scheduler(server_args, port_args, gpu_id, tp_rank, dp_rank)",
                '  File "/sgl-workspace/sglang/python/sglang/srt/model_executor/model_runner.py", line 833, in init_memory_pool',
                "    raise RuntimeError(",
                "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
                "[2026-03-14 09:22:03] Received sigquit from a child process. It usually means the child failed.",
            ],
        ),
        (
            "foreign-tgi",
            "text-generation-inference",
            [
                '2026-03-14T09:21:07.330Z  INFO text_generation_launcher: Args { model_id: "brisa-ai/Brisa-8B-Chat", num_shard: None, max_input_tokens: None }',
                "2026-03-14T09:21:30.101Z ERROR warmup{max_input_length=4095 max_prefill_tokens=4145}:warmup: text_generation_client: router/client/src/lib.rs:46: Server error: Not enough memory to handle 4145 prefill tokens. You need to decrease `--max-batch-prefill-tokens`",
                'Error: Backend(Warmup(Generation("Not enough memory to handle 4145 prefill tokens. You need to decrease `--max-batch-prefill-tokens`")))',
                "2026-03-14T09:21:30.180Z ERROR text_generation_launcher: Webserver Crashed",
            ],
        ),
        (
            "foreign-triton",
            "Triton with an ONNX model",
            [
                "I0314 09:21:07.201931 1 pinned_memory_manager.cc:277] \"Pinned memory pool is created at '0x7f5c2e000000' with size 268435456\"",
                'I0314 09:21:08.110030 1 model_lifecycle.cc:472] "loading: resnet:1"',
                "E0314 09:21:11.301023 1 model_lifecycle.cc:654] \"failed to load 'resnet' version 1: Internal: onnx runtime error 6: Exception during initialization: CUDA failure 2: out of memory ; GPU=0\"",
                "I0314 09:21:11.301400 1 server.cc:662]",
                "error: creating server: Internal - failed to load all models",
            ],
        ),
        (
            "foreign-pip",
            "installing vllm, not running it",
            [
                "$ pip install vllm",
                "Collecting vllm",
                "  Downloading vllm-0.9.2-cp38-abi3-manylinux1_x86_64.whl.metadata (15 kB)",
                "Collecting torch==2.7.0 (from vllm)",
                "  Downloading torch-2.7.0-cp311-cp311-manylinux_2_28_x86_64.whl (865.2 MB)",
                "     ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━ 865.2/865.2 MB 22.1 MB/s eta 0:00:00",
                "Installing collected packages: torch, vllm",
                "Successfully installed torch-2.7.0 vllm-0.9.2",
                "$ nvidia-smi -L",
                "GPU 0: NVIDIA L4 (UUID: GPU-6f1c2d0a-0000-4c55-8a1e-aaaaaaaaaaaa)",
            ],
        ),
        (
            "foreign-diffusers",
            "an image pipeline runs out of memory",
            [
                "Loading pipeline components...: 100%|██████████| 7/7 [00:04<00:00,  1.62it/s]",
                "  0%|          | 0/50 [00:00<?, ?it/s]",
                "Traceback (most recent call last):",
                '  File "/home/tessa/sd/run.py", line 14, in <module>',
                "    image = pipe(prompt, num_inference_steps=50).images[0]",
                '  File "/home/tessa/sd/.venv/lib/python3.11/site-packages/diffusers/models/attention_processor.py", line 3314, in __call__',
                "    hidden_states = F.scaled_dot_product_attention(",
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.50 GiB. GPU 0 has a total capacity of 11.76 GiB of which 2.13 GiB is free.",
            ],
        ),
        (
            "foreign-postgres",
            "a database with a port conflict",
            [
                "2026-03-14 09:21:07.118 UTC [1] LOG:  starting PostgreSQL 16.2 on x86_64-pc-linux-gnu",
                '2026-03-14 09:21:07.120 UTC [1] LOG:  could not bind IPv4 address "0.0.0.0": Address already in use',
                "2026-03-14 09:21:07.120 UTC [1] HINT:  Is another postmaster already running on port 5432? If not, wait a few seconds and retry.",
                "2026-03-14 09:21:07.121 UTC [1] FATAL:  could not create any TCP/IP sockets",
            ],
        ),
        (
            "foreign-ollama",
            "ollama's server log",
            [
                'time=2026-03-14T09:21:07.201Z level=INFO source=routes.go:1259 msg="Listening on [::]:11434 (version 0.6.2)"',
                'time=2026-03-14T09:21:44.000Z level=WARN source=sched.go:647 msg="gpu VRAM usage didn\'t recover within timeout" seconds=5.2',
                'time=2026-03-14T09:22:01.180Z level=ERROR source=sched.go:456 msg="error loading llama server" error="llama runner process has terminated: cudaMalloc failed: out of memory"',
                '[GIN] 2026/03/14 - 09:22:01 | 500 |   17.1s |       127.0.0.1 | POST     "/api/generate"',
            ],
        ),
    ]
    out = [
        Case(id_, title, None, "not-a-vllm-log", [Line(t) for t in lines], ["bare", "not-vllm"])
        for id_, title, lines in texts
    ]
    lines = [
        Line(
            f'10.0.{rand.randint(0, 9)}.{rand.randint(2, 250)} - - [14/Mar/2026:09:{n // 60:02d}:{n % 60:02d} +0000] "POST /v1/chat/completions HTTP/1.1" {rand.choice((502, 504, 200))} 157 "-" "openai-python/1.40"'
        )
        for n in range(120)
    ]
    lines.append(
        Line(
            '2026/03/14 09:24:00 [error] 22#22: *881 upstream timed out (110: Connection timed out) while reading response header from upstream, upstream: "http://vllm-backend:8000/v1/chat/completions"'
        )
    )
    out.append(
        Case(
            "foreign-nginx",
            "a proxy before a vLLM; its own lines only",
            None,
            "not-a-vllm-log",
            lines,
            ["bare", "not-vllm"],
            acceptable=["wrapper-only"],
        )
    )
    return out


def echoes() -> list[Case]:
    """wrapper-only."""
    out = []
    for id_, release, seed, wrapper, tag in (
        ("echo-0112-front", "0.11.2", 631, wrap.kubectl(), "kubectl"),
        ("echo-0330-front", "0.33.0", 632, None, "bare"),
    ):
        story = Story(release, seed=seed)
        fail.fail_in_client(story, cores="{'EngineCore_DP0': 1}" if release == "0.11.2" else "{}")
        fail.leaked(story)
        out.append(
            Case(
                id_,
                "only the front end's traceback",
                None,
                "wrapper-only",
                wrap.chain(story.lines, *([wrapper] if wrapper else [])),
                [tag, "head-truncated"],
            )
        )

    story = Story("0.7.3", seed=633, site="/opt/venv/lib/python3.10/site-packages")
    story.trace(
        story.frames(
            "!~/uvloop/__init__.py:82:run:return loop.run_until_complete(wrapper())",
            "openai/api_server.py:run_server:async with build_async_engine_client(",
            "openai/api_server.py:build_async_engine_client_from_engine_args:raise RuntimeError(",
        ),
        "RuntimeError: Engine process failed to start. See stack trace for the root cause.",
        proc="none",
    )
    out.append(
        Case(
            "echo-073-process",
            "V0's front end only",
            None,
            "wrapper-only",
            wrap.chain(story.lines, wrap.compose("x")),
            ["compose", "head-truncated", "v0"],
        )
    )

    story = Story("0.19.1", seed=634)
    story.world = 4
    story.workers_named = True
    fail.fail_after_worker_start(story)
    out.append(
        Case(
            "echo-0191-workers",
            "the engine core's echo of a dead worker; the worker's lines are missing",
            None,
            "wrapper-only",
            story.lines,
            ["bare", "head-truncated", "multi-rank"],
        )
    )

    story = Story("0.14.1", seed=635)
    for _ in range(4):
        place = story.place("v1/engine/async_llm.py", "AsyncLLM output_handler failed") or "async_llm.py:543"
        story.trace(
            story.frames("v1/engine/async_llm.py:AsyncLLM.generate:out = q.get_nowait() or await q.get()"),
            "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.",
            proc="api",
            place=place,
            head="AsyncLLM output_handler failed.",
        )
        boot.access(story, status="500 Internal Server Error")
    out.append(
        Case(
            "echo-0141-dead",
            "EngineDeadError again and again, the first failure is cut off",
            None,
            "wrapper-only",
            wrap.chain(story.lines, wrap.docker_json()),
            ["docker-json", "head-truncated"],
        )
    )

    lines = [
        Line(t)
        for t in (
            "Traceback (most recent call last):",
            '  File "/workspace/train_grpo.py", line 211, in <module>',
            "    trainer.train()",
            '  File "/opt/conda/lib/python3.11/site-packages/trl/extras/vllm_client.py", line 160, in check_server',
            "    raise ConnectionError(",
            "ConnectionError: The vLLM server can't be reached at http://0.0.0.0:8000 after 240.0 seconds. Make sure the server is running by running `trl vllm-serve`.",
        )
    ]
    out.append(
        Case(
            "echo-trl-client",
            "TRL's client cannot reach its server",
            None,
            "wrapper-only",
            lines,
            ["bare", "trl"],
            acceptable=["not-a-vllm-log"],
        )
    )
    return out


def cases() -> list[Case]:
    """This family's cases."""
    return [*frightening(), *stopped(), *foreign(), *echoes()]


__all__ = ["SOLANO_24B", "cases"]
