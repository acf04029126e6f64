"""All methods, in the order of the documentation: the one list of them."""

from trimol.methods.static import Static as Static
from trimol.methods.mgda import MGDA as MGDA
from trimol.methods.modo import MoDo as MoDo
from trimol.methods.smg import SMG as SMG
from trimol.methods.moco import MoCo as MoCo
from trimol.methods.crmogm import CRMOGM as CRMOGM
from trimol.methods.mgdaub import MGDAUB as MGDAUB
from trimol.methods.gradnorm import GradNorm as GradNorm
from trimol.methods.pcgrad import PCGrad as PCGrad
from trimol.methods.cagrad import CAGrad as CAGrad
from trimol.methods.rgw import RGW as RGW
from trimol.methods.sdmgrad import SDMGrad as SDMGrad
from trimol.methods.famo import FAMO as FAMO
from trimol.methods.fairgrad import FairGrad as FairGrad
from trimol.methods.nashmtl import NashMTL as NashMTL
from trimol.methods.upgrad import UPGrad as UPGrad
from trimol.methods.alignedmtl import AlignedMTL as AlignedMTL
from trimol.methods.imtlg import IMTLG as IMTLG
from trimol.methods.dwa import DWA as DWA
from trimol.methods.uw import UW as UW
from trimol.methods.stch import STCH as STCH
from trimol.methods.preference import Preference as Preference
