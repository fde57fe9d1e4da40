"""The verification's HTTP client against a bare aiohttp loop and wrk, on a trivial server in another process.

Bounds: 2,000 requests a second and 500 streams at once, in 200 MB. wrk, where it is installed, says what the server itself can give.
"""

import asyncio
import json
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable

import aiohttp
from aiohttp import web

from fitserve.verify.client import Client, open_client
from fitserve.verify.target import parse_target

REQUESTS = 8000
CONCURRENCY = 64
STREAMS = 500
TOKENS = 32
BODY = json.dumps({"model": "m", "prompt": "Hello", "max_tokens": TOKENS}).encode()
DEADLINE_SECONDS = 60.0

MIN_REQUESTS_PER_SECOND = 2000
MAX_RSS_MB = 200


async def answer(request: web.Request) -> web.StreamResponse:
    """A small completion, or a stream of one."""
    await request.read()
    usage = {"prompt_tokens": 1, "completion_tokens": TOKENS}
    if request.path == "/v1/completions":
        return web.json_response({"choices": [{"text": "hi", "finish_reason": "length"}], "usage": usage})
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for number in range(TOKENS):
        reason = "length" if number == TOKENS - 1 else None
        event = {"choices": [{"text": "hi ", "finish_reason": reason}]}
        await response.write(f"data: {json.dumps(event)}\n\n".encode())
        await asyncio.sleep(0.05)
    await response.write(f"data: {json.dumps({'choices': [], 'usage': usage})}\n\ndata: [DONE]\n\n".encode())
    return response


async def serve() -> None:
    """Listen on a free port and say which."""
    app = web.Application()
    app.router.add_post("/v1/completions", answer)
    app.router.add_post("/stream", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=2 * STREAMS).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


def wrk_rate(root: str) -> float | None:
    """Requests a second that wrk, a client written in C, gets out of the same server; None where it is not installed."""
    if shutil.which("wrk") is None:
        return None
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(f"wrk.method = 'POST'\nwrk.body = {json.dumps(BODY.decode())}\n")
        script.flush()
        command = ["wrk", "-t1", f"-c{CONCURRENCY}", "-d4s", "-s", script.name, f"{root}/v1/completions"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
    return float(found.group(1)) if found else None


async def rate(send: Callable[[], Awaitable[bool]]) -> tuple[float, float]:
    """Requests a second with ``CONCURRENCY`` of them in flight: by the clock, and by this process's own CPU seconds."""
    left = iter(range(REQUESTS))

    async def place() -> None:
        for _ in left:
            if not await send():
                raise SystemExit("a request failed")

    start, cpu_start = time.perf_counter(), time.process_time()
    await asyncio.gather(*(place() for _ in range(CONCURRENCY)))
    return REQUESTS / (time.perf_counter() - start), REQUESTS / (time.process_time() - cpu_start)


async def streams_together(client: Client) -> float:
    """Seconds for ``STREAMS`` streams at once."""
    start = time.perf_counter()
    answers = await asyncio.gather(
        *(client.stream("/stream", BODY, DEADLINE_SECONDS, max_tokens=TOKENS) for _ in range(STREAMS))
    )
    whole = [one for one in answers if one.ok and one.events == TOKENS and one.output_tokens == TOKENS]
    if len(whole) != STREAMS:
        raise SystemExit(f"only {len(whole)} of {STREAMS} streams came whole")
    return time.perf_counter() - start


async def measure(root: str) -> int:
    """Measure, print, and return 0 where every bound is kept."""
    async with open_client(parse_target(root)) as client:

        async def ours() -> bool:
            return (await client.post("/v1/completions", BODY, DEADLINE_SECONDS)).ok

        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

            async def bare() -> bool:
                async with session.post(root + "/v1/completions", data=BODY) as response:
                    return "choices" in json.loads(await response.read())

            await rate(bare)
            (bare_rate, bare_cpu_rate), (our_rate, our_cpu_rate) = await rate(bare), await rate(ours)
        limit = await asyncio.to_thread(wrk_rate, root)
        seconds = await streams_together(client)
    rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"bare aiohttp loop   {bare_rate:8,.0f} requests/s   {bare_cpu_rate:8,.0f} a CPU second")
    print(f"fitserve client     {our_rate:8,.0f} requests/s   {our_cpu_rate:8,.0f} a CPU second")
    wrk = "not installed" if limit is None else f"{limit:8,.0f} requests/s   what the server can give"
    print(f"wrk                 {wrk}")
    print(f"ratio to the loop   {our_rate / bare_rate:8.2f}              {our_cpu_rate / bare_cpu_rate:8.2f}")
    print(f"streams at once     {STREAMS:8,}   {STREAMS * TOKENS / seconds:,.0f} tokens/s in {seconds:.1f} s")
    print(f"peak memory         {rss_mb:8,.0f} MB")
    # On a machine that others use, the clock measures them; CPU seconds are our own.
    return int(max(our_rate, our_cpu_rate) < MIN_REQUESTS_PER_SECOND or rss_mb > MAX_RSS_MB)


def main() -> int:
    """Start the server, measure, stop it."""
    with subprocess.Popen([sys.executable, __file__, "serve"], stdout=subprocess.PIPE, text=True) as server:
        try:
            port = int(server.stdout.readline() if server.stdout else 0)
            return asyncio.run(measure(f"http://127.0.0.1:{port}"))
        finally:
            server.kill()


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        asyncio.run(serve())
    else:
        sys.exit(main())
