"""Where a launch will answer, and whether its port is free."""

import shlex
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fitserve.errors import MachineError
from fitserve.facts.command import read_command, shown
from fitserve.trial.address import read_address, with_free_port


@contextmanager
def listening(port: int = 0, host: str = "127.0.0.1") -> Iterator[int]:
    """A port that is taken."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((host, port))
        server.listen()
        yield server.getsockname()[1]


def free_port() -> int:
    """A port that nobody has."""
    with listening() as port:
        return port


@pytest.mark.parametrize(
    ("line", "url"),
    [
        ("vllm serve m", "http://127.0.0.1:8000"),
        ("vllm serve m --port 9000", "http://127.0.0.1:9000"),
        ("vllm serve m --host 0.0.0.0", "http://127.0.0.1:8000"),
        ("vllm serve m --host 10.0.0.7 --port 9000", "http://10.0.0.7:9000"),
        ("vllm serve m --host ::", "http://127.0.0.1:8000"),
        ("vllm serve m --host ::1", "http://[::1]:8000"),
        ("vllm serve m --ssl-certfile c --ssl-keyfile k", "https://127.0.0.1:8000"),
        ("vllm serve m --uds /run/vllm.sock", None),
        ("docker run -p 9000:8000 vllm/vllm-openai --model m", "http://127.0.0.1:9000"),
        (
            "docker run -p 10.0.0.7:9000:8001/tcp vllm/vllm-openai --model m --port 8001",
            "http://10.0.0.7:9000",
        ),
        ("docker run -p 0.0.0.0:9000:8000 vllm/vllm-openai --model m", "http://127.0.0.1:9000"),
        ("docker run --network host vllm/vllm-openai --model m --port 9000", "http://127.0.0.1:9000"),
        ("docker run vllm/vllm-openai --model m", None),
    ],
)
def test_the_address(line: str, url: str | None) -> None:
    """Host, port, TLS and a container's published port give the URL; None where no client gets through."""
    assert url == read_address(read_command(shlex.split(line)), {}).url


@pytest.mark.parametrize(
    ("line", "environ", "key"),
    [
        ("vllm serve m", {}, None),
        ("vllm serve m --api-key one two", {}, "one"),
        ("vllm serve m", {"VLLM_API_KEY": "three"}, "three"),
        ("VLLM_API_KEY=four vllm serve m", {"VLLM_API_KEY": "three"}, "four"),
        ("docker run -e VLLM_API_KEY=five -p 1:8000 vllm/vllm-openai --model m", {}, "five"),
        ("docker run -p 1:8000 vllm/vllm-openai --model m", {"VLLM_API_KEY": "three"}, None),
        (
            "docker run -e VLLM_API_KEY -p 1:8000 vllm/vllm-openai --model m",
            {"VLLM_API_KEY": "three"},
            "three",
        ),
    ],
)
def test_the_key(line: str, environ: dict[str, str], key: str | None) -> None:
    """The key that clients must send, from the command or its environment."""
    assert key == read_address(read_command(shlex.split(line)), environ).api_key


def test_a_config_file_speaks_where_the_command_does_not(tmp_path: Path) -> None:
    """``--config`` gives the port and the host, and an option of the command has the last word."""
    file = tmp_path / "serve.yaml"
    file.write_text("port: 9000\nhost: 10.0.0.7\napi-key: abc\n")
    launch = read_command(["vllm", "serve", "m", "--config", str(file), "--port", "9001"])
    address = read_address(launch, {})

    assert ("http://10.0.0.7:9001", "abc", True) == (address.url, address.api_key, address.port_given)


@pytest.mark.parametrize("text", ["", "[1, 2]", "a: b: c", "\x00"])
def test_a_broken_config_file_is_for_vllm_to_refuse(text: str, tmp_path: Path) -> None:
    """What cannot be read has no say, and raises nothing."""
    file = tmp_path / "serve.yaml"
    file.write_text(text)

    assert (
        "http://127.0.0.1:8000"
        == read_address(read_command(["vllm", "serve", "m", "--config", str(file)]), {}).url
    )


def test_a_given_port_that_is_taken_is_an_error_of_the_machine() -> None:
    """The error names the port and its holder, and nothing is done to it."""
    with (
        listening() as port,
        pytest.raises(MachineError, match=rf"port {port} is taken by process \d+") as caught,
    ):
        with_free_port(read_command(["vllm", "serve", "m", "--port", str(port)]), {})

    assert 4 == caught.value.exit_code


def test_a_given_port_that_is_free_stays() -> None:
    """The command is not touched."""
    launch = read_command(["vllm", "serve", "m", "--port", str(free_port())])

    assert launch == with_free_port(launch, {})


def test_another_port_is_found_where_none_was_given() -> None:
    """With vLLM's default taken, the next free port is added to the command."""
    try:
        with listening(8000):
            line = shown(with_free_port(read_command(["vllm", "serve", "m"]), {}).argv)
    except OSError:
        line = shown(with_free_port(read_command(["vllm", "serve", "m"]), {}).argv)

    assert line.startswith("vllm serve m --port 80")


def test_a_containers_port_is_the_users() -> None:
    """The port that a container publishes is never changed: it is free, or it is an error."""
    with listening() as port, pytest.raises(MachineError):
        with_free_port(
            read_command(["docker", "run", "-p", f"{port}:8000", "vllm/vllm-openai", "--model", "m"]), {}
        )
