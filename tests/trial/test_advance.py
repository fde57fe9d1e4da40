"""How far a start is, from the bars that vLLM prints."""

import pytest

from fitserve.trial.advance import advance_after

BARS = [
    (b"Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:01<00:01,  1.2s/it]\n", "weights 50%"),
    (b"\rLoading pt checkpoint shards: 100% Completed | 2/2 [00:02<00:00,  1.2s/it]\n", "weights 100%"),
    (b"Multi-thread loading shards:   7% Completed | 3/41 [00:02<00:30,  1.2s/it]\n", "weights 7%"),
    (
        b"(Worker_TP0 pid=7) Loading safetensors using Runai Model Streamer:  9% Completed | 1/11\n",
        "weights 9%",
    ),
    (
        b"\rCapturing CUDA graphs (mixed prefill-decode, PIECEWISE):  45%|\xe2\x96\x88   | 30/67 [00:02<00:02]",
        "graphs 30/67",
    ),
    (b"\rCapturing CUDA graphs (decode, FULL): 100%|####| 35/35 [00:02<00:00]", "graphs 35/35"),
    (b"Capturing CUDA graph shapes:   0%|          | 0/35 [00:00<?, ?it/s]", "graphs 0/35"),
    (b"[backends.py:1] Dynamo bytecode transform time: 7.11 s\n", "torch.compile"),
    (b"Capturing CUDA graphs (decode, FULL):   3%|", ""),
    (b"INFO 12-01 nothing of this kind 50% Completed\n", ""),
]


@pytest.mark.parametrize(("output", "advance"), BARS, ids=range(len(BARS)))
def test_a_bar_is_read(output: bytes, advance: str) -> None:
    """Whether its line has ended or is written over."""
    assert advance == advance_after("", output)


def test_the_newest_bar_counts_and_goes_with_its_stretch() -> None:
    """Words between bars change nothing; the line that ends a stretch takes the bar away."""
    first, last = (
        b"Loading safetensors checkpoint shards: %3d%% Completed | x\n" % share for share in (0, 75)
    )

    assert "weights 75%" == advance_after("", first + b"words\n" + last)
    assert "weights 75%" == advance_after("weights 75%", b"other words\n")
    assert "" == advance_after("weights 100%", b"INFO [x.py:1] Loading weights took 1.50 seconds\n")
    assert "" == advance_after("torch.compile", b"INFO [monitor.py:1] torch.compile took 9.00 s in total\n")
