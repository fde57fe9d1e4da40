"""The checks at the end of a trial, and what their failure means for the next one (o: the server, the environment)."""

import os

from fitserve.diagnose.finding import Advice, Diagnosis, Evidence, Stage
from fitserve.fix.options import Options
from fitserve.trial.attempt import Attempt
from fitserve.trial.progress import Progress
from fitserve.verify.options import Options as CheckOptions
from fitserve.verify.run import verify_server
from fitserve.verify.verification import Check, Verification

KEY_VARIABLE = "FITSERVE_TRIAL_API_KEY"
"""Carries the key of the command to the checks."""

_STAGES: dict[str, Stage] = {
    "model-name-unknown": "request",
    "request-too-long": "request",
    "request-never-scheduled": "serving",
    "preemption-thrash": "serving",
}
"""The causes that a check can name by itself."""

_SHORT_OF_CACHE = ("waiting-for-kv-cache", "not-at-once")
"""Requests of the goal that did not run at once: the cache, or the number of sequences, is too small for that load."""


def prove(attempt: Attempt, options: Options, progress: Progress) -> Verification:
    """Ask a served trial everything that its user needs of it; the progress is told each answer.

    Raises:
        UsageError: its address is not one of this machine's.
    """
    address = attempt.address
    if address.api_key is not None:
        os.environ[KEY_VARIABLE] = address.api_key
    most = attempt.launch.value("max_num_seqs")
    return verify_server(
        address.url or "",
        CheckOptions(
            deadline_seconds=options.request_deadline_seconds,
            model=options.model,
            api_key_env=None if address.api_key is None else KEY_VARIABLE,
            ca_file=address.certificate,
            goal_context=options.bounds.goal_context,
            goal_concurrency=options.bounds.goal_concurrency,
            max_num_seqs=most if isinstance(most, int) else None,
            profile="quick",
        ),
        lambda check: progress.tick("checking", attempt.watch.seconds, f"{check.name}: {check.actual}"),
    )


def cause_of_failed_checks(verification: Verification, options: Options, said: Diagnosis) -> Diagnosis:
    """What the failed checks say where the server's log says nothing of a failure.

    Args:
        verification: the checks.
        options: what was wanted.
        said: what the log says: the settings and the memory of the start that served.
    """
    failed = [check for check in verification.checks if check.passed is False]
    first = failed[0]
    cause = _cause(first)
    return Diagnosis(
        stage=_STAGES.get(cause, "serving"),
        cause=cause,
        line=None,
        severity="error",
        confidence="certain" if cause in _STAGES else "possible",
        message=f"the check {first.name} failed: {first.actual}; expected {first.expected}",
        evidence=[Evidence(0, f"{check.name}: {check.actual}") for check in failed],
        vllm_version=verification.server_version or said.vllm_version,
        settings=said.settings,
        budget=said.budget,
        advice=_advice(cause, verification, options),
    )


def _cause(check: Check) -> str:
    """The cause behind a failed check; ``unrecognised-error`` where it is none of the known ones."""
    if check.error_type in _SHORT_OF_CACHE:
        return "preemption-thrash"
    return check.error_type if check.error_type in _STAGES else "unrecognised-error"


def _advice(cause: str, verification: Verification, options: Options) -> list[Advice]:
    length, goal = verification.max_model_len, options.bounds.goal_context
    if cause == "model-name-unknown" and options.model is not None:
        served = ", ".join(verification.served_names)
        return [
            Advice(
                flag="served_model_name",
                value_from=served,
                to=options.model,
                direction="set",
                why=f"clients will send {options.model}, and the served name is {served}",
            )
        ]
    if cause == "request-too-long" and goal is not None and length is not None and length < goal:
        return [
            Advice(
                flag="max_model_len",
                value_from=length,
                to=goal,
                direction="up",
                cost="capacity",
                why=f"a request of {goal:,} tokens is the goal, and max_model_len is {length:,}",
            )
        ]
    return []
