"""Hold a method to what every method owes, and to what its own mathematics promises.

For your own method, in a test file of yours::

    import pytest
    from trimol.testing import CHECKS, Row

    MINE = Row(MyMethod, settings={"beta": 0.5}, conflict_free=True)

    @pytest.mark.parametrize("check", CHECKS)
    def test_my_method(check):
        check(MINE)
"""

from trimol.testing._directions import (
    assert_dependent_gradients_do_not_conflict,
    assert_direction_does_not_conflict,
    assert_direction_is_the_weighted_gradient,
    assert_one_objective_of_any_size,
    assert_permuting_dependent_gradients_keeps_the_direction,
    assert_permuting_objectives_permutes_the_weights,
    assert_scaling_all_losses_scales_the_direction,
    assert_scaling_single_losses_keeps_the_direction,
    assert_stationary_points_are_kept,
    assert_weights_are_as_promised,
)
from trimol.testing._distributed import (
    assert_two_processes_equal_the_joined_batch,
    run_in_processes,
)
from trimol.testing._nasty import Input, inputs, low_rank, low_ranks
from trimol.testing._precision import (
    assert_a_step_that_is_not_finite_never_enters_the_weights,
    assert_bf16_autocast,
    assert_bf16_parameters,
    assert_grad_scaler_sees_the_scaled_direction,
    assert_one_draw_that_is_not_finite_is_enough,
)
from trimol.testing._problems import Linear, Step, TwoHeads, batch, network
from trimol.testing._row import Row
from trimol.testing._state import (
    assert_evaluation_touches_nothing,
    assert_is_a_module_that_copies_and_prints,
    assert_moving_keeps_the_weights_in_float64,
    assert_reset_is_a_new_instance,
    assert_state_holds_no_model_parameters,
    assert_state_resumes_bit_for_bit,
)
from trimol.testing._steps import (
    assert_a_sequence_of_scalars_is_a_vector,
    assert_accumulation_and_clipping,
    assert_between_updates_the_gradient_is_that_of_the_kept_weights,
    assert_every_keeps_the_weights_between_updates,
    assert_frozen_and_unused_parameters_are_left_alone,
    assert_gradient_is_the_weighted_gradient,
    assert_heads_get_plain_gradients,
    assert_heads_get_weighted_gradients,
    assert_length_is_that_of_the_mean_gradient,
    assert_max_norm_clips_the_direction,
    assert_one_objective_is_plain_training,
    assert_unfreezing_needs_no_new_method,
    assert_value_is_the_weighted_loss,
)

CHECKS = (
    assert_value_is_the_weighted_loss,
    assert_gradient_is_the_weighted_gradient,
    assert_heads_get_plain_gradients,
    assert_heads_get_weighted_gradients,
    assert_length_is_that_of_the_mean_gradient,
    assert_max_norm_clips_the_direction,
    assert_one_objective_is_plain_training,
    assert_one_objective_of_any_size,
    assert_a_sequence_of_scalars_is_a_vector,
    assert_accumulation_and_clipping,
    assert_every_keeps_the_weights_between_updates,
    assert_between_updates_the_gradient_is_that_of_the_kept_weights,
    assert_frozen_and_unused_parameters_are_left_alone,
    assert_unfreezing_needs_no_new_method,
    assert_state_resumes_bit_for_bit,
    assert_evaluation_touches_nothing,
    assert_state_holds_no_model_parameters,
    assert_reset_is_a_new_instance,
    assert_is_a_module_that_copies_and_prints,
    assert_moving_keeps_the_weights_in_float64,
    assert_grad_scaler_sees_the_scaled_direction,
    assert_a_step_that_is_not_finite_never_enters_the_weights,
    assert_one_draw_that_is_not_finite_is_enough,
    assert_bf16_autocast,
    assert_bf16_parameters,
    assert_weights_are_as_promised,
    assert_direction_is_the_weighted_gradient,
    assert_direction_does_not_conflict,
    assert_dependent_gradients_do_not_conflict,
    assert_stationary_points_are_kept,
    assert_permuting_objectives_permutes_the_weights,
    assert_permuting_dependent_gradients_keeps_the_direction,
    assert_scaling_all_losses_scales_the_direction,
    assert_scaling_single_losses_keeps_the_direction,
)

__all__ = [
    "CHECKS",
    "Input",
    "Linear",
    "Row",
    "Step",
    "TwoHeads",
    "assert_two_processes_equal_the_joined_batch",
    "batch",
    "inputs",
    "low_rank",
    "low_ranks",
    "network",
    "run_in_processes",
    *(check.__name__ for check in CHECKS),
]
