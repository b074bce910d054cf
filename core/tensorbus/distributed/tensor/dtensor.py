"""A tensor that lies on the ranks of a mesh: each has a part of it, and all know how it is laid out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from ...autograd import engine
from ...autograd.engine import no_grad
from ...autograd.views import DETACHED, link
from ...devices.device import cell_classes
from ...dispatch.modes import detached_value, readable, register_value_mode
from ...dispatch.plan import Plan
from ...dtypes import definition as dt
from ...dtypes.definition import DType
from ...errors import ArgumentError, AutogradError, ShapeError
from ...nn.parameter import Parameter
from ...ops.definition import Op, table
from ...tensor.leaf import Leaf
from ...tensor.tensor import Tensor, wrap
from ..collectives import functional
from .device_mesh import META, DeviceMesh, mesh_for
from .explicit_mode import check_move
from .gradient_layout import GradientLayout
from .layout import MESH, Distributed, MeshLayout, cell_of, layout_of
from .mesh_mode import MeshMode
from .part_agreement import check_agreement
from .placements import (
    LINEAR_REDUCTIONS,
    Partial,
    Placement,
    Placements,
    Replicate,
    Shard,
    checked_placements,
    local_shape,
)
from .redistribute import gradient_placements, move, redistribute

_IN_PARTS: Final = (
    "the memory of a distributed tensor lies in parts on several ranks, and cannot be shared as one; export"
    " x.to_local(), this rank's part, or x.full_tensor()."
)


def _change(name: str, vjp: Callable[..., tuple[Any, ...]]) -> Op[...]:
    """Return what stands in a history for a change between a part and the whole; it is in no table."""
    return Op(
        name=name, family="alias", operands=("x",), arguments=lambda x, /: ((x,), {}),
        infer=lambda specs, **_: specs[0], vjp=vjp, dtypes=dt.ALL,
    )  # fmt: skip


_FROM_LOCAL: Final = _change("from_local", lambda g, layout: (_part_gradient(g, layout),))
_TO_LOCAL: Final = _change("to_local", lambda g, layout: (_cell(g, layout),))
_REDISTRIBUTE: Final = _change(
    "redistribute", lambda g, placements, through, dtype: (_sent_back(g, placements, through, dtype),)
)


T = TypeVar("T", bound=Tensor)


def _recorded(op: Op[...], x: Tensor, out: T, **attrs: Any) -> T:
    """Return ``out``, with the history of a change of ``x``."""
    if x._node is not None:
        plan = Plan(
            op=op, operands=(x._vtype.materialized,), run=None, out=out._vtype.materialized, casts=(None,),
            attrs=attrs,
        )  # fmt: skip
        engine.record(plan, (x,), out)
    return out


def _sent_back(g: Any, placements: Placements, through: DType | str | None, dtype: DType | None) -> Any:
    """Return the gradient where the tensor came from, moved once, and not by each op that takes it.

    It is sent in the dtype ``through`` and comes to have ``dtype``; None: its own.
    """
    back = (g if through is None else g.to(through)).redistribute(placements)
    return back if dtype is None else back.to(dtype)


def _part_gradient(g: DTensor, layout: MeshLayout) -> Tensor:
    """Return the gradient of a rank's part, of which the tensor in ``layout`` was made."""
    mesh = layout.mesh
    g = g.redistribute(gradient_placements(layout.placements))
    part: Tensor = g._value.local
    for placement, size in zip(layout.placements, mesh.shape, strict=True):
        if not isinstance(placement, Partial):
            continue
        if placement.reduction not in ("sum", "average"):
            raise AutogradError(f"from_local: {placement} has no derivative; sums and averages have one.")
        if placement.reduction == "average":
            part = part / size
    return part


def _gradient_layout(layout: MeshLayout, placements: Sequence[Placement] | None) -> MeshLayout:
    """Return how the gradient of a rank's part lies, which has the part's shape; None: as the tensor."""
    own = gradient_placements(layout.placements)
    if placements is not None:
        chosen = checked_placements("to_local", placements, layout.mesh.ndim, len(layout.shape))
        for before, p, size in zip(layout.placements, chosen, layout.mesh.shape, strict=True):
            cut = isinstance(p, Shard) or isinstance(before, Shard)
            if (cut and p != before and size > 1) or getattr(p, "reduction", "sum") not in LINEAR_REDUCTIONS:
                raise ArgumentError(
                    f"to_local: grad_placements {[*chosen]} were given for a tensor in"
                    f" {[*layout.placements]}; the gradient of a part is Shard where the tensor is, and"
                    f" Replicate, Partial() or Partial('average') elsewhere."
                )
        own = chosen
    return layout_of(layout.mesh, own, layout.shape)


def _cell(local: Tensor, layout: MeshLayout) -> DTensor:
    """Return the distributed tensor without history whose part is ``local``."""
    out: DTensor = cell_of(wrap(local._value, local._vtype), layout.mesh, layout.placements, layout.shape)
    return out


class DTensor(Tensor):
    """A tensor of ``shape`` on the ranks of ``device_mesh``, with a placement for each of its dimensions.

    ``distribute_tensor`` and ``DTensor.from_local`` make one. It is a ``Tensor``: ops run on it, each rank
    calling the same, and give what they would on one device, in whichever placements communicate least; so
    do derivatives, in-place changes, modules, optimizers. Operands are distributed over one mesh, or single
    numbers. ``redistribute`` lays it out otherwise, ``to_local`` is this rank's part, ``local_map`` calls a
    function of parts. Its ``device`` stands for the mesh: new tensors on it are the same on each rank. The
    gradient of a leaf lies as the leaf does; that of a ``Partial`` is the whole one on each rank.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank():
    ...     mesh = dist.init_device_mesh("cpu", (2,))
    ...     x = dist.distribute_tensor(tb.ones((4, 2), device="cpu"), mesh, [dist.Shard(0)])
    ...     y = (x * 2).sum()
    ...     return y.placements, y.item()
    >>> dist.run_ranks(rank, 2)[0]
    ((Partial(reduction='sum'),), 16.0)
    """

    __slots__ = ()

    @staticmethod
    def from_local(
        local_tensor: Tensor, device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None, *, run_check: bool = False,
        shape: Sequence[int] | None = None,
    ) -> DTensor:  # fmt: skip
        """Return the tensor that the ranks' parts make up, without communication.

        None for ``placements``: whole on each rank. ``shape`` is that of the whole; None: every rank's part
        is as large as this one. With ``run_check`` the ranks compare what they pass, and the elements of what
        is ``Replicate``. Raises ``ShapeError`` where the part is not what ``chunk`` gives this rank, and
        ``ArgumentError`` where ranks that compare do not agree.
        """
        mesh = _checked("from_local", local_tensor, device_mesh)
        if isinstance(local_tensor, DTensor):
            raise ArgumentError(
                "from_local: a rank's part is needed, got a DTensor; lay that out by redistribute()."
            )
        wanted = (Replicate(),) * mesh.ndim if placements is None else placements
        chosen = checked_placements("from_local", wanted, mesh.ndim, local_tensor.ndim)
        if run_check:
            check_agreement(local_tensor, mesh, chosen, shape)
        if shape is None:
            whole = list(local_tensor.shape)
            for size, placement in zip(mesh.shape, chosen, strict=True):
                if isinstance(placement, Shard):
                    whole[placement.dim] *= size
            shape = whole
        part = local_shape(shape, chosen, mesh.shape, mesh.places("from_local"))
        if part != tuple(local_tensor.shape):
            raise ShapeError(
                f"from_local: of shape {tuple(shape)}, laid out as {[*chosen]}, this rank has a part of shape"
                f" {part}, got {tuple(local_tensor.shape)}."
            )
        x = _on_mesh(local_tensor, mesh)
        out: DTensor = cell_of(wrap(x._value, x._vtype), mesh, chosen, tuple(shape))
        return _recorded(_FROM_LOCAL, x, out, layout=out._value.layout)

    def to_local(self, *, grad_placements: Sequence[Placement] | None = None) -> Tensor:
        """Return this rank's part, with history.

        ``grad_placements`` says how the gradient that comes back lies; None: as the tensor does. A part that
        is the same on all ranks, and used on each for other data, gets a ``Partial()`` gradient. Raises
        ``ArgumentError`` where a gradient that lies so has other parts than the tensor.
        """
        value: Distributed = self._value
        layout, local = value.layout, value.local
        if self._node is None:
            return wrap(local._value, local._vtype)
        back = _gradient_layout(layout, grad_placements)
        return _recorded(_TO_LOCAL, self, wrap(local._value, local._vtype), layout=back)

    def full_tensor(self, *, grad_placements: Sequence[Placement] | None = None) -> Tensor:
        """Return the whole tensor, the same on each rank. All ranks of the mesh call it."""
        whole = self.redistribute([Replicate()] * self.device_mesh.ndim)
        return whole.to_local(grad_placements=grad_placements)

    def redistribute(
        self, device_mesh: DeviceMesh | Sequence[Placement] | None = None,
        placements: Sequence[Placement] | None = None, *, forward_dtype: DType | str | None = None,
        backward_dtype: DType | str | None = None, label: str = "",
    ) -> DTensor:  # fmt: skip
        """Return the same tensor in other placements, by the cheapest sequence of collectives.

        ``redistribute(placements)`` and, as in PyTorch, ``redistribute(device_mesh, placements)`` on the mesh
        that it lies on. It is sent in ``forward_dtype``, which is that of the result, and its gradient in
        ``backward_dtype``; None: in their own. All ranks of the mesh call it; ``label`` is as for
        ``functional``. The gradient goes back to where this tensor lies; that of a ``Partial`` is whole on
        each rank. Raises ``ArgumentError``, ``AxisError`` and what collectives raise.
        """
        if forward_dtype is not None or backward_dtype is not None:
            return self._redistributed_in(device_mesh, placements, forward_dtype, backward_dtype, label)
        layout: MeshLayout = self._value.layout
        wanted: Any = placements
        if device_mesh is not None and not isinstance(device_mesh, DeviceMesh):
            wanted, device_mesh = device_mesh, None
        if wanted is layout.placements and device_mesh is None:
            return self
        if wanted is None or device_mesh not in (None, layout.mesh):
            raise ArgumentError(
                f"redistribute: placements on {layout.mesh!r} are needed, got {wanted!r} on {device_mesh!r};"
                f" distribute_tensor(x.full_tensor(), mesh, placements) brings a tensor to another mesh."
            )
        chosen = checked_placements("redistribute", wanted, layout.mesh.ndim, len(self.shape))
        if chosen == layout.placements:
            return self
        target = layout_of(layout.mesh, chosen, layout.shape)
        out: Any = wrap(Distributed(move(self._value.local, layout, target, label), target), self._vtype)
        moved: DTensor = _recorded(
            _REDISTRIBUTE,
            self,
            out,
            placements=gradient_placements(layout.placements),
            through=None,
            dtype=None,
        )
        return moved

    def _redistributed_in(
        self, device_mesh: Any, placements: Any, forward: DType | str | None, backward: DType | str | None,
        label: str,
    ) -> DTensor:  # fmt: skip
        """Return the tensor in other placements, sent in other dtypes than its own."""
        with no_grad():
            x: DTensor = self.detach() if forward is None else self.detach().to(forward)  # type: ignore[assignment]
            out = x.redistribute(device_mesh, placements, label=label)
        own = gradient_placements(self.placements)
        return _recorded(_REDISTRIBUTE, self, out, placements=own, through=backward, dtype=self.dtype)

    @property
    def device_mesh(self) -> DeviceMesh:
        """The mesh whose ranks have the tensor."""
        layout: MeshLayout = self._value.layout
        return layout.mesh

    @property
    def placements(self) -> Placements:
        """The placement of the tensor along each dimension of the mesh."""
        layout: MeshLayout = self._value.layout
        return layout.placements

    def detach(self) -> Tensor:
        """Return a view of this tensor without history: a write to one of the two is seen in the other."""
        return link(wrap(detached_value(self), self._vtype), self, DETACHED)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Ask for a gradient, or stop asking; return the tensor itself. The gradient lies as the tensor."""
        super().requires_grad_(requires_grad)
        if isinstance(self._node, Leaf):
            self._node.lay_out = GradientLayout(self._value.layout)
        return self

    def _set_value(self, other: Tensor) -> None:
        """Make this cell hold the value of another, history apart; it stays in its placements."""
        own: Any = getattr(self, "_value", None)
        there = getattr(other._value, "layout", None)
        if own is not None and there is not None and there is not own.layout and there.shape == own.shape:
            check_move("a change in place", "its result", other._value, own.layout.placements)
            with no_grad():
                other = other.detach().redistribute(own.layout.placements)
        super()._set_value(other)

    @staticmethod
    def _filled_like(x: Any, value: Any, dtype: DType, device: Any = None) -> Tensor:
        """Return a tensor laid out as ``x``, with one number everywhere; None: on the device of its parts."""
        local, layout = x._value.local, x._value.layout
        placements = gradient_placements(layout.placements)
        part = table["full"](local.shape, value, dtype=dtype, device=device or local.device)
        return _cell(part, layout_of(layout.mesh, placements, layout.shape))

    @staticmethod
    def _empty_as(x: Any, device: Any) -> Tensor:
        """Return a tensor laid out as ``x``, with parts on another device and unspecified contents."""
        layout = x._value.layout
        part = table["full"](x._value.local.shape, 0, dtype=x.dtype, device=device)
        like: DTensor = cell_of(part, layout.mesh, layout.placements, layout.shape)
        return like

    @staticmethod
    def _with_number(x: Any, selection: Any, number: Any) -> Tensor | None:
        """Return ``x`` with a number in a box of whole lines of parts; None where ranks differ."""
        layout: MeshLayout = x._value.layout
        if selection is None or any(isinstance(p, Partial) for p in layout.placements):
            return None
        split, lines = {p.dim for p in layout.placements if isinstance(p, Shard)}, []
        start, size, step = selection[0].start, selection[0].size, selection[0].step
        for axis, chosen in enumerate(zip(start, size, step, strict=True)):
            is_whole = chosen == (0, layout.shape[axis], 1)
            if chosen[2] < 0 or (axis in split and not is_whole):
                return None
            first, count, stride = chosen
            lines.append(slice(None) if is_whole else slice(first, first + count * stride, stride))
        local = x._value.local
        part = wrap(local._value, local._vtype)
        part[tuple(lines)] = number
        return wrap(Distributed(part, layout), x._vtype)

    @staticmethod
    def _of_moved(value: Distributed) -> Tensor:
        """Return the tensor of a value whose part has moved to another device."""
        return _cell(value.local, value.layout)

    @staticmethod
    def _spread_like(x: Tensor, like: Any) -> Tensor:
        """Return a tensor, the same on each rank or laid out otherwise, as ``like`` lies."""
        layout: MeshLayout = like._value.layout
        mesh = layout.mesh
        whole: Placements = (Replicate(),) * mesh.ndim
        target = layout.placements if x.shape == like.shape else whole
        if isinstance(x, DTensor):
            if x.device_mesh == mesh:
                return x.redistribute(target)
            x = x.full_tensor()
        part = redistribute(_on_mesh(x, mesh), mesh, x.shape, whole, target)
        laid: DTensor = cell_of(part, mesh, target, x.shape)
        return laid

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Serve ``numpy.asarray(x)`` as ``x.numpy()``: with the whole tensor; all ranks call it."""
        if copy is False:
            raise ValueError(
                "__array__: copy=False was asked for, and a distributed tensor lies in parts on several"
                " ranks: an array of it is a copy. x.to_local() is this rank's part."
            )
        return readable(self.detach()).__array__(dtype, copy)

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError(_IN_PARTS)

    def __dlpack_device__(self) -> tuple[int, int]:
        raise BufferError(_IN_PARTS)

    def __buffer__(self, flags: int) -> memoryview:
        raise BufferError(_IN_PARTS)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle this rank's part, for the same rank of a program that has the mesh."""
        if not self.is_leaf:
            raise AutogradError("a recorded result cannot be pickled; use .detach() first.")
        local, mesh = part_of(self.detach()), self.device_mesh
        state = isinstance(self, Parameter), mesh, mesh.places("pickle"), self.placements, self.shape
        return _unpickled, (local, *state, self.requires_grad)

    def __repr__(self) -> str:
        if not hasattr(self, "_value"):
            return object.__repr__(self)
        value: Distributed = self._value
        return f"DTensor(shape={self.shape}, placements={[*self.placements]}, {value.local!r})"


cell_classes[MESH] = DTensor
register_value_mode(MESH, MeshMode())


def distribute_tensor(
    tensor: Tensor, device_mesh: DeviceMesh | None = None, placements: Sequence[Placement] | None = None, *,
    src_data_rank: int | None = 0,
) -> DTensor:  # fmt: skip
    """Lay a tensor out on a mesh: that of one of its ranks; on others it says shape and dtype.

    All ranks call it. None for ``placements``: whole on each rank. Elements come from the rank at place
    ``src_data_rank`` along each dimension of the mesh; None: each rank takes its part of what it has, and
    none communicates. The result is a leaf that requires a gradient where ``tensor`` does. A ``DTensor`` that
    lies so already is returned as it is, and any other one raises ``ArgumentError``.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank():
    ...     mesh = dist.init_device_mesh("cpu", (2,))
    ...     x = dist.distribute_tensor(tb.arange(3, device="cpu"), mesh, [dist.Shard(0)])
    ...     return x.to_local().tolist(), x.full_tensor().tolist()
    >>> dist.run_ranks(rank, 2)
    [([0, 1], [0, 1, 2]), ([2], [0, 1, 2])]
    """
    mesh = _checked("distribute_tensor", tensor, device_mesh)
    whole: Placements = (Replicate(),) * mesh.ndim
    chosen = checked_placements(
        "distribute_tensor", whole if placements is None else placements, mesh.ndim, tensor.ndim
    )
    if isinstance(tensor, DTensor):
        if (tensor.device_mesh, tensor.placements) == (mesh, chosen):
            return tensor
        raise ArgumentError(
            f"distribute_tensor: a tensor of one rank is needed, got a DTensor in {[*tensor.placements]} on"
            f" {tensor.device_mesh!r}. x.redistribute(placements) lays it out otherwise;"
            f" distribute_tensor(x.full_tensor(), mesh, placements) brings it to another mesh."
        )
    check_source("distribute_tensor", src_data_rank, mesh)
    with no_grad():
        x = _on_mesh(tensor.detach(), mesh)
        if src_data_rank is not None:
            for group in mesh.groups:
                x = functional.broadcast(x, src_data_rank, group)
        local = redistribute(x, mesh, x.shape, whole, chosen).detach()
    out: DTensor = cell_of(local, mesh, chosen, tuple(tensor.shape))
    out.requires_grad_(tensor.requires_grad)
    return out


def part_of(x: Tensor) -> Tensor:
    """Return this rank's part of a distributed tensor, without history; any other tensor as it is."""
    return wrap(x._value.local._value, x._value.local._vtype) if isinstance(x, DTensor) else x


def laid_as(part: Tensor, x: Tensor, gradient: bool = False) -> Tensor:
    """Return the tensor, without history, that lies as ``x``, or its ``gradient``, with ``part`` here."""
    if not isinstance(x, DTensor):
        return part
    places = gradient_placements(x.placements) if gradient else x.placements
    return _cell(part, layout_of(x.device_mesh, places, x.shape))


def _unpickled(
    local: Tensor, is_parameter: bool, mesh: DeviceMesh, places: tuple[int, ...], placements: Placements,
    shape: tuple[int, ...], requires_grad: bool,
) -> Tensor:  # fmt: skip
    """Return what was pickled on this rank, or on one that had the same place in an equal mesh."""
    if mesh.get_coordinate() != places:
        raise ArgumentError(
            f"a DTensor was pickled at {places} of {mesh!r}, and has that rank's part; this rank is at"
            f" {mesh.get_coordinate()}. Exchange x.full_tensor(), or what to_local() gives."
        )
    x = DTensor.from_local(local, mesh, placements, shape=shape)
    return Parameter(x, requires_grad) if is_parameter else x.requires_grad_(requires_grad)


def check_source(name: str, source: object, mesh: DeviceMesh) -> None:
    """Raise ``ArgumentError`` for what is no place along every dimension of the mesh, nor None."""
    if source is not None and not (type(source) is int and 0 <= source < min(mesh.shape)):
        raise ArgumentError(
            f"{name}: src_data_rank is a place along each dimension of {mesh!r}, 0 to {min(mesh.shape) - 1},"
            f" or None, got {source!r}."
        )


def _checked(name: str, x: object, device_mesh: object) -> DeviceMesh:
    """Return the mesh that a tensor goes to."""
    if not isinstance(x, Tensor):
        raise ArgumentError(
            f"{name}: a tensor is needed, got {type(x).__name__}; tensorbus.asarray makes one."
        )
    mesh = mesh_for(name, device_mesh)
    mesh.places(name)
    return mesh


def _on_mesh(x: Tensor, mesh: DeviceMesh) -> Tensor:
    """Return ``x`` on the mesh's type of device, unmoved where it lies on one or is a shape alone."""
    return x if mesh.device_type in (None, x.device.type) or x.device.type == META else x.to(mesh.device_type)
