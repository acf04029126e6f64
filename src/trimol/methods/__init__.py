"""Methods: modules that turn several losses into one scalar. One algorithm a file."""

from trimol.methods.alignedmtl import AlignedMTL
from trimol.methods.base import Info, Method
from trimol.methods.cagrad import CAGrad
from trimol.methods.citation import citation
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
from trimol.methods.registry import get, names
from trimol.methods.replicated import Replicated, replicated
from trimol.methods.rgw import RGW
from trimol.methods.sdmgrad import SDMGrad
from trimol.methods.smg import SMG
from trimol.methods.static import Static
from trimol.methods.stch import STCH
from trimol.methods.upgrad import UPGrad
from trimol.methods.uw import UW

__all__ = [
    "CRMOGM",
    "DWA",
    "FAMO",
    "IMTLG",
    "MGDA",
    "MGDAUB",
    "RGW",
    "SMG",
    "STCH",
    "UW",
    "AlignedMTL",
    "CAGrad",
    "FairGrad",
    "GradNorm",
    "Info",
    "Method",
    "MoCo",
    "MoDo",
    "NashMTL",
    "PCGrad",
    "Preference",
    "Replicated",
    "SDMGrad",
    "Static",
    "UPGrad",
    "citation",
    "get",
    "names",
    "replicated",
]
