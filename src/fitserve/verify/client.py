"""(o) The HTTP client: every trouble of a network or a server comes back as a value.

One client serves a whole verification: no limit of connections, so that the server's limits are what is seen.
"""

import errno
import os
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from fitserve import __version__
from fitserve.errors import UsageError
from fitserve.verify.answer import (
    GIVEN_UP,
    MAX_EVENTS_BEYOND_TOKENS,
    Answer,
    body_words,
    cached_tokens,
    decode_json,
    entry,
    error_message,
    excerpt,
    generated_text,
    given_up_words,
    http_error_type,
    text_of,
    usage,
)
from fitserve.verify.sse import EventReader, OversizedEventError
from fitserve.verify.target import Target

if TYPE_CHECKING:
    import aiohttp

CONNECT_SECONDS = 10.0
MAX_BODY_BYTES = 32 << 20


class Progress:
    """What has arrived of one answer so far; readable while the request lasts."""

    def __init__(self) -> None:
        self.start = time.perf_counter()
        self.status: int | None = None
        self.token_times: list[float] = []
        self.texts: list[str] = []
        self.prompt_tokens: int | None = None
        self.output_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.finish_reason: str | None = None
        self.body: Any = None
        self.server = ""
        self.connected = False
        self.reused = False

    def answer(self, error_type: str | None = None, error: str = "") -> Answer:
        """Everything so far as a value."""
        times = self.token_times
        return Answer(
            status=self.status,
            error_type=error_type,
            error=excerpt(error),
            body=self.body,
            text="".join(self.texts),
            started_seconds=self.start,
            seconds=time.perf_counter() - self.start,
            first_token_seconds=times[0] - self.start if times else None,
            token_gaps_seconds=[after - before for before, after in pairwise(times)],
            events=len(times),
            pieces=sum(map(bool, self.texts)),
            prompt_tokens=self.prompt_tokens,
            output_tokens=self.output_tokens,
            cached_tokens=self.cached_tokens,
            finish_reason=self.finish_reason,
            server=self.server,
        )


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    """One exchange; ``max_events`` is None where the answer is no stream."""

    method: str
    path: str
    body: bytes | None = None
    max_events: int | None = None


async def _note_new(_session: object, context: Any, _parameters: object) -> None:
    context.trace_request_ctx.connected = True


async def _note_reuse(_session: object, context: Any, _parameters: object) -> None:
    context.trace_request_ctx.connected = context.trace_request_ctx.reused = True


class Client:
    """Requests to one server over one session."""

    def __init__(self, target: Target, session: "aiohttp.ClientSession") -> None:
        self.target = target
        self._session = session

    async def get(self, path: str, deadline_seconds: float) -> Answer:
        """One GET, whole."""
        return await self._guarded(_Request(method="GET", path=path), deadline_seconds, Progress())

    async def post(
        self, path: str, body: bytes, deadline_seconds: float, progress: Progress | None = None
    ) -> Answer:
        """One POST of a JSON body, whole."""
        request = _Request(method="POST", path=path, body=body)
        return await self._guarded(request, deadline_seconds, progress or Progress())

    async def stream(
        self,
        path: str,
        body: bytes,
        deadline_seconds: float,
        *,
        max_tokens: int,
        progress: Progress | None = None,
    ) -> Answer:
        """One POST whose answer is a stream of tokens.

        Args:
            path: the endpoint below the server's base path.
            body: the JSON.
            deadline_seconds: the longest that the whole exchange may take.
            max_tokens: the output that was asked for; a stream far beyond it is cut off.
            progress: filled while the answer arrives.
        """
        limit = max_tokens + MAX_EVENTS_BEYOND_TOKENS
        request = _Request(method="POST", path=path, body=body, max_events=limit)
        return await self._guarded(request, deadline_seconds, progress or Progress())

    async def _guarded(self, request: _Request, deadline_seconds: float, progress: Progress) -> Answer:
        import asyncio

        import aiohttp

        try:
            async with asyncio.timeout(deadline_seconds):
                return await self._on_living_connection(request, progress)
        except TimeoutError as error:
            if not progress.connected:
                seconds = (
                    CONNECT_SECONDS if isinstance(error, aiohttp.ServerTimeoutError) else deadline_seconds
                )
                return progress.answer("no-connection", f"no connection within {seconds:g} s")
            return progress.answer("timeout", f"no whole answer within {deadline_seconds:g} s")
        except (aiohttp.ClientError, OversizedEventError, OSError, UnicodeError) as error:
            return progress.answer(*network_trouble(error))

    async def _on_living_connection(self, request: _Request, progress: Progress) -> Answer:
        """Send again where a kept connection turns out to be closed: the server has not read the request then.

        A server may close an idle connection in the moment in which it is used again (llama.cpp does after every 100 answers).
        On a new connection the same is a failure, and nothing is repeated.
        """
        import aiohttp

        lost: aiohttp.ClientError | None = None
        while True:
            progress.reused = False
            try:
                return await self._exchange(request, progress)
            except aiohttp.ClientConnectorError as error:
                if lost is None:
                    raise
                raise lost from error  # nobody takes a new connection: the server ended with this request
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
                if not progress.reused or progress.status is not None:
                    raise
                lost = error

    async def _exchange(self, request: _Request, progress: Progress) -> Answer:
        headers = {"Content-Type": "application/json"} if request.body is not None else None
        url = self.target.root + request.path
        async with self._session.request(
            request.method,
            url,
            data=request.body,
            headers=headers,
            allow_redirects=False,
            trace_request_ctx=progress,
        ) as response:
            progress.status = response.status
            progress.server = excerpt(response.headers.get("Server", ""))
            if 300 <= response.status < 400:
                where = response.headers.get("Location", "an address that it does not say")
                return progress.answer(f"http-{response.status}", f"redirects to {where}")
            if request.max_events is None or response.status >= 400:
                return await _read_whole(progress, response)
            if response.content_type != "text/event-stream":
                return await _read_no_stream(progress, response)
            return await _read_stream(progress, response, request.max_events)


async def _read_whole(progress: Progress, response: "aiohttp.ClientResponse") -> Answer:
    raw = bytearray()
    async for chunk in response.content.iter_any():
        raw += chunk
        if len(raw) > MAX_BODY_BYTES:
            return progress.answer("endless-answer", f"a body beyond {MAX_BODY_BYTES:,} bytes")
    text = raw.decode("utf-8", "replace")
    try:
        progress.body = decode_json(raw) if raw else None
    except ValueError:
        progress.texts = [text]
    if response.status >= 400:
        message = error_message(progress.body) or body_words(text)
        return progress.answer(http_error_type(response.status, message), message)
    progress.prompt_tokens, progress.output_tokens = usage(progress.body)
    progress.cached_tokens = cached_tokens(progress.body)
    return progress.answer()


async def _read_no_stream(progress: Progress, response: "aiohttp.ClientResponse") -> Answer:
    """A stream was asked for and something else came: name it, with what it said."""
    answer = await _read_whole(progress, response)
    said = error_message(answer.body) or body_words(answer.text)
    words = f"{response.content_type} instead of text/event-stream"
    return progress.answer("wrong-content-type", f"{words}: {said}" if said else words)


async def _read_stream(progress: Progress, response: "aiohttp.ClientResponse", max_events: int) -> Answer:
    reader = EventReader()
    events = 0
    async for chunk in response.content.iter_any():
        for data in reader.feed(chunk):
            if data == b"[DONE]":
                return _end_of_stream(progress)
            events += 1
            if events > max_events:
                return progress.answer("endless-answer", f"more than {max_events} events")
            try:
                event = decode_json(data)
            except ValueError:
                return progress.answer("not-json", f"an event is no JSON: {data.decode('utf-8', 'replace')}")
            if message := _take_event(progress, event):
                return progress.answer("error-in-stream", message)
    return progress.answer(
        "stream-cut", f"the stream ended after {len(progress.token_times)} tokens without [DONE]"
    )


def _take_event(progress: Progress, event: Any) -> str:
    """Keep what an event carries; the message of an error event, else nothing."""
    if entry(event, "error") is not None or entry(event, "object") == "error":
        return error_message(event) or "an error without words"
    if isinstance(entry(event, "usage"), dict):
        progress.prompt_tokens, progress.output_tokens = usage(event)
        progress.cached_tokens = cached_tokens(event)
    choice = entry(event, "choices", 0)
    if choice is None:
        return ""
    text = generated_text(choice)
    reason = text_of(entry(choice, "finish_reason"))
    first_message = entry(choice, "delta", "role") is not None and not text and not reason
    if not first_message:
        progress.token_times.append(time.perf_counter())
        progress.texts.append(text)
    progress.finish_reason = reason or progress.finish_reason
    return ""


def _end_of_stream(progress: Progress) -> Answer:
    if progress.finish_reason is None:
        return progress.answer("stream-cut", "[DONE] came before a finish_reason")
    if progress.finish_reason in GIVEN_UP:
        return progress.answer("given-up", given_up_words(progress.finish_reason))
    return progress.answer()


def network_trouble(error: Exception) -> tuple[str, str]:
    """The kind of a connection's failure, and its words."""
    import aiohttp

    match error:
        case OversizedEventError():
            kind, words = "endless-answer", str(error)
        case aiohttp.ClientHttpProxyError():
            kind, words = "proxy-failed", f"the proxy answered {error.status} {error.message}"
        case aiohttp.ClientConnectorDNSError():
            kind, words = "host-unknown", f"the name {error.host} has no address"
        case UnicodeError():
            kind, words = "host-unknown", f"the host is no name that can be looked up: {error}"
        case aiohttp.ClientSSLError() | ssl.SSLError():
            kind, words = "tls-failed", str(error.__cause__ or error)
        case OSError(errno=errno.EMFILE | errno.ENFILE):
            kind, words = "too-many-open-files", "this machine lets fitserve open no more connections"
        case aiohttp.ClientConnectorError():
            refused = isinstance(error.os_error, ConnectionRefusedError)
            kind = "connection-refused" if refused else "unreachable"
            reason = os.strerror(error.os_error.errno) if error.os_error.errno else str(error.os_error)
            words = f"{error.host} port {error.port}: {reason}"
        case aiohttp.ClientResponseError():
            kind, words = "not-http", f"what answers does not speak HTTP: {error.message}"
        case _:
            kind, words = "connection-lost", f"the connection broke: {error or type(error).__name__}"
    return kind, words


def _tls(target: Target, ca_file: str | None) -> ssl.SSLContext | bool:
    if not target.root.startswith("https"):
        return True
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"the certificates cannot be read: {error}", where=f"--ca-file {ca_file}") from error


@asynccontextmanager
async def open_client(
    target: Target, *, api_key: str | None = None, ca_file: str | None = None
) -> AsyncIterator[Client]:
    """A client for one server; closes what is still open when left.

    A proxy of the environment (``HTTPS_PROXY``...) is used, save for this machine's own addresses and those in ``NO_PROXY``.
    No compression is asked for: what is measured is the server's tokens.

    Args:
        target: the server.
        api_key: sent as a bearer token.
        ca_file: a PEM file with the authority to trust instead of the system's.

    Raises:
        UsageError: the certificates cannot be read.
    """
    import aiohttp

    headers = {"User-Agent": f"fitserve/{__version__}", "Accept-Encoding": "identity"}
    if api_key is not None:
        headers["Authorization"] = f"Bearer {api_key}"
    connector = aiohttp.TCPConnector(limit=0, ssl=_tls(target, ca_file))
    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(_note_new)
    trace.on_connection_reuseconn.append(_note_reuse)
    session = aiohttp.ClientSession(
        connector=connector,
        trace_configs=[trace],
        headers=headers,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
        trust_env=not target.loopback,
    )
    async with session:
        yield Client(target, session)
