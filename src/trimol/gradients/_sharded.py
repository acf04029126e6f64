"""FSDP2, ``torch.distributed.fsdp.fully_shard``: parameters of which every process holds a shard.

What the user has is a ``DTensor``, the shard; what the graph holds is the gathered parameter, whose
storage exists only while a module works. So evidence is taken with respect to the gathered ones,
which are kept while it is (`Shards.held`), and a known gradient is handed to the shards
(`Shards.part`). The user's own backward is FSDP2's business, as ever.

All that is private to torch is read here, and only in a process that has called ``fully_shard``.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trimol._failures import BadValue
from trimol.gradients import _reduce as reduce

_FULLY_SHARD = "torch.distributed.fsdp._fully_shard._fsdp_state"


@dataclass(frozen=True)
class Part:
    """This process's shard of a gradient.

    Attributes:
        local: Its entries.
        whole: Makes it what the parameter is, a ``DTensor``.
    """

    local: Tensor
    whole: Callable[[Tensor], Tensor]

    def scaled(self, scale: Tensor) -> Tensor:
        """The gradient, times a number."""
        return self.whole(self.local * scale.to(self.local.device, self.local.dtype))


class Shards:
    """How FSDP2 holds the parameters of this process's models now.

    Args:
        states: Those of the modules that were given to ``fully_shard``.
    """

    def __init__(self, states: Sequence[Any]) -> None:
        self.states = states
        self.given: dict[int, Any] = {}  # FSDP2's record of a parameter, by what the user has of it
        self.gathered: dict[int, Any] = {}  # and by what the graph has
        self.owner: dict[int, Any] = {}  # the state and the group that a record belongs to
        pairs = [(state, group) for state in states for group in _groups(state)]
        for owner in pairs:
            for param in owner[1].fsdp_params:
                self.owner[id(param)] = owner
                self.given[id(param.sharded_param)] = param
                if hasattr(param, "_unsharded_param"):
                    self.gathered[id(param._unsharded_param)] = param

    def leaf(self, given: Tensor) -> Tensor:
        """What the graph holds of a parameter: itself, where it is not sharded."""
        param = self.given.get(id(given))
        if param is None:
            return given
        if hasattr(param, "_unsharded_param"):
            leaf: Tensor = param._unsharded_param
            return leaf
        # Its module did not work yet: something of its shape that no graph reaches.
        nothing = torch.zeros((), dtype=given.dtype, device=given.device)
        return nothing.expand(given.shape).requires_grad_(given.requires_grad)

    def check(self, given: Sequence[Tensor], reached: set[int], others: Sequence[Tensor]) -> None:
        """Raise for a parameter that was given before ``fully_shard`` put another in its place.

        Args:
            given: The parameters.
            reached: Those of them, by ``id``, that the losses depend on.
            others: What else they depend on.
        """
        gathered = [(i, leaf) for i, leaf in enumerate(others) if id(leaf) in self.gathered]
        for i, leaf in gathered:
            _check_mesh(self.gathered[id(leaf)], "parameters that losses reach", i)
        replacing = {leaf.shape for _, leaf in gathered}
        known = reached | self.given.keys()
        for i, p in enumerate(given):
            if p.requires_grad and id(p) not in known and p.shape in replacing:
                raise BadValue(
                    "params must be taken from the model after fully_shard, found one of shape "
                    f"{tuple(p.shape)} at place {i} that the losses do not reach"
                )

    def joined(self, leaves: Sequence[Tensor], gradients: Sequence[Tensor]) -> Sequence[Tensor]:
        """Gradients of leaves: means over the processes, also of those that FSDP2 ignores."""
        pairs = zip(leaves, gradients, strict=True)
        return reduce.mean_large([g.to_dense().to(self.given_of(x).dtype) for x, g in pairs])

    def ignores(self, given: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
        """Whether FSDP2 leaves one of the parameters, or of the other leaves, alone."""
        return any(id(p) not in self.given for p in given) or any(
            id(leaf) not in self.gathered for leaf in others
        )

    def shard(self, leaf: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor | Part]:
        """What the user has of a leaf, and its part of the leaf's gradient."""
        param = self.gathered.get(id(leaf))
        if param is None:
            return leaf, gradient
        # As `torch.chunk` deals a tensor out: the last parts may be smaller, or empty.
        dim, info = param.fsdp_placement.dim, param.mesh_info
        count, rank = getattr(info, "shard_mesh_size", 1), getattr(info, "shard_mesh_rank", 0)
        length = -(-gradient.shape[dim] // count)
        start = min(rank * length, gradient.shape[dim])
        local = gradient.narrow(dim, start, min(length, gradient.shape[dim] - start))
        given: Tensor = param.sharded_param
        local = local.to(device=given.device, dtype=given.dtype).contiguous()
        # The user may have set what sums over processes are divided by, in place of their number.
        divisor = getattr(self.owner[id(param)][1], "gradient_divide_factor", None)
        if divisor is not None:
            local = local * (reduce.processes() / divisor)
        return given, Part(local, param.to_sharded_dtensor)

    def given_of(self, leaf: Tensor) -> Tensor:
        """What the user, and the optimizer, have of a leaf."""
        param = self.gathered.get(id(leaf))
        given: Tensor = leaf if param is None else param.sharded_param
        return given

    def involved(self, leaves: Iterable[Tensor]) -> list[Any]:
        """The states of all modules that share a forward pass with the leaves' modules."""
        found = (self.gathered.get(id(leaf)) for leaf in leaves)
        contexts = {id(self.owner[id(param)][0]._state_ctx) for param in found if param is not None}
        # A state without a root has not worked yet, and shares nothing.
        return [s for s in self.states if id(s._state_ctx) in contexts and s._is_root is not None]

    @contextmanager
    def held(self, leaves: Iterable[Tensor]) -> Iterator[None]:
        """Within, the leaves are gathered, and a backward is nothing that FSDP2 takes part in."""
        with ExitStack() as stack:
            for state in self.involved(leaves):
                stack.enter_context(_paused(state))
            yield

    def finished(self, leaves: Iterable[Tensor]) -> None:
        """Called within the user's backward: FSDP2 ends its step, though none of its hooks ran."""
        for state in {id(s._state_ctx): s for s in self.involved(leaves)}.values():
            state._register_root_post_backward_final_callback()


def current() -> Shards | None:
    """How FSDP2 holds parameters in this process; None where it holds none."""
    if _FULLY_SHARD not in sys.modules:
        return None
    from torch.distributed import _composable_state as composable

    kind = sys.modules[_FULLY_SHARD].FSDPState
    states = (composable._get_module_state(m) for m in list(composable._module_state_mapping))
    ours = {id(state): state for state in states if isinstance(state, kind)}
    return Shards(list(ours.values())) if ours else None


def check(tensors: Iterable[Tensor], name: str = "params", *, leaves: bool = False) -> None:
    """Raise for tensors that are spread over processes in a way that evidence does not know.

    Args:
        tensors: What a user gives, or what a graph reaches.
        name: What they are called.
        leaves: They are leaves of a graph: even FSDP2's own ``DTensor`` must not be there, but what
            it gathers.
    """
    shards = None
    for i, tensor in enumerate(tensors):
        if hasattr(tensor, "_fsdp_flattened") or hasattr(tensor, "_is_flat_param"):
            raise BadValue(
                f"{name} must not be those of FullyShardedDataParallel (FSDP1), found one of shape "
                f"{tuple(tensor.shape)} at place {i}: use torch.distributed.fsdp.fully_shard"
            )
        if not is_dtensor(tensor):
            continue
        shards = shards or current()
        param = shards.given.get(id(tensor)) if shards else None
        if param is not None and leaves:
            raise BadValue(
                f"{name} must be those that fully_shard gathers in a forward pass, found a shard "
                f"itself, of {tuple(tensor.shape)}, at place {i} (a penalty on the parameters?)"
            )
        if param is None or param.is_dtensor:
            raise BadValue(
                f"{name} must not be DTensors but those of fully_shard alone (no tensor "
                f"parallelism), found one placed {tensor.placements} "  # type: ignore[attr-defined]
                f"at place {i}"
            )
        _check_mesh(param, name, i)


def _check_mesh(param: Any, name: str, place: int) -> None:
    """Evidence is joined over all processes: so must be the parameters."""
    size = param.mesh_info.mesh.size()
    if size != reduce.processes():
        raise BadValue(
            f"{name} must be sharded over all {reduce.processes()} processes, found one over "
            f"{size} at place {place}"
        )


def is_dtensor(tensor: Tensor) -> bool:
    """Whether a tensor is a ``DTensor``; nobody has made one where its module was not loaded."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def whole(tensor: Tensor) -> Tensor:
    """A tensor as it is; all of it, where every process holds a shard."""
    return tensor.full_tensor() if is_dtensor(tensor) else tensor  # type: ignore[attr-defined]


def _groups(state: Any) -> list[Any]:
    """The groups of parameters that a module's state gathers together (before torch 2.12: one)."""
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:
        groups = [] if state._fsdp_param_group is None else [state._fsdp_param_group]
    return list(groups)


@contextmanager
def _paused(state: Any) -> Iterator[None]:
    """A module's parameters gathered; its hooks find that a backward has begun, and begin none."""
    with ExitStack() as stack:
        for group in _groups(state):
            stack.enter_context(_gathered(group))
        busy = sys.modules[_FULLY_SHARD].TrainingState.PRE_BACKWARD
        stack.enter_context(_set(state, "_training_state", busy))
        stack.enter_context(_set(state._state_ctx, "post_backward_final_callback_queued", True))
        yield


@contextmanager
def _gathered(group: Any) -> Iterator[None]:
    """A group's parameters gathered, whatever a backward does; sharded again where they were."""
    if "post_backward" in vars(group):  # within another
        yield
        return
    was_apart = not group.is_unsharded
    group.unshard()
    group.wait_for_unshard()
    busy = sys.modules[_FULLY_SHARD].TrainingState.PRE_BACKWARD
    group.post_backward = lambda *_: None
    try:
        with _set(group, "_training_state", busy):
            yield
    finally:
        del group.post_backward
        if was_apart:
            group.reshard()


@contextmanager
def _set(thing: Any, name: str, value: Any) -> Iterator[None]:
    """An attribute with another value for a while."""
    before = getattr(thing, name)
    setattr(thing, name, value)
    try:
        yield
    finally:
        setattr(thing, name, before)
