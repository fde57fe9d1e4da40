"""A launch is found in any command, its options are read in any spelling, and one of them is edited in place."""

import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitserve.errors import UsageError
from fitserve.facts.command import Launch, is_variable, read_command, shown, variable
from fitserve.facts.command_edit import secrets_in, with_option, with_variable, without_option
from fitserve.facts.serve_options import SWITCHES, arity, full_name, read_integer

CASES = tomllib.loads(Path(__file__).with_name("commands.toml").read_text(encoding="utf-8"))["case"]


def launch_of(line: str) -> Launch:
    """The launch in a shell line."""
    return read_command(shlex.split(line))


def named(cases: list[dict[str, Any]]) -> list[Any]:
    """The cases with their names."""
    return [pytest.param(case, id=case["name"]) for case in cases]


@pytest.mark.parametrize("case", named(CASES))
def test_options_are_read_as_vllm_takes_them(case: dict[str, Any]) -> None:
    """Every option has vLLM's name and value, and the model is found where it stands."""
    launch = launch_of(case["line"])
    read = {option.name: option.value for option in launch.options}

    assert (case["model"], case["options"]) == (launch.model, read)


@pytest.mark.parametrize("case", named(CASES))
def test_an_edit_changes_one_thing_in_place(case: dict[str, Any]) -> None:
    """The edited command is the old one but for the one option or variable, quoting included."""
    launch = launch_of(case["line"])
    ((name, value),) = case["set"].items()
    edited = with_variable(launch, name, value) if is_variable(name) else with_option(launch, name, value)

    assert case["becomes"] == shown(edited.argv, edited.env)


@pytest.mark.parametrize("case", named(CASES))
def test_an_edit_is_read_back(case: dict[str, Any]) -> None:
    """What was set is what the edited command has, read from its own shell line."""
    ((name, value),) = case["set"].items()
    launch = launch_of(case["becomes"])
    read = variable(launch, name, {}) if is_variable(name) else launch.value(name)

    assert (value, [value]) == (read, [read]) or [value] == read


@pytest.mark.parametrize(
    "line",
    [
        "vllm serve org/model --max-model-len 8192 --port 9000",
        "vllm serve org/model --max-model-len=8192 --port 9000 --max_model_len 4k",
    ],
)
def test_an_option_is_removed_wherever_it_stands(line: str) -> None:
    """Without an option, no spelling of it is left, and the rest stands as it was."""
    left = without_option(launch_of(line), "max_model_len")

    assert "vllm serve org/model --port 9000" == shown(left.argv)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "there is no command"),
        ("A=b", "there is no command"),
        ("python train.py --model x", "starts no vLLM server"),
        ("vllm bench throughput --model x", "vllm bench starts no server"),
        ("vllm", "starts no vLLM server"),
        ("python -m vllm.entrypoints.cli.main bench", "starts no vLLM server"),
        ("bash -c 'cd /m && python train.py'", "starts no vLLM server that can be seen"),
        ("bash -c 'echo vllm serve org/model'", "starts no vLLM server that can be seen"),
        ("bash -c 'vllm serve a & vllm serve b'", "has 2 vLLM servers in it"),
        ("bash -c 'vllm serve org/model > log 2>&1'", "goes to log, where it cannot be watched"),
        ("bash -c 'cd /m && vllm serve org/model &> log'", "goes to log, where it cannot be watched"),
        ("bash -c 'docker run -d vllm/vllm-openai --model x'", "detached container"),
        ("docker run -d vllm/vllm-openai --model x", "detached container"),
        ("docker run -itd vllm/vllm-openai --model x", "detached container"),
        ("docker run -it vllm/vllm-openai --model x", "wants a terminal"),
        ("docker run --rm ubuntu:24.04 sleep 5", "starts no vLLM server"),
        ("docker run --rm", "starts no vLLM server"),
    ],
)
def test_what_is_no_launch_is_a_usage_error(line: str, words: str) -> None:
    """A command that cannot be supervised ends with exit code 2 and a hint."""
    with pytest.raises(UsageError, match=words) as caught:
        launch_of(line)

    assert (2, True) == (caught.value.exit_code, bool(caught.value.hint))


@pytest.mark.parametrize(
    ("text", "number"),
    [("32k", 32_000), ("32K", 32_768), ("1.5m", 1_500_000), ("2G", 2 << 30), (" 7 ", 7), ("-1", -1)],
)
def test_whole_numbers_have_vllms_suffixes(text: str, number: int) -> None:
    """A small letter is decimal, a capital is binary."""
    assert number == read_integer(text)


@pytest.mark.parametrize("text", ["", "k", "1.5K", "1e3", "32kb", "0x10"])
def test_what_vllm_refuses_as_a_number_is_refused(text: str) -> None:
    """No number is guessed."""
    with pytest.raises(ValueError, match=r".*"):
        read_integer(text)


def test_an_ambiguous_beginning_stays_as_it_was_typed() -> None:
    """``--max-num`` could be several options, so it is none of them."""
    assert "max_num" == full_name("--max-num")


@pytest.mark.parametrize("name", sorted(SWITCHES))
def test_every_switch_has_a_twin_that_is_understood(name: str) -> None:
    """``--no-`` before any switch is the same option."""
    assert name == full_name("--no-" + name.replace("_", "-"))


@pytest.mark.parametrize(
    ("line", "secrets"),
    [
        (
            "env HF_TOKEN=abc vllm serve m --api-key one three --hf-token=seven",
            ["seven", "three", "abc", "one"],
        ),
        ("docker run -e VLLM_API_KEY=abc --env=AWS_SECRET=xy vllm/vllm-openai --model m", ["abc", "xy"]),
        ("vllm serve m --tokenizer t --tokenizer-mode slow", []),
        ("MY_PASSWORD=p python x.py", ["p"]),
    ],
)
def test_keys_are_found(line: str, secrets: list[str]) -> None:
    """Every key and token of a command is known, so that it can be hidden in what is kept."""
    assert secrets == secrets_in(shlex.split(line))


VALUES = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), min_size=1).filter(
    lambda text: not text.startswith("-")
)


@given(
    words=st.lists(
        VALUES | st.sampled_from(["--port", "-tp", "--api-key", "--", "serve", "vllm", "docker", "run"])
    )
)
def test_any_words_are_read_or_refused(words: list[str]) -> None:
    """No command makes the reader fail in another way than with a usage error."""
    try:
        launch = read_command(words)
    except UsageError:
        return

    assert shlex.split(shown(launch.argv)) == list(launch.argv)


@given(
    name=st.sampled_from(["max_model_len", "tensor_parallel_size", "port", "max_num_seqs"]),
    before=st.lists(
        st.sampled_from(["--max-model-len=32k", "-tp=2", "--port=9", "--enforce-eager", "--max_num_seqs=8"])
    ),
    value=st.integers(0, 10**9),
)
def test_a_set_option_has_its_value_and_the_others_keep_theirs(
    name: str, before: list[str], value: int
) -> None:
    """After an edit the option has the new value, and every other option the value that it had."""
    launch = read_command(["vllm", "serve", "org/model", *before])
    others = {option.name for option in launch.options} - {name}
    edited = with_option(launch, name, value)

    assert value == edited.value(name)
    assert {other: launch.value(other) for other in others} == {
        other: edited.value(other) for other in others
    }


def test_every_option_of_the_table_says_what_follows_it() -> None:
    """The table has no option in two sections."""
    assert "one" == arity("max_model_len")
    assert "none" == arity("enforce_eager")
    assert "several" == arity("served_model_name")
    assert arity("something_new") is None
