"""What the page shows beside the record is worked out where the model is, and has its reason where it is not."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from fitserve.cli.report_extras import emitted_of, frontier_of
from fitserve.facts.tiny_model import build_tiny_model
from fitserve.report.record import Record
from tests.report.html.whole import whole_record


def run_of(model: Path, **environment: Any) -> Record:
    """A served run of a model, made on some machine."""
    record = whole_record()
    command = ["vllm", "serve", str(model), "--max-model-len", "512"]
    trial = msgspec.structs.replace(record.trials[1], argv=command, env={})
    return msgspec.structs.replace(
        record, trials=[trial], final_command=command, environment={"vllm": "0.19.0", **environment}
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole model of a few layers."""
    folder = tmp_path_factory.mktemp("model") / "tiny"
    build_tiny_model(folder)
    return folder


@pytest.mark.parametrize(("gpus", "sizes"), [(1, {1}), (2, {1, 2})])
def test_a_frontier_goes_by_the_machine_of_the_run(model: Path, gpus: int, sizes: set[int]) -> None:
    """The devices are those that the record names, wherever it is read; the chosen point is the served launch."""
    machine = {"devices": {"gpus": [{"name": "NVIDIA L4"}] * gpus}}
    frontier = frontier_of(run_of(model, machine=machine))

    assert frontier.points, frontier.reason
    assert sizes == {point.tensor_parallel_size for point in frontier.points}
    assert frontier.chosen is not None
    assert 512 == frontier.chosen[0]
    assert frontier.chosen[1] > 1


def test_a_model_that_is_not_there_is_the_reason(tmp_path: Path) -> None:
    """Where the model's files have gone, the reason names them, and nothing is raised."""
    frontier = frontier_of(run_of(tmp_path / "gone", machine={"devices": {"gpus": [{"name": "NVIDIA L4"}]}}))

    assert [] == frontier.points
    assert "gone" in frontier.reason


@pytest.mark.parametrize("environment", [{"machine": "?"}, {"machine": {"devices": {"unknown": "x"}}}, {}])
def test_a_machine_of_another_shape_is_no_failure(model: Path, environment: dict[str, Any]) -> None:
    """A record of another version, and one without a device, still have a frontier or a reason."""
    frontier = frontier_of(run_of(model, **environment))

    assert frontier.points or frontier.reason


def test_files_are_those_of_the_command_that_serves(model: Path) -> None:
    """Each kind of file is there, with the command's context."""
    emitted, reason = emitted_of(run_of(model))

    assert "" == reason
    assert 4 == len(emitted)
    assert all("512" in one.text for one in emitted)


def test_a_run_that_serves_nothing_has_no_files() -> None:
    """The reason stands in their place."""
    emitted, reason = emitted_of(msgspec.structs.replace(whole_record(), final_command=None))

    assert ([], "no command of this run serves, so there is nothing to write") == (emitted, reason)
