"""Step sizes and steps for MoDo from a goal, by the theory, and what the goal gives up."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from shutil import get_terminal_size
from textwrap import fill
from typing import Annotated, Any, SupportsFloat

from tyro.conf import Positional

from trimol.cli._lines import echo
from trimol.cli._parse import parse
from trimol.cli._reporting import UsageError, print_json, usage
from trimol.cli._values import Maybe, count, positive, typed, whole_number
from trimol.theory._constants import Constants
from trimol.theory._planning import Objective, Plan, plan

ORDERS = (
    "An order says how an error moves with n. It does not say how large the error is, nor which γ "
    "is best on your losses: these step sizes start a search. To measure γ on your own task, and "
    "then the step size in the same way (read R_opt, R_pop and E_ca):"
)


@dataclass(frozen=True)
class Options:
    """Step sizes and steps for MoDo from a goal, by the theory, and what the goal gives up.

    What a bound's order can tell: how an error moves with N, and which errors pull against each
    other. What it cannot: how large an error is, and which γ is best for your losses. On MNIST the
    planned γ has more than twice the R_opt of a γ near 0.01. So the output ends with commands that
    measure γ on your own task.

    Without constants the numbers are powers of N and start a search, nothing more. With the
    constants of the problem (--ell-f, --ell-f1 and --losses at least;
    trimol.theory.estimate_constants measures them) they respect the theorems' limits, and the
    bounds come as numbers.
    """

    samples: Positional[Annotated[int, typed(partial(whole_number, least=2), "N")]]
    """How many training samples."""
    objective: Objective = "balance"
    """What is to be small."""
    steps: Annotated[Maybe[int], typed(count, "T", unset="chosen")] = None
    """How many steps, if that is given."""
    strongly_convex: bool = False
    """Every loss of every sample is strongly convex. No neural network is."""
    losses: Annotated[Maybe[int], typed(count, "M", unset="none")] = None
    """How many losses."""
    ell_f: Annotated[Maybe[float], typed(positive, "X", unset="none")] = None
    """No gradient of a loss is longer."""
    ell_f1: Annotated[Maybe[float], typed(positive, "X", unset="none")] = None
    """No Hessian of a loss has a larger eigenvalue in size."""
    mu: Annotated[Maybe[float], typed(positive, "X", unset="none")] = None
    """No Hessian of a loss has a smaller eigenvalue."""
    c_f: Annotated[Maybe[float], typed(positive, "X", unset="none")] = None
    """How far the mean loss is above its minimum at the start."""
    json: bool = False
    """Print JSON."""


def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit code."""
    options = parse(Options, arguments, "plan")
    with usage():
        constants = _constants(options)
        made = plan(
            options.samples,
            options.objective,
            T=options.steps,
            strongly_convex=options.strongly_convex or options.mu is not None,
            constants=constants,
        )
    if options.json:
        print_json(_plain(made))
    else:
        echo(made)
        echo(f"\n{fill(ORDERS, min(80, get_terminal_size().columns))}\n")
        echo("\n".join(f"  {line}" for line in measured(made)))
    return 0


def measured(made: Plan) -> list[str]:
    """Commands that measure the planned γ beside slower weights, on a task of the user's."""
    rates = [made.gamma, made.gamma / 10, made.gamma / 100]
    common = f"trimol compare TASK --methods modo --steps {made.T} --set modo.lr={made.alpha:.3g}"
    return [f"{common} --set modo.gamma={rate:.3g} --out runs/gamma-{rate:.3g}" for rate in rates]


def _constants(options: Options) -> Constants | None:
    needed = {
        "--ell-f": options.ell_f,
        "--ell-f1": options.ell_f1,
        "--losses": options.losses,
    }
    if all(value is None for value in (*needed.values(), options.mu, options.c_f)):
        return None
    if options.ell_f is None or options.ell_f1 is None or options.losses is None:
        missing = [flag for flag, value in needed.items() if value is None]
        raise UsageError(f"constants are given together, missing {' and '.join(missing)}")
    return Constants(
        ell_f=options.ell_f,
        ell_f1=options.ell_f1,
        M=options.losses,
        n=options.samples,
        c_F=options.c_f,
        mu=options.mu,
    )


def _plain(made: Plan) -> dict[str, Any]:
    return {
        "objective": made.objective,
        "n": made.n,
        "strongly_convex": made.strongly_convex,
        "T": made.T,
        "alpha": made.alpha,
        "gamma": made.gamma,
        "rho": made.rho,
        "schedule": str(made.schedule),
        "region": made.region,
        "exponents": {name: _finite(value) for name, value in made.exponents.items()},
        "bounds": {name: _finite(bound) for name, bound in made.bounds.items()},
        "trivial": made.trivial,
        "refused": made.refused,
        "given_up": list(made.given_up),
        "measure": measured(made),
    }


def _finite(value: SupportsFloat) -> float | None:
    """JSON has no infinity: an error without a bound has no exponent."""
    return float(value) if math.isfinite(value) else None
