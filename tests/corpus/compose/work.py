"""The rest of a V1 start-up, and a server at work: graphs, readiness, access lines, statistics."""

from .boot import api, ranks
from .story import Story


def captured(story: Story, taken_gib: float, *, carriage: bool = False) -> None:
    """CUDA graphs are captured."""
    steps = [0, 17, 34, 51]
    bars = [
        f"Capturing CUDA graphs (mixed prefill-decode, PIECEWISE): {100 * n // 51:3d}%|{'█' * (n // 6):8s}| {n}/51 [00:0{n // 13}<00:0{(51 - n) // 13}, 14.2it/s]"
        for n in steps
    ]
    if carriage:
        story.raw("\r".join(bars), proc=ranks(story)[0])
    else:
        for bar in (bars[0], bars[-1]):
            story.raw(bar, proc=ranks(story)[0])
    story.wait(9)
    story.maybe(
        "INFO",
        "v1/worker/gpu_model_runner.py",
        "Graph capturing finished",
        f"Graph capturing finished in 9 secs, took {taken_gib:.2f} GiB",
        proc=ranks(story)[0],
    )
    story.maybe(
        "INFO",
        "v1/engine/core.py",
        "init engine (profile",
        f"init engine (profile, create kv cache, warmup model) took 52.{story.random.randint(10, 99)} {'s' if story.at_least('0.27.0') else 'seconds'}",
    )


def ready(story: Story, *, port: int = 8000) -> None:
    """The server listens."""
    story.wait(2)
    text = "Starting vLLM server on" if story.at_least("0.19.0") else "Starting vLLM API server"
    api(
        story,
        text,
        f"{text} http://0.0.0.0:{port}"
        if story.at_least("0.19.0")
        else f"Starting vLLM API server {'0 ' if story.at_least('0.9.0') else ''}on http://0.0.0.0:{port}",
    )
    api(story, "Available routes are", "Available routes are:")
    for route, methods in (
        ("/openapi.json", "GET, HEAD"),
        ("/health", "GET"),
        ("/v1/models", "GET"),
        ("/v1/chat/completions", "POST"),
        ("/v1/completions", "POST"),
        ("/metrics", "GET"),
    ):
        api(story, "Route: %s, Methods: %s", f"Route: {route}, Methods: {methods}")
    story.raw(f"INFO:     Started server process [{story.pid('api')}]", proc="api")
    story.raw("INFO:     Waiting for application startup.", proc="api")
    story.raw("INFO:     Application startup complete.", proc="api")


def access(
    story: Story, verb: str = "POST /v1/chat/completions", status: str = "200 OK", *, mark: str = ""
) -> None:
    """An access line of uvicorn."""
    story.raw(
        f'INFO:     10.61.{story.random.randint(0, 9)}.{story.random.randint(2, 250)}:{story.random.randint(30000, 60000)} - "{verb} HTTP/1.1" {status}',
        proc="api",
        mark=mark,
    )


def load_line(
    story: Story,
    *,
    running: int,
    waiting: int,
    usage: float,
    prompt: float | None = None,
    generated: float | None = None,
    mark: str = "",
    proc: str = "api",
) -> None:
    """The ten-second statistics."""
    story.wait(10)
    prompt = story.random.uniform(80, 1500) if prompt is None else prompt
    generated = story.random.uniform(60, 900) if generated is None else generated
    story.say(
        "INFO", "v1/metrics/loggers.py", "Avg prompt throughput",
        f"Engine 000: Avg prompt throughput: {prompt:.1f} tokens/s, Avg generation throughput: {generated:.1f} tokens/s, Running: {running} reqs, Waiting: {waiting} reqs, "
        f"GPU KV cache usage: {usage:.1f}%, Prefix cache hit rate: {story.random.uniform(5, 50):.1f}%",
        proc=proc, mark=mark,
    )  # fmt: skip


def traffic(story: Story, rounds: int = 3) -> None:
    """A few minutes of ordinary work."""
    for _ in range(rounds):
        for _ in range(story.random.randint(1, 4)):
            access(story)
        load_line(story, running=story.random.randint(1, 12), waiting=0, usage=story.random.uniform(2, 40))
