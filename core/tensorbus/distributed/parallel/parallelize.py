"""``parallelize_module``: splits the layers of a module over ranks, by a plan of styles."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TypeVar, cast

from ...errors import ArgumentError
from ...nn.module import Module
from ...nn.parameter import Parameter
from ..tensor.device_mesh import DeviceMesh, mesh_for
from ..tensor.dtensor import DTensor, check_source
from .labels import label_as, numbered
from .styles import ParallelStyle

M = TypeVar("M", bound=Module)
Owners = list[tuple[str, Module, str]]
"""Where a parameter stands: the path of its module, the module, and its name there."""


def parallelize_module(
    module: M, device_mesh: DeviceMesh | None = None,
    parallelize_plan: ParallelStyle | Mapping[str, ParallelStyle] | None = None, *,
    src_data_rank: int | None = 0,
) -> M:  # fmt: skip
    """Split ``module`` over the ranks of ``device_mesh``, of one dimension; return what takes its place.

    The plan is a style for ``module`` itself, or styles by the paths of modules in it, in which ``*``, ``?``
    and ``[...]`` stand for parts of a name: ``"layers.*.mlp.up"``. Parameters of layers that it splits become
    those of the mesh's rank at place ``src_data_rank``, or with None parts of what each rank has, without
    communication; all others stay as they are, so seed ranks alike, or load one state. One that several
    modules share stays one. All ranks call it, and make optimizers afterwards. For two dimensions, split by a
    dimension's slice ``mesh["tp"]``, then ``replicate`` over the other.

    Raises ``ArgumentError`` for a mesh of several dimensions, a path that names no module, and a shared
    parameter that the plan lays out in two ways.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank():
    ...     mesh = dist.init_device_mesh("cpu", (2,))
    ...     model = tb.nn.ModuleDict({name: tb.nn.Linear(4, 4, device="cpu") for name in ("q", "k", "out")})
    ...     plan = {"[qk]": dist.ColwiseParallel(), "out": dist.RowwiseParallel()}
    ...     dist.parallelize_module(model, mesh, plan)
    ...     return [layer.weight.placements[0] for layer in model.values()]
    >>> dist.run_ranks(rank, 2)[0]
    [Shard(dim=0), Shard(dim=0), Shard(dim=1)]
    """
    if not isinstance(module, Module):
        raise ArgumentError(f"parallelize_module: a module is needed, got {module!r}.")
    device_mesh = mesh_for("parallelize_module", device_mesh)
    if device_mesh.ndim != 1:
        raise ArgumentError(
            f"parallelize_module: a mesh of one dimension is needed, got {device_mesh!r}; pass a slice of it,"
            f" such as mesh[{(device_mesh.mesh_dim_names or ('tp',))[-1]!r}]."
        )
    device_mesh.places("parallelize_module")
    check_source("parallelize_module", src_data_rank, device_mesh)
    shared, group = _shared_parameters(module), device_mesh.get_group()
    owner = numbered(group, type(module).__name__)
    if isinstance(parallelize_plan, ParallelStyle):
        label_as(module, owner)
        parallelize_plan.src_data_rank = src_data_rank
        module = cast("M", parallelize_plan.apply(module, device_mesh))
    elif not isinstance(parallelize_plan, Mapping):
        raise ArgumentError(
            f"parallelize_module: a plan is a style, or styles by the paths of modules, as"
            f" {{'up': ColwiseParallel()}}, got {parallelize_plan!r}."
        )
    else:
        for path, style in parallelize_plan.items():
            if not isinstance(style, ParallelStyle):
                raise ArgumentError(
                    f"parallelize_module: the plan holds styles such as ColwiseParallel(), got {style!r} for"
                    f" {path!r}."
                )
            style.src_data_rank = src_data_rank
            if not path:
                label_as(module, owner)
                module = cast("M", style.apply(module, device_mesh))
                continue
            for name in _matching(module, path):
                submodule = module.get_submodule(name)
                label_as(submodule, f"{name!r} of {owner}")
                if (split := style.apply(submodule, device_mesh)) is not submodule:
                    module.set_submodule(name, split)
    for parameter, owners in shared:
        _join(parameter, owners)
    return module


def _matching(module: Module, path: str) -> list[str]:
    """Return the paths of modules that a pattern stands for, name by name."""
    wanted = path.split(".")
    names = [name for name, _ in module.named_modules() if name]
    matches = [
        name for name in names
        if len(parts := name.split(".")) == len(wanted) and all(map(fnmatchcase, parts, wanted))
    ]  # fmt: skip
    if not matches:
        near = get_close_matches(path, names, 3) or names[:8]
        raise ArgumentError(
            f"parallelize_module: the plan's {path!r} names no module of this {type(module).__name__}; it has"
            f" {', '.join(map(repr, near)) or 'none'}{', ...' if len(near) < len(names) else ''}."
        )
    return matches


def _shared_parameters(module: Module) -> list[tuple[Parameter, Owners]]:
    """Return the parameters that stand in several places."""
    places: dict[int, tuple[Parameter, Owners]] = {}
    for path, submodule in module.named_modules():
        for name, parameter in submodule._parameters.items():
            if parameter is not None:
                places.setdefault(id(parameter), (parameter, []))[1].append((path, submodule, name))
    return [place for place in places.values() if len(place[1]) > 1]


def _join(parameter: Parameter, owners: Owners) -> None:
    """Make one again of what styles made of a parameter that several modules share."""
    present = [getattr(module, name) for _, module, name in owners]
    laid = [(p, path) for p, (path, _, _) in zip(present, owners, strict=True) if p is not parameter]
    if not laid:
        return
    first = laid[0][0]
    for other, path in laid[1:]:
        if not isinstance(other, DTensor) or other.placements != first.placements:
            raise ArgumentError(
                f"parallelize_module: {laid[0][1]!r} and {path!r} share a parameter, which the plan lays out"
                f" as {[*first.placements]} and as {[*getattr(other, 'placements', ['whole'])]}; styles must"
                f" agree, as RowwiseParallel of an Embedding and ColwiseParallel of a Linear do."
            )
    for _, module, name in owners:
        setattr(module, name, first)
