"""Methods by name."""

from trimol.methods.alignedmtl import AlignedMTL
from trimol.methods.base import Method
from trimol.methods.cagrad import CAGrad
from trimol.methods.crmogm import CRMOGM
from trimol.methods.dwa import DWA
from trimol.methods.fairgrad import FairGrad
from trimol.methods.famo import FAMO
from trimol.methods.gradnorm import GradNorm
from trimol.methods.imtlg import IMTLG
from trimol.methods.mgda import MGDA
from trimol.methods.mgdaub import MGDAUB
from trimol.methods.moco import MoCo
from trimol.methods.modo import MoDo
from trimol.methods.nashmtl import NashMTL
from trimol.methods.pcgrad import PCGrad
from trimol.methods.preference import Preference
from trimol.methods.rgw import RGW
from trimol.methods.sdmgrad import SDMGrad
from trimol.methods.smg import SMG
from trimol.methods.static import Static
from trimol.methods.stch import STCH
from trimol.methods.upgrad import UPGrad
from trimol.methods.uw import UW

_METHODS: dict[str, type[Method]] = {
    "static": Static,
    "mgda": MGDA,
    "modo": MoDo,
    "smg": SMG,
    "moco": MoCo,
    "crmogm": CRMOGM,
    "mgdaub": MGDAUB,
    "gradnorm": GradNorm,
    "pcgrad": PCGrad,
    "cagrad": CAGrad,
    "rgw": RGW,
    "sdmgrad": SDMGrad,
    "famo": FAMO,
    "fairgrad": FairGrad,
    "nashmtl": NashMTL,
    "upgrad": UPGrad,
    "alignedmtl": AlignedMTL,
    "imtlg": IMTLG,
    "dwa": DWA,
    "uw": UW,
    "stch": STCH,
    "preference": Preference,
}


def names() -> list[str]:
    """The names of all methods, in the order of the documentation.

    >>> names()[:3]
    ['static', 'mgda', 'modo']
    """
    return list(_METHODS)


def get(name: str) -> type[Method]:
    """The method's class.

    >>> get("modo")
    <class 'trimol.methods.modo.MoDo'>
    """
    if name not in _METHODS:
        raise ValueError(f"name must be one of {', '.join(_METHODS)}, found {name!r}")
    return _METHODS[name]
