from trimol.data._draws import Draws as Draws
from trimol.data._draws import draws as draws
from trimol.data._draws import pairs as pairs
from trimol.data._draws import sizes as sizes
from trimol.data._draws import split as split
from trimol.data.domains import Domains as Domains
from trimol.data.growing import GrowingBatches as GrowingBatches
from trimol.data.sampling import IndependentDraws as IndependentDraws
