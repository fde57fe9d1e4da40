"""A run with everything that a page can show; hostile on request. No figure here was measured: only its shape counts."""

import math
from typing import Any

import msgspec

from fitserve.plan.values import FrontierPoint
from fitserve.report.html.extras import Emitted, Extras, Frontier
from fitserve.report.record import Record
from fitserve.units import GIB

COMMAND = ["vllm", "serve", "org/model-8b", "--max-model-len", "131072", "--tensor-parallel-size", "2"]
HOSTILE = '</title></svg><script>alert(1)</script><img src=x onerror="alert(2)">\'"`{{7*7}}\u202e\x1b[31m'
"""Ends elements, runs scripts, leaves attributes, fills templates, turns the reading direction, colours a terminal."""


def whole_record(words: str = "") -> Record:
    """A run of two starts on two devices, proven under load; ``words`` stand wherever a log or a user could put them."""
    return msgspec.convert(
        {
            "run": "20261201-152233-7f3a9c",
            "made_by": "fix",
            "started_utc": "2026-12-01T15:22:33+00:00",
            "fitserve_version": "0.1.0",
            "command": [*COMMAND, *([words] if words else [])],
            "environment": {
                "vllm": "0.19.0",
                "gpu": f"NVIDIA L4{words}",
                "gpus": 2,
                "driver": "570.133.20",
                "machine": {
                    "devices": {
                        "gpus": [
                            {"index": n, "name": f"NVIDIA L4{words}", "total_bytes": 23_034 << 20}
                            for n in range(2)
                        ],
                        "driver": "570.133.20",
                    },
                    "host": {"unknown": "no answer within 2 s"},
                    "engine": {"version": "0.19.0", "plugins": [], "program": None},
                },
                "packages": {"torch": "2.10.0", "transformers": "5.1.0"},
            },
            "trials": [_failed(words), _served(words)],
            "verification": _verification(words),
            "outcome": "served",
            "reason": "every check passed",
            "final_command": [
                "vllm",
                "serve",
                "org/model-8b",
                "--max-model-len",
                "76304",
                *COMMAND[5:],
                *([words] if words else []),
            ],
            "seconds": 331.4,
        },
        Record,
    )


def whole_extras(words: str = "") -> Extras:
    """A frontier of four settings, and a file."""
    lengths = [4096 * 2**n for n in range(6)]
    points = [
        FrontierPoint(
            kv_cache_dtype=f"{dtype}{words}",
            tensor_parallel_size=2,
            gpu_memory_utilization=share,
            enforce_eager=False,
            longest=lengths[-2],
            concurrency={str(length): round(room / length, 2) for length in lengths if room > length},
        )
        for dtype, size in (("auto", 76_304), ("fp8", 152_608))
        for share, room in ((0.9, size), (0.95, size * 1.15))
    ]
    return Extras(
        frontier=Frontier(points=points, chosen=(76_304, 1.0)),
        emitted=[Emitted(name="vllm.yaml", text=f"model: org/model-8b\nmax-model-len: 76304\n{words}")],
        redactions=f"Hidden: 2 hosts{words}",
    )


def _budget(kv_gib: float) -> list[dict[str, Any]]:
    terms = {
        "total": 22.05,
        "free": 21.62,
        "requested": 19.84,
        "weights": 7.51,
        "activation": 1.42,
        "non_torch": 0.61,
        "cuda_graph": 0.98,
    }
    sizes = {f"{name}_bytes": size for name, size in {**terms, "kv_cache": kv_gib}.items()}
    return [{"rank": str(rank), **{name: _exact(size) for name, size in sizes.items()}} for rank in range(2)]


def _exact(size_gib: float) -> dict[str, Any]:
    size = round(size_gib * GIB)
    return {"low": size, "expected": size, "high": size, "basis": "measured", "source": "line 214"}


def _failed(words: str) -> dict[str, Any]:
    return {
        "n": 1,
        "argv": [*COMMAND, *([words] if words else [])],
        "outcome": "failed",
        "cause": f"kv-cache-smaller-than-context{words}",
        "exit_code": 1,
        "seconds": 41.25,
        "phases": _phases(4),
        "memory": {"peak_rss_bytes": 5 * GIB, "peak_gpu_bytes": 21 * GIB, "printed": {"kv_cache_tokens": 76304}},
        "samples": _samples(41, words),
        "notes": [f"process other took 1.20 GiB of device 0 while this trial ran{words}"],
        "diagnosis": {
            "stage": "kv_cache",
            "cause": f"kv-cache-smaller-than-context{words}",
            "line": 214,
            "severity": "error",
            "confidence": "certain",
            "message": f"max_model_len 131,072 needs 16.00 GiB of KV cache, and 9.32 GiB is there{words}",
            "evidence": [
                {"line": 198, "text": f"Available KV cache memory: 9.32 GiB{words}"},
                {"line": 214, "text": "ValueError: To serve at least one request with the models's max seq len (131072), (16.0 GiB KV cache is needed, which is larger than the available KV cache memory (9.32 GiB). Based on the available memory, the estimated maximum model length is 76304."},
            ],
            "numbers": {"needed_gib": 16.0, "available_gib": 9.32, "max_model_len": 131072, "estimated_max_model_len": 76304},
            "vllm_version": "0.19.0",
            "budget": _budget(9.32),
            "advice": [
                {"flag": "max_model_len", "from": 131072, "to": 76304, "direction": "down", "cost": "capacity", "why": f"76,304 tokens fit in 9.32 GiB at 128 KiB each{words}", "option": "--max-model-len 76304", "predicted": {"kv_cache_tokens": 76304, "max_concurrency": 1.0}},
                {"flag": "kv_cache_dtype", "to": "fp8", "direction": "set", "cost": "output", "why": "halves the bytes per token", "option": "--kv-cache-dtype fp8"},
            ],
        },
    }  # fmt: skip


def _served(words: str) -> dict[str, Any]:
    return {
        "n": 2,
        "argv": ["vllm", "serve", "org/model-8b", "--max-model-len", "76304", *COMMAND[5:], *([words] if words else [])],
        "env": {"VLLM_LOGGING_LEVEL": f"INFO{words}"},
        "change": {"flag": "max_model_len", "from": 131072, "to": 76304, "why": f"76,304 tokens fit in 9.32 GiB at 128 KiB each{words}", "cost": "capacity"},
        "outcome": "served",
        "seconds": 118.0,
        "phases": _phases(6),
        "memory": {"peak_rss_bytes": 5 * GIB, "peak_gpu_bytes": 39 * GIB, "printed": {"kv_cache_tokens": 76320, "max_concurrency": 1.0}},
        "samples": _samples(118, words),
        "diagnosis": {"stage": "-", "cause": "healthy", "line": 300, "severity": "note", "confidence": "certain", "message": "the server came up", "budget": _budget(9.32)},
        "url": "http://127.0.0.1:8000",
    }  # fmt: skip


def _phases(count: int) -> list[dict[str, Any]]:
    stages = [
        ("config", 0.0),
        ("weights", 9.0),
        ("profiling", 29.0),
        ("kv_cache", 38.0),
        ("graph_capture", 44.0),
        ("warmup", 92.0),
    ]
    return [{"stage": stage, "start_seconds": at} for stage, at in stages[:count]]


def _samples(seconds: int, words: str) -> dict[str, Any]:
    own = [
        round(min(19.5, 8 / (1 + math.exp((12 - at) / 2)) + (11.5 if at > 38 else 0)) * GIB)
        for at in range(seconds)
    ]
    devices = [
        {
            "device": f"GPU-{n}{words}",
            "total_bytes": round(22.05 * GIB),
            "used_bytes": [size + GIB // 2 for size in own],
            "own_bytes": [size - n * GIB // 8 if size > n * GIB // 8 else 0 for size in own],
            "others_bytes": [GIB // 2 + (GIB if at > 20 else 0) * (n == 0) for at in range(seconds)],
        }
        for n in range(2)
    ]
    return {
        "source": "NVML",
        "seconds": [float(at) for at in range(seconds)],
        "rss_bytes": [5 * GIB] * seconds,
        "devices": devices,
    }


def _verification(words: str) -> dict[str, Any]:
    points = [
        {
            "concurrency": n,
            "first_token_p50_seconds": 0.04 * (1 + n / 24),
            "first_token_p99_seconds": 0.07 * (1 + (n / 12) ** 2),
            "end_to_end_p50_seconds": 1.1 * (1 + n / 60),
            "end_to_end_p99_seconds": 1.3 * (1 + (n / 40) ** 2),
            "output_tokens_per_second": 900 * n / (1 + n / 16),
            "kv_cache_usage_fraction": min(1.0, 0.031 * n),
            "running": min(n, 31),
            "waiting": max(0, n - 31),
            "preemptions": 3 if n > 31 else 0,
        }
        for n in (1, 2, 4, 8, 16, 32, 64)
    ]
    return {
        "url": "http://127.0.0.1:8000",
        "model": f"org/model-8b{words}",
        "max_model_len": 76304,
        "server_version": "0.19.0",
        "checks": [
            {"name": "health", "passed": True, "expected": "HTTP 200", "actual": "HTTP 200", "seconds": 0.01},
            {"name": "boundary-exact", "passed": True, "expected": "1 token for 76,303 in", "actual": f"1 token for 76,303 in{words}", "seconds": 12.5, "prompt_tokens": 76303, "output_tokens": 1},
            {"name": "metrics", "passed": None, "expected": "a metrics page", "actual": "the server has none"},
        ],
        "numbers": {"curve": {"workload": f"128 tokens in, 32 out{words}", "points": points, "knee": {}}},
    }  # fmt: skip
