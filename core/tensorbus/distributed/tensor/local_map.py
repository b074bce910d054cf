"""``local_map``: a function of ranks' parts as one of distributed tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...errors import ArgumentError, ShapeError
from ...func.pytree import leaves, tree_map
from ...tensor.tensor import Tensor
from .device_mesh import DeviceMesh, mesh_for
from .dtensor import DTensor
from .explicit_mode import check_move
from .placements import Placement, Replicate, Shard, checked_placements

Layout = Sequence[Placement]


def local_map(
    function: Callable[..., Any],
    out_placements: Layout | Sequence[Layout | None],
    in_placements: Sequence[Layout | None] | None = None,
    in_grad_placements: Sequence[Layout | None] | None = None,
    device_mesh: DeviceMesh | None = None,
    *,
    redistribute_inputs: bool = True,
) -> Callable[..., Any]:
    """Return ``function``, which works on parts, as one of distributed tensors.

    Every positional argument has an entry in ``in_placements``, or every leaf of nested ones: how it is to
    lie, to which it is redistributed, or None where it is no ``DTensor`` and is handed on; without
    ``in_placements`` a ``DTensor`` stays as it lies. Keyword arguments are handed on. With
    ``redistribute_inputs=False`` an argument that lies otherwise raises. ``in_grad_placements`` says how the
    gradients of parts lie; None: as the arguments. The tensor that ``function`` returns, or each of several
    or of nested ones, lies as ``out_placements`` says, which may have an entry for each of them: None for
    what is handed back as it is. They lie on ``device_mesh``; None: where the arguments do, or the mesh of
    ``with mesh:``. Raises ``ArgumentError`` where arguments, results and entries do not fit, and
    ``ShapeError`` where results are ``Shard`` and ranks have parts of different shapes.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank():
    ...     mesh = dist.init_device_mesh("cpu", (2,))
    ...     x = dist.distribute_tensor(tb.arange(4, device="cpu"), mesh, [dist.Shard(0)])
    ...     total = dist.local_map(tb.sum, [dist.Partial()], [[dist.Shard(0)]])
    ...     return total(x).full_tensor().item()
    >>> dist.run_ranks(rank, 2)
    [6, 6]
    """
    if not callable(function):
        raise ArgumentError(f"local_map: a function of ranks' parts is needed, got {function!r}.")
    of_each = not _is_layout(out_placements)
    out = _entries("out_placements", out_placements) if of_each else [*out_placements]
    split = any(isinstance(p, Shard) for one in (out if of_each else [out]) for p in one or ())
    each_in = None if in_placements is None else _entries("in_placements", in_placements)
    each_grad = None if in_grad_placements is None else _entries("in_grad_placements", in_grad_placements)

    def call(*args: Any, **kwargs: Any) -> Any:
        nested = each_in is None or len(each_in) != len(args)
        flat = leaves(args) if nested else args
        wanted = [x.placements if isinstance(x, DTensor) else None for x in flat]
        if each_in is not None:
            wanted = each_in
        grads = [None] * len(wanted) if each_grad is None else each_grad
        if not len(flat) == len(wanted) == len(grads):
            raise ArgumentError(
                f"local_map: {len(args)} arguments, {len(wanted)} in_placements and {len(grads)}"
                f" in_grad_placements were passed; there must be one of each for every argument, or for"
                f" every leaf of nested ones, of which there are {len(leaves(args))}."
            )
        mesh = _mesh_of(flat, wanted, kwargs, device_mesh)
        parts = iter([
            x if to is None else _part(k, x, to, grad, split, redistribute_inputs)
            for k, (x, to, grad) in enumerate(zip(flat, wanted, grads, strict=True))
        ])  # fmt: skip
        result = function(*(tree_map(lambda x: next(parts), args) if nested else parts), **kwargs)
        several = isinstance(result, (tuple, list))
        whole = several and of_each and len(result) == len(out)
        results = list(result) if whole else leaves(result)
        if of_each and len(results) != len(out):
            raise ArgumentError(
                f"local_map: out_placements has {len(out)} entries, one for each result, but the function"
                f" returned {len(results)}."
            )
        places = out if of_each else [out] * len(results)
        laid = [_laid(k, x, mesh, to) for k, (x, to) in enumerate(zip(results, places, strict=True))]
        if whole:
            return laid if isinstance(result, list) else tuple(laid)
        each = iter(laid)
        return tree_map(lambda x: next(each), result)

    return call


def _is_layout(entries: object) -> bool:
    """Return whether these are placements, one for each dimension of a mesh."""
    return isinstance(entries, (list, tuple)) and all(isinstance(p, Placement) for p in entries)


def _entries(name: str, entries: Any) -> list[Any]:
    """Return the placements of each argument or result; of some None."""
    if isinstance(entries, (list, tuple)) and all(p is None or _is_layout(p) for p in entries):
        return [None if p is None else tuple(p) for p in entries]
    alone = "placements, or of " if name == "out_placements" else ""
    raise ArgumentError(
        f"local_map: {name} is a list of {alone}lists of placements, which have one for each dimension of the"
        f" mesh, and None for what is no DTensor; got {entries!r}."
    )


def _mesh_of(
    args: Sequence[Any], wanted: Sequence[Any], kwargs: dict[str, Any], mesh: DeviceMesh | None
) -> DeviceMesh:
    """Return the mesh that arguments lie on; raise where they and their entries do not fit."""
    for x, places in zip(args, wanted, strict=True):
        if isinstance(x, DTensor) != (places is not None):
            raise ArgumentError(
                f"local_map: a DTensor needs an entry in in_placements, and all else has None; got"
                f" {type(x).__name__} for {places}."
            )
        if places is None:
            continue
        if mesh is not None and x.device_mesh != mesh:
            raise ArgumentError(f"local_map: arguments lie on two meshes: {mesh} and {x.device_mesh}.")
        mesh = x.device_mesh
    if named := [name for name, x in kwargs.items() if isinstance(x, DTensor)]:
        raise ArgumentError(
            f"local_map: keyword arguments are handed on as they are, and {', '.join(named)} is a DTensor;"
            f" pass it by position, with an entry in in_placements."
        )
    return mesh_for("local_map", mesh)


def _part(place: int, x: Any, placements: Any, grad: Any, split: bool, moves: bool) -> Tensor:
    """Return this rank's part of an argument in ``placements``."""
    chosen = checked_placements(f"local_map: argument {place}", placements, x.device_mesh.ndim, x.ndim)
    if not moves and x.placements != chosen:
        raise ArgumentError(
            f"local_map: argument {place} lies as {[*x.placements]}, and in_placements has {[*chosen]}; with"
            f" redistribute_inputs=True it is redistributed."
        )
    check_move("local_map", f"argument {place}", x._value, chosen)
    moved: DTensor = x.redistribute(chosen)
    if split and not _is_even(moved):
        raise ShapeError(
            f"local_map: an argument of shape {moved.shape} has parts of different shapes in"
            f" {[*moved.placements]}, so that of the results is not known; take"
            f" to_local(), and say it: DTensor.from_local(part, mesh, placements, shape=)."
        )
    return moved.to_local(grad_placements=grad)


def _laid(place: int, x: Any, mesh: DeviceMesh, placements: Any) -> Any:
    """Return a result as a distributed tensor, or as it is where it has no placements."""
    if placements is None:
        if isinstance(x, Tensor):
            raise ArgumentError(
                f"local_map: result {place} is a tensor, for which out_placements has None; say how it lies,"
                f" as {[Replicate()] * mesh.ndim}."
            )
        return x
    if not isinstance(x, Tensor) or isinstance(x, DTensor):
        raise ArgumentError(
            f"local_map: result {place} is to lie as {[*placements]}, so a rank's part is needed, got"
            f" {type(x).__name__}; out_placements has None for what is handed back as it is."
        )
    chosen = checked_placements(f"local_map: result {place}", placements, mesh.ndim, x.ndim)
    return DTensor.from_local(x, mesh, chosen)


def _is_even(x: DTensor) -> bool:
    """Return whether the parts of all ranks have the same shape."""
    lengths = list(x.shape)
    for size, placement in zip(x.device_mesh.shape, x.placements, strict=True):
        if isinstance(placement, Shard):
            if lengths[placement.dim] % size:
                return False
            lengths[placement.dim] //= size
    return True
