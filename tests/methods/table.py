"""One row per method: settings that make it move, and what its mathematics promises.

Adding a method means adding its row: `test_base.py` and `test_distributed.py` do the rest.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import Tensor

import trimol
from trimol.methods import Method
from trimol.testing import Row, Step


def with_representation(method: Method, step: Step) -> Tensor:
    """The representation that the heads share is named in the call."""
    scalar: Tensor = method(*step.losses, representation=step.shared[0])
    return scalar


def preferring(
    kind: type[Method], keyword: str = "prefer", point: Sequence[float] = (2.4, 1.0, 1.0)
) -> Callable[..., Method]:
    """The method with a preference for which the weights of the kit's three losses change.

    Without one, the worst of them is always the same, or none opposes the mean gradient.
    """
    make = partial(_with_preference, kind, keyword, point)
    make.draws, make.__name__ = kind.draws, kind.__name__
    return make


def _with_preference(
    kind: type[Method],
    keyword: str,
    point: Sequence[float],
    params: Any,
    objectives: Any,
    **options: Any,
) -> Method:
    given = point if objectives == len(point) else None
    return kind(params, objectives, **{keyword: given, **options})


TABLE: dict[str, Row] = {
    "static": Row(trimol.Static, sees=False),
    "mgda": Row(trimol.MGDA, conflict_free=True, stationary="weakly"),
    "modo": Row(trimol.MoDo, settings={"gamma": 0.1}, degree=None),
    "smg": Row(trimol.SMG, conflict_free=True, stationary="weakly"),
    "crmogm": Row(trimol.CRMOGM),
    "sdmgrad": Row(trimol.SDMGrad, settings={"gamma": 0.1}, moves_on=slice(2, 3), degree=None),
    "famo": Row(trimol.FAMO),
    "cagrad": Row(trimol.CAGrad, total="any", alone="parallel"),
    "moco": Row(trimol.MoCo, combines=False, conflict_free=True, stationary="weakly"),
    "mgdaub": Row(trimol.MGDAUB, stationary="weakly", call=with_representation),
    "dwa": Row(trimol.DWA, settings={"period": 1}, moves_with="old"),
    "uw": Row(
        trimol.UW,
        settings={"lr": 0.1},
        total="any",
        moves_with="old",
        alone="parallel",
        degree=None,
    ),
    "imtll": Row(
        trimol.IMTLL,
        settings={"lr": 0.1},
        total="any",
        moves_with="old",
        alone="parallel",
        degree=None,
    ),
    "gls": Row(trimol.GLS, total="any"),
    "softadapt": Row(trimol.SoftAdapt, settings={"beta": 1.0}, degree=None),
    "relobralo": Row(trimol.ReLoBRaLo, settings={"alpha": 0.5}, total="objectives"),
    # One objective is the residual, so that permuting them is another problem.
    "lra": Row(trimol.LRA, total="any", equivariant=False),
    "ntk": Row(trimol.NTK, total="any"),
    "config": Row(trimol.ConFIG, total="any", signed=True, rowwise="ray"),
    # Objectives take turns; Adam's step is a part of it: about the sign of the gradient at first.
    "mconfig": Row(
        trimol.MConFIG,
        total="any",
        signed=True,
        combines=False,
        equivariant=False,
        degree=None,
        alone="nothing",
    ),
    "dualproj": Row(
        preferring(trimol.DualProj, "preference", (1.0, 0.0, 0.0)),
        total="any",
        conflict_free=True,
        stationary="strongly",
        equivariant=False,
    ),
    "gradvac": Row(trimol.GradVac, total="any", equivariant=False),
    "graddrop": Row(trimol.GradDrop, total="any", combines=False),
    "excessmtl": Row(trimol.ExcessMTL, settings={"lr": 0.1}),
    "stch": Row(trimol.STCH, degree=None),
    "tchebycheff": Row(preferring(trimol.Tchebycheff), total="any", equivariant=False),
    "pbi": Row(trimol.PBI, total="any", signed=True),
    # A linear program has several solutions where gradients depend on each other.
    "epo": Row(preferring(trimol.EPO), equivariant=False),
    "pmgda": Row(trimol.PMGDA, total="any", signed=True, equivariant=False),
    "hvgrad": Row(trimol.HVGrad),
    "upgrad": Row(trimol.UPGrad, total="any", conflict_free=True, stationary="strongly"),
    "pcgrad": Row(trimol.PCGrad, total="any", equivariant=False),
    "imtlg": Row(trimol.IMTLG, signed=True, rowwise="line", stationary="strongly"),
    "alignedmtl": Row(trimol.AlignedMTL, total="any", signed=True),
    "nashmtl": Row(
        trimol.NashMTL,
        total="any",
        conflict_free=True,
        stationary="weakly",
        degree=0.0,
        rowwise="ray",
        alone="parallel",
    ),
    "fairgrad": Row(
        trimol.FairGrad,
        total="any",
        conflict_free=True,
        stationary="weakly",
        degree=-1 / 3,
        alone="parallel",
    ),
    "gradnorm": Row(
        trimol.GradNorm,
        settings={"lr": 0.1},
        total="objectives",
        moves_with="old",
        degree=None,
    ),
    # Bounds are told by number, so that permuting the objectives is another problem.
    "preference": Row(
        trimol.Preference,
        settings={"bounds": {0: 0.5}, "kappa": 9.0},
        equivariant=False,
        degree=None,
    ),
    "rgw": Row(trimol.RGW, equivariant=False),
}


def observe(method: Method, step: Step) -> None:
    """The line that some methods want after the optimizer's step."""
    method.observe(*step.losses)


# Settings that take another way through a method's code, or change what it promises.
VARIANTS: dict[str, Row] = {
    "mgda-rho": TABLE["mgda"].variant(
        settings={"rho": 0.1}, conflict_free=False, stationary="zero", degree=None
    ),
    "mgda-normalised": TABLE["mgda"].variant(
        settings={"normalize": "loss+"}, conflict_free=False, stationary="zero", degree=None
    ),
    # Steps of 10, where 2 over the largest eigenvalue converges: rounding decides between equals.
    "sdmgrad-authors": TABLE["sdmgrad"].variant(
        settings={"gamma": 10.0, "inner": 20, "momentum": 0.5, "normalize": True},
        equivariant=False,
    ),
    "preference-progress": TABLE["preference"].variant(
        settings={"bounds": None, "progress": {0: 0.5}}, degree=1.0
    ),
    # Three objectives leave one product a step: some are solved by it, some exactly.
    "mgda-products": TABLE["mgda"].variant(settings={"solver": "products", "gap": 0.3}),
    "mgda-chunk": TABLE["mgda"].variant(settings={"chunk": 2}),
    "modo-simultaneous": TABLE["modo"].variant(settings={"simultaneous": True}, moves_with="old"),
    "modo-three-draws": TABLE["modo"].variant(settings={"draws": 3}, moves_on=slice(2, 3)),
    "crmogm-mgda": TABLE["crmogm"].variant(
        settings={"alpha": 0.0}, conflict_free=True, stationary="weakly"
    ),
    "famo-observed": TABLE["famo"].variant(settings={"adam": False}, after=observe),
    "moco-gamma": TABLE["moco"].variant(
        settings={"gamma": 0.1, "rho": 0.1, "zero_start": True},
        conflict_free=False,
        stationary="zero",
        degree=None,
        alone="parallel",
    ),
    "mgdaub-without": Row(trimol.MGDAUB, conflict_free=True, stationary="weakly"),
    "cagrad-wide": TABLE["cagrad"].variant(
        settings={"c": 1.0}, conflict_free=True, stationary="strongly"
    ),
    # Never by products, three objectives being too few; but by their code.
    "cagrad-products": TABLE["cagrad"].variant(settings={"solver": "products"}),
    "mgda-length": TABLE["mgda"].variant(settings={"length": "mean gradient"}),
    "modo-length": TABLE["modo"].variant(settings={"length": "mean gradient", "heads": "weighted"}),
    "modo-simultaneous-length": TABLE["modo"].variant(
        settings={"simultaneous": True, "length": "mean gradient"}, moves_with="old"
    ),
    "moco-length": TABLE["moco"].variant(settings={"length": "mean gradient", "heads": "weighted"}),
    "famo-length": TABLE["famo"].variant(
        settings={"length": "mean gradient", "max_norm": 0.5}, degree=None, alone="parallel"
    ),
    "fairgrad-clipped": TABLE["fairgrad"].variant(
        settings={"max_norm": 0.5, "chunk": 2, "heads": "weighted"}, degree=None
    ),
    "softadapt-normalized": TABLE["softadapt"].variant(
        settings={"variant": "normalized"}, degree=1.0
    ),
    "softadapt-weighted": TABLE["softadapt"].variant(settings={"variant": "loss weighted"}),
    "mconfig-direction": TABLE["mconfig"].variant(
        settings={"beta2": None}, degree=1.0, rowwise="ray", alone="plain"
    ),
    "graddrop-leak": TABLE["graddrop"].variant(settings={"length": "mean gradient", "seed": 1}),
    "gradnorm-sequential": TABLE["gradnorm"].variant(
        settings={"simultaneous": False}, moves_with="new"
    ),
}

ROWS = TABLE | VARIANTS
