"""Text that is not vLLM's, and logs where only the echo is left."""

import random

from . import fail, work, wrap
from .case import Case
from .story import Line, Story


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
        work.access(story, status="500 Internal Server Error")
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
            suggest=[],
        )
    )
    return out


def cases() -> list[Case]:
    """This family's cases."""
    return [*foreign(), *echoes()]
