"""A tensor that lies on the ranks of a mesh: each has a part of it, and all know how it is laid out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..autograd.engine import no_grad
from ..autograd.function import Function
from ..devices.device import Device
from ..dtypes.definition import DType
from ..errors import ArgumentError, ShapeError
from ..tensor.tensor import Tensor
from . import functional
from .device_mesh import DeviceMesh
from .placements import Partial, Placement, Placements, Replicate, Shard, checked_placements, local_shape
from .redistribute import gradient_placements, redistribute


class DTensor:
    """A tensor of ``shape`` on the ranks of ``device_mesh``, with a placement for each of its dimensions.

    ``distribute_tensor`` and ``DTensor.from_local`` make one; ``redistribute`` lays it out otherwise, and
    ``to_local`` is this rank's part, on which all ops work; ``local_map`` calls a function of parts. The
    derivative is that of the tensor as a whole, and the gradient lies as the tensor does; that of a
    ``Partial`` is the whole one on each rank.
    """

    __slots__ = ("_local", "device_mesh", "placements", "shape")

    def __init__(
        self, local: Tensor, device_mesh: DeviceMesh, placements: Placements, shape: tuple[int, ...]
    ) -> None:
        self._local, self.device_mesh, self.placements, self.shape = local, device_mesh, placements, shape

    @staticmethod
    def from_local(
        local_tensor: Tensor, device_mesh: DeviceMesh, placements: Sequence[Placement], *,
        shape: Sequence[int] | None = None,
    ) -> DTensor:  # fmt: skip
        """Return the tensor that the ranks' parts make up, without communication.

        ``shape`` is that of the whole; None: every rank's part is as large as this one. Raises ``ShapeError``
        where the part is not what ``chunk`` gives this rank.
        """
        chosen = checked_placements("from_local", placements, device_mesh.ndim, local_tensor.ndim)
        if shape is None:
            whole = list(local_tensor.shape)
            for size, placement in zip(device_mesh.shape, chosen, strict=True):
                if isinstance(placement, Shard):
                    whole[placement.dim] *= size
            shape = whole
        part = local_shape(shape, chosen, device_mesh.shape, device_mesh.get_coordinate())
        if part != tuple(local_tensor.shape):
            raise ShapeError(
                f"from_local: of shape {tuple(shape)}, laid out as {[*chosen]}, this rank has a part of shape"
                f" {part}, got {tuple(local_tensor.shape)}."
            )
        return DTensor(_on_mesh(local_tensor, device_mesh), device_mesh, chosen, tuple(shape))

    def to_local(self, *, grad_placements: Sequence[Placement] | None = None) -> Tensor:
        """Return this rank's part, with history.

        ``grad_placements`` says how the gradient that comes back lies; None: as the tensor does. A part that
        is the same on all ranks, and used on each for other data, gets a ``Partial()`` gradient.
        """
        if grad_placements is None:
            return self._local
        mesh = self.device_mesh
        chosen = checked_placements("to_local", grad_placements, mesh.ndim, len(self.shape))
        own = gradient_placements(self.placements)
        if chosen == own or not self._local.requires_grad:
            return self._local
        return _GradientFrom.apply(self._local, mesh, self.shape, chosen, own)  # type: ignore[no-any-return]

    def full_tensor(self) -> Tensor:
        """Return the whole tensor, the same on each rank. All ranks of the mesh call it."""
        return self.redistribute([Replicate()] * self.device_mesh.ndim)._local

    def redistribute(self, placements: Sequence[Placement]) -> DTensor:
        """Return the same tensor in other placements, by the collectives that send the fewest elements.

        All ranks of the mesh call it. Raises ``ArgumentError``, ``AxisError`` and what collectives raise.
        """
        mesh = self.device_mesh
        chosen = checked_placements("redistribute", placements, mesh.ndim, len(self.shape))
        local = redistribute(self._local, mesh, self.shape, self.placements, chosen)
        return DTensor(local, mesh, chosen, self.shape)

    def backward(self, gradient: DTensor | None = None) -> None:
        """Differentiate; ``gradient`` may be left out where the tensor has one element."""
        if gradient is None:
            self.full_tensor().backward()
        else:
            self._local.backward(gradient.redistribute(gradient_placements(self.placements))._local)

    def detach(self) -> DTensor:
        """Return the same tensor without history."""
        return DTensor(self._local.detach(), self.device_mesh, self.placements, self.shape)

    def requires_grad_(self, requires_grad: bool = True) -> DTensor:
        """Ask for the gradient of this tensor; returns it."""
        self._local.requires_grad_(requires_grad)
        return self

    @property
    def grad(self) -> DTensor | None:
        """The gradient, or None where none was computed."""
        grad = self._local.grad
        if grad is None:
            return None
        return DTensor(grad, self.device_mesh, gradient_placements(self.placements), self.shape)

    @property
    def requires_grad(self) -> bool:
        """Whether derivatives are taken by it."""
        return self._local.requires_grad

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        return self._local.dtype

    @property
    def device(self) -> Device:
        """Where this rank's part lies."""
        return self._local.device

    def __repr__(self) -> str:
        return f"DTensor(shape={self.shape}, placements={[*self.placements]}, {self._local!r})"


def distribute_tensor(
    tensor: Tensor, device_mesh: DeviceMesh, placements: Sequence[Placement] | None = None
) -> DTensor:
    """Lay a tensor out on a mesh: that of the mesh's first rank; on others it says shape and dtype.

    All ranks call it. None for ``placements``: whole on each rank. The result is a leaf that requires a
    gradient where ``tensor`` does.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank():
    ...     mesh = dist.init_device_mesh("cpu", (2,))
    ...     x = dist.distribute_tensor(tb.arange(3, device="cpu"), mesh, [dist.Shard(0)])
    ...     return x.to_local().tolist(), x.full_tensor().tolist()
    >>> dist.run_ranks(rank, 2)
    [([0, 1], [0, 1, 2]), ([2], [0, 1, 2])]
    """
    whole: Placements = (Replicate(),) * device_mesh.ndim
    chosen = checked_placements(
        "distribute_tensor", whole if placements is None else placements, device_mesh.ndim, tensor.ndim
    )
    if any(isinstance(p, Partial) for p in chosen):
        raise ArgumentError(
            f"distribute_tensor: a tensor is laid out by Shard and Replicate, got {[*chosen]}; redistribute"
            f" the result to Partial."
        )
    with no_grad():
        x = _on_mesh(tensor.detach(), device_mesh)
        for group in device_mesh.groups:
            x = functional.broadcast(x, 0, group)
        local = redistribute(x, device_mesh, x.shape, whole, chosen).detach()
    return DTensor(local.requires_grad_(tensor.requires_grad), device_mesh, chosen, tuple(tensor.shape))


def local_map(
    function: Callable[..., Any],
    out_placements: Sequence[Placement],
    in_placements: Sequence[Sequence[Placement] | None],
    in_grad_placements: Sequence[Sequence[Placement] | None] | None = None,
) -> Callable[..., Any]:
    """Return ``function``, which works on parts, as one of distributed tensors.

    Every argument has an entry in ``in_placements``: how it is to lie, to which it is redistributed, or None
    where it is no ``DTensor`` and is handed on. ``in_grad_placements`` says how the gradients of parts lie;
    None: as the arguments. The tensor, or each of the tuple, that ``function`` returns lies as
    ``out_placements`` says. Raises ``ArgumentError`` where arguments and entries do not fit, and
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
    split = any(isinstance(p, Shard) for p in out_placements)
    grads = in_grad_placements or (None,) * len(in_placements)

    def call(*args: Any) -> Any:
        if not len(args) == len(in_placements) == len(grads):
            raise ArgumentError(
                f"local_map: {len(args)} arguments, {len(in_placements)} in_placements and {len(grads)}"
                f" in_grad_placements were passed; there must be one of each for every argument."
            )
        mesh = None
        values = []
        for arg, placements, grad in zip(args, in_placements, grads, strict=True):
            if isinstance(arg, DTensor) != (placements is not None):
                raise ArgumentError(
                    f"local_map: a DTensor needs an entry in in_placements, and all else has None; got"
                    f" {type(arg).__name__} for {placements}."
                )
            if placements is None:
                values.append(arg)
                continue
            if mesh is not None and arg.device_mesh != mesh:
                raise ArgumentError(f"local_map: arguments lie on two meshes: {mesh} and {arg.device_mesh}.")
            mesh = arg.device_mesh
            moved = arg.redistribute(placements)
            if split and not _is_even(moved):
                raise ShapeError(
                    f"local_map: an argument of shape {moved.shape} has parts of different shapes in"
                    f" {[*moved.placements]}, so that of the results is not known; take"
                    f" to_local(), and say it: DTensor.from_local(part, mesh, placements, shape=)."
                )
            values.append(moved.to_local(grad_placements=grad))
        if mesh is None:
            raise ArgumentError("local_map: at least one argument must be a DTensor; none is.")
        result = function(*values)
        if isinstance(result, tuple):
            return tuple(DTensor.from_local(part, mesh, out_placements) for part in result)
        return DTensor.from_local(result, mesh, out_placements)

    return call


def _is_even(x: DTensor) -> bool:
    """Return whether the parts of all ranks have the same shape."""
    lengths = list(x.shape)
    for size, placement in zip(x.device_mesh.shape, x.placements, strict=True):
        if isinstance(placement, Shard):
            if lengths[placement.dim] % size:
                return False
            lengths[placement.dim] //= size
    return True


class _GradientFrom(Function):
    """The same tensor, whose gradient comes back in placements of its own."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, mesh: DeviceMesh, shape: tuple[int, ...], source: Placements, target: Placements
    ) -> Tensor:
        ctx.layout = mesh, shape, source, target
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
        return redistribute(g, *ctx.layout), None, None, None, None


def _on_mesh(x: Tensor, mesh: DeviceMesh) -> Tensor:
    """Return ``x`` on the mesh's type of device, unmoved where it lies on one."""
    return x if mesh.device_type in (None, x.device.type) else x.to(mesh.device_type)
