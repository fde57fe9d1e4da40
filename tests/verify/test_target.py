"""An address is taken as people type it, and public servers are told from private ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitserve.errors import UsageError
from fitserve.verify.target import is_private, parse_target


@pytest.mark.parametrize(
    ("text", "root", "port"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000", 8000),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000", 8000),
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000", 8000),
        ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000", 8000),
        ("http://127.0.0.1:8000/v1/chat/completions", "http://127.0.0.1:8000", 8000),
        ("localhost:8000", "http://localhost:8000", 8000),
        ("http://0.0.0.0:8000", "http://127.0.0.1:8000", 8000),
        ("http://[::]:8000/", "http://[::1]:8000", 8000),
        ("https://models.example/team/llm/v1", "https://models.example/team/llm", 443),
        ("http://models.example", "http://models.example", 80),
    ],
)
def test_an_address_loses_its_api_path(text: str, root: str, port: int) -> None:
    """Slashes, ``/v1`` and endpoints are cut off, a base path stays, the any-address becomes this machine."""
    target = parse_target(text)

    assert (root, port) == (target.root, target.port)


@pytest.mark.parametrize(
    "text",
    [
        "ftp://host",
        "http://",
        "http://host:port",
        "http://host:99999",
        "http://user:secret@host",
        "http://h?x=1",
        "http://[::1",
        "http://a..b",
        "http://.",
        f"http://{'a' * 64}.example",
        "",
    ],
)
def test_what_is_no_address_is_a_usage_error(text: str) -> None:
    """The error says what is wrong and never repeats a password."""
    with pytest.raises(UsageError) as caught:
        parse_target(text)

    assert "secret" not in str(caught.value)


@given(st.text(max_size=40))
def test_any_text_is_an_address_or_a_usage_error(text: str) -> None:
    """No text crashes the reader, and what it takes it takes again unchanged."""
    try:
        target = parse_target(text)
    except UsageError:
        return

    assert target.root == parse_target(target.root).root


@pytest.mark.parametrize(
    ("addresses", "private"),
    [
        (["127.0.0.1"], True),
        (["::1"], True),
        (["10.1.2.3", "192.168.0.5", "172.16.0.1"], True),
        (["100.64.0.7"], True),
        (["169.254.1.1", "fe80::1%eth0"], True),
        (["8.8.8.8"], False),
        (["10.0.0.1", "8.8.8.8"], False),
        (["2606:4700::1111"], False),
        ([], False),
    ],
)
def test_private_means_every_address(addresses: list[str], private: bool) -> None:
    """One public address makes a server public; no address makes nothing private."""
    assert private == is_private(addresses)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("localhost", True),
        ("a.localhost", True),
        ("127.0.0.5", True),
        ("[::1]", True),
        ("10.0.0.1", False),
        ("host", False),
    ],
)
def test_loopback_is_told_by_the_name(host: str, loopback: bool) -> None:
    """This machine is known without asking a name server."""
    assert loopback == parse_target(f"http://{host}:8000").loopback
