r"""What regime a training is in, from what was seen of it: one rule, with its thresholds.

The gradients are those of the shared parameters on the training data, in the metric of the
optimizer's steps. Each number has bounds, and counts only as far as these go. At a moment

- two losses *oppose* each other if the cosine of their gradients is at most −`SLIGHT`, and certain
  to be below 0;
- the model is *on the front* (Pareto stationary) if gradients oppose each other and nearly cancel,
  :math:`R_{opt} \le` `CANCEL` :math:`\cdot \sum_m \lambda^*_m \|\nabla f_m\|`, in the optimizer's
  metric or without, or if all are zero;
- one loss *drowns* another if its gradient is certain to be `DROWNS` times as long, and the other
  does not fall along with it (their cosine is certain to be below `ALIGNED`).

The first that holds (several moments at the same step count as one, by their mean):

1. ``scales``: at half of the moments off the front or more the same loss drowns another, and
   wherever losses oppose each other there, its gradient is the longest. Fixed weights mend that.
2. ``direction``: losses oppose each other for certain off the front (R_opt is certain to be above
   0): a direction that lowers all losses exists, and plain training need not take it. Or at least
   `RAISED` of the steps lower one loss of the training data and raise another for certain, and
   noise is not why: the conflict is between the moments.
3. ``stationary``: the model came to the front. No direction lowers all losses; what is left is a
   choice between them, which weights make. (Losses that oppose each other where it cannot be told
   whether that is on the front are a matter of direction, if there is nothing more certain.)
4. ``noise``: at half of the moments the noise of a batch is at least `NOISY` times the squared
   length of a gradient, and whether losses oppose each other cannot be told, or at least `RAISED`
   of the steps raise some loss of the training data for certain.
5. ``none``: nothing of this.

What it cannot tell: what comes after the last moment; whether a method is better (that takes
trials); what happens between moments; and of a conflict that is smaller than the noise, whether it
is there.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Literal

from trimol.errors import Bracket
from trimol.errors._measure import short
from trimol.runs._moments import Geometry, Moment
from trimol.training._tally import percent

Regime = Literal["none", "scales", "direction", "noise", "stationary"]

# A cosine that is nearer to 0 than this is no conflict worth a method.
SLIGHT = 0.1
# Gradients cancel if their shortest combination is so short, relative to the gradients in it.
CANCEL = 0.2
# A gradient that is so many times as long as another drowns it,
DROWNS = 10.0
# unless their cosine is so large: then the other loss falls along with it.
ALIGNED = 0.5
# So many steps that raise a loss of the training data are more than chance.
RAISED = 0.15
# A batch is noisy if its noise has so many times the squared length of the gradient.
NOISY = 1.0
# Of the moments.
HALF = 0.5


@dataclass(frozen=True)
class Shares:
    """The shares of the steps that raise some loss.

    Attributes:
        looked: The steps that were looked at on their own batch.
        batch: The share that raised some loss of it.
        full_looked: The steps that were looked at on the training data.
        full: The share that raised some loss of that for certain.
        full_all: The share that raised all of them.
        undecided: The share of which the samples could not tell.
    """

    looked: int = 0
    batch: float = math.nan
    full_looked: int = 0
    full: float = math.nan
    full_all: float = 0.0
    undecided: float = 0.0

    @property
    def record(self) -> dict[str, float | None]:
        """All of it, ready for JSON."""
        return {k: v if math.isfinite(v) else None for k, v in asdict(self).items()}

    @property
    def traded(self) -> float:
        """The share that raised some loss of the training data and lowered another."""
        return self.full - self.full_all


@dataclass(frozen=True)
class Facts:
    """What is certain at a moment.

    Attributes:
        moment: Where.
        opposed: The pair of losses that oppose each other the most.
        front: Why the model is on the front; empty if it is not known to be.
        drowned: Which loss drowns which.
    """

    moment: Moment
    opposed: tuple[str, str] | None
    front: str
    drowned: tuple[str, str] | None

    @property
    def geometry(self) -> Geometry:
        """As the optimizer's steps have the gradients."""
        return self.moment.stepped


def judge(moments: Sequence[Moment], raised: Shares) -> tuple[Regime, str]:
    """The regime, and why in one sentence.

    Args:
        moments: What was seen, in the order of the training.
        raised: How many of the steps raised some loss.
    """
    facts = [_facts(moment) for moment in moments]
    off = [each for each in facts if not each.front]
    unclear = [each for each in off if each.opposed]
    conflicts = [each for each in unclear if each.geometry.opt.low > 0]
    drowner = _drowner(off, conflicts)
    if drowner:
        return "scales", _said_of_scales(drowner, off)
    if conflicts:
        return "direction", _said_of_conflict(conflicts, facts)
    if len(off) < len(facts):
        return "stationary", _said_of_front(facts)
    if unclear:
        return "direction", _said_of_conflict(unclear, facts)
    noisy = _share(facts, _noisy) >= HALF
    if noisy and (_share(facts, _hidden) >= HALF or raised.full >= RAISED):
        return "noise", _said_of_noise(facts, raised)
    if not noisy and raised.traded >= RAISED:
        return "direction", _said_of_steps(raised)
    return "none", _said_of_none(facts)


def _share(facts: Sequence[Facts], holds: Callable[[Facts], object]) -> float:
    """At which share of the places something holds; all moments of a step are one place."""
    places: dict[object, list[bool]] = {}
    for number, each in enumerate(facts):
        step = each.moment.step
        places.setdefault(("unknown", number) if step is None else step, []).append(
            bool(holds(each))
        )
    return fmean(map(fmean, places.values())) if places else 0.0


def _hidden(facts: Facts) -> bool:
    """Whether noise hides if losses oppose each other."""
    cosines = facts.geometry.cosines.values()
    return not facts.opposed and any(cosine.low <= -SLIGHT for cosine in cosines)


def _noisy(facts: Facts) -> bool:
    return any(noise.value >= NOISY for noise in facts.moment.plain.noise.values())


def _facts(moment: Moment) -> Facts:
    found = moment.stepped
    return Facts(
        moment,
        opposed=_opposed(found),
        # No metric makes a point stationary that is not: the one that tells is enough.
        front=_front(found) or _front(moment.plain),
        drowned=_drowned(found),
    )


def _opposed(found: Geometry) -> tuple[str, str] | None:
    cosine = found.cosines[found.worst]
    return found.worst if cosine.high < 0 and cosine.value <= -SLIGHT else None


def _front(found: Geometry) -> str:
    """Why the model is on the front."""
    if not any(norm.high for norm in found.norms.values()):
        return "all gradients are zero"
    lengths = sum(share * found.norms[name].value for name, share in found.min_norm.items())
    if not _opposed(found) or found.opt.value > CANCEL * lengths:
        return ""
    left = f"to {percent(found.opt.value / lengths)} of their length"
    if found.opt.high > CANCEL * lengths:  # the samples are too few to be sure
        left += f", as far as the samples tell (at most {percent(found.opt.high / lengths)})"
    return f"the gradients cancel, {left}"


def _drowned(found: Geometry) -> tuple[str, str] | None:
    pair = found.longest, found.shortest
    cosine = _cosine(found, *pair)
    return pair if found.ratio.low >= DROWNS and cosine.high < ALIGNED else None


def _drowner(off: Sequence[Facts], conflicts: Sequence[Facts]) -> str | None:
    """The loss that drowns another at half of the moments off the front."""
    for name in dict.fromkeys(each.drowned[0] for each in off if each.drowned):
        share = _share(off, lambda each, name=name: each.drowned and each.drowned[0] == name)  # type: ignore[misc]
        if share >= HALF and all(each.geometry.longest == name for each in conflicts):
            return name
    return None


def _cosine(found: Geometry, first: str, second: str) -> Bracket:
    return found.cosines.get((first, second)) or found.cosines[second, first]


# In words.


def _said_of_scales(drowner: str, off: Sequence[Facts]) -> str:
    where = [each for each in off if each.drowned and each.drowned[0] == drowner]
    found = where[-1].geometry
    return (
        f"{drowner!r} drowns {found.shortest!r}: its gradient is {short(found.ratio.value)} times "
        f"as long (at least {short(found.ratio.low)}) at {where[-1].moment.name}, and so at "
        f"{len(where)} of {len(off)} moments; rescale the losses or tune the weights"
    )


def _said_of_conflict(conflicts: Sequence[Facts], facts: Sequence[Facts]) -> str:
    worst = min(conflicts, key=lambda each: each.geometry.cosines[each.geometry.worst].high)
    found = worst.geometry
    first, second = found.worst
    exists = "exists" if found.opt.low > 0 else "may exist"
    text = (
        f"the gradients of {first!r} and {second!r} oppose each other: cosine "
        f"{_bounded(found.cosines[found.worst])} at {worst.moment.name}, where a direction that "
        f"lowers all losses {exists} (R_opt {_bounded(found.opt)})"
    )
    return _late(facts, text)


def _said_of_front(facts: Sequence[Facts]) -> str:
    last = [each for each in facts if each.front][-1]
    text = (
        f"the model is on the front at {last.moment.name}: {last.front}, so that no direction "
        "lowers all losses, and weights choose between them"
    )
    return _late(facts, text)


def _late(facts: Sequence[Facts], text: str) -> str:
    """With when the conflict came, if it came after the start."""
    first = next(n for n, each in enumerate(facts) if each.opposed or each.front)
    steps = [each.moment.step for each in facts]
    step, last = steps[first], max((step or 0 for step in steps), default=0)
    if not first or (step is not None and step <= HALF * last):
        return text
    return f"conflict appears late (none up to {facts[first - 1].moment.name}): {text}"


def _said_of_steps(raised: Shares) -> str:
    return (
        f"{percent(raised.traded)} of the steps lower one loss of the training data and raise "
        "another, which noise does not explain: the gradients oppose each other between the moments"
    )


def _said_of_noise(facts: Sequence[Facts], raised: Shares) -> str:
    last = [each for each in facts if _noisy(each)][-1].moment
    noise = {name: bracket.value for name, bracket in last.plain.noise.items()}
    noisiest = max(noise, key=lambda name: noise[name])
    known = math.isfinite(noise[noisiest])
    much = f"{short(noise[noisiest])} times" if known else "many times"
    return (
        "the conflict is not larger than the noise: that of a batch has "
        f"{much} the squared length of the gradient of {noisiest!r} at {last.name}, at no moment "
        "do the gradients of all data oppose each other for certain, and "
        f"{percent(raised.full)} of the steps raise some loss of the training data for certain "
        f"({percent(raised.undecided)} cannot be told)"
    )


def _said_of_none(facts: Sequence[Facts]) -> str:
    def least(each: Facts) -> float:
        return min(cosine.low for cosine in each.geometry.cosines.values())

    known = [each for each in facts if least(each) > -SLIGHT]
    text = f"gradients agree at {len(known)} of {len(facts)} checkpoints"
    if known:
        worst = min(known, key=least)
        pair = min(worst.geometry.cosines, key=lambda pair: worst.geometry.cosines[pair].low)
        cosine = worst.geometry.cosines[pair]
        bounds = f"95 % CI {short(cosine.low)} to {short(cosine.high)}"
        text += f" (lowest cosine {short(cosine.value)}, {bounds}, at {worst.moment.name})"
    unknown = len(facts) - len(known)
    if not unknown:
        return text
    others = "the other is" if unknown == 1 else f"the other {unknown} are"
    return f"{text}; {others} too noisy to tell"


def _bounded(bracket: Bracket) -> str:
    """A number and its bounds, in two digits.

    >>> _bounded(Bracket(-0.6, 0.05, -0.712, -0.5))
    '-0.6 (-0.71 to -0.5)'
    """
    return f"{short(bracket.value)} ({short(bracket.low)} to {short(bracket.high)})"


def warned(moments: Sequence[Moment]) -> tuple[str, ...]:
    """What a user should know beside the regime, once each."""
    found = [_trivial(moments), _lengths(moments), _negative(moments)]
    notes = [note for moment in moments for note in moment.notes]
    return tuple(dict.fromkeys([text for text in found if text] + notes))


def _in_corner(moments: Sequence[Moment]) -> list[Moment]:
    """Moments at which λ* is all on a loss whose gradient another's drowns, or would."""
    return [
        moment
        for moment in moments
        if moment.plain.corner == moment.plain.shortest and moment.plain.ratio.low >= DROWNS
    ]


def _trivial(moments: Sequence[Moment]) -> str:
    """Min-norm weights that follow a flat loss while another does not move."""
    for moment in _in_corner(moments):
        found = moment.plain
        if _cosine(found, found.longest, found.shortest).high < ALIGNED:
            return (
                f"MGDA may run to a trivial solution: at {moment.name} λ* is "
                f"{found.min_norm[found.shortest]:.2f} on {found.shortest!r}, whose gradient is "
                f"{short(found.ratio.value)} times shorter than that of {found.longest!r} and "
                "not along it, so that the latter hardly moves"
            )
    return ""


def _lengths(moments: Sequence[Moment]) -> str:
    """Min-norm weights that follow a short gradient along with the others."""
    for moment in _in_corner(moments):
        found = moment.plain
        if _cosine(found, found.longest, found.shortest).low >= ALIGNED:
            return (
                f"λ* is all on {found.shortest!r} at {moment.name}, whose gradient is "
                f"{short(found.ratio.value)} times shorter than that of {found.longest!r}: methods "
                "of the MGDA kind need a step size that much larger"
            )
    return ""


def _negative(moments: Sequence[Moment]) -> str:
    below: Mapping[str, float] = {
        name: value for moment in moments for name, value in moment.losses.items() if value < 0
    }
    if not below:
        return ""
    name, value = next(iter(below.items()))
    return (
        f"the loss {name!r} is negative ({short(value)}): methods that take logarithms or ratios "
        "of losses need losses above 0"
    )
