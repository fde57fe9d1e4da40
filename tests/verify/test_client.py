"""The client on real sockets: connections that end, and how often a request is sent."""

import asyncio

import msgspec
import pytest

from fitserve.verify.answer import Answer
from fitserve.verify.client import open_client
from fitserve.verify.target import parse_target

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


@pytest.mark.parametrize(
    ("answers_of_a_connection", "requests", "failed", "sent"),
    [
        (1, 6, 0, 11),  # the second request of each connection is read and not answered
        (2, 6, 0, 8),
        (0, 3, 3, 3),  # a new connection that ends without an answer is a failure, and is not asked again
    ],
)
def test_a_closed_connection_is_no_failure_of_the_server(
    answers_of_a_connection: int, requests: int, failed: int, sent: int
) -> None:
    """A kept connection that ends in silence is replaced; a new one that does is told, and nothing is sent twice."""
    seen = 0

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal seen
        for _ in range(answers_of_a_connection):
            await reader.readuntil(b"\r\n\r\n{}")
            seen += 1
            writer.write(ANSWER)
            await writer.drain()
        await reader.readuntil(b"\r\n\r\n{}")
        seen += 1
        writer.close()

    async def ask() -> list[str | None]:
        server = await asyncio.start_server(serve_one, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, open_client(parse_target(f"http://127.0.0.1:{port}")) as client:
            return [(await client.post("/v1/completions", b"{}", 5.0)).error_type for _ in range(requests)]

    kinds = asyncio.run(ask())

    assert ["connection-lost"] * failed == [kind for kind in kinds if kind is not None]
    assert sent == seen


def test_a_server_that_ends_with_a_request_is_lost() -> None:
    """A kept connection that breaks, and nobody takes another: the connection was lost, whoever asked on which one."""

    async def ask() -> list[str | None]:
        async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n{}")
            writer.write(ANSWER)
            await writer.drain()
            await reader.readuntil(b"\r\n\r\n{}")
            server.close()
            writer.close()

        server = await asyncio.start_server(serve_one, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, open_client(parse_target(f"http://127.0.0.1:{port}")) as client:
            return [(await client.post("/v1/completions", b"{}", 5.0)).error_type for _ in range(3)]

    assert [None, "connection-lost", "connection-refused"] == asyncio.run(ask())


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            b"HTTP/1.1 302 Found\r\nLocation: http://\xff/\r\nContent-Length: 0\r\n\r\n",
            "redirects to http://\ufffd/",
        ),
        (b"HTTP/1.1 500 \xff\r\nServer: \xfe\r\nContent-Length: 1\r\n\r\n\xff", "\ufffd"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + b"[" * 100_000 + b"]" * 100_000, ""),
    ],
)
def test_bytes_that_nobody_reads_are_no_trouble(answer: bytes, words: str) -> None:
    """Headers that are no UTF-8, and JSON deeper than a stack: an answer comes back that can be written."""

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    async def ask() -> Answer:
        server = await asyncio.start_server(serve_one, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, open_client(parse_target(f"http://127.0.0.1:{port}")) as client:
            return await client.get("/v1/models", 5.0)

    came = asyncio.run(ask())

    assert (words, None) == (came.error, came.body)
    assert msgspec.json.encode(came)
