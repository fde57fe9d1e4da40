"""Starts until a command is proven: fix beside two scripts, on simulated machines whose truth is hidden.

Each case is a real ``fitserve fix`` on a simulated machine, in processes of its own. The scripts play on the same truth without processes.
Whether a goal can be reached is decided by a search over the settings on that truth.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench._starts_cases import Case, draw_cases, keeps_goal, play, reach_of
from bench._starts_scripts import bisect_length, step_utilization
from fitserve.simulator.arguments import read_arguments
from fitserve.simulator.machine import hold, make_machine
from fitserve.simulator.models import known_models, make_model
from fitserve.simulator.settings import default_utilization

FIX = [sys.executable, "-c", "from fitserve.cli import main; main()", "fix"]
CASE_SECONDS = 120.0
FIRST_PORT = 21_000
MEMORY = frozenset(
    [
        "gpu-memory-taken",
        "weights-do-not-fit",
        "profile-run-oom",
        "multimodal-profile-oom",
        "no-kv-cache-blocks",
        "graph-estimate-too-large",
        "kv-cache-smaller-than-context",
        "kv-cache-pinned-too-small",
        "kv-allocation-oom",
        "graph-capture-oom",
        "sampler-warmup-oom",
        "serving-oom",
        "state-cache-too-small",
    ]
)
"""Causes that a smaller context or another share may help against: where the scripts have a chance."""
WITHIN_STARTS = 3


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a case.

    Attributes:
        outcome: of the run: ``served``, ``not-reached``, or what went wrong.
        starts: of the run, the failing one included.
        kept: by the hidden truth: the command that was given serves and keeps the goal.
        causes: what each trial was said to have failed of.
        bisect, steps: starts of the two scripts; None where they never serve.
    """

    case: Case
    outcome: str
    starts: int
    kept: bool
    causes: list[str | None]
    seconds: float
    reason: str = ""
    command: str = ""
    changes: list[Any] = []
    bisect: int | None = None
    steps: int | None = None


def run_case(case: Case, place: int, keep: Path | None) -> Result:
    """Let ``fix`` work on a case."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"case-{case.number}-", dir=keep))
    neighbours: list[subprocess.Popen[bytes]] = []
    began = time.monotonic()
    try:
        programs = make_machine(folder / "machine", case.machine)
        model = make_model(folder / "model", case.model)
        if case.neighbour_bytes:
            neighbours.append(subprocess.Popen(["sleep", "600"]))
            held = dict.fromkeys(range(case.count), case.neighbour_bytes)
            hold(folder / "machine", held, name="python3", pid=neighbours[0].pid)
        answer, text = _fix(case, folder, programs, model, FIRST_PORT + place)
    finally:
        for one in neighbours:
            one.kill()
            one.wait()
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    return _judge(case, answer, text, time.monotonic() - began)


def _fix(
    case: Case, folder: Path, programs: Path, model: Path, port: int
) -> tuple[dict[str, Any] | None, str]:
    goals = [] if case.goal_context is None else ["--goal-context", str(case.goal_context)]
    goals += [] if case.goal_concurrency is None else ["--goal-concurrency", str(case.goal_concurrency)]
    goals += ["--allow", "output"] if case.allow_output else []
    launch = ["vllm", "serve", str(model), "--port", str(port), *case.words]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CUDA_", "VLLM_"))}
    environ = {
        **kept,
        **case.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "FITSERVE_DATA_DIR": str(folder / "data"),
        "FITSERVE_CACHE_DIR": str(folder / "cache"),
        "FITSERVE_LOCK_DIR": str(folder / "locks"),
        "TMPDIR": str(folder),
    }
    command = [*FIX, "--json", "--quiet", *goals, "--", *launch]
    (folder / "command.txt").write_text(" ".join(command[3:]))
    process = subprocess.Popen(
        command,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=CASE_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None, "timed out"
    try:
        return json.loads(out), err
    except ValueError:
        return None, f"exit code {process.returncode}: {err.strip()[-300:]}"


def _judge(case: Case, answer: dict[str, Any] | None, text: str, seconds: float) -> Result:
    default = default_utilization(case.version)
    scripts = {
        "bisect": bisect_length(case, known_models()[case.model].longest),
        "steps": step_utilization(case, default),
    }
    if answer is None or answer.get("kind") != "fix":
        reason = text or json.dumps(answer)[:300]
        return Result(
            case=case,
            outcome="broken",
            starts=0,
            kept=False,
            causes=[],
            seconds=seconds,
            reason=reason,
            **scripts,
        )
    trials = answer["trials"]
    command = answer.get("command") or ""
    return Result(
        case=case,
        outcome=answer["outcome"],
        starts=len(trials),
        kept=answer["outcome"] == "served" and _really_keeps(case, command),
        causes=[trial.get("cause") for trial in trials],
        changes=[trial.get("change") for trial in trials],
        seconds=seconds,
        reason=str(answer.get("reason", "")),
        command=command,
        **scripts,
    )


def _really_keeps(case: Case, command: str) -> bool:
    import shlex

    words = shlex.split(command)
    environ = dict(case.environ)
    while words and (words[0] == "env" or "=" in words[0]):
        name, _, value = words.pop(0).partition("=")
        if value:
            environ[name] = value
    try:
        given = read_arguments(words[words.index("serve") + 1 :], case.version)
    except SystemExit:
        return False
    return keeps_goal(case, play(case, given, environ))


def _judged_anew(result: Result) -> Result:
    """With what could be reached, as it is reckoned now."""
    return msgspec.structs.replace(
        result, case=msgspec.structs.replace(result.case, reach=reach_of(result.case))
    )


def report(results: list[Result]) -> dict[str, Any]:
    """The figures, for all and by cause."""
    groups: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        groups[result.case.cause].append(result)
    memory = [one for one in results if one.case.cause in MEMORY]
    return {
        "all": _figures(results),
        "memory": _figures(memory),
        "by_cause": {cause: _figures(group) for cause, group in sorted(groups.items())},
    }


def _figures(results: list[Result]) -> dict[str, Any]:
    settings = [one for one in results if one.case.reach == "settings"]
    no = [one for one in results if one.case.reach == "no"]
    offload = [one for one in results if one.case.reach == "offload"]
    edge = [one for one in results if one.case.reach == "edge"]
    return {
        "cases": len(results),
        "reachable": len(settings),
        "fix": _starts([one.starts if one.kept else None for one in settings]),
        "bisect": _starts([one.bisect for one in settings]),
        "utilization_steps": _starts([one.steps for one in settings]),
        "said_served_but_goal_lost": sum(one.outcome == "served" and not one.kept for one in results),
        "edge": {"cases": len(edge), "kept": sum(one.kept for one in edge)},
        "offload_only": {"cases": len(offload), "kept": sum(one.kept for one in offload)},
        "unreachable": {
            "cases": len(no),
            "recognised_within_one_extra_start": sum(
                one.outcome == "not-reached" and one.starts <= 2 for one in no
            ),
        },
        "broken": sum(one.outcome == "broken" for one in results),
        "seconds_median": round(statistics.median([one.seconds for one in results]), 2) if results else None,
    }


def _starts(starts: list[int | None]) -> dict[str, Any]:
    """Of the cases that can be reached: the starts of those that were, and the shares of all."""
    done = [each for each in starts if each is not None]
    number = len(starts) or 1
    return {
        "median": statistics.median(done) if done else None,
        "within_3": round(sum(each <= WITHIN_STARTS for each in done) / number, 3),
        "kept": round(len(done) / number, 3),
    }


def show(figures: dict[str, Any]) -> None:
    """The table."""
    print(
        f"{'':<36}{'cases':>6}{'reach':>6}  {'fix: med  <=3  kept':<21}{'bisect: med <=3 kept':<22}{'steps: med <=3 kept':<22}{'edge, offload':<14}{'no':>8}"
    )
    for name, row in [
        *figures["by_cause"].items(),
        ("all that want memory", figures["memory"]),
        ("all", figures["all"]),
    ]:
        cells = [
            f"{row[who]['median'] or '-':>8} {row[who]['within_3']:>5.0%} {row[who]['kept']:>5.0%} "
            for who in ("fix", "bisect", "utilization_steps")
        ]
        no = row["unreachable"]
        edge, offload = row["edge"], row["offload_only"]
        others = f"{edge['kept']:>3}/{edge['cases']}{offload['kept']:>5}/{offload['cases']}"
        ending = f"{no['recognised_within_one_extra_start']:>4}/{no['cases']}" + (
            f"  broken {row['broken']}" if row["broken"] else ""
        )
        print(
            f"{name:<36}{row['cases']:>6}{row['reachable']:>6}  {cells[0]:<21}{cells[1]:<22}{cells[2]:<22}{others:<14}{ending}"
        )


def main() -> int:
    """Run the cases and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench starts", description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", metavar="CAUSE", help="Draw cases of this cause alone.")
    parser.add_argument("--parallel", type=int, default=2)
    parser.add_argument("--out", type=Path, help="A JSON line for each case.")
    parser.add_argument(
        "--keep", type=Path, help="Keep each case's folder there: machine, model, logs, journal."
    )
    parser.add_argument("--show", type=Path, help="Run nothing: show what is in such a file, judged anew.")
    options = parser.parse_args()
    if options.show:
        lines = options.show.read_bytes().splitlines()
        show(report([_judged_anew(msgspec.json.decode(line, type=Result)) for line in lines]))
        return 0
    cases = list(draw_cases(options.cases, options.seed, options.only))
    with ThreadPoolExecutor(options.parallel) as pool:
        jobs = [pool.submit(run_case, case, place, options.keep) for place, case in enumerate(cases)]
        results = []
        for job in jobs:
            results.append(job.result())
            if options.out:
                with options.out.open("ab") as file:
                    file.write(msgspec.json.encode(results[-1]) + b"\n")
    show(report(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
