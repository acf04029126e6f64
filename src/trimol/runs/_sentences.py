"""What a verdict comes to, in a sentence for a person."""

import math
from collections.abc import Sequence
from dataclasses import replace

from trimol.runs._significance import too_few
from trimol.runs.verdict import Gain, Verdict

NAMED = 3  # metrics in a sentence
LARGE = 0.1  # a limit above this share is not much of one: the seeds are too few
_ADVICE = {
    "none": "Stay with static weights: the losses do not conflict",
    "scales": "Rescale the losses, or tune static weights, before any method",
    "direction": "Gradients oppose each other, so that a method may help: only a trial can tell",
    "noise": "Conflict is not larger than the noise of the batches: larger batches come first",
    "stationary": "Training seems at rest: no small step lowers all losses, whatever weighs them",
}


def advice(regime: str, reason: str) -> str:
    """What a look alone can say."""
    return (
        f"{_ADVICE[regime]}. Seen: {reason}. No method was tried; conflict that comes later in "
        "training was not seen."
    )


def compared(verdict: Verdict, errors: Verdict) -> list[str]:
    """What the rule makes of runs that nobody tuned: what differs beyond noise, nothing advised."""
    if not verdict.gains:
        return []
    if verdict.fixed and (errors.fixed or not errors.gains):
        return [_capital(_without_noise(verdict)) + "."]
    kinds = {method: verdict.kind(method) for method in verdict.methods}
    told = [_won(verdict, m) for m, kind in kinds.items() if kind == "wins"]
    told += [_traded(verdict, m) for m, kind in kinds.items() if kind == "trades"]
    worse = [_lost(verdict, m) for m, kind in kinds.items() if kind == "loses"]
    if not told:
        told = [_no_better(verdict, than=f" than {verdict.baseline}")]
    return [_capital("; ".join([*told, *worse])) + ".", *_errors(errors)]


def _without_noise(verdict: Verdict) -> str:
    """What runs come to in which nothing is random: the differences are what they are."""
    own = {
        method: [change(replace(gain, ci=None)) for gain in verdict.of(method)]
        for method in verdict.methods
    }
    told = "; ".join(f"{method} {_listed(texts)}" for method, texts in own.items())
    return (
        f"all {verdict.gains[0].n} seeds gave the same numbers: chance plays no part here, there "
        "is no noise to judge by, and more seeds would add nothing. Beside "
        f"{verdict.baseline}: {told}"
    )


def _errors(errors: Verdict) -> list[str]:
    """Which errors differ from the baseline's, beyond noise."""
    clear = [gain for gain in errors.gains if gain.clear]
    if not errors.gains or all(gain.p is None for gain in errors.gains):
        return []
    if not clear:
        return ["No error differs beyond noise."]
    by_method: dict[str, list[str]] = {}
    for gain in clear:
        by_method.setdefault(gain.method, []).append(change(gain))
    own = [f"{method}: {', '.join(texts)}" for method, texts in by_method.items()]
    return [f"Errors that differ from {errors.baseline}'s beyond noise: {'; '.join(own)}."]


def _lost(verdict: Verdict, method: str) -> str:
    worse = [change(gain) for gain in _largest(verdict.of(method)) if gain.worse]
    return f"{method} is worse than {verdict.baseline} ({_listed(worse)})"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:] if text.startswith(("no ", "all ")) else text


def percent(share: float) -> str:
    """A share that is not exceeded, in per cent: rounded up to two digits.

    >>> percent(0.00401), percent(0.123), percent(12.31), percent(0.0)
    ('0.41 %', '13 %', '1300 %', '0 %')
    """
    if not share or not math.isfinite(share):
        return "0 %" if not share else "∞ %"
    unit = 10.0 ** (math.floor(math.log10(100 * share)) - 1)
    shown = math.ceil(round(100 * share / unit, 9)) * unit
    return f"{shown:.0f} %" if shown >= 100 else f"{shown:.3g} %"


def change(gain: Gain) -> str:
    """A metric's difference from the baseline's, with its interval.

    >>> change(Gain("a", "loss", "lower", 2.0, 0.25, 0.012, 0.1, 5, 0.01))
    'loss −0.250 ± 0.012'
    """
    digits = 3
    if gain.ci:
        digits = max(0, 1 - math.floor(math.log10(gain.ci)))
    half = "" if gain.ci is None else f" ± {_fixed(gain.ci, digits)}"
    sign = "+" if gain.change >= 0 else "−"
    return f"{gain.metric} {sign}{_fixed(abs(gain.change), digits)}{half}"


def _fixed(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if digits <= 6 else f"{value:.2e}"


def _no_better(verdict: Verdict, than: str = "") -> str:
    """That no method is better, and what cannot be excluded."""
    limit = verdict.limit
    if not verdict.gains:
        return "no method came to an end"
    if few := too_few(max(gain.n for gain in verdict.gains), verdict.comparisons):
        return few
    if limit is None or limit.most is None:
        return "no difference is a number"
    name = "no method is" if len(verdict.methods) > 1 else f"{verdict.methods[0]} is not"
    most = limit.most
    if most > LARGE:
        # More than all of it is no size: an interval that wide says that the seeds are too few.
        how_much = f"a gain of {percent(most)}" if most < 1 else "a large gain"
        return (
            f"{name} better{than} beyond noise, though {limit.n} seeds cannot exclude "
            f"{how_much} on {limit.metric}"
        )
    return f"{name} better{than}{f' by more than {percent(most)}' if most else ''} on any metric"


def _won(verdict: Verdict, method: str) -> str:
    better = [change(gain) for gain in _largest(verdict.of(method)) if gain.better]
    return f"{method} is better than {verdict.baseline} beyond noise ({_listed(better)})"


def _traded(verdict: Verdict, method: str) -> str:
    own = _largest(verdict.of(method))
    if worse := [change(gain) for gain in own if gain.worse]:
        better = [change(gain) for gain in own if gain.better]
        return f"{method} trades {_listed(better)} for {_listed(worse)}"
    perhaps = [change(gain) for gain in own if gain.may_be_worse]
    return f"{_won(verdict, method)}, but may be worse elsewhere ({_listed(perhaps)})"


def _largest(gains: Sequence[Gain]) -> list[Gain]:
    return sorted(gains, key=lambda gain: -abs(gain.share))


def _listed(texts: Sequence[str]) -> str:
    shown = list(texts[:NAMED])
    more = len(texts) - len(shown)
    return ", ".join([*shown, f"{more} more"] if more else shown)
