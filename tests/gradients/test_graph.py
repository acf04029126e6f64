"""Reading the recorded graph."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint
from zoo import ZOO, several

from trimol.gradients._graph import record
from trimol.gradients.losses import as_vector


def leaf(*shape: int) -> Tensor:
    return torch.randn(shape, requires_grad=True)


@pytest.mark.parametrize("name", ["mlp", "lstm", "encoder, train, float64", "misc", "physics"])
def test_nodes_come_after_their_inputs_and_occur_once(name: str) -> None:
    model, (x, _) = ZOO[name].build()
    losses = as_vector(model(x))
    graph = record(losses, list(model.parameters()))
    place = {node: i for i, node in enumerate(graph.nodes)}
    assert len(place) == len(graph.nodes) == len(graph.edges)
    assert graph.nodes[-1] is losses.grad_fn
    for node, sources in graph.edges.items():
        assert all(source is None or place[source] < place[node] for source, _ in sources)


def test_active_nodes_are_those_that_depend_on_the_parameters() -> None:
    x, other = leaf(3), leaf(3)
    moved, still = x.sin(), other.cos()
    losses = moved * still
    graph = record(losses, [x])
    assert {node.name() for node in graph.active} == {
        "torch::autograd::AccumulateGrad",
        "SinBackward0",
        "MulBackward0",
    }
    assert still.grad_fn in graph.nodes
    assert still.grad_fn not in graph.active


def test_others_are_the_leaves_that_were_not_given() -> None:
    x, y, z = leaf(3), leaf(3), leaf(3)
    losses = x * y + y * z.detach() + y
    graph = record(losses, [x])
    assert len(graph.others) == 1
    assert graph.others[0] is y
    assert record(losses, [x, y]).others == []


def test_a_parameter_that_is_no_leaf_leaves_what_is_behind_it_to_the_others() -> None:
    w = leaf(3)
    h = w.sin()
    graph = record(h.cos(), [h])
    assert h.grad_fn in graph.active
    assert graph.others[0] is w


def test_a_graph_deeper_than_the_recursion_limit() -> None:
    x = leaf(2)
    y = x
    for _ in range(20_000):
        y = y * 1
    assert len(record(y, [x]).nodes) == 20_001


@pytest.mark.parametrize("inner", [True, False])
def test_a_reentrant_checkpoint_is_an_error(inner: bool) -> None:
    block, head = nn.Linear(4, 4), nn.Linear(4, 4)
    x = torch.randn(5, 4, requires_grad=True)
    losses = several(head(checkpoint(block, x, use_reentrant=True)))
    params = list((block if inner else head).parameters())
    message = (
        "losses pass through torch.utils.checkpoint with use_reentrant=True, which hides its "
        "parameters from torch.autograd.grad: set use_reentrant=False"
    )
    with pytest.raises(ValueError, match=f"^{message}$"):
        record(losses, params)


@pytest.mark.skipif(not hasattr(torch.cpu.Stream, "record_event"), reason="no FSDP2 on a CPU")
def test_shards_are_those_of_the_own_model(tmp_path: Path) -> None:
    """A sharded model, a teacher say, leaves another one's graph as it is."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/one", rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        sharded, plain = nn.Linear(2, 3), nn.Linear(2, 3)
        fully_shard(sharded, mesh=mesh)
        given, x = list(sharded.parameters()), torch.randn(4, 2)
        own = record(sharded(x).square().mean(0), given)
        assert own.shards is not None
        assert [type(p) for p in own.params] == [nn.Parameter, nn.Parameter]
        assert own.reached == {id(p) for p in given}
        other = record(plain(x).square().mean(0), list(plain.parameters()))
        assert other.shards is None
        assert [id(p) for p in other.params] == [id(p) for p in other.given]
        head = record((plain(x) + sharded(x)).square().mean(0), list(plain.parameters()))
        assert head.shards is not None
        assert len(head.others) == 2
    finally:
        dist.destroy_process_group()
