"""What a log shows of a start's memory: of the rank that shows most."""

from pathlib import Path

import pytest

from fitserve.diagnose.engine import diagnose_path
from fitserve.plan.from_log import calibrate
from fitserve.units import GIB

ONLY_THE_FIRST_RANK_PRINTS_ITS_CACHE = """\
(APIServer pid=1) INFO 11-30 09:13:01 [utils.py:253] non-default args: {'model': 'm', 'tensor_parallel_size': 2}
(EngineCore pid=9) INFO 11-30 09:13:01 [core.py:96] Initializing a V1 LLM engine (v0.24.0) with config: model='m', max_seq_len=4096
(Worker_TP1 pid=11) INFO 11-30 09:13:21 [model_runner.py:302] Model loading took 7.51 GiB memory and 9.5 seconds
(Worker_TP0 pid=10) INFO 11-30 09:13:21 [model_runner.py:302] Model loading took 7.52 GiB memory and 9.5 seconds
(Worker_TP0 pid=10) INFO 11-30 09:13:31 [gpu_worker.py:508] Available KV cache memory: 12.34 GiB
(EngineCore pid=9) INFO 11-30 09:13:32 [kv_cache_utils.py:2146] GPU KV cache size: 202,176 tokens
(Worker_TP1 pid=11) INFO 11-30 09:13:41 [model_runner.py:726] Graph capturing finished in 6 secs, took 1.09 GiB
(Worker_TP0 pid=10) INFO 11-30 09:13:41 [model_runner.py:726] Graph capturing finished in 6 secs, took 1.09 GiB
"""


def test_the_rank_that_prints_its_cache_counts(tmp_path: Path) -> None:
    """Of several ranks newer releases let the first alone print the cache's memory."""
    log = tmp_path / "serve.log"
    log.write_text(ONLY_THE_FIRST_RANK_PRINTS_ITS_CACHE, encoding="utf-8")
    observed = calibrate(diagnose_path(log), "serve.log").observed

    assert observed.kv_cache_bytes is not None
    assert observed.kv_cache_bytes.expected / GIB == pytest.approx(12.34, abs=0.001)
    assert observed.terms["weights_bytes"].expected / GIB == pytest.approx(7.52, abs=0.001)
