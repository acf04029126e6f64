from trimol.theory import bounds as bounds
from trimol.theory import rates as rates
from trimol.theory import regions as regions
from trimol.theory._constants import Constants as Constants
from trimol.theory._estimation import Estimates as Estimates
from trimol.theory._estimation import estimate_constants as estimate_constants
from trimol.theory._planning import Plan as Plan
from trimol.theory._planning import plan as plan
