from trimol.gradients._effect import effect as effect
from trimol.gradients._product import product as product
from trimol.gradients._rows import gramian as gramian
from trimol.gradients._rows import jacobian as jacobian
from trimol.gradients.evidence import Evidence as Evidence
from trimol.gradients.evidence import NonFinite as NonFinite
from trimol.gradients.evidence import observed as observed
from trimol.gradients.losses import Losses as Losses
