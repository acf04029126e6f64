"""Table 6 and the appendix's: NYU-v2, three tasks on one image; and generated scenes instead of it.

NYU-v2 needs its data and a GPU. `scenes` asks the same of rooms that are generated on the spot, on
two CPU cores: the paper has no such table.
"""

from trimol.paper import _multitask as multitask
from trimol.paper._studies import Context
from trimol.runs.study import Study

_NYU = (
    "The paper's epochs were picked on the test set; here part of the training set is held out for "
    "that, so that ours are trained on fewer images."
)
_SCENES = "Generated rooms, not in the paper: there are no printed numbers to compare with."
_QUICK = "A quick run: a few epochs of a small network, nothing tuned. It shows that it works, not "
_QUICK += "what is true."


def table6(context: Context) -> Study:
    """Table 6: NYU-v2."""
    return _study("table6", "nyuv2", context, _NYU)


def appendix_nyuv2(context: Context) -> Study:
    """The appendix's comparison with other methods on NYU-v2."""
    return _study("table-appendix-nyuv2", "nyuv2", context, _NYU)


def scenes(context: Context) -> Study:
    """Static weighting, MGDA and MoDo on generated scenes."""
    return _study("scenes", "scenes", context, _SCENES)


def _study(name: str, regime: str, context: Context, about: str) -> Study:
    said = [_QUICK, about] if context.quick else [about]
    return multitask.study(name, context, regime, said)
