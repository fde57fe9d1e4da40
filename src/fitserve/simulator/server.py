"""The API server of a simulated engine (o: sockets, clock, processes).

Source: ``entrypoints/openai/api_server.py`` and ``entrypoints/launcher.py`` of vLLM 0.8.5 to 0.32.0.
"""

import asyncio
import contextlib
import itertools
import os
import signal
import socket
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from aiohttp import web

from fitserve.simulator import api, prompts, words
from fitserve.simulator.play import Play
from fitserve.simulator.releases import at_least
from fitserve.simulator.scheduler import Request, Scheduler
from fitserve.simulator.start import Start
from fitserve.simulator.voice import Voice, traceback

_STEP_SECONDS = 0.003
_STATS_SECONDS = 10.0
_ROUTES = (
    "/health",
    "/version",
    "/v1/models",
    "/tokenize",
    "/v1/completions",
    "/v1/chat/completions",
    "/metrics",
)
_GONE = "EngineCore encountered an issue. See stack trace (above) for the root cause."
_QUIET = ("/metrics", "/health")


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """The engine that a server has: what it is about, how it came up, its pid, and the pipe that keeps it alive."""

    play: Play
    start: Start
    pid: int
    life: int


def run_server(engine: Engine, given: dict[str, Any], voice: Voice, listener: socket.socket) -> int:
    """Serve until a signal comes or the engine dies; gives the exit code."""
    try:
        return asyncio.run(Server(engine, given, voice).run(listener))
    finally:
        os.close(engine.life)
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(engine.pid, signal.SIGTERM)
            os.waitpid(engine.pid, 0)


class Server:
    """One server: its requests, its engine, its end."""

    def __init__(self, engine: Engine, given: dict[str, Any], voice: Voice) -> None:
        self.play, self.start, self.voice, self.engine = engine.play, engine.start, voice, engine.pid
        play, start = self.play, self.start
        self.version = start.settings.version
        names = given.get("served_model_name") or [play.place]
        self.served = [names] if isinstance(names, str) else list(names)
        key = given.get("api_key") or os.environ.get("VLLM_API_KEY")
        self.keys = [key] if isinstance(key, str) else list(key or [])
        schedules = "never-schedules" not in play.machine.faults
        self.scheduler = Scheduler(start.settings, start.pool, start.blocks, schedules=schedules)
        self.count = itertools.count(1)
        self.dead = False
        self.over = asyncio.Event()
        self.work = asyncio.Event()
        self.code = 0

    async def run(self, listener: socket.socket) -> int:
        """Listen, serve, stop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.over.set)
        runner = web.AppRunner(self._application(), access_log=None, shutdown_timeout=0.2)
        await runner.setup()
        site = web.SockSite(runner, listener)
        host, port = listener.getsockname()[:2]
        self._announce(str(host), int(port))
        await site.start()
        self._uvicorn(
            f"Started server process [{os.getpid()}]",
            "Waiting for application startup.",
            "Application startup complete.",
        )
        tasks = [
            asyncio.create_task(job) for job in (self._steps(), self._watch_engine(), self._statistics())
        ]
        await self.over.wait()
        for task in tasks:
            task.cancel()
        self._uvicorn("Shutting down", "Waiting for application shutdown.", "Application shutdown complete.")
        await runner.cleanup()
        self._uvicorn(f"Finished server process [{os.getpid()}]")
        return self.code

    def _application(self) -> web.Application:
        app = web.Application(client_max_size=1 << 28, middlewares=[self._gate])
        app.router.add_get("/health", self._health)
        app.router.add_get("/version", self._say_version)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_post("/tokenize", self._tokenize)
        app.router.add_post("/v1/completions", self._completions)
        app.router.add_post("/v1/chat/completions", self._chat)
        return app

    def _announce(self, host: str, port: int) -> None:
        address = f"http://{host}:{port}"
        if not at_least(self.version, "0.8.0"):
            address = ""
        elif at_least(self.version, "0.18.0"):
            self.voice.log("starting", f"Starting vLLM server on {address}")
        else:
            number = " 0" if at_least(self.version, "0.9.1") else ""
            self.voice.log("starting", f"Starting vLLM API server{number} on {address}")
        self.voice.log("routes", "Available routes are:")
        for route in _ROUTES:
            method = "GET" if route in _ROUTES[:3] or route == "/metrics" else "POST"
            self.voice.log("route", f"Route: {route}, Methods: {method}")

    def _uvicorn(self, *lines: str) -> None:
        for line in lines:
            self.voice.raw(f"INFO:     {line}")

    @web.middleware
    async def _gate(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if request.path.startswith("/v1") and self.keys:
            given = request.headers.get("Authorization", "").removeprefix("Bearer ")
            if given not in self.keys:
                return web.json_response({"error": "Unauthorized"}, status=401)
        response: web.StreamResponse = await handler(request)
        name = f"{request.remote}:{(request.transport.get_extra_info('peername') or ('', 0))[1] if request.transport else 0}"
        if request.path not in _QUIET:
            reason = response.reason or "OK"
            self.voice.raw(
                f'INFO:     {name} - "{request.method} {request.path} HTTP/1.1" {response.status} {reason}'
            )
        return response

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response(status=503 if self.dead else 200)

    async def _say_version(self, _request: web.Request) -> web.Response:
        return web.json_response({"version": self.version})

    async def _models(self, _request: web.Request) -> web.Response:
        return web.json_response(api.models_body(self.served, self.play.place, self.start.max_model_len))

    async def _metrics(self, _request: web.Request) -> web.Response:
        tokens = self.start.tokens
        return web.Response(
            text=api.metrics_text(self.scheduler, self.served[0], self.version, tokens),
            content_type="text/plain",
        )

    async def _tokenize(self, request: web.Request) -> web.Response:
        body = msgspec.json.decode(await request.read())
        wrong = self._wrong_name(body)
        if wrong is not None:
            return wrong
        tokens = prompts.token_ids(prompts.prompt_text(body))
        return web.json_response(
            {"count": len(tokens), "max_model_len": self.start.max_model_len, "tokens": tokens}
        )

    def _wrong_name(self, body: dict[str, Any]) -> web.Response | None:
        name = body.get("model")
        if name is None or name in self.served:
            return None
        return web.json_response(api.unknown_model(str(name), self.served, self.version), status=404)

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(request, "text")

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(request, "chat")

    async def _generate(self, request: web.Request, kind: str) -> web.StreamResponse:
        try:
            body = msgspec.json.decode(await request.read())
        except msgspec.DecodeError as error:
            return web.json_response(api.error_body(str(error), "Bad Request", 400, self.version), status=400)
        wrong = self._wrong_name(body)
        if wrong is not None:
            return wrong
        if self.dead:
            return self._gone()
        prompt = prompts.count_prompt(body)
        limit = self.start.max_model_len
        asked = body.get("max_completion_tokens") or body.get("max_tokens")
        if asked is None and kind == "text":
            asked = api.DEFAULT_COMPLETION_TOKENS
        refused = api.too_long(prompt, asked, limit, self.version)
        if refused is not None:
            return web.json_response(refused, status=400)
        return await self._answer(
            request, kind, body, prompt, int(asked) if asked is not None else limit - prompt
        )

    async def _answer(
        self, http: web.Request, kind: str, body: dict[str, Any], prompt: int, most: int
    ) -> web.StreamResponse:
        queue: asyncio.Queue[int] = asyncio.Queue()
        request = Request(prompt_tokens=prompt, max_tokens=most, emit=queue.put_nowait)
        if "worker-dies" in self.play.machine.faults:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.engine, signal.SIGKILL)
        self.scheduler.add(request)
        self.work.set()
        identity = f"{'chatcmpl' if kind == 'chat' else 'cmpl'}-{next(self.count):032x}"
        try:
            if body.get("stream"):
                return await self._stream(http, self._events(kind, body, request, queue, identity))
            while await queue.get() > 0:
                pass
        finally:
            self.scheduler.drop(request)
        if self.dead:
            return self._gone()
        usage = api.usage_of(prompt, request.produced)
        return web.json_response(api.whole(kind, identity, self.served[0], " word" * request.produced, usage))

    async def _stream(self, http: web.Request, events: AsyncIterator[dict[str, Any]]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(http)
        async for event in events:
            await response.write(b"data: " + msgspec.json.encode(event) + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    async def _events(
        self, kind: str, body: dict[str, Any], request: Request, queue: asyncio.Queue[int], identity: str
    ) -> AsyncIterator[dict[str, Any]]:
        name, sent = self.served[0], 0
        while await queue.get() > 0:
            sent += 1
            last = "length" if sent == request.max_tokens else None
            yield api.chunk(kind, identity, name, " word", finish=last, first=sent == 1)
        if self.dead:
            yield api.error_body(_GONE, "EngineDeadError", 500, self.version)
        elif (body.get("stream_options") or {}).get("include_usage"):
            usage = api.usage_of(request.prompt_tokens, sent)
            yield {**api.chunk(kind, identity, name, None), "choices": [], "usage": usage}

    def _gone(self) -> web.Response:
        return web.json_response(api.error_body(_GONE, "InternalServerError", 500, self.version), status=500)

    async def _steps(self) -> None:
        """The engine's steps while there is work."""
        while True:
            if not self.scheduler.running and not self.scheduler.waiting:
                self.work.clear()
                await self.work.wait()
            tokens = self.scheduler.step()
            if self.start.step_bytes(tokens) > self.start.left_bytes:
                self._run_out_of_memory(tokens)
                return
            await asyncio.sleep(_STEP_SECONDS)

    def _run_out_of_memory(self, tokens: int) -> None:
        start, voice = self.start, Voice(self.version, "EngineCore")
        own = start.free[0] - start.left_bytes
        error = words.out_of_memory(
            start, self.start.step_bytes(tokens) // 4, held=own, torch_held=own - start.needs.context
        )
        voice.exception(
            "fatal", "EngineCore encountered a fatal error.", traceback(voice.frames("execute"), error)
        )
        self._die()

    def _die(self) -> None:
        """The engine is gone: every request fails, and the server ends."""
        self.dead = True
        error = f"vllm.v1.engine.exceptions.EngineDeadError: {_GONE}"
        self.voice.exception("dead", "AsyncLLM output_handler failed.", traceback((), error))
        for request in [*self.scheduler.running, *self.scheduler.waiting]:
            request.emit(0)
        self.code = 1
        asyncio.get_running_loop().call_later(0.3, self.over.set)

    async def _watch_engine(self) -> None:
        """Notice the engine's death."""
        while not self.dead:
            await asyncio.sleep(0.05)
            pid, _ = os.waitpid(self.engine, os.WNOHANG)  # noqa: ASYNC222 -- it does not wait
            if pid and not self.over.is_set():
                name = "EngineCore" if at_least(self.version, "0.18.0") else "EngineCore_DP0"
                self.voice.log(
                    "core_died", f"Engine core proc {name} died unexpectedly, shutting down client.", "ERROR"
                )
                self._die()

    async def _statistics(self) -> None:
        """The line of every ten seconds."""
        before = (0, 0)
        while True:
            await asyncio.sleep(_STATS_SECONDS)
            now = (self.scheduler.prompt_total, self.scheduler.output_total)
            rates = [(new - old) / _STATS_SECONDS for new, old in zip(now, before, strict=True)]
            before = now
            self._tell_rates(rates)

    def _tell_rates(self, rates: list[float]) -> None:
        scheduler = self.scheduler
        begin = f"Avg prompt throughput: {rates[0]:.1f} tokens/s, Avg generation throughput: {rates[1]:.1f} tokens/s, "
        running, waiting, usage = len(scheduler.running), len(scheduler.waiting), scheduler.usage * 100
        if not self.start.settings.v1:
            counts = f"Running: {running} reqs, Swapped: 0 reqs, Pending: {waiting} reqs, GPU KV cache usage: {usage:.1f}%"
            self.voice.log("throughput_v0", f"{begin}{counts}, CPU KV cache usage: 0.0%.")
            return
        lost = (
            f", Preemptions: {scheduler.preemptions}"
            if scheduler.preemptions and at_least(self.version, "0.14.0")
            else ""
        )
        counts = f"Running: {running} reqs, Waiting: {waiting} reqs{lost}, GPU KV cache usage: {usage:.1f}%"
        number = "Engine 000: " if at_least(self.version, "0.8.3") else ""
        self.voice.log("throughput", f"{number}{begin}{counts}, Prefix cache hit rate: 0.0%")
