"""Styles of tensor parallelism: how a module's parameters lie, and what goes in and comes out.

``parallelize_module`` applies them. Tensors outside of a module may be parts, ordinary tensors; inside they
are distributed ones, so that ops choose the collectives, and a style only says where things lie.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...errors import ArgumentError, ShapeError
from ...nn.module import Module
from ...nn.modules.embedding import Embedding
from ...nn.modules.linear import Linear
from ...nn.parameter import Parameter
from ...tensor.tensor import Tensor
from ..tensor.device_mesh import DeviceMesh
from ..tensor.distribute_module import distribute_module
from ..tensor.dtensor import DTensor, distribute_tensor
from ..tensor.module_hook import MeshHook
from ..tensor.placements import Placement, Replicate, Shard
from .labels import labeled

Layouts = Placement | Sequence[Placement | None] | None
_WHOLE: Final = Replicate()
_LAST: Final = Shard(-1)


class ParallelStyle(ABC):
    """A way to split a module over the ranks along one dimension of a mesh, for ``parallelize_module``.

    A style of your own has ``apply(module, device_mesh)``, which changes the module or returns another one.
    ``parallelize_module`` puts its ``src_data_rank`` there before: see ``distribute_tensor``.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> class Frozen(dist.ParallelStyle):
    ...     def apply(self, module, device_mesh):
    ...         return module.requires_grad_(False)
    >>> def rank() -> list[bool]:
    ...     model, mesh = tb.nn.Sequential(tb.nn.Linear(2, 2)), dist.init_device_mesh("cpu", (2,))
    ...     dist.parallelize_module(model, mesh, {"0": Frozen()})
    ...     return [p.requires_grad for p in model.parameters()]
    >>> dist.run_ranks(rank, 2)[0]
    [False, False]
    """

    src_data_rank: int | None = 0

    @abstractmethod
    def apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        """Split ``module`` over ``device_mesh``, which has one dimension; return what takes its place."""


class _LayerStyle(ParallelStyle):
    """Base of the styles that split the parameters of one layer."""

    _splits: Mapping[type[Module], Mapping[str, Placement]]
    """Where the parameters of a kind of layer lie, by name; those that are not named are whole."""

    def __init__(self, before: Placement, after: Placement, use_local_output: bool) -> None:
        name = type(self).__name__
        self.input_layouts = (_placement(f"{name}: input_layouts", before),)
        self.output_layouts = (_placement(f"{name}: output_layouts", after),)
        self.use_local_output = use_local_output

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(input_layouts={self.input_layouts[0]},"
            f" output_layouts={self.output_layouts[0]}, use_local_output={self.use_local_output})"
        )

    def apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        """Split a ``Linear`` or an ``Embedding``; raises ``ArgumentError`` for all else."""
        kind = next((kind for kind in self._splits if isinstance(module, kind)), None)
        if kind is None:
            raise ArgumentError(
                f"{type(self).__name__}: it splits {' and '.join(k.__name__ for k in self._splits)}, got"
                f" {type(module).__name__}. Name the layers inside of it in the plan, as 'block.0.linear'."
            )
        splits = self._splits[kind]

        def partition(name: str, layer: Module, mesh: DeviceMesh) -> None:
            _lay_out(layer, mesh, splits, self.src_data_rank)

        def enter(layer: Module, args: tuple[Any, ...], mesh: DeviceMesh) -> tuple[Any, ...]:
            length = layer.in_features if isinstance(layer, Linear) else None
            x = _laid(_first(type(self).__name__, layer, args), mesh, self.input_layouts[0], length)
            return x.redistribute([self._input_of(layer)], label=labeled(layer, "input")), *args[1:]

        def leave(layer: Module, out: Any, mesh: DeviceMesh) -> Any:
            name, label = type(self).__name__, labeled(layer, "output")
            return _out(name, out, self.output_layouts[0], self.use_local_output, label)

        return distribute_module(module, device_mesh, partition, enter, leave)

    def _input_of(self, layer: Module) -> Placement:
        """Return where the input of a layer lies while it runs."""
        return _WHOLE


class ColwiseParallel(_LayerStyle):
    """Split what a ``Linear`` gives, or the width of an ``Embedding``, over ranks.

    Its input is whole on each rank, or moved there from ``input_layouts`` (None: ``Replicate()``); its
    output is ``output_layouts`` (None: ``Shard(-1)``), an ordinary tensor unless ``use_local_output`` is
    False. Lengths need not divide. A ``RowwiseParallel`` layer takes the output as it lies, so that two
    layers need one collective.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank():
    ...     mesh = dist.init_device_mesh("cpu", (2,))
    ...     mlp = tb.nn.Sequential(tb.nn.Linear(2, 8), tb.nn.GELU(), tb.nn.Linear(8, 2)).to("cpu")
    ...     plan = {"0": dist.ColwiseParallel(), "2": dist.RowwiseParallel()}
    ...     dist.parallelize_module(mlp, mesh, plan)
    ...     return mlp[0].weight.to_local().shape, mlp(tb.ones((3, 2), device="cpu")).shape
    >>> dist.run_ranks(rank, 2)
    [((4, 2), (3, 2)), ((4, 2), (3, 2))]
    """

    _splits = {Linear: {"weight": Shard(0), "bias": Shard(0)}, Embedding: {"weight": Shard(1)}}

    def __init__(
        self, *, input_layouts: Placement | None = None, output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(input_layouts or _WHOLE, output_layouts or _LAST, use_local_output)


class RowwiseParallel(_LayerStyle):
    """Split what a ``Linear`` sums over, or the rows of an ``Embedding``, over ranks.

    The input of a ``Linear`` is split along its last axis, or moved there from ``input_layouts`` (None:
    ``Shard(-1)``); that of an ``Embedding`` is whole, and ``input_layouts=Replicate()`` says so. The output
    is summed over ranks into ``output_layouts`` (None: ``Replicate()``; ``Shard(1)`` for sequence parallel),
    an ordinary tensor unless ``use_local_output`` is False. Lengths need not divide.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank():
    ...     model, mesh = tb.nn.Embedding(5, 2).to("cpu"), dist.init_device_mesh("cpu", (2,))
    ...     dist.parallelize_module(model, mesh, dist.RowwiseParallel(input_layouts=dist.Replicate()))
    ...     return model.weight.to_local().shape, model(tb.asarray([0, 4], device="cpu")).shape
    >>> dist.run_ranks(rank, 2)
    [((3, 2), (2, 2)), ((2, 2), (2, 2))]
    """

    _splits = {Linear: {"weight": Shard(1)}, Embedding: {"weight": Shard(0)}}

    def __init__(
        self, *, input_layouts: Placement | None = None, output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(input_layouts or _LAST, output_layouts or _WHOLE, use_local_output)

    def _input_of(self, layer: Module) -> Placement:
        return _LAST if isinstance(layer, Linear) else _WHOLE


class SequenceParallel(ParallelStyle):
    """Run a layer on parts of the sequence: norms, dropout, and all that treats places by themselves.

    Parameters are whole on each rank. An ordinary input is this rank's part along ``sequence_dim``, and a
    distributed one is moved there; the output lies so too, and is distributed unless ``use_local_output``.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank():
    ...     model, mesh = tb.nn.LayerNorm(4).to("cpu"), dist.init_device_mesh("cpu", (2,))
    ...     dist.parallelize_module(model, mesh, dist.SequenceParallel())
    ...     y = model(tb.ones((1, 3, 4), device="cpu"))  # three of six places
    ...     return y.shape, y.placements
    >>> dist.run_ranks(rank, 2)[0]
    ((1, 6, 4), (Shard(dim=1),))
    """

    def __init__(self, *, sequence_dim: int = 1, use_local_output: bool = False) -> None:
        self.sequence_dim, self.use_local_output = sequence_dim, use_local_output

    def __repr__(self) -> str:
        return f"SequenceParallel(sequence_dim={self.sequence_dim}, use_local_output={self.use_local_output})"

    def apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        """Run ``module`` on parts of the sequence."""
        place = Shard(self.sequence_dim)

        def enter(layer: Module, args: tuple[Any, ...], mesh: DeviceMesh) -> tuple[Any, ...]:
            x = _laid(_first("SequenceParallel", layer, args), mesh, place, None)
            return x.redistribute([place], label=labeled(layer, "input")), *args[1:]

        def leave(layer: Module, out: Any, mesh: DeviceMesh) -> Any:
            return _out("SequenceParallel", out, None, self.use_local_output, "")

        def partition(name: str, layer: Module, mesh: DeviceMesh) -> None:
            _lay_out(layer, mesh, {}, self.src_data_rank)

        return distribute_module(module, device_mesh, partition, enter, leave)


class PrepareModuleInput(ParallelStyle):
    """Lay out what goes into a module: each argument of its ``forward``.

    ``input_layouts`` says where arguments come from, one entry each or one placement for a single argument;
    None leaves an argument as it is. ``desired_input_layouts`` says where they go. The same for arguments by
    name in ``input_kwarg_layouts`` and ``desired_input_kwarg_layouts``. The module gets distributed tensors,
    or with ``use_local_output`` this rank's parts. Raises ``ArgumentError`` where entries do not fit.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank():
    ...     model, mesh = tb.nn.GELU(), dist.init_device_mesh("cpu", (2,))
    ...     whole = dist.PrepareModuleInput(
    ...         input_layouts=dist.Shard(0), desired_input_layouts=dist.Replicate(), use_local_output=True
    ...     )
    ...     dist.parallelize_module(model, mesh, whole)
    ...     return model(tb.ones((2, 4), device="cpu")).shape
    >>> dist.run_ranks(rank, 2)
    [(4, 4), (4, 4)]
    """

    def __init__(
        self, *, input_layouts: Layouts = None, desired_input_layouts: Layouts = None,
        input_kwarg_layouts: Mapping[str, Placement] | None = None,
        desired_input_kwarg_layouts: Mapping[str, Placement] | None = None, use_local_output: bool = False,
    ) -> None:  # fmt: skip
        name = type(self).__name__
        self._arguments = _pairs(name, "input_layouts", input_layouts, desired_input_layouts)
        before, after = input_kwarg_layouts or {}, desired_input_kwarg_layouts or {}
        if before.keys() != after.keys():
            raise ArgumentError(
                f"{name}: input_kwarg_layouts and desired_input_kwarg_layouts must name the same arguments,"
                f" got {[*before]} and {[*after]}."
            )
        self._named = {
            key: _pairs(name, f"input_kwarg_layouts of {key!r}", [before[key]], [after[key]])[0]
            for key in before
        }
        self.use_local_output = use_local_output

    def apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        """Lay out what goes into ``module``."""

        def enter(
            layer: Module, args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> tuple[tuple[Any, ...], dict[str, Any]]:
            local, name = self.use_local_output, "PrepareModuleInput"
            label = labeled(layer, "input")
            if self._arguments:
                args = _moved(name, "input_layouts", args, self._arguments, device_mesh, local, label)
            moved = {
                key: _change(name, kwargs[key], pair, device_mesh, local, f"{label} {key}" if label else "")
                for key, pair in self._named.items()
                if key in kwargs
            }
            return args, kwargs | moved

        module.register_forward_pre_hook(MeshHook(enter), with_kwargs=True)
        return module


class PrepareModuleOutput(ParallelStyle):
    """Lay out what comes out of a module: a tensor, or each of a tuple.

    ``output_layouts`` says where results come from, ``desired_output_layouts`` where they go, one entry each;
    None leaves a result as it is. They are this rank's parts, or with ``use_local_output=False`` distributed.
    Raises ``ArgumentError`` where entries do not fit the results.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank():
    ...     model, mesh = tb.nn.GELU(), dist.init_device_mesh("cpu", (2,))
    ...     part = dist.PrepareModuleOutput(
    ...         output_layouts=dist.Replicate(), desired_output_layouts=dist.Shard(0)
    ...     )
    ...     dist.parallelize_module(model, mesh, part)
    ...     return model(tb.ones((2, 4), device="cpu")).shape
    >>> dist.run_ranks(rank, 2)
    [(1, 4), (1, 4)]
    """

    def __init__(
        self, *, output_layouts: Layouts, desired_output_layouts: Layouts, use_local_output: bool = True
    ) -> None:
        self._results = _pairs(type(self).__name__, "output_layouts", output_layouts, desired_output_layouts)
        self.use_local_output = use_local_output

    def apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        """Lay out what comes out of ``module``."""

        def leave(layer: Module, args: tuple[Any, ...], out: Any) -> Any:
            several = isinstance(out, tuple | list)
            values = tuple(out) if several else (out,)
            moved = _moved(
                "PrepareModuleOutput", "output_layouts", values, self._results, device_mesh,
                self.use_local_output, labeled(layer, "output"),
            )  # fmt: skip
            return type(out)(moved) if several else moved[0]

        module.register_forward_hook(MeshHook(leave))
        return module


class PrepareModuleInputOutput(ParallelStyle):
    """``PrepareModuleInput`` and ``PrepareModuleOutput`` in one; ``use_local_input`` is the former's.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank():
    ...     model, mesh = tb.nn.Linear(4, 4).to("cpu"), dist.init_device_mesh("cpu", (2,))
    ...     around = dist.PrepareModuleInputOutput(
    ...         input_layouts=dist.Shard(0), desired_input_layouts=dist.Replicate(), use_local_input=True,
    ...         output_layouts=dist.Replicate(), desired_output_layouts=dist.Shard(0),
    ...     )
    ...     dist.parallelize_module(model, mesh, around)
    ...     return model(tb.ones((2, 4), device="cpu")).shape
    >>> dist.run_ranks(rank, 2)
    [(2, 4), (2, 4)]
    """

    def __init__(
        self, *, input_layouts: Layouts = None, desired_input_layouts: Layouts = None,
        input_kwarg_layouts: Mapping[str, Placement] | None = None,
        desired_input_kwarg_layouts: Mapping[str, Placement] | None = None, use_local_input: bool = False,
        output_layouts: Layouts, desired_output_layouts: Layouts, use_local_output: bool = True,
    ) -> None:  # fmt: skip
        self._before = PrepareModuleInput(
            input_layouts=input_layouts, desired_input_layouts=desired_input_layouts,
            input_kwarg_layouts=input_kwarg_layouts, desired_input_kwarg_layouts=desired_input_kwarg_layouts,
            use_local_output=use_local_input,
        )  # fmt: skip
        self._after = PrepareModuleOutput(
            output_layouts=output_layouts, desired_output_layouts=desired_output_layouts,
            use_local_output=use_local_output,
        )  # fmt: skip

    def apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        """Lay out what goes into ``module`` and what comes out."""
        return self._after.apply(self._before.apply(module, device_mesh), device_mesh)


Pair = tuple[Placement | None, Placement | None]


def _pairs(name: str, what: str, before: Layouts, after: Layouts) -> tuple[Pair, ...]:
    """Return where each argument or result comes from and goes to."""
    sources, targets = (
        tuple(None if p is None else _placement(f"{name}: {what}", p) for p in _several(layout))
        for layout in (before, after)
    )
    if len(sources) != len(targets):
        raise ArgumentError(
            f"{name}: {what} has {len(sources)} entries and desired_{what} {len(targets)}; they must have as"
            f" many."
        )
    return tuple(zip(sources, targets, strict=True))


def _several(layout: Any) -> Sequence[Any]:
    """Return the entries of arguments or results: of none, of one, or of each."""
    if layout is None:
        return ()
    return layout if isinstance(layout, tuple | list) else (layout,)


def _placement(what: str, p: object) -> Placement:
    """Return what says how a tensor lies, or raise ``ArgumentError``."""
    if not isinstance(p, Placement):
        raise ArgumentError(f"{what}: Shard(axis), Replicate() or Partial() is needed, got {p!r}.")
    return p


def _lay_out(layer: Module, mesh: DeviceMesh, splits: Mapping[str, Placement], source: int | None) -> None:
    """Make distributed tensors of a layer's own parameters and buffers: whole, where nothing splits them."""
    for key, parameter in [*layer.named_parameters(recurse=False)]:
        if not isinstance(parameter, DTensor):
            laid = distribute_tensor(parameter, mesh, [splits.get(key, _WHOLE)], src_data_rank=source)
            layer.register_parameter(key, Parameter(laid, parameter.requires_grad))
    for key, buffer in [*layer.named_buffers(recurse=False)]:
        if not isinstance(buffer, DTensor):
            setattr(layer, key, distribute_tensor(buffer, mesh, [_WHOLE], src_data_rank=source))


def _moved(
    name: str, what: str, values: tuple[Any, ...], pairs: Sequence[Pair], mesh: DeviceMesh, local: bool,
    label: str,
) -> tuple[Any, ...]:  # fmt: skip
    if len(values) != len(pairs):
        raise ArgumentError(
            f"{name}: {what} has {len(pairs)} entries for {len(values)} values; it needs one for each, None"
            f" for what stays as it is."
        )
    return tuple(
        _change(name, x, pair, mesh, local, f"{label} {place}" if label else "")
        for place, (x, pair) in enumerate(zip(values, pairs, strict=True))
    )


def _change(name: str, x: Any, pair: Pair, mesh: DeviceMesh, local: bool, label: str) -> Any:
    before, after = pair
    if before is None or not isinstance(x, Tensor):
        return x
    return _out(name, _laid(x, mesh, before, None), after, local, label)


def _first(name: str, layer: Module, args: tuple[Any, ...]) -> Any:
    """Return what goes into a layer. Raises ``ArgumentError`` where that was passed by name."""
    if not args:
        raise ArgumentError(
            f"{name}: it lays out the first argument of {type(layer).__name__}, which was called without one;"
            f" pass it by position: layer(x). PrepareModuleInput takes input_kwarg_layouts."
        )
    return args[0]


def _laid(x: Any, mesh: DeviceMesh, placement: Placement, last: int | None) -> DTensor:
    """Return ``x`` as a distributed tensor; an ordinary one is a part, as ``placement`` says.

    ``last`` is the length of the last axis as a whole, where it is known; else all parts are as long.
    """
    if isinstance(x, DTensor):
        return x
    shape = None
    if last is not None and isinstance(placement, Shard) and placement.dim % x.ndim == x.ndim - 1:
        shape = (*x.shape[:-1], last)
    return DTensor.from_local(x, mesh, [placement], shape=shape)


def _out(name: str, x: Any, placement: Placement | None, local: bool, label: str) -> Any:
    """Return ``x`` as ``placement`` says (None: as it lies), or this rank's part of it."""
    if not isinstance(x, DTensor):
        return x
    if placement is not None:
        x = x.redistribute([placement], label=label)
    if not local:
        return x
    (place,), (size,) = x.placements, x.device_mesh.shape
    if isinstance(place, Shard) and place.dim != len(x.shape) - 1 and x.shape[place.dim] % size:
        raise ShapeError(
            f"{name}: a result of shape {x.shape} has parts of different lengths on {size} ranks along axis"
            f" {place.dim}, and a rank's part does not tell the length of the whole. Keep it distributed:"
            f" use_local_output=False."
        )
    return x.to_local()
