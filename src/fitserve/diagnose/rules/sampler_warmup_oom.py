"""Out of memory in the sampler's dummy run: ``max_num_seqs`` rows of logits over the whole vocabulary.

Source: vLLM 0.8.0 to 0.33.0, ``v1/worker/gpu_model_runner.py``, ``_dummy_sampler_run``.
"""

from fitserve.diagnose.arithmetic import utilization
from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import avoid, change
from fitserve.diagnose.usage import sentence
from fitserve.memory.history import default_utilization

CAUSE = "sampler-warmup-oom"
STAGE = "warmup"


def judge(situation: Situation) -> Finding:
    """Name the requests of the dummy run, and make them fewer."""
    requests = situation.number("dummy_requests") or situation.case.whole("max_num_seqs")
    text = f"the sampler is warmed up with {requests:,} requests" if requests else "the sampler is warmed up"
    now = utilization(situation)
    lower = min(default_utilization(situation.version), round(now - 0.05, 2))
    sequences = requests or 256
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=sentence(situation.event, text),
        event=situation.event,
        advice=[
            *change(
                situation,
                "max_num_seqs",
                max(sequences // 4 if sequences > 256 else sequences // 2, 1),
                "down",
                "capacity",
                "the logits of the dummy run grow with max_num_seqs x vocabulary, in several copies",
            ),
            *change(
                situation,
                "gpu_memory_utilization",
                lower,
                "down",
                "capacity",
                f"the run comes out of what {now:g} leaves",
            ),
        ],
        not_advised=[
            avoid(
                "gpu_memory_utilization", "up", "the cache would take still more of what the sampler needs"
            ),
            avoid("enforce_eager", "set", "the sampler's logits are the same without graphs"),
            avoid("max_model_len", "down", "the dummy run has one token a request"),
        ],
    )
