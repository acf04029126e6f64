"""Data: batches dealt out as the k draws of one step, and samplers that draw them."""

from trimol.data._draws import Draws, draws, pairs, sizes, split
from trimol.data.domains import Domains
from trimol.data.growing import GrowingBatches
from trimol.data.sampling import IndependentDraws

__all__ = [
    "Domains",
    "Draws",
    "GrowingBatches",
    "IndependentDraws",
    "draws",
    "pairs",
    "sizes",
    "split",
]
