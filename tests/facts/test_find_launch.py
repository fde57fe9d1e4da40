"""A launch is found in the files that a command names; what is edited in them goes into copies, and only that changes."""

import difflib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fitserve.errors import FitserveError, UsageError
from fitserve.facts.command import Launch, read_command, variable
from fitserve.facts.command_edit import with_option, with_variable, without_option
from fitserve.facts.config_file import read_config_file
from fitserve.facts.container import Service
from fitserve.facts.find_launch import find_launch
from fitserve.facts.shell_script import Script
from fitserve.trial.copies import placed

SCRIPT = """#!/bin/bash
# vllm serve is what this starts
set -euo pipefail
export HF_HOME="/m"   # the cache
PORT=${PORT:-9000}
EXTRA=(
  --max-num-seqs 8   # few
  --enforce-eager
)
if [ -n "$1" ]; then echo "vllm serve $1"; fi
exec vllm serve "$1" \\
    --port "$PORT" \\
    --served-model-name 'my model' \\
    --compilation-config '{"mode": 3}' \\
    "${EXTRA[@]}"
"""

CONFIG = """# what we serve
model: org/model
max-model-len: 32k   # long
compilation_config:
  mode: 3   # deep
enforce-eager: true
"""

COMPOSE = """
x-common: &common
  restart: "no"
services:
  web:
    image: nginx
  llm:
    <<: *common
    image: vllm/vllm-openai:${TAG:-v0.19.0}
    command: ["--model", "${MODEL}", "--max-model-len", "8192", "--hf-overrides", '{"a": "$$b"}']
    environment:
      - HF_TOKEN
      - VLLM_USE_V1=1
    ports: ["9000:8000"]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a script, a config file and a compose file, which is the current one."""
    (tmp_path / "start.sh").write_text(SCRIPT)
    (tmp_path / "start.sh").chmod(0o755)
    (tmp_path / "c.yaml").write_text(CONFIG)
    (tmp_path / "compose.yaml").write_text(COMPOSE)
    (tmp_path / ".env").write_text("MODEL=org/model\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def changed_lines(before: str, after: str) -> list[str]:
    """The lines that are not the same."""
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    return [line for line in lines if line[0] in "+-"]


@pytest.mark.parametrize(
    "words",
    [
        ["bash", "start.sh", "org/model"],
        ["./start.sh", "org/model"],
        ["srun", "-N1", "./start.sh", "org/model"],
    ],
)
def test_a_script_is_read_with_its_variables(words: list[str], folder: Path) -> None:
    """Arguments, defaults and arrays are known, and the environment counts before a default."""
    launch = find_launch(words, {})

    assert ("org/model", 9000, 8, True, ["my model"]) == (
        launch.model,
        *(launch.value(name) for name in ("port", "max_num_seqs", "enforce_eager", "served_model_name")),
    )
    assert 7000 == find_launch(words, {"PORT": "7000"}).value("port")
    assert "/m" == variable(launch, "HF_HOME", {})


@pytest.mark.parametrize(
    ("name", "value", "lines"),
    [
        ("max_num_seqs", 4, ["-   --max-num-seqs 8   # few", "+   --max-num-seqs 4   # few"]),
        ("port", 9001, ['-     --port "$PORT" \\', "+     --port 9001 \\"]),
        ("enforce_eager", False, ["-   --enforce-eager", "+   --no-enforce-eager"]),
        ("enforce_eager", None, ["-   --enforce-eager"]),
        ("served_model_name", None, ["-     --served-model-name 'my model' \\"]),
        ("max_model_len", 4096, ["+   --max-model-len 4096"]),
        (
            "compilation_config.mode",
            0,
            ["-     --compilation-config '{\"mode\": 3}' \\", "+     --compilation-config '{\"mode\":0}' \\"],
        ),
    ],
)
def test_an_edit_of_a_script_changes_one_place(
    name: str, value: Any, lines: list[str], folder: Path, tmp_path: Path
) -> None:
    """Every other line of the copy is the script's, and the script itself stays as it was."""
    edited = placed(
        with_option(find_launch(["bash", "start.sh", "m"], {}), name, value), tmp_path / "logs", "trial-1"
    )
    copy = tmp_path / "logs" / "trial-1-start.sh"

    assert ["bash", str(copy), "m"] == list(edited.argv)
    assert lines == changed_lines(SCRIPT, copy.read_text())
    assert (SCRIPT, 0o755) == ((folder / "start.sh").read_text(), copy.stat().st_mode & 0o777)


def test_a_script_that_looks_around_itself_is_copied_beside_itself(folder: Path) -> None:
    """Where a script asks for its own place, the copy has the same one, under a name of its own."""
    (folder / "start.sh").write_text('cd "$(dirname "$0")"\nvllm serve org/model\n')
    edited = placed(
        with_option(find_launch(["sh", "start.sh"], {}), "port", 9000), folder / "logs", "trial-1"
    )

    assert str(folder / ".trial-1-start.sh") == edited.argv[1]
    assert (
        "vllm serve org/model --port 9000\n" == Path(edited.argv[1]).read_text().splitlines(keepends=True)[1]
    )


def test_an_unedited_launch_needs_no_copy(folder: Path) -> None:
    """Nothing is written for a launch that is as it was given."""
    launch = find_launch(["bash", "start.sh", "m"], {})

    assert (launch, False) == (placed(launch, folder / "logs", "t"), (folder / "logs").exists())


def test_a_config_file_is_read_behind_the_command(folder: Path) -> None:
    """The command's own options count before the file's, and the model may stand in the file."""
    launch = find_launch(["vllm", "serve", "--config", "c.yaml", "--port", "9000"], {})
    both = find_launch(["vllm", "serve", "--config", "c.yaml", "--max-model-len", "1k"], {})

    assert ("org/model", 32_000, 3, 9000) == (
        launch.model,
        *(launch.value(name) for name in ("max_model_len", "compilation_config.mode", "port")),
    )
    assert 1000 == both.value("max_model_len")


@pytest.mark.parametrize(
    ("name", "value", "lines"),
    [
        ("max_model_len", 4096, ["- max-model-len: 32k   # long", "+ max-model-len: 4096   # long"]),
        ("enforce_eager", None, ["- enforce-eager: true"]),
        ("compilation_config.mode", 0, ["-   mode: 3   # deep", '+   {"mode": 0}   # deep']),
    ],
)
def test_an_edit_of_a_config_file_keeps_its_comments(
    name: str, value: Any, lines: list[str], folder: Path
) -> None:
    """One line of the copy differs; the command names the copy, and the file stays as it was."""
    launch = find_launch(["vllm", "serve", "--config", "c.yaml", "--port", "9000"], {})
    edited = placed(with_option(launch, name, value), folder / "logs", "trial-1")
    copy = folder / "logs" / "trial-1-c.yaml"

    assert ["vllm", "serve", "--config", str(copy), "--port", "9000"] == list(edited.argv)
    assert lines == [line.rstrip() for line in changed_lines(CONFIG, copy.read_text())]
    assert CONFIG == (folder / "c.yaml").read_text()
    assert value == find_launch(edited.argv, {}).value(name)


def test_a_switch_of_a_config_file_is_turned_off_behind_the_command(folder: Path) -> None:
    """A false in the file is passed over by vLLM, so the twin is typed; a twin in the file is read, a false is not."""
    launch = with_option(find_launch(["vllm", "serve", "--config", "c.yaml"], {}), "enforce_eager", False)
    edited = placed(launch, folder / "logs", "trial-1")
    (folder / "d.yaml").write_text("no-enable-prefix-caching: true\nenforce-eager: false\n")
    other = find_launch(["vllm", "serve", "--config", "d.yaml"], {})

    assert "--no-enforce-eager" == edited.argv[-1]
    assert "enforce-eager" not in (folder / "logs" / "trial-1-c.yaml").read_text()
    assert (False, None) == (other.value("enable_prefix_caching"), other.value("enforce_eager"))


def test_what_is_not_in_the_config_file_goes_behind_the_command(folder: Path) -> None:
    """A new option is typed, and the file needs no copy."""
    launch = with_option(find_launch(["vllm", "serve", "--config", "c.yaml"], {}), "max_num_seqs", 8)

    assert ("vllm", "serve", "--config", "c.yaml", "--max-num-seqs", "8") == placed(launch, folder, "t").argv


@pytest.mark.parametrize("content", ["", "- a\n", "{a: 1}\n", "a: [\n", "\x00", "a: &x 1\nb: *x\n"])
def test_a_config_file_that_vllm_would_not_take_is_left_to_it(content: str, tmp_path: Path) -> None:
    """A file that is no mapping makes no error here: it is read as far as it is settings."""
    (tmp_path / "c.yaml").write_text(content)
    found = read_config_file(str(tmp_path / "c.yaml"))

    assert found is None or not found.edited


def test_a_service_of_a_compose_file_is_read(folder: Path) -> None:
    """The service is found by its image, with its variables, ports and interpolated values."""
    launch = find_launch(["docker", "compose", "up", "llm"], {"TAG": "v0.20.0"})
    assert isinstance(launch.host, Service)
    assert launch.container is not None

    assert ("org/model", 8192, {"a": "$b"}) == (
        launch.model,
        launch.value("max_model_len"),
        launch.value("hf_overrides"),
    )
    assert ("vllm/vllm-openai:v0.20.0", {8000: ("127.0.0.1", 9000)}) == (
        launch.container.name,
        launch.container.ports,
    )
    assert ("1", None) == (variable(launch, "VLLM_USE_V1", {}), variable(launch, "HF_TOKEN", {}))
    assert ["docker", "compose", "rm", "--stop", "--force", "llm"] == launch.host.compose.ending(
        launch.argv, ["llm"]
    )


def test_an_edit_of_a_service_is_a_file_laid_over_the_others(folder: Path) -> None:
    """The override has the whole command with one value changed and its variables as they were, and the new variable."""
    launch = with_option(
        find_launch(["docker", "compose", "-p", "x", "up", "llm"], {}), "max_model_len", 4096
    )
    edited = placed(with_variable(launch, "VLLM_USE_V1", "0"), folder / "logs", "trial-1")
    override = folder / "logs" / "trial-1-llm.yaml"

    assert f"docker compose -p x -f compose.yaml -f {override} up llm".split() == list(edited.argv)
    assert {
        "services": {
            "llm": {
                "command": [
                    "--model",
                    "${MODEL}",
                    "--max-model-len",
                    "4096",
                    "--hf-overrides",
                    '{"a": "$$b"}',
                ],
                "environment": {"VLLM_USE_V1": "0"},
            }
        }
    } == yaml.safe_load(override.read_text())
    assert COMPOSE == (folder / "compose.yaml").read_text()
    assert 4096 == find_launch(edited.argv, {}).value("max_model_len")


@pytest.mark.parametrize("service", ["llm", "", "web llm"])
def test_the_service_that_starts_vllm_is_found_among_others(service: str, folder: Path) -> None:
    """Named or not, alone or beside others."""
    launch = find_launch(["docker-compose", "up", *service.split()], {})

    assert isinstance(launch.host, Service)
    assert "llm" == launch.host.name


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("docker compose up -d llm", "detached service"),
        ("docker compose down", "compose down starts no services"),
        ("docker compose up web", "none of the services web starts vLLM"),
        ("docker compose -f none.yaml up", "compose file cannot be read"),
        ("docker compose -f start.sh up", "no services|is no YAML"),
        ("bash none.sh", "the script cannot be read"),
        ("bash c.yaml", "starts no vLLM server that can be seen"),
        ("kubectl apply -f x.yaml", "runs in a cluster"),
        ("helm install x", "runs in a cluster"),
        ("kubectl run x --image=vllm/vllm-openai -- vllm serve m", "runs in a cluster"),
        ("sbatch start.sh", "runs in a batch job"),
        ("docker exec c vllm serve m", "would outlive the command"),
        ("python train.py", "starts no vLLM server"),
    ],
)
def test_what_cannot_be_watched_is_refused_with_a_hint(line: str, words: str, folder: Path) -> None:
    """Each is an error of the user's with the right exit code."""
    with pytest.raises(FitserveError, match=words) as caught:
        find_launch(line.split(), {})

    assert caught.value.exit_code in (2, 3)
    assert caught.value.where


BLANKS = st.sampled_from([" ", "  ", " \\\n  ", "\t"])
OPTIONS = st.sampled_from(
    [
        ("max_model_len", "--max-model-len 8192"),
        ("max_num_seqs", '--max_num_seqs="8"'),
        ("seed", "--seed '7'"),
        ("tensor_parallel_size", "-tp=2"),
        ("hf_overrides", """--hf-overrides '{"a": [1, "x y"]}'"""),
        ("served_model_name", "--served-model-name a\\ b"),
        ("download_dir", '--download-dir "$HOME/m"'),
    ]
)


def script_of(options: list[tuple[str, str]], blanks: list[str]) -> bytes:
    """A script with a command of these options."""
    parts = [text for _, text in options]
    line = "exec vllm serve org/model" + "".join(
        blank + part for blank, part in zip(blanks, parts, strict=False)
    )
    return f"# a 'script'\ncd /m || exit 1\n{line}\necho \"done\"\n".encode()


def raw_words(launch: Launch, name: str) -> list[bytes]:
    """The words as they stand in the text, but for those of one option."""
    assert isinstance(launch.host, Script)
    option = launch.option(name)
    own = range(option.at, option.at + option.width) if option else range(0)
    return [
        launch.host.text[word.start : word.end] for at, word in enumerate(launch.host.placed) if at not in own
    ]


def launch_of(text: bytes) -> Launch:
    """The launch in a script's text."""
    return read_command(["bash", "-c", text.decode()])


@given(
    options=st.lists(OPTIONS, unique_by=lambda option: option[0]),
    blanks=st.lists(BLANKS, min_size=7, max_size=7),
    name=st.sampled_from(["max_model_len", "max_num_seqs", "seed", "tensor_parallel_size", "port"]),
    value=st.integers(1, 10**6),
)
def test_an_edit_of_a_text_is_one_option_and_nothing_else(
    options: list[tuple[str, str]], blanks: list[str], name: str, value: int
) -> None:
    """The new value is read back, and without the option the text is what it is without it in the first place."""
    text = script_of(options, blanks)
    launch = launch_of(text)
    edited = with_option(launch, name, value)
    assert isinstance(edited.host, Script)

    assert value == edited.value(name)
    assert without_option(launch, name).argv == without_option(edited, name).argv
    for other, _ in options:
        if other != name:
            assert launch.value(other) == edited.value(other)
    assert raw_words(launch, name) == raw_words(edited, name)
    for line in (b"# a 'script'\ncd /m || exit 1\n", b'\necho "done"\n'):
        assert line in edited.host.text


@given(
    before=st.lists(
        st.sampled_from(
            ["--port 9", "-tp=2", "--enforce-eager", "--served-model-name a b", "-O3", "-cc.mode 3"]
        )
    ),
    edit=st.tuples(st.sampled_from(["max_model_len", "swap_space"]), st.integers(0, 10**9))
    | st.tuples(st.sampled_from(["async_scheduling", "enable_lora"]), st.booleans())
    | st.tuples(
        st.sampled_from(["hf_overrides", "something_new"]),
        st.text(min_size=1).filter(lambda text: not text.startswith("-")) | st.just({"a": [1, "b"]}),
    ),
)
def test_removing_what_was_added_gives_the_old_command(before: list[str], edit: tuple[str, Any]) -> None:
    """An option that a command has not had leaves no trace when it is removed again; every other word stays."""
    words = ["nohup", "vllm", "serve", "org/model", *" ".join(before).split()]
    launch = read_command(words)
    name, value = edit
    edited = with_option(launch, name, value)

    assert tuple(words) == edited.argv[: len(words)]
    assert launch == without_option(edited, name)


@given(text=st.text(max_size=200))
def test_any_script_is_read_or_refused(text: str) -> None:
    """No text makes the reader fail in another way than with a usage error."""
    try:
        launch = read_command(["bash", "-c", f"{text}\nvllm serve m\n{text}"])
    except UsageError:
        return

    assert isinstance(launch.host, Script)
