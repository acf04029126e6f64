from trimol.methods.algorithms import *
from trimol.methods import checks as checks
from trimol.methods._citation import citation as citation
from trimol.methods._gramian import GramianMethod as GramianMethod
from trimol.methods._registry import get as get
from trimol.methods._registry import growth as growth
from trimol.methods._registry import names as names
from trimol.methods._replicated import Replicated as Replicated
from trimol.methods._replicated import replicated as replicated
from trimol.methods._info import Info as Info
from trimol.methods.base import Method as Method
