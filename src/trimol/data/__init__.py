"""Data: batches dealt out as the k draws of one step, and samplers that draw them."""

from trimol.data.draws import Draws, draws, pairs, sizes, split
from trimol.data.sampling import IndependentDraws

__all__ = ["Draws", "IndependentDraws", "draws", "pairs", "sizes", "split"]
