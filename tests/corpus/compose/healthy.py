"""Nothing of vLLM failed, though it may look so."""

from . import boot, fail, v0, work, wrap
from .case import Case
from .context import start
from .machine import BRISA_8B, COBALT_MOE, DEVICES, KESTREL_2B, KESTREL_7B, TARN_32B, Budget, fit_tokens
from .occupied import too_little
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
    boot.sized(story, fit_tokens(L4.kv_bytes, KESTREL_7B.token_bytes()), 16384)
    work.captured(story, 0.5)
    work.ready(story)
    work.traffic(story, 4)
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
        work.access(story)
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
        work.access(story)
        work.load_line(story, running=1, waiting=0, usage=1.2)
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
    work.traffic(story, 4)
    for _ in range(3):
        work.access(story, "GET /robots.txt", "404 Not Found")
        work.access(story, "POST /v1/chat/completions", "422 Unprocessable Entity")
    work.traffic(story, 2)
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
    work.traffic(story, 5)
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
    work.traffic(story, 2)
    for _ in range(4):
        rid = f"chatcmpl-{story.random.getrandbits(64):016x}"
        story.maybe(
            "INFO", "v1/engine/async_llm.py", "Request %s aborted", f"Request {rid} aborted.", proc="api"
        )
        story.maybe(
            "INFO", "v1/engine/async_llm.py", "Aborted request(s)", f"Aborted request(s) {rid}.", proc="api"
        )
    work.traffic(story, 4)
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
    work.traffic(story, 3)
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
    return out


def second_tries() -> list[Case]:
    """A boot that failed before a good one; servers without chat; an idle one."""
    out = []
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
    work.traffic(second, 4)
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
    budget = Budget(DEVICES["T4"], 0.92, 3.36, 0.9, 0.1)
    boot.profiled(story, budget)
    boot.sized(story, fit_tokens(budget.kv_bytes, KESTREL_2B.token_bytes(), null_block=True), 8192)
    work.captured(story, 0.2)
    work.ready(story)
    for _ in range(8):
        work.access(story, "POST /v1/embeddings")
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
        work.load_line(story, running=0, waiting=0, usage=0.0, prompt=0.0, generated=0.0)
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


def cases() -> list[Case]:
    """This family's cases."""
    return [*frightening(), *stopped(), *second_tries()]
