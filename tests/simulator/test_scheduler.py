"""The scheduler and its blocks: laws that hold for any requests."""

from hypothesis import given
from hypothesis import strategies as st

from fitserve.simulator.cache import Pool
from fitserve.simulator.scheduler import Request, Scheduler
from fitserve.simulator.settings import Settings

POOL = Pool(
    groups=("full",),
    block_size=16,
    block_bytes=1,
    window=0,
    step_tokens=64,
    reserved_blocks=0,
    checked_groups=1,
    tokens_by_group=True,
)
SETTINGS = Settings(
    version="0.19.0",
    max_model_len=512,
    gpu_memory_utilization=0.9,
    max_num_seqs=8,
    max_num_batched_tokens=64,
)
sizes = st.lists(st.tuples(st.integers(1, 400), st.integers(1, 112)), min_size=1, max_size=12)


@given(sizes, st.integers(32, 200))
def test_every_request_is_answered_whole(sizes: list[tuple[int, int]], blocks: int) -> None:
    """However few blocks there are above one request's: all tokens come out, and every block is free again."""
    scheduler = Scheduler(SETTINGS, POOL, blocks)
    given: list[list[int]] = [[] for _ in sizes]
    for (prompt, most), out in zip(sizes, given, strict=True):
        scheduler.add(Request(prompt_tokens=prompt, max_tokens=most, emit=out.append))
    for _ in range(100_000):
        if not scheduler.running and not scheduler.waiting:
            break
        tokens = scheduler.step()
        held = sum(request.blocks for request in scheduler.running)

        assert 0 <= tokens <= SETTINGS.max_num_batched_tokens
        assert blocks == scheduler.free + held
        assert len(scheduler.running) <= SETTINGS.max_num_seqs

    assert [most for _, most in sizes] == [sum(out) for out in given]
    assert (blocks, 0.0) == (scheduler.free, scheduler.usage)


@given(sizes)
def test_room_for_all_means_no_preemption(sizes: list[tuple[int, int]]) -> None:
    """With blocks for every request at its full length none loses its place."""
    room = sum(POOL.blocks_per_request(prompt + most) for prompt, most in sizes)
    scheduler = Scheduler(SETTINGS, POOL, room)
    for prompt, most in sizes:
        scheduler.add(Request(prompt_tokens=prompt, max_tokens=most, emit=lambda _: None))
    while scheduler.running or scheduler.waiting:
        scheduler.step()

    assert 0 == scheduler.preemptions


def test_a_dropped_request_gives_its_blocks_back() -> None:
    """A client that is gone takes nothing with it."""
    scheduler = Scheduler(SETTINGS, POOL, 40)
    request = Request(prompt_tokens=100, max_tokens=100, emit=lambda _: None)
    scheduler.add(request)
    scheduler.step()
    held = scheduler.usage
    scheduler.drop(request)

    assert (True, 40, []) == (held > 0, scheduler.free, scheduler.running)
