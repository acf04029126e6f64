r"""What an optimizer is going to do with a gradient, before it does it.

A step of every optimizer here is, entry by entry, :math:`x \leftarrow x - (k + S g)`: a part that
is decided before the gradient g is known (momentum, weight decay), and the gradient in the
optimizer's metric. For Adam and its relatives k and S depend on g themselves, by way of the mean of
squares that g is about to join. Each rule gives both for a given g, so that k + S g is the step
that ``optimizer.step()`` takes with it, to rounding; the tests hold them to torch's own.
"""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, optim

from trimol._failures import BadType, BadValue
from trimol.gradients._backward import dense
from trimol.gradients._sharded import whole


class Affine(NamedTuple):
    """x ← x − (known + scale · g), entry by entry."""

    known: Tensor
    scale: Tensor


@dataclass(frozen=True)
class Place:
    """One parameter and what its optimizer holds of it.

    Attributes:
        p: The parameter.
        g: A gradient of it, all of it where the parameter is sharded.
        group: Its group's settings.
        state: What the optimizer remembers of it; empty before its first step.
    """

    p: Tensor
    g: Tensor
    group: Mapping[str, Any]
    state: Mapping[str, Any]

    def value(self, name: str) -> float:
        """A setting that is a number (or a tensor that holds one)."""
        return float(self.group[name])

    def kept(self, name: str) -> Tensor:
        """What is remembered under a name; zeros where nothing is."""
        found = self.state.get(name)
        return torch.zeros_like(self.g) if found is None else dense(whole(found)).to(self.g)

    @property
    def count(self) -> int:
        """The number of the step to come, from 1."""
        return int(self.state.get("step", 0)) + 1

    @property
    def betas(self) -> tuple[float, float]:
        """β₁ and β₂."""
        first, second = self.group["betas"]
        return float(first), float(second)

    @functools.cached_property
    def pulled(self) -> Tensor:
        """The gradient with what weight decay adds to it, where that is not decoupled."""
        decay = self.value("weight_decay")
        return self.g + decay * self._x if decay and not self._decoupled else self.g

    @property
    def shrinkage(self) -> Tensor | None:
        """What decoupled weight decay adds to the step."""
        decay = self.value("weight_decay")
        return self.value("lr") * decay * self._x if decay and self._decoupled else None

    @property
    def _x(self) -> Tensor:
        return whole(self.p.detach()).to(self.g)

    @property
    def _decoupled(self) -> bool:
        return bool(self.group.get("decoupled_weight_decay", False))


Rule = Callable[[Place], Affine]


def _affine(at: Place, momentum: Tensor | None, scale: Tensor | float) -> Affine:
    """The step ``scale`` · (momentum + g + decay) + decoupled decay."""
    wide = torch.as_tensor(scale, dtype=at.g.dtype, device=at.g.device).expand_as(at.g)
    before, pulled = momentum, at.pulled
    if pulled is not at.g:
        before = pulled - at.g if before is None else before + (pulled - at.g)
    known = torch.zeros_like(at.g) if before is None else wide * before
    shrinkage = at.shrinkage
    return Affine(known if shrinkage is None else known + shrinkage, wide)


def _sgd(at: Place) -> Affine:
    """b′ = μb + (1 − τ)(g + decay), the first one g itself; s = α b′, or α(g + μb′) (Nesterov)."""
    lr, mu = at.value("lr"), at.value("momentum")
    if not mu:
        return _affine(at, None, lr)
    first = at.state.get("momentum_buffer") is None
    fresh, before = 1.0 if first else 1 - at.value("dampening"), at.kept("momentum_buffer")
    share = 1 + mu * fresh if at.group["nesterov"] else fresh
    reach = mu * mu if at.group["nesterov"] else mu
    step = _affine(at, None, lr * share)
    return Affine(step.known + lr * reach * before, step.scale)


def _squares(at: Place, beta: float, name: str = "exp_avg_sq") -> Tensor:
    """v′ = βv + (1 − β)(g + decay)²."""
    return torch.addcmul(beta * at.kept(name), at.pulled, at.pulled, value=1 - beta)


def _adam(at: Place) -> Affine:
    """s = α m̂′ / (√v̂′ + ε)."""
    beta1, beta2 = at.betas
    squares = _squares(at, beta2)
    if at.group["amsgrad"]:
        squares = torch.maximum(squares, at.kept("max_exp_avg_sq"))
    root = squares.div_(1 - beta2**at.count).sqrt_().add_(at.value("eps"))
    scale = at.value("lr") / (1 - beta1**at.count) * (1 - beta1) / root
    return _affine(at, beta1 / (1 - beta1) * at.kept("exp_avg"), scale)


def _adamw(at: Place) -> Affine:
    """Adam with decoupled decay, which before torch 2.7 its groups did not say."""
    return _adam(replace(at, group={**at.group, "decoupled_weight_decay": True}))


def _adamax(at: Place) -> Affine:
    """s = α m̂′ / max(β₂ u, |g| + ε)."""
    beta1, beta2 = at.betas
    size = torch.maximum(beta2 * at.kept("exp_inf"), at.pulled.abs() + at.value("eps"))
    scale = at.value("lr") / (1 - beta1**at.count) * (1 - beta1) / size
    return _affine(at, beta1 / (1 - beta1) * at.kept("exp_avg"), scale)


def _nadam(at: Place) -> Affine:
    """Nesterov's Adam: s = α ((1 − μ_t)/(1 − Πμ) g + μ_{t+1}/(1 − Πμ μ_{t+1}) m′) / (√v̂′ + ε)."""
    (beta1, beta2), t = at.betas, at.count
    now, after = (beta1 * (1 - 0.5 * 0.96 ** (i * at.value("momentum_decay"))) for i in (t, t + 1))
    # torch keeps the product of the μ in its default dtype, and rounds it there.
    passed = float(at.state.get("mu_product", torch.ones(())) * now)
    direct, mean = (1 - now) / (1 - passed), after / (1 - passed * after)
    root = (_squares(at, beta2) / (1 - beta2**t)).sqrt() + at.value("eps")
    share = direct + mean * (1 - beta1)
    return _affine(at, mean * beta1 / share * at.kept("exp_avg"), at.value("lr") * share / root)


def _radam(at: Place) -> Affine:
    """Adam whose metric is rectified, and the identity while it is not known well (ρ_t ≤ 5)."""
    (beta1, beta2), t = at.betas, at.count
    scale: Tensor | float = at.value("lr") / (1 - beta1**t) * (1 - beta1)
    most = 2 / (1 - beta2) - 1
    length = most - 2 * t * beta2**t / (1 - beta2**t)
    if length > 5:
        rise = (length - 4) * (length - 2) * most
        rectified = math.sqrt(rise / ((most - 4) * (most - 2) * length))
        root = _squares(at, beta2).sqrt() + at.value("eps")
        scale = scale * rectified * math.sqrt(1 - beta2**t) / root
    return _affine(at, beta1 / (1 - beta1) * at.kept("exp_avg"), scale)


def _rmsprop(at: Place) -> Affine:
    """s = α(μb + g / (√v′ + ε)); centered: v′ less the square of the mean."""
    alpha, lr, mu = at.value("alpha"), at.value("lr"), at.value("momentum")
    squares = _squares(at, alpha, "square_avg")
    if at.group["centered"]:
        mean = alpha * at.kept("grad_avg") + (1 - alpha) * at.pulled
        squares = squares - mean.square()
    step = _affine(at, None, lr / (squares.clamp_min(0).sqrt() + at.value("eps")))
    return Affine(step.known + lr * mu * at.kept("momentum_buffer"), step.scale)


def _adagrad(at: Place) -> Affine:
    """s = α_t g / (√(Σ g²) + ε)."""
    lr = at.value("lr") / (1 + (at.count - 1) * at.value("lr_decay"))
    before = at.kept("sum") if "sum" in at.state else at.value("initial_accumulator_value")
    squares = before + at.pulled.square()
    return _affine(at, None, lr / (squares.sqrt() + at.value("eps")))


_RULES: dict[type[optim.Optimizer], Rule] = {
    optim.SGD: _sgd,
    optim.AdamW: _adamw,
    optim.Adam: _adam,
    optim.Adamax: _adamax,
    optim.NAdam: _nadam,
    optim.RAdam: _radam,
    optim.RMSprop: _rmsprop,
    optim.Adagrad: _adagrad,
}
# Packages whose optimizers hold another, which makes the step.
_WRAPPERS = {"accelerate", "lightning", "pytorch_lightning"}


def rule_of(optimizer: optim.Optimizer) -> Rule:
    """How an optimizer moves; one line where it has no diagonal metric, or one unknown here."""
    kind = type(optimizer)
    for known, rule in _RULES.items():
        if isinstance(optimizer, known) and _own_step(kind) is _own_step(known):
            return rule
    raise BadValue(
        f"optimizer must be one of {', '.join(known.__name__ for known in _RULES)}, whose step is "
        f"the gradient in a diagonal metric, found {kind.__name__}"
    )


def unwrapped(optimizer: Any) -> optim.Optimizer:
    """The torch optimizer itself, from inside what accelerate or Lightning put around it."""
    inside = optimizer
    while type(inside).__module__.partition(".")[0] in _WRAPPERS:
        inside = inside.optimizer
    if not isinstance(inside, optim.Optimizer):
        raise BadType(
            f"optimizer must be a torch.optim.Optimizer, found {type(optimizer).__name__}"
        )
    return inside


def _own_step(kind: type) -> Any:
    """The class's ``step`` below what torch wraps around it when it is first used."""
    step = kind.step  # type: ignore[attr-defined]
    while hasattr(step, "__wrapped__"):
        step = step.__wrapped__
    return step
