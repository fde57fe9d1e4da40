"""What is written for other places says what the command says, is taken by the parsers of those places, and has no key."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fitserve.facts.command import read_command
from fitserve.facts.command_edit import with_option
from fitserve.facts.config_file import read_config_file
from fitserve.facts.find_launch import find_launch
from fitserve.report.emit.deployment import Deployment
from fitserve.report.emit.from_launch import deployment_of
from fitserve.report.emit.kinds import file_name, written
from fitserve.units import GIB

HERE = Path(__file__).parent
SERVERS = tomllib.loads((HERE / "servers.toml").read_text())["server"]
KINDS = ["yaml", "compose", "k8s", "systemd"]
UPDATE = os.environ.get("UPDATE_GOLDENS") == "1"


def server(name: str) -> Deployment:
    """One of the servers."""
    case = SERVERS[name]
    return deployment_of(
        read_command(shlex.split(case["line"].replace("\\\n", ""))),
        version=case.get("version"),
        start_seconds=case.get("start_seconds"),
        host_bytes=case["host_gib"] * GIB if "host_gib" in case else None,
        note=case.get("note", ""),
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SERVERS)
def test_the_whole_text(name: str, kind: str) -> None:
    """Each file is the one that was looked at."""
    text = written(kind, server(name))
    golden = HERE / name / file_name(kind, server(name))
    if UPDATE:
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text)

    assert golden.read_text() == text


@pytest.mark.parametrize("name", SERVERS)
def test_kubernetes_takes_the_manifest(name: str) -> None:
    """Every document is valid by the schema of its kind, strictly."""
    documents = list(yaml.safe_load_all(written("k8s", server(name))))
    for document in documents:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)

    assert ["Deployment", "Service"] == [document["kind"] for document in documents][-2:]


@pytest.mark.parametrize("name", SERVERS)
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_takes_the_unit(name: str, tmp_path: Path) -> None:
    """The check of systemd itself has nothing to say about the unit."""
    path = tmp_path / "x.service"
    text = written("systemd", server(name)).replace(
        "=/opt/env/bin/", "=/usr/bin/env "
    )  # a program that is there
    path.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", str(path)], capture_output=True, text=True, check=False
    )
    lines = [line for line in done.stderr.splitlines() if "x.service" in line]

    assert ([], 0) == (lines, done.returncode)


def has_compose() -> bool:
    """True where docker has its compose plugin."""
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("name", SERVERS)
@pytest.mark.skipif(not has_compose(), reason="docker compose is not installed")
def test_compose_takes_the_file(name: str, tmp_path: Path) -> None:
    """The check of compose itself has nothing to say about the file."""
    path = tmp_path / "compose.yaml"
    path.write_text(written("compose", server(name)))
    environ = {**os.environ, **dict.fromkeys(server(name).secrets, "x")}
    command = ["docker", "compose", "-f", str(path), "config", "--quiet"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)

    assert (0, "") == (done.returncode, done.stderr)


@pytest.mark.parametrize("name", SERVERS)
def test_a_compose_file_is_read_as_the_same_server(name: str, tmp_path: Path) -> None:
    """Read back as compose reads it, the service has the options and the port of the command."""
    path = tmp_path / "compose.yaml"
    path.write_text(written("compose", server(name)))
    environ = dict.fromkeys(server(name).secrets, "x")
    launch = find_launch(["docker", "compose", "-f", str(path), "up"], environ)
    inside = server(name).in_container()

    assert inside == again(deployment_of(launch), inside)
    assert launch.container is not None
    assert [inside.port] == list(launch.container.ports)


@pytest.mark.parametrize("name", SERVERS)
def test_a_config_file_is_read_as_the_same_server(name: str, tmp_path: Path) -> None:
    """Read back, the file has the model and every option."""
    path = tmp_path / "vllm.yaml"
    path.write_text(written("yaml", server(name)))
    launch = find_launch(["vllm", "serve", "--config", str(path)], {})
    found = read_config_file(str(path))

    assert found is not None
    assert server(name).model == launch.model
    assert server(name).options == {key: value for key, value in found.values.items() if key != "model"}


def again(read: Deployment, expected: Deployment) -> Deployment:
    """A deployment that was read back, with what no compose file says."""
    kept = ("name", "model", "image", "start_seconds", "host_bytes", "mount", "note", "program", "devices")
    values = {name: getattr(expected, name) for name in kept}
    secrets = tuple(sorted({*read.secrets} & {*expected.secrets}))
    return Deployment(options=read.options, environment=read.environment, secrets=secrets, **values)


def test_a_program_has_its_whole_path(fake_vllm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No program is looked for in the user's PATH by systemd, so the unit has where it was found."""
    monkeypatch.setenv("PATH", str(fake_vllm))
    unit = written("systemd", deployment_of(read_command(["vllm", "serve", "/m"])))

    assert f"ExecStart={fake_vllm}/vllm serve /m\n" in unit


def test_a_start_bound_has_a_margin() -> None:
    """Three times what was measured, at least two minutes, and the time to fetch a model of the Hub."""
    bounds = {
        (model, seconds): Deployment(
            name="x", image="x", model=model, start_seconds=seconds
        ).start_bound_seconds
        for model in ("/m", "org/model")
        for seconds in (10.0, 100.1, None)
    }

    assert {
        ("/m", 10.0): 120,
        ("/m", 100.1): 310,
        ("/m", None): 1800,
        ("org/model", 10.0): 1920,
        ("org/model", 100.1): 2110,
        ("org/model", None): 3600,
    } == bounds


SECRETS = st.text("abcdefghijkmnopqrstuvwxyz0123456789-_", min_size=12, max_size=40).map("k9Z".__add__)
PLACES = st.sampled_from(
    [
        "vllm serve org/model --api-key {}",
        "vllm serve org/model --api-key={} other{}",
        "HF_TOKEN={} vllm serve org/model --hf-token {}",
        "env AWS_SECRET_ACCESS_KEY={} vllm serve org/model --download-dir /x/{}/y",
        "docker run -e VLLM_API_KEY={} -e OPENAI_API_KEY vllm/vllm-openai:v1 --model org/model",
        "bash -c 'export A=b; MY_PASSWORD={} vllm serve org/model --api-key {}'",
    ]
)


@given(place=PLACES, secret=SECRETS, kind=st.sampled_from(KINDS))
def test_no_key_is_written(place: str, secret: str, kind: str) -> None:
    """Wherever a key stands in a command, it stands in nothing that is written."""
    launch = read_command(shlex.split(place.replace("{}", secret)))

    assert secret not in written(kind, deployment_of(launch))


@given(
    model=st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1).filter(
        lambda text: text[0] != "-" and "=" not in text
    ),
    overrides=st.dictionaries(
        st.text(max_size=5), st.text(max_size=20) | st.integers() | st.none(), max_size=3
    ),
)
def test_any_text_is_written_so_that_it_is_read_back(model: str, overrides: dict[str, Any]) -> None:
    """Whatever the model is called and an option holds, YAML hands it back as it was."""
    launch = with_option(read_command(["vllm", "serve", model]), "hf_overrides", overrides)
    found = yaml.safe_load(written("yaml", deployment_of(launch)))
    container = list(yaml.safe_load_all(written("k8s", deployment_of(launch))))[-2]["spec"]["template"][
        "spec"
    ]

    assert (model, overrides) == (found["model"], found["hf-overrides"])
    args = [word.replace("$$(", "$(") for word in container["containers"][0]["args"]]
    assert overrides == json.loads(args[args.index("--hf-overrides") + 1])


def test_a_plan_is_written_for_a_start_elsewhere(tmp_path: Path) -> None:
    """The planned command is in the manifest behind the answer, with the release that it was planned for."""
    config = {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152064,
        "max_position_embeddings": 32768,
        "torch_dtype": "bfloat16",
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    words = [str(tmp_path), "--gpu", "H100", "--vllm-version", "0.19.0", "--max-model-len", "4096"]
    plan = [sys.executable, "-m", "fitserve", "plan"]
    done = subprocess.run([*plan, *words, "--emit", "k8s"], capture_output=True, text=True, check=False)
    answer, _, manifest = done.stdout.partition("\n# planned for vLLM 0.19.0 on ")
    (container,) = next(yaml.safe_load_all(manifest.partition("\n")[2]))["spec"]["template"]["spec"][
        "containers"
    ]

    assert (0, "") == (done.returncode, done.stderr)
    assert "plan[starts]" in answer
    assert ("vllm/vllm-openai:v0.19.0", True) == (container["image"], "4096" in container["args"])


@pytest.mark.live
@pytest.mark.parametrize("name", SERVERS)
def test_vllm_reads_the_config_file(name: str, engine_python: Path, tmp_path: Path) -> None:
    """The argument parser of vLLM 0.32 itself takes the file, and has every option at its value."""
    path = tmp_path / "vllm.yaml"
    path.write_text(written("yaml", server(name)))
    code = """
import json, sys
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.entrypoints.launchers.cli_args import make_arg_parser
parser = FlexibleArgumentParser()
serve = parser.add_subparsers(dest="subparser").add_parser("serve")
serve.add_argument("model_tag", nargs="?")
make_arg_parser(serve)
args = vars(parser.parse_args(["serve", "--config", sys.argv[1]]))
print("ARGS " + json.dumps(args, default=repr))
"""
    done = subprocess.run(
        [str(engine_python), "-c", code, str(path)], capture_output=True, text=True, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("ARGS ")]
    assert lines, done.stderr[-2000:]
    read = json.loads(lines[0][5:])

    assert server(name).model == read["model"]
    for option, value in server(name).options.items():
        taken = {"max_model_len": 32_000, "seed": 1}.get(option, value)
        if isinstance(taken, dict):
            assert all(str(each) in str(read[option]) for each in taken), option
        else:
            assert taken == type(taken)(read[option]), option
