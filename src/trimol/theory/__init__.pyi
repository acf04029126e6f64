from trimol.theory import bounds as bounds
from trimol.theory import rates as rates
from trimol.theory import regions as regions
from trimol.theory.constants import Constants as Constants
from trimol.theory.estimation import Estimates as Estimates
from trimol.theory.estimation import estimate as estimate
from trimol.theory.planning import Plan as Plan
from trimol.theory.planning import plan as plan
