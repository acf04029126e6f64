"""How a budget of trainings is spent."""

from dataclasses import dataclass

from trimol._checks import number_of_runs, whole_number
from trimol._words import count
from trimol.compare._answer import FEWEST, LEAST, detectable

CONFIRMED, MOST = 0.18, 20  # seeds of the two finalists: a share of the budget, and at most


@dataclass(frozen=True)
class Spending:
    """How a budget of trainings is spent on the baseline and some methods.

    First settings are tried, as many of each method; the best two methods go on, with the baseline;
    then the best method and the baseline are trained on fresh seeds.

    Attributes:
        budget: Trainings in all.
        methods: How many methods there are beside the baseline.
    """

    budget: int
    methods: int

    def __post_init__(self) -> None:
        number_of_runs("budget", whole_number("budget", self.budget, least=1))
        whole_number("methods", self.methods, least=1)

    @property
    def seeds(self) -> int:
        """Fresh seeds of each finalist; 0 where the budget is too small to decide by them."""
        least = 2 * FEWEST + self.methods + 1
        return 0 if self.budget < least else min(MOST, max(FEWEST, round(CONFIRMED * self.budget)))

    @property
    def tuning(self) -> int:
        """Trainings that try settings."""
        return self.budget - 2 * self.seeds

    @property
    def sentence(self) -> str:
        """Say what is going to be done, and what that can find.

        >>> print(Spending(30, 4).sentence)
        30 trainings: 20 try settings of static weights and 4 methods, then the best of each is \
trained on 5 fresh seeds. That finds gains from 1.7 times the seed-to-seed noise of a difference, \
from 1 % up.
        """
        names = "a method" if self.methods == 1 else f"{self.methods} methods"
        budget = count(self.budget, "training")
        if not self.seeds:
            least = 2 * FEWEST + self.methods + 1
            return (
                f"{budget} cannot decide between static weights and {names}, which takes {least}. "
                "Good static weights are looked for instead."
            )
        return (
            f"{budget}: {self.tuning} try settings of static weights and {names}, then the best of "
            f"each is trained on {self.seeds} fresh seeds. That finds gains from "
            f"{detectable(self.seeds):.1f} times the seed-to-seed noise of a difference, from "
            f"{100 * LEAST:g} % up."
        )
