"""Where a warning points: at the line of the user's that led to it."""

import warnings

import torch

import trimol


def test_a_warning_points_at_the_users_line():
    x = torch.ones(2, requires_grad=True)
    method = trimol.MGDA([x], 2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        method(torch.stack([x.sum(), x.sum() * torch.nan]))
        method.eval()
        method(torch.stack([x.sum(), x.prod()])).backward()  # the second one comes from here
    assert [one.filename for one in caught] == [__file__, __file__]
    assert caught[0].lineno < caught[1].lineno
    assert all(one.category is RuntimeWarning for one in caught)
