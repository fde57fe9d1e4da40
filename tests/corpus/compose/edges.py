"""Boundaries between causes."""

from . import boot, fail, wrap
from .case import Advice, Case, act
from .fail import FORWARD, LOAD, PROFILE
from .lengths import refused
from .machine import BRISA_8B, COBALT_MOE, GIB, KESTREL_7B, TARN_70B
from .rare_model import short
from .story import Line, Story


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
        "E0314 09:21:44.871000 77 torch/_inductor/select_algorithm.py:2100] [0/0] Runtime error during autotuning: \n"
        "E0314 09:21:44.871000 77 torch/_inductor/select_algorithm.py:2100] [0/0] No valid triton configs. OutOfMemoryError: out of resource: triton_mm "
        "Required: 262144 Hardware limit:101376 Reducing block sizes or `num_stages` may help.. \n"
        "E0314 09:21:44.871000 77 torch/_inductor/select_algorithm.py:2100] [0/0] Ignoring this choice.",
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
            "autotuning skips a choice that is out of shared memory, then there is no C compiler",
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
    return [*others()]
