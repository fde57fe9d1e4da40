"""The scheduler: steps of a bounded number of tokens, blocks for each request, waiting and preemption when they run out.

Source: ``v1/core/sched/scheduler.py`` of vLLM 0.8.5 to 0.32.0.
"""

from collections import deque
from collections.abc import Callable

import msgspec

from fitserve.simulator.cache import Pool
from fitserve.simulator.settings import Settings


class Request(msgspec.Struct, kw_only=True, eq=False):
    """A request in the engine.

    Attributes:
        prompt_tokens: tokens in; max_tokens: tokens out at most.
        emit: is called with the number of tokens that a step gave, and at the end with 0.
        computed: tokens whose keys and values are in the cache.
        produced: tokens out.
        blocks: held.
    """

    prompt_tokens: int
    max_tokens: int
    emit: Callable[[int], None]
    computed: int = 0
    produced: int = 0
    blocks: int = 0

    @property
    def length(self) -> int:
        """Tokens so far."""
        return self.prompt_tokens + self.produced


class Scheduler:
    """Requests that run and wait, over one pool of blocks."""

    def __init__(self, settings: Settings, pool: Pool, blocks: int, *, schedules: bool = True) -> None:
        self.settings, self.pool = settings, pool
        self.total = max(blocks - pool.reserved_blocks, 0)
        self.free = self.total
        self.schedules = schedules
        self.running: list[Request] = []
        self.waiting: deque[Request] = deque()
        self.preemptions = 0
        self.prompt_total = 0
        self.output_total = 0

    @property
    def usage(self) -> float:
        """The share of blocks that are held."""
        return 1 - self.free / self.total if self.total else 0.0

    def add(self, request: Request) -> None:
        """Let a request in."""
        self.waiting.append(request)

    def drop(self, request: Request) -> None:
        """Take a request out: its client is gone."""
        if request in self.running:
            self.running.remove(request)
            self._release(request)
        elif request in self.waiting:
            self.waiting.remove(request)

    def step(self) -> int:
        """One step of the engine; gives its number of tokens."""
        if not self.schedules:
            return 0
        budget = self.settings.max_num_batched_tokens
        planned: list[tuple[Request, int]] = []
        for request in list(self.running):
            if request not in self.running or budget <= 0:
                continue
            tokens = min(request.length - request.computed, budget)
            if not self._grow(request, request.computed + tokens):
                continue
            planned.append((request, tokens))
            budget -= tokens
        while self.waiting and budget > 0 and len(self.running) < self.settings.max_num_seqs:
            request = self.waiting[0]
            tokens = min(request.length - request.computed, budget)
            if self.pool.blocks_per_request(request.length) > self.free or not self._take(request, tokens):
                break
            self.waiting.popleft()
            self.running.append(request)
            planned.append((request, tokens))
            budget -= tokens
        done = [(request, tokens) for request, tokens in planned if request in self.running]
        for request, tokens in done:
            self._advance(request, tokens)
        return sum(tokens for _, tokens in done)

    def _take(self, request: Request, tokens: int) -> bool:
        needed = self.pool.blocks_per_request(request.computed + tokens) - request.blocks
        if needed > self.free:
            return False
        self.free -= max(needed, 0)
        request.blocks += max(needed, 0)
        return True

    def _grow(self, request: Request, length: int) -> bool:
        """Blocks for a running request; the last ones that run lose theirs where none are left."""
        while not self._take(request, length - request.computed):
            victim = self.running[-1]
            self._preempt(victim)
            if victim is request:
                return False
        return True

    def _preempt(self, victim: Request) -> None:
        self.running.remove(victim)
        self._release(victim)
        victim.computed = 0
        self.preemptions += 1
        self.waiting.appendleft(victim)

    def _release(self, request: Request) -> None:
        self.free += request.blocks
        request.blocks = 0

    def _advance(self, request: Request, tokens: int) -> None:
        before = request.computed
        request.computed += tokens
        if before < request.prompt_tokens:
            self.prompt_total += min(tokens, request.prompt_tokens - before)
        if request.computed < request.length:
            return
        request.produced += 1
        self.output_total += 1
        request.emit(1)
        if request.produced >= request.max_tokens:
            self.running.remove(request)
            self._release(request)
            request.emit(0)
