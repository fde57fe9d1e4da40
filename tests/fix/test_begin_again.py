"""What a run begins again with: its options, its keys, its files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fitserve.cli.fix import overlaid
from fitserve.errors import UsageError
from fitserve.fix.options import Options, options_from_json, options_to_json
from fitserve.fix.resume import begin_again, whole_command
from fitserve.report.record import Record
from fitserve.report.secrets import without_secrets
from fitserve.trial.choice import Bounds
from fitserve.trial.outcome import Change, Trial
from fitserve.trial.watch import Limits


def test_options_come_back_from_a_record(tmp_path: Path) -> None:
    """Every option, the folder too."""
    options = Options(
        max_trials=9,
        budget_seconds=1.5,
        limits=Limits(start_seconds=1),
        bounds=Bounds(goal_context=7, allow_output=True),
        model="m",
        log_dir=tmp_path,
    )

    assert options == options_from_json(msgspec.json.decode(msgspec.json.encode(options_to_json(options))))
    assert options_from_json({}) == Options()


def test_given_options_go_before_kept_ones() -> None:
    """Place by place, at any depth; what is not given stays."""
    kept = options_to_json(Options(max_trials=9, bounds=Bounds(goal_context=7, goal_concurrency=2)))
    new = options_to_json(Options(bounds=Bounds(goal_context=8)))

    assert Options(max_trials=9, bounds=Bounds(goal_context=8, goal_concurrency=2)) == options_from_json(
        overlaid(kept, new, {"bounds.goal_context"})
    )


COMMANDS = [
    ["vllm", "serve", "m", "--api-key", "sk-0123456"],
    ["vllm", "serve", "m", "--api-key=sk-0123456", "--hf-token", "hf_abcdefgh"],
    ["VLLM_API_KEY=sk-0123456", "vllm", "serve", "m"],
    ["env", "HF_TOKEN=hf_abcdefgh", "VLLM_API_KEY=sk-0123456", "vllm", "serve", "m"],
    ["vllm serve m --api-key sk-0123456"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_keys_find_their_places_again(command: list[str], make_launch: Callable[..., Any]) -> None:
    """Whatever way a key is given, a trial of the journal gets it back from the command."""
    whole = make_launch(command)
    record = Record(
        run="r",
        kind="fix",
        started_utc="",
        fitserve_version="",
        command=command,
        trials=[
            Trial(
                n=1,
                argv=list(whole.argv),
                env=whole.env,
                outcome="stopped",
                seconds=0,
                change=Change(flag="x"),
            )
        ],
    )
    kept = without_secrets(record)

    assert kept != record
    assert (whole, Change(flag="x")) == (
        begin_again(kept, whole_command(kept, command)).launch,
        begin_again(kept, whole_command(kept, command)).change,
    )
    with pytest.raises(UsageError, match="holds a key"):
        whole_command(kept, [])


@pytest.fixture
def make_launch() -> Callable[..., Any]:
    """Read a command."""
    from fitserve.facts.command import read_command

    return read_command


def test_a_copy_that_is_gone_is_made_again(tmp_path: Path, make_launch: Callable[..., Any]) -> None:
    """A trial of an edited script ran a copy beside its log; after a reboot the changes are made in the script again."""
    script = tmp_path / "start.sh"
    script.write_text("#!/bin/sh\nexec vllm serve m --max-model-len 8192\n")
    copy = str(tmp_path / "gone" / "trial-2-start.sh")
    record = Record(
        run="r",
        kind="fix",
        started_utc="",
        fitserve_version="",
        command=["bash", str(script)],
        trials=[
            Trial(n=1, argv=["bash", str(script)], outcome="failed", seconds=1),
            Trial(
                n=2,
                argv=["bash", copy],
                outcome="stopped",
                seconds=1,
                change=Change(flag="max_model_len", to=4096),
            ),
        ],
    )
    begin = begin_again(record, record.command)

    assert ("m", 4096) == (begin.launch.model, begin.launch.value("max_model_len"))
    assert (None, 4096) == (begin.over, begin.change and begin.change.to)
