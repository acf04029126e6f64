"""The kit finds what it is there to find: each broken method fails the assert that names it."""

import warnings

import pytest
import torch
from scipy.optimize import linprog

import trimol
from trimol import testing
from trimol.gradients import NonFinite
from trimol.testing import CHECKS, Row, inputs, low_rank


class Sum(trimol.Static):
    """Weights that are not on the simplex."""

    def __init__(self, params, objectives, **options):
        super().__init__(params, objectives, weights=[1.0] * objectives, **options)


class Negative(trimol.MGDA):
    """Weights that sum to one and are not all positive."""

    def weigh(self, evidence):
        tilt = torch.linspace(-2, 2, self.objectives).to(self.weights)
        return super().weigh(evidence) + tilt


class Threshold(trimol.MGDA):
    """An absolute epsilon: small gradients get the mean."""

    def weigh(self, evidence):
        if evidence.gramian().trace() < 1e-4:
            return torch.full_like(self.weights, 1 / self.objectives)
        return super().weigh(evidence)


class Ordered(trimol.MGDA):
    """The first objective is favoured."""

    def weigh(self, evidence):
        found = super().weigh(evidence) + torch.eye(self.objectives)[0].to(self.weights)
        return found / 2


class Sloppy(trimol.MGDA):
    """Stops before the min-norm point."""

    def weigh(self, evidence):
        return 0.99 * super().weigh(evidence) + 0.01 / self.objectives


class Forgetful(trimol.CRMOGM):
    """Carries state that no checkpoint sees."""

    def __init__(self, params, objectives, **options):
        super().__init__(params, objectives, **options)
        self.calls = 0

    def weigh(self, evidence):
        self.calls += 1
        found = super().weigh(evidence).pow(1 + 0.1 * self.calls)
        return found / found.sum()


class Random(trimol.MGDA):
    """Draws from the global generator."""

    def weigh(self, evidence):
        evidence.values()
        return torch.softmax(torch.randn(self.objectives).to(self.weights), 0)


class Credulous(trimol.CRMOGM):
    """Changes its state before it knows that the evidence is finite."""

    def __init__(self, params, objectives, **options):
        super().__init__(params, objectives, **options)
        self.register_buffer("seen", torch.zeros_like(self.weights))

    def weigh(self, evidence):
        self.seen = self.seen + evidence.losses
        return super().weigh(evidence)

    def reset(self):
        self.seen = torch.zeros_like(self.seen)
        return super().reset()


class Trusting(trimol.MGDA):
    """Lets NaN into the weights, past the base class, which would not take it over."""

    def weigh(self, evidence):
        try:
            return super().weigh(evidence)
        except NonFinite:
            self.weights = torch.full_like(self.weights, torch.nan)
            return self.weights


class Single(trimol.CAGrad):
    """Rounds the Gramian to float32."""

    def weigh(self, evidence):
        return self.solve(evidence.gramian().float())


class Headless(trimol.MGDA):
    """Weighs the heads as well."""

    def scalar(self, evidence, before, after):
        return after.to(evidence.draws[0]) @ evidence.draws[0]


class Deaf(trimol.MGDA):
    """Takes `heads` and does nothing with it."""

    def __init__(self, params, objectives, heads="plain", **options):
        super().__init__(params, objectives, **options)


class Half(trimol.MGDA):
    """The direction is not that of the weights."""

    def scalar(self, evidence, before, after):
        return evidence.scalar(after / 2)


class Restless(trimol.MGDA):
    """Ignores `every`."""

    due = True


class Stubborn(trimol.CRMOGM):
    """`reset` leaves something."""

    def reset(self):
        weights = self.weights
        super().reset()
        self.weights = weights
        return self


class Narrow(trimol.MGDA):
    """Follows its parent to bfloat16."""

    def _apply(self, fn, recurse=True):
        self.weights = fn(self.weights)
        return self


mgda = {"conflict_free": True, "stationary": "weakly"}
BROKEN = [
    (Row(Sum), testing.assert_weights_are_as_promised),
    (Row(Negative), testing.assert_weights_are_as_promised),
    (Row(Negative), testing.assert_value_is_the_weighted_loss),
    (Row(Threshold), testing.assert_scaling_all_losses_scales_the_direction),
    (Row(Threshold, **mgda), testing.assert_direction_does_not_conflict),
    (Row(Ordered), testing.assert_permuting_objectives_permutes_the_weights),
    (
        Row(Single, settings={"c": 1.0}, conflict_free=True),
        testing.assert_dependent_gradients_do_not_conflict,
    ),
    (Row(Ordered), testing.assert_permuting_dependent_gradients_keeps_the_direction),
    (Row(Sloppy, **mgda), testing.assert_stationary_points_are_kept),
    (Row(Sloppy, **mgda), testing.assert_direction_does_not_conflict),
    (Row(trimol.Static, **mgda), testing.assert_direction_does_not_conflict),
    (Row(trimol.MGDA, rowwise="line"), testing.assert_scaling_single_losses_keeps_the_direction),
    (Row(Forgetful), testing.assert_state_resumes_bit_for_bit),
    (Row(Forgetful), testing.assert_reset_is_a_new_instance),
    (Row(Random), testing.assert_state_resumes_bit_for_bit),
    (Row(Credulous), testing.assert_a_step_that_is_not_finite_never_enters_the_weights),
    (Row(Trusting), testing.assert_a_step_that_is_not_finite_never_enters_the_weights),
    (Row(Trusting), testing.assert_one_draw_that_is_not_finite_is_enough),
    (Row(Headless), testing.assert_heads_get_plain_gradients),
    (Row(Headless), testing.assert_length_is_that_of_the_mean_gradient),
    (Row(Headless), testing.assert_max_norm_clips_the_direction),
    (Row(Deaf), testing.assert_heads_get_weighted_gradients),
    (Row(Half), testing.assert_value_is_the_weighted_loss),
    (Row(Half), testing.assert_gradient_is_the_weighted_gradient),
    (Row(Half), testing.assert_direction_is_the_weighted_gradient),
    (Row(Half), testing.assert_one_objective_is_plain_training),
    (Row(Restless), testing.assert_every_keeps_the_weights_between_updates),
    (Row(Stubborn), testing.assert_reset_is_a_new_instance),
    (Row(Narrow), testing.assert_moving_keeps_the_weights_in_float64),
]


@pytest.mark.parametrize(
    ("row", "check"), BROKEN, ids=lambda v: v.make.__name__ if isinstance(v, Row) else v.__name__
)
def test_a_broken_method_is_found(row, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        with pytest.raises(AssertionError):
            check(row)


def test_every_assert_is_among_the_checks():
    named = {name for name in testing.__all__ if name.startswith("assert_")}
    named.remove("assert_two_processes_equal_the_joined_batch")  # needs processes
    assert named == {check.__name__ for check in CHECKS}
    assert all(check.__doc__ for check in CHECKS)


@pytest.mark.parametrize("rank", [1, 5, 10])
def test_low_rank_has_its_rank_and_is_stationary_as_told(rank):
    """Stationary: the min-norm point is zero; strongly: with some weight for every row."""
    for seed in range(4):
        for stationary in ("not", "weakly", "strongly"):
            jacobian = low_rank(20, 10, rank, stationary, seed)
            assert torch.linalg.matrix_rank(jacobian) == rank
            shortest = trimol.simplex.min_norm(jacobian @ jacobian.T) @ jacobian
            assert (shortest.norm() < 1e-7) == (stationary != "not")
            # Maximise the least weight of a w ≥ 0 with wᵀJ = 0 and Σw = 1: above zero if strongly.
            equal = torch.cat([jacobian, torch.ones(20, 1, dtype=torch.float64)], 1).T
            equal = torch.cat([equal, torch.zeros(len(equal), 1, dtype=torch.float64)], 1)
            least = torch.cat([-torch.eye(20), torch.ones(20, 1)], 1)
            target = [0.0] * 10 + [1.0]
            cost = [0.0] * 20 + [-1.0]
            found = linprog(cost, least.numpy(), [0.0] * 20, equal.numpy(), target)
            assert (found.status == 0 and -found.fun > 1e-9) == (stationary == "strongly")


@pytest.mark.parametrize("objectives", [2, 3, 5])
@pytest.mark.parametrize("seed", [0, 1])
def test_inputs_are_what_they_say(objectives, seed):
    found = inputs(objectives, seed=seed)
    assert len({case.name for case in found}) == len(found)
    for case in found:
        gramian = case.jacobian @ case.jacobian.T
        weights = trimol.simplex.min_norm(gramian)
        shortest = (weights @ case.jacobian).norm()
        size = case.jacobian.norm(dim=1).max()
        assert (shortest <= 1e-12 * size) == (case.stationary != "not"), case.name
        if case.stationary == "strongly" and size > 0:
            assert case.jacobian.sum(0).norm() <= 1e-12 * size or objectives == 2, case.name
        units = case.jacobian / case.jacobian.norm(dim=1, keepdim=True).clamp_min(1e-300)
        rank = int(torch.linalg.matrix_rank(units))
        assert (rank == objectives) == case.independent, case.name
    assert any((case.jacobian @ case.jacobian.T).min() < 0 for case in found)
