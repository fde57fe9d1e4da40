"""(o) The goal: N requests of its length at once, and as many at full length."""

import msgspec

from fitserve.verify.load import run_step, step_check
from fitserve.verify.options import MAX_IN_FLIGHT
from fitserve.verify.prompts import Prompts
from fitserve.verify.session import Session
from fitserve.verify.steps import UNPROVEN, Step, judge_together
from fitserve.verify.verification import Check
from fitserve.verify.workload import Size

PREFILL_TOKENS_PER_STEP = 2048
"""Prompt tokens that vLLM reads in one engine step where it reads least (TPUs aside) and is not told otherwise.

Source: vLLM 0.32.0 ``engine/arg_utils.py`` ``get_batch_defaults``, API server, devices below 70 GiB and CPUs.
"""

_TOO_MANY = f"no more than {MAX_IN_FLIGHT:,} requests are sent at once"
_NOT_FITTED = "no prompt of exactly that many tokens could be fitted"


MIN_TOGETHER_TOKENS = 64
"""Output that outlasts the arrival of many requests: on a fast engine a few tokens are over before the next one is parsed."""


def together_shape(total_tokens: int, concurrency: int) -> tuple[int, int]:
    """Prompt and output of requests that are to be seen running at once.

    The first must still be generating when the last prompt has been read, so the output has twice as many tokens as there
    are engine steps of reading; at most half of the request.
    """
    reading_steps = concurrency * -(-total_tokens // PREFILL_TOKENS_PER_STEP)
    out = max(1, min(max(2 * reading_steps, MIN_TOGETHER_TOKENS), total_tokens // 2))
    return max(1, total_tokens - out), out


LONGER = 4
"""Times the output of a second try, where the first may just have been over too soon."""


async def _run_together(session: Session, prompts: Prompts, number: int, total_tokens: int) -> Step | None:
    """So many requests of that length at once; once more with a longer output where nothing explains that they did not overlap."""
    prompt, out = together_shape(total_tokens, number) if prompts.generates else (total_tokens, 0)
    step = await run_step(session, prompts, number, [Size(prompt_tokens=prompt, output_tokens=out)] * number)
    longer = min(LONGER * out, total_tokens // 2)
    if step is None or longer <= out or judge_together(step)[0] != "not-at-once":
        return step
    again = Size(prompt_tokens=total_tokens - longer, output_tokens=longer)
    return await run_step(session, prompts, number, [again] * number)


def _record(session: Session, check: Check) -> None:
    """Keep a check; where the requests took less than they were to take, it has proven nothing, and failed nothing."""
    unproven = check.error_type in UNPROVEN
    session.record(msgspec.structs.replace(check, passed=None) if unproven else check)


async def check_goal(session: Session, prompts: Prompts) -> Step | None:
    """N requests of the goal's length at once."""
    context, length = session.options.goal_context, session.served.max_model_len
    number = session.options.goal_concurrency or 1
    if context is None:
        session.skip("goal-length", "N at once of the goal's length", "no --goal-context is given")
        return None
    expected = f"{number} at once of {context:,} tokens: all answered, none preempted"
    if length is not None and context > length:
        session.record(
            Check(
                name="goal-length",
                passed=False,
                expected=expected,
                actual=f"max_model_len {length:,} is below the goal",
                concurrency=number,
                error_type="request-too-long",
            )
        )
        return None
    if number > MAX_IN_FLIGHT:
        session.skip("goal-length", expected, _TOO_MANY)
        return None
    step = await _run_together(session, prompts, number, context)
    if step is None:
        session.skip("goal-length", expected, _NOT_FITTED)
        return None
    error_type, actual = judge_together(step)
    _record(session, step_check("goal-length", step, expected, actual, error_type))
    return step


async def check_full_length(session: Session, prompts: Prompts, goal: Step | None) -> Step | None:
    """As many at once, each as long as the server allows.

    Where the goal is shorter, this is asked for knowledge: a no is no failure then.
    """
    options, length, name = session.options, session.served.max_model_len, "full-length"
    number = options.goal_concurrency
    if number is None or length is None:
        missing = "no --goal-concurrency is given" if number is None else "max_model_len is not known"
        session.skip(name, "N at once of max_model_len tokens", missing)
        return None
    expected = f"{number} at once of {length:,} tokens: all answered, none preempted"
    beyond = options.goal_context is not None and options.goal_context < length
    if beyond and options.profile == "quick":
        session.skip(name, expected, "it is beyond the goal, and the quick profile does not ask")
        return None
    if number > MAX_IN_FLIGHT:
        session.skip(name, expected, _TOO_MANY)
        return None
    same = goal is not None and options.goal_context == length
    step = goal if same else await _run_together(session, prompts, number, length)
    if step is None:
        session.skip(name, expected, _NOT_FITTED)
        return None
    error_type, actual = judge_together(step)
    if same:
        actual = "the same requests as goal-length, and the same answer"
    check = step_check(name, step, expected, actual, error_type)
    if beyond and error_type is not None:
        check = msgspec.structs.replace(check, passed=None, actual=f"longer than the goal, and no: {actual}")
    _record(session, check)
    return step
