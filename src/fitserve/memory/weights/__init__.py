"""Bytes of weights that each rank holds, from a checkpoint's configuration and headers."""

from fitserve.memory.weights.rank_weights import rank_weights
from fitserve.memory.weights.ranks import RankWeights

__all__ = ["RankWeights", "rank_weights"]
