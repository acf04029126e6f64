"""Curvature of one loss: Hessian-vector products, and the ends of the Hessian's spectrum.

A Hessian-vector product is a backward through the recorded gradient: two backwards, no Hessian.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from trimol._checks import count
from trimol._failures import BadValue
from trimol.gradients._autocast import no_autocast
from trimol.gradients._backward import pulled
from trimol.gradients._params import checked, trainable

# A Krylov space is used up when the next direction is this short, relative to the spectrum.
_USED_UP = 1e-10


class Hessian:
    """The Hessian of a scalar loss with respect to parameters, as a map on flat vectors.

    Parameters that the loss does not reach, or reaches linearly, have zero rows. The loss's graph
    is kept until this is dropped.

    Args:
        loss: A scalar with a graph that can be differentiated twice.
        params: The parameters; a vector's entries are theirs, in order.

    Example:
        >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> hessian = Hessian(x[0] ** 2 * x[1], [x])
        >>> hessian @ torch.tensor([1.0, 0.0])
        tensor([4., 2.])
    """

    def __init__(self, loss: Tensor, params: Iterable[Tensor]) -> None:
        if loss.numel() != 1:
            raise BadValue(f"loss must be a scalar, found shape {tuple(loss.shape)}")
        self.params = trainable(checked(params))
        self.size = sum(p.numel() for p in self.params)
        with torch.enable_grad(), no_autocast():
            self.gradients = torch.autograd.grad(
                loss.reshape(()), self.params, create_graph=True, allow_unused=True
            )

    def __matmul__(self, vector: Tensor) -> Tensor:
        if vector.shape != (self.size,):
            raise BadValue(
                f"vector must have {self.size} entries, one per parameter, found shape "
                f"{tuple(vector.shape)}"
            )
        parts = vector.split([p.numel() for p in self.params])
        curved = [
            (g, part.reshape(p.shape).to(g))
            for g, part, p in zip(self.gradients, parts, self.params, strict=True)
            if g is not None and g.requires_grad
        ]
        if not curved:
            return torch.zeros_like(vector)
        with no_autocast():
            products = pulled([g for g, _ in curved], self.params, [part for _, part in curved])
        return torch.cat([product.reshape(-1).to(vector) for product in products])


@dataclass(frozen=True)
class Spectrum:
    """The ends of a symmetric matrix's spectrum, as Lanczos sees them.

    Attributes:
        smallest: The smallest Ritz value: at least the smallest eigenvalue.
        largest: The largest: at most the largest eigenvalue.
        error: Some eigenvalue is within this of ``smallest``, and some within it of ``largest``.
        products: How many products with the matrix it took.
    """

    smallest: float
    largest: float
    error: float
    products: int

    @property
    def norm(self) -> float:
        """The largest eigenvalue in size."""
        return max(abs(self.smallest), abs(self.largest))


def spectrum(
    hessian: Hessian, *, products: int = 20, generator: torch.Generator | None = None
) -> Spectrum:
    """The smallest and the largest eigenvalue, by Lanczos with full reorthogonalization.

    With as many products as parameters it is exact up to rounding; with fewer, both ends are seen
    from inside, the far ends of a spread-out spectrum well and the others less so.

    Args:
        hessian: The matrix.
        products: How many products to take, at most. Each keeps a vector of the parameters' size,
            in float64 where the device has it.
        generator: Draws the first vector; by default, a generator of our own with seed 0.

    Example:
        >>> x = torch.ones(3, dtype=torch.float64, requires_grad=True)
        >>> ends = spectrum(Hessian((torch.tensor([1.0, 2.0, 5.0]) * x**2).sum() / 2, [x]))
        >>> round(ends.smallest, 9), round(ends.largest, 9), ends.products
        (1.0, 5.0, 3)

    Reference:
        C. Lanczos, *An iteration method for the solution of the eigenvalue problem of linear
        differential and integral operators*, 1950.
    """
    most = min(count("products", products), hessian.size)
    basis = [_start(hessian, generator)]
    diagonal: list[float] = []
    beside: list[float] = []
    for _ in range(most):
        # One product more; its part along the basis is removed, what is left is the next direction.
        image = hessian @ basis[-1]
        diagonal.append(float(image @ basis[-1]))
        if not math.isfinite(diagonal[-1]):
            raise BadValue("loss must have a finite Hessian, found NaN or infinity in a product")
        for _ in range(2):  # once is not enough to be orthogonal to the last digit
            for vector in basis:
                image -= (image @ vector) * vector
        length = float(image.norm())
        beside.append(length)
        scale = max(map(abs, diagonal + beside[:-1]))
        if length <= _USED_UP * scale:
            break
        basis.append(image / length)
    return _ritz(diagonal, beside)


def _start(hessian: Hessian, generator: torch.Generator | None) -> Tensor:
    # Drawn on the CPU: the same on every device.
    generator = generator or torch.Generator().manual_seed(0)
    device = hessian.params[0].device
    dtype = torch.float32 if device.type == "mps" else torch.float64
    vector: Tensor = torch.randn(hessian.size, generator=generator, dtype=torch.float64)
    vector /= vector.norm()
    return vector.to(device, dtype)


def _ritz(diagonal: list[float], beside: list[float]) -> Spectrum:
    """The ends of the tridiagonal matrix that is the Hessian on the Krylov space."""
    inner = torch.tensor(beside[:-1], dtype=torch.float64)
    matrix = torch.diag(torch.tensor(diagonal, dtype=torch.float64))
    if len(inner):
        matrix += torch.diag(inner, 1) + torch.diag(inner, -1)
    values, vectors = torch.linalg.eigh(matrix)
    # ‖H y − θ y‖ of a Ritz pair is the last length times the last entry of the small vector.
    residuals = beside[-1] * vectors[-1].abs()
    return Spectrum(
        smallest=float(values[0]),
        largest=float(values[-1]),
        error=float(max(residuals[0], residuals[-1])),
        products=len(diagonal),
    )
