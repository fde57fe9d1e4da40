"""What is no descendant of a command is ended in its own way, or told about."""

from pathlib import Path

import pytest

from fitserve.facts.command import Launch, read_command
from fitserve.facts.find_launch import find_launch
from fitserve.trial.elsewhere import cancel_job, not_ended_from_here, stopping, watched_container

RAY = """#!/bin/bash
if [ "$RANK" = 0 ]; then
  ray start --head --port=6379
else
  ray start --address=$HEAD:6379 --block
fi
vllm serve org/model --tensor-parallel-size 8 --distributed-executor-backend ray
"""


def script(folder: Path, text: str) -> Launch:
    """The launch in a script file."""
    (folder / "start.sh").write_text(text)
    return find_launch(["bash", str(folder / "start.sh")], {})


def test_a_ray_cluster_of_a_script_is_told_about(tmp_path: Path) -> None:
    """A script that starts Ray may leave processes on other machines; one that does not leaves none."""
    with_ray = script(tmp_path, RAY)
    without = script(tmp_path, "vllm serve org/model --distributed-executor-backend ray")

    assert (8, "") == (with_ray.value("tensor_parallel_size"), not_ended_from_here(without))
    assert "those on other machines are yours to stop" in not_ended_from_here(with_ray)


def test_a_container_that_a_script_starts_is_known_by_its_id(tmp_path: Path) -> None:
    """The copy of the script that is started has the container's id written down; its engine is the one of the script."""
    launch = script(tmp_path, "podman run --rm -p 9000:8000 vllm/vllm-openai:v0.19.0 --model org/model\n")
    argv, container = watched_container(launch, tmp_path / "logs" / "trial-1.cid")

    assert ("podman", tmp_path / "logs" / "trial-1.cid") == container
    assert f"-p 9000:8000 --cidfile {tmp_path}/logs/trial-1.cid vllm/vllm-openai" in Path(argv[1]).read_text()


@pytest.mark.parametrize(
    ("line", "engine"),
    [
        ("docker compose -p x -f c.yaml up --build llm", "docker compose -p x -f c.yaml"),
        ("sudo docker compose -f c.yaml up", "docker compose -f c.yaml"),
        ("docker-compose --file c.yaml up llm web", "docker-compose --file c.yaml"),
        ("podman compose -f c.yaml up llm", "podman compose -f c.yaml"),
    ],
)
def test_a_service_is_ended_by_its_own_engine(
    line: str, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command that ends it has the project's options and names what was started, and nothing else."""
    (tmp_path / "c.yaml").write_text(
        "services: {llm: {image: vllm/vllm-openai, command: [--model, m]}, web: {image: nginx}}"
    )
    monkeypatch.chdir(tmp_path)
    services = "llm web" if line.endswith("web") else "llm"

    assert f"{engine} rm --stop --force {services}".split() == stopping(find_launch(line.split(), {}))


@pytest.mark.parametrize(
    ("line", "log", "environ", "cancelled"),
    [
        ("srun vllm serve m", "srun: job 17 queued and waiting for resources\n", {}, "17\n"),
        ("srun vllm serve m", "x\nsrun: job 18 has been allocated resources\n", {}, "18\n"),
        ("srun vllm serve m", "srun: job 17 queued and waiting for resources\n", {"SLURM_JOB_ID": "3"}, ""),
        ("srun vllm serve m", "(APIServer) srun: job 17 queued and waiting\n", {}, ""),
        ("vllm serve m", "srun: job 17 queued and waiting for resources\n", {}, ""),
    ],
)
def test_only_the_job_that_srun_was_given_is_cancelled(
    line: str, log: str, environ: dict[str, str], cancelled: str, tmp_path: Path
) -> None:
    """The number is srun's own word at the beginning of a line; inside of an allocation the job is the user's."""
    (tmp_path / "scancel").write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/cancelled\n')
    (tmp_path / "scancel").chmod(0o755)
    (tmp_path / "log").write_text(log)
    (tmp_path / "cancelled").touch()
    cancel_job(read_command(line.split()), tmp_path / "log", {"PATH": f"{tmp_path}:/bin:/usr/bin", **environ})

    assert cancelled == (tmp_path / "cancelled").read_text()
