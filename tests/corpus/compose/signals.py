"""Stopped from outside: interrupted."""

from . import boot, fail, wrap
from .case import Case, act
from .context import start
from .machine import (
    BRISA_8B,
    TARN_32B,
    TARN_70B,
)
from .story import Line, Story
from .weights import until_load


def interrupted() -> list[Case]:
    """Interrupted."""
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
    return [*interrupted()]
