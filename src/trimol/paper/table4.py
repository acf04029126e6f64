"""Tables 4 and 5, and the appendix's: Office-31 and Office-Home, one domain an objective.

Two regimes, one code path. *Frozen*: features of a pretrained MobileNetV2, computed once, and the
neck and heads trained on them; two CPU cores are enough. *Finetune*: ResNet-18 trained end to end
at 224 pixels, as in the paper; for a GPU.
"""

from trimol.paper import _multitask as multitask
from trimol.paper._studies import Context
from trimol.runs.study import Study

_FROZEN = (
    "Frozen regime: a neck and heads trained on features of an ImageNet MobileNetV2 that stays as "
    "it is. The paper trains ResNet-18 end to end (--regime finetune): its numbers beside ours are "
    "of another experiment, and are not judged."
)
_FINETUNE = "Finetune regime: the whole network is trained, as in the paper."
_QUICK = "A quick run: a few epochs, nothing tuned{}. It shows that it works, not what is true."
_SMALLER = "; a smaller network on smaller images than without --quick"


def table4(context: Context) -> Study:
    """Table 4: Office-31."""
    return _study("table4", context)


def table5(context: Context) -> Study:
    """Table 5: Office-Home."""
    return _study("table5", context)


def appendix_office31(context: Context) -> Study:
    """The appendix's comparison with other methods on Office-31."""
    return _study("table-appendix-office31", context)


def appendix_officehome(context: Context) -> Study:
    """The appendix's comparison with other methods on Office-Home."""
    return _study("table-appendix-officehome", context)


def _study(name: str, context: Context) -> Study:
    about = _FROZEN if context.regime == "frozen" else _FINETUNE
    smaller = "" if context.regime == "frozen" else _SMALLER
    said = [_QUICK.format(smaller), about] if context.quick else [about]
    return multitask.study(name, context, context.regime, said)
