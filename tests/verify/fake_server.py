"""A small program that answers like vLLM, or misbehaves: the mode is the first part of the path.

Started as a child process, with a certificate and its key for https; prints the port that it listens on. ``/good/v1/models`` is a well-behaved server,
``/half-json/v1/models`` one that breaks off its JSON, and so on through ``QUIRKS``.
"""

import asyncio
import gzip
import json
import os
import ssl
import sys
from collections import Counter

from aiohttp import web

MODEL = "fake"
LENGTH = 256
VOCABULARY = 5000

QUIRKS = frozenset(
    {
        "good",
        "gzip-bomb",
        "absurd-length",
        "aborts",
        "busy",
        "cached",
        "caps-output",
        "count-wrong",
        "cut-connection",
        "cuts-output",
        "cuts-prompts-under-load",
        "embedding",
        "embedding-fails-later",
        "empty",
        "endless-models",
        "endless-tokens",
        "ends-early",
        "fails-later",
        "half-json",
        "hang-mid-stream",
        "html",
        "http-500",
        "http-502",
        "key",
        "counts-too-few",
        "ignores-max-tokens",
        "leaks",
        "leaves-requests",
        "length-by-tokenizer",
        "llamacpp",
        "negative-length",
        "never-scheduled",
        "never-scheduled-long",
        "never-scheduled-silent",
        "no-endpoint",
        "no-metrics",
        "no-template",
        "nothing",
        "nulls",
        "ollama",
        "one-at-a-time",
        "over-accepted",
        "pooling",
        "preempting",
        "redirect",
        "refuses-streams",
        "same-token",
        "says-yes",
        "sglang",
        "slow",
        "stream-error",
        "texts-only",
        "wrong-content-type",
    }
)
# One mode more, "dies", ends the whole program: it needs one of its own.
NO_METRICS = {
    "never-scheduled-long",
    "never-scheduled-silent",
    "no-metrics",
    "ollama",
    "llamacpp",
    "sglang",
    "html",
}
NOT_VLLM = {"ollama", "llamacpp", "sglang", "html", "nothing", "redirect"}
POOLING = {"embedding", "embedding-fails-later", "pooling"}
VERBOSE = {"counts-too-few", "ignores-max-tokens"}
FINISHES = {"aborts": "abort"}
OWNERS = {"ollama": "library", "llamacpp": "llamacpp", "sglang": "sglang"}

BOMB = gzip.compress(bytes(1 << 28))
"""A quarter of a gibibyte of nothing in a quarter of a mebibyte."""

in_flight: Counter[str] = Counter()
answered: Counter[str] = Counter()
turn = asyncio.Lock()
preemptions: Counter[str] = Counter()
refusals: Counter[str] = Counter()


def problem(status: int, message: str, kind: str = "BadRequestError") -> web.Response:
    """An error as vLLM words it."""
    return web.json_response({"error": {"message": message, "type": kind, "code": status}}, status=status)


async def health(request: web.Request) -> web.Response:
    """The empty 200 of vLLM; others have a body, or no such path."""
    mode = request.match_info["mode"]
    if mode in {"ollama", "nothing"}:
        return web.Response(status=404, text="404 page not found")
    return web.json_response({"status": "ok"}) if mode == "llamacpp" else web.Response()


async def version(request: web.Request) -> web.Response:
    """The version of vLLM; no other server has this path."""
    mode = request.match_info["mode"]
    if mode in NOT_VLLM:
        return web.Response(status=404, text="404 page not found")
    if mode == "fails-later":
        answered[mode] = 0  # a new verification has begun
    return web.json_response({"version": "0.32.0"})


async def models(request: web.Request) -> web.StreamResponse:
    """The list of served names."""
    mode = request.match_info["mode"]
    if mode == "redirect":
        return web.Response(status=307, headers={"Location": "https://example.invalid/v1/models"})
    if mode == "endless-models":
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        while True:
            await response.write(b" " * (1 << 20))
    if mode == "html":
        return web.Response(
            text="<html><head><title>Welcome</title></head><body>Welcome</body></html>",
            content_type="text/html",
        )
    if mode == "nothing":
        return web.Response(status=404, text="<html>Not Found</html>", content_type="text/html")
    if mode == "key" and request.headers.get("Authorization") != "Bearer let-me-in":
        return web.json_response({"error": "Unauthorized"}, status=401)
    card: dict = {"id": MODEL, "object": "model", "owned_by": OWNERS.get(mode, "vllm")}
    if mode not in {"ollama", "llamacpp", "length-by-tokenizer"}:
        card["max_model_len"] = {"absurd-length": 10**12, "negative-length": -5}.get(mode, LENGTH)
    return web.json_response({"object": "list", "data": [card]})


async def metrics(request: web.Request) -> web.Response:
    """The scheduler's gauges: one request in flight is running, unless this mode never schedules any."""
    mode = request.match_info["mode"]
    if mode in NO_METRICS:
        return web.Response(status=404)
    stuck = mode == "never-scheduled"
    labels = '{engine="0",model_name="fake"}'
    left_behind = answered[mode] if mode == "leaves-requests" else 0
    leaked = min(0.7, answered[mode] / 500) if mode == "leaks" else 0
    values = {
        "num_requests_running": 0 if stuck else in_flight[mode] + left_behind,
        "num_requests_waiting": in_flight[mode] if stuck else 0,
        "kv_cache_usage_perc": 0.25 + leaked,
        "num_preemptions_total": preemptions[mode],
        "prefix_cache_hits_total": 90 * answered[mode] if mode == "cached" else 0,
        "prefix_cache_queries_total": 100 * answered[mode],
    }
    return web.Response(text="".join(f"vllm:{name}{labels} {value}\n" for name, value in values.items()))


async def tokenize(request: web.Request) -> web.Response:
    """Two tokens a word: the word and its space, as odd as a real vocabulary."""
    mode = request.match_info["mode"]
    if mode in NOT_VLLM:
        return web.Response(status=404)
    body = await request.json()
    text = body.get("prompt") or body["messages"][0]["content"]
    tokens = [1000 + len(word) * (mode != "same-token") for word in text.split(" ")]
    return web.json_response({"count": len(tokens), "max_model_len": LENGTH, "tokens": tokens})


def count(mode: str, body: dict) -> int:
    """Tokens of a request's prompt."""
    prompt = body.get("prompt", body.get("input")) or body["messages"][0]["content"]
    counted = len(prompt) if isinstance(prompt, list) else len(prompt.split(" "))
    return counted + 20 if mode == "count-wrong" and counted > 50 else counted


def refusal(mode: str, body: dict, prompt_tokens: int) -> web.Response | None:
    """Why a request is not taken; None where it is."""
    if body["model"] != MODEL:
        return problem(404, f"The model `{body['model']}` does not exist.", "NotFoundError")
    if (mode == "no-endpoint" and "prompt" in body) or (mode == "refuses-streams" and body.get("stream")):
        return web.json_response({"detail": "Not Found"}, status=404)
    if mode in {"no-template", "no-endpoint"} and "messages" in body:
        return problem(400, "default chat template is no longer allowed, so you must provide a chat template")
    if isinstance(body.get("prompt"), list) and mode in {"ollama", "texts-only"}:
        return problem(400, "json: cannot unmarshal array into Go struct field of type string")
    if mode == "ends-early" and "ignore_eos" in body:
        return problem(400, "ignore_eos: extra inputs are not permitted")
    return refusal_of_length(mode, body, prompt_tokens)


def refusal_of_length(mode: str, body: dict, prompt_tokens: int) -> web.Response | None:
    """The refusal of a request beyond the length; None where it is within."""
    total = prompt_tokens + body.get("max_tokens", 16) * ("input" not in body)
    if total <= LENGTH or mode in {"over-accepted", "ollama"}:
        return None
    if mode == "sglang":
        return problem(
            400, f"The input ({total} tokens) is longer than the model's context length ({LENGTH} tokens)."
        )
    if mode == "cuts-output" and prompt_tokens < LENGTH:
        return None
    return problem(
        400, f"This model's maximum context length is {LENGTH} tokens. However, you requested {total} tokens."
    )


async def breakdown(request: web.Request, mode: str) -> web.Response | None:
    """The answer of a server that does not get as far as reading the request; None where it does."""
    if mode == "http-500":
        return problem(500, "CUDA error: an illegal memory access was encountered", "InternalServerError")
    if mode == "dies":
        os._exit(1)
    if mode == "http-502":
        page = (
            "<html>\n<head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>"
        )
        return web.Response(
            status=502, text=page, content_type="text/html", headers={"Server": "nginx/1.25.3"}
        )
    if mode == "gzip-bomb":
        kind = "text/event-stream" if (await request.json()).get("stream") else "application/json"
        return web.Response(body=BOMB, headers={"Content-Encoding": "gzip", "Content-Type": kind})
    if mode == "fails-later" and answered[mode] > 40:
        return problem(500, "CUDA out of memory.", "InternalServerError")
    if mode == "busy":
        refusals[mode] += 1
        if refusals[mode] == 1:
            return problem(503, "the queue is full", "ServiceUnavailableError")
    return None


async def generate(request: web.Request) -> web.StreamResponse:
    """A completion or a chat, streamed or not, with the mode's misbehaviour."""
    mode = request.match_info["mode"]
    if mode in POOLING | {"nothing", "html", "redirect"}:
        return web.json_response({"detail": "Not Found"}, status=404)
    broken = await breakdown(request, mode)
    if broken is not None:
        return broken
    body = await request.json()
    prompt_tokens = count(mode, body)
    refused = refusal(mode, body, prompt_tokens)
    if refused is not None:
        return refused
    in_flight[mode] += 1
    try:
        if mode == "preempting":
            await asyncio.sleep(0.1)  # so that all requests of a step are in flight together
            preemptions[mode] += in_flight[mode] > 2
        tokens = min(
            body.get("max_tokens", 16), max(1, LENGTH - prompt_tokens) if mode == "cuts-output" else 10**9
        )
        if mode == "cuts-prompts-under-load" and in_flight[mode] > 1:
            prompt_tokens = min(prompt_tokens, 10)
        tokens = min(tokens, {"caps-output": 16, "ends-early": 3}.get(mode, tokens))
        usage = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": tokens,
            "total_tokens": prompt_tokens + tokens,
        }
        if mode == "one-at-a-time":
            async with turn:
                await asyncio.sleep(0.05)
                return await reply(request, mode, body, usage)
        return await reply(request, mode, body, usage)
    finally:
        answered[mode] += 1
        in_flight[mode] -= 1


async def reply(request: web.Request, mode: str, body: dict, usage: dict) -> web.StreamResponse:
    """The answer as a stream or whole."""
    if body.get("stream"):
        return await stream(request, mode, body, usage)
    return await whole(request, mode, body, usage)


def is_stuck(mode: str, usage: dict) -> bool:
    """True where the request is accepted and never scheduled."""
    is_long = usage["prompt_tokens"] > 100
    return mode in {"never-scheduled", "never-scheduled-silent"} or (
        mode == "never-scheduled-long" and is_long
    )


async def whole(request: web.Request, mode: str, body: dict, usage: dict) -> web.StreamResponse:
    """An answer in one piece."""
    text = "word " * usage["completion_tokens"]
    if mode in VERBOSE:
        text = "word " * 60
    choice: dict = {"index": 0, "finish_reason": FINISHES.get(mode, "length")}
    choice |= {"message": {"role": "assistant", "content": text}} if "messages" in body else {"text": text}
    answer = {"object": "text_completion", "choices": [choice], "usage": usage}
    if mode in {"hang-mid-stream", "slow"} or is_stuck(mode, usage):
        await asyncio.sleep(3600)
    if mode == "nulls":
        answer = dict.fromkeys(answer)
    if mode == "ignores-max-tokens":
        del answer["usage"]
    if mode == "empty":
        answer |= {"choices": [choice | {"text": ""}], "usage": usage | {"completion_tokens": 0}}
    raw = json.dumps(answer)
    if mode == "half-json":
        return web.Response(text=raw[: len(raw) // 2], content_type="application/json")
    if mode == "wrong-content-type":
        return web.Response(text="<html>gateway</html>", content_type="text/html")
    if mode == "cut-connection":
        response = web.StreamResponse(headers={"Content-Length": "100000"})
        await response.prepare(request)
        await response.write(raw.encode())
        request.transport.abort()
        return response
    return web.Response(text=raw, content_type="application/json")


async def stream(request: web.Request, mode: str, body: dict, usage: dict) -> web.StreamResponse:
    """An answer as events."""
    if mode == "wrong-content-type":
        return web.json_response({"choices": [{"text": "all at once"}], "usage": usage})
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    if is_stuck(mode, usage):
        await asyncio.sleep(3600)
    chat = "messages" in body
    wanted = {"endless-tokens": 10**9, **dict.fromkeys(VERBOSE, 60)}.get(mode, usage["completion_tokens"])
    for number in range(0 if mode == "empty" else wanted):
        if mode == "hang-mid-stream" and number == 2:
            await asyncio.sleep(3600)
        if mode == "slow":
            await asyncio.sleep(0.5)
        if mode == "cut-connection" and number == 1:
            request.transport.abort()
            return response
        if mode == "stream-error" and number == 1:
            await response.write(
                b'data: {"error": {"message": "EngineCore encountered an issue.", "code": 500}}\n\n'
            )
            break
        last = number == wanted - 1
        piece = {"delta": {"content": "word "}} if chat else {"text": "word "}
        event = {
            "choices": [
                {"index": 0, **piece, "finish_reason": FINISHES.get(mode, "length") if last else None}
            ]
        }
        raw = json.dumps(dict.fromkeys(event) if mode == "nulls" else event)
        await response.write(f"data: {raw[:20] if mode == 'half-json' else raw}\n\n".encode())
        if number < 64:
            await asyncio.sleep(0.001)  # so that requests at once are at once
    usage = {} if mode in {"nulls", "ignores-max-tokens"} else usage
    await response.write(f"data: {json.dumps({'choices': [], 'usage': usage})}\n\n".encode())
    await response.write(b"data: [DONE]\n\n")
    return response


async def embed(request: web.Request) -> web.Response:
    """A vector for a text or for token ids."""
    mode = request.match_info["mode"]
    if mode not in {"embedding", "embedding-fails-later"}:
        return web.json_response({"detail": "Not Found"}, status=404)
    body = await request.json()
    prompt_tokens = count("embedding", body)
    refused = refusal("embedding", body, prompt_tokens)
    if refused is not None:
        return refused
    answered[mode] += 1
    if mode == "embedding-fails-later" and answered[mode] > 4:
        return web.json_response({"data": [], "usage": {"prompt_tokens": prompt_tokens}})
    return web.json_response(
        {"data": [{"embedding": [0.5, -0.5, 0.0]}], "usage": {"prompt_tokens": prompt_tokens}}
    )


async def pool(request: web.Request) -> web.Response:
    """The raw vectors of a model that is no embedder."""
    if request.match_info["mode"] != "pooling":
        return web.json_response({"detail": "Not Found"}, status=404)
    return web.json_response({"data": [{"data": [[0.25, 0.75]]}], "usage": {"prompt_tokens": 1}})


async def say_yes(_request: web.Request) -> web.Response:
    """The one page of a web server that has it for every address."""
    return web.Response(text="<html><title>Welcome</title></html>", content_type="text/html")


async def serve() -> None:
    """Listen on a free port, say which, and go on until killed."""
    app = web.Application()
    app.router.add_route("*", "/says-yes/{path:.*}", say_yes)
    for path, handler in (
        ("health", health),
        ("version", version),
        ("metrics", metrics),
        ("v1/models", models),
    ):
        app.router.add_get(f"/{{mode}}/{path}", handler)
    for path, handler in (
        ("tokenize", tokenize),
        ("v1/completions", generate),
        ("v1/chat/completions", generate),
        ("v1/embeddings", embed),
        ("pooling", pool),
    ):
        app.router.add_post(f"/{{mode}}/{path}", handler)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    context = None
    if len(sys.argv) == 3:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*sys.argv[1:])
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    print(runner.addresses[0][1], flush=True)  # noqa: T201 - the test reads the port
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve())
