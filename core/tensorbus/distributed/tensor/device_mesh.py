"""A mesh: the ranks of a program as an array with named dimensions, and a group along each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...errors import ArgumentError
from ..process_group.group import ProcessGroup, new_group
from ..process_group.world import current


class DeviceMesh:
    """Ranks as an array; along each dimension this rank is in a group. ``init_device_mesh`` makes one.

    ``device_type`` is where its tensors lie; None: on each rank where they are, so that ranks may have
    several types of devices. ``mesh["tp"]`` is the part along a dimension that this rank is in.
    """

    def __init__(
        self, device_type: str | None, groups: Sequence[ProcessGroup], mesh_dim_names: Sequence[str] | None,
        root: DeviceMesh | None = None,
    ) -> None:  # fmt: skip
        self.device_type, self._root = device_type, root
        self.groups = tuple(groups)
        self.mesh_dim_names = None if mesh_dim_names is None else tuple(mesh_dim_names)
        self.shape = tuple(group.size for group in self.groups)
        self.ndim = len(self.shape)
        self.layouts: dict[Any, Any] = {}
        self.plans: dict[Any, Any] = {}
        self.devices: dict[Any, Any] = {}

    def __repr__(self) -> str:
        return f"DeviceMesh({self.device_type!r}, {self.shape}, mesh_dim_names={self.mesh_dim_names})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceMesh) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __getitem__(self, names: str | tuple[str, ...]) -> DeviceMesh:
        """Return the mesh along the named dimensions that this rank is in; it shares their groups."""
        chosen = names if isinstance(names, tuple) else (names,)
        if not all(isinstance(name, str) for name in chosen):
            raise ArgumentError(
                f"DeviceMesh: a slice takes names of {self!r}, got {names!r}; get_group(dim) takes numbers."
            )
        dims = [self._dim(name) for name in chosen]
        if not dims or dims != sorted(set(dims)):
            raise ArgumentError(
                f"DeviceMesh: a slice takes different dimensions in the mesh's order {self.mesh_dim_names},"
                f" got {chosen}."
            )
        return DeviceMesh(self.device_type, [self.groups[dim] for dim in dims], chosen, self.root)

    def __deepcopy__(self, memo: dict[int, Any]) -> DeviceMesh:
        """Return the mesh itself: copies of tensors lie on the same ranks."""
        return self

    @property
    def root(self) -> DeviceMesh:
        """The mesh that this one is a slice of, or itself."""
        return self._root or self

    def get_group(self, mesh_dim: int | str | None = None) -> ProcessGroup:
        """Return the group of this rank along a dimension; None: the only one."""
        return self.groups[self._dim(mesh_dim)]

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """Return this rank's place along a dimension; None: the only one."""
        return self.get_group(mesh_dim).rank

    def get_coordinate(self) -> tuple[int, ...]:
        """Return this rank's place along each dimension."""
        return tuple(group.rank for group in self.groups)

    def size(self, mesh_dim: int | str | None = None) -> int:
        """Return the number of ranks along a dimension; None: of the whole mesh."""
        return math.prod(self.shape) if mesh_dim is None else self.shape[self._dim(mesh_dim)]

    def _key(self) -> tuple[object, ...]:
        return self.device_type, tuple(group.name for group in self.groups), self.mesh_dim_names

    def _dim(self, mesh_dim: int | str | None) -> int:
        if mesh_dim is None and self.ndim == 1:
            return 0
        if isinstance(mesh_dim, str) and mesh_dim in (self.mesh_dim_names or ()):
            return (self.mesh_dim_names or ()).index(mesh_dim)
        if isinstance(mesh_dim, int) and -self.ndim <= mesh_dim < self.ndim:
            return mesh_dim % self.ndim
        raise ArgumentError(
            f"DeviceMesh: one dimension of {self!r} is needed, by number or name, got {mesh_dim!r}."
        )


def init_device_mesh(
    device_type: str | None, mesh_shape: Sequence[int] | int, *, mesh_dim_names: Sequence[str] | None = None
) -> DeviceMesh:
    """Arrange all ranks as an array of ``mesh_shape``, the last dimension fastest. All ranks call it.

    A number is the length of a mesh of one dimension. The same arguments give the same mesh.

    ``device_type`` is where the mesh's tensors lie; None: each rank's where they are. Raises
    ``ArgumentError`` where the shape does not hold as many ranks as the program has, or the names do not fit.

    >>> import tensorbus as tb
    >>> def rank():
    ...     mesh = tb.distributed.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    ...     return mesh.get_coordinate(), mesh["tp"].get_group().ranks
    >>> tb.distributed.run_ranks(rank, 4)
    [((0, 0), (0, 1)), ((0, 1), (0, 1)), ((1, 0), (2, 3)), ((1, 1), (2, 3))]
    """
    world = current()
    shape = (mesh_shape,) if isinstance(mesh_shape, int) else tuple(mesh_shape)
    if not shape or any(type(n) is not int or n < 1 for n in shape) or math.prod(shape) != world.size:
        raise ArgumentError(
            f"init_device_mesh: a mesh of shape {shape} was asked for; its lengths must be >= 1 and their"
            f" product the number of ranks, {world.size}."
        )
    names = mesh_dim_names
    if names is not None and (
        isinstance(names, str)
        or not all(isinstance(name, str) for name in names)
        or not len(names) == len({*names}) == len(shape)
    ):
        raise ArgumentError(
            f"init_device_mesh: mesh_dim_names are {len(shape)} different words, as"
            f" {('dp', 'tp')[: len(shape)]}, got {names!r}."
        )
    key = device_type, shape, None if names is None else tuple(names)
    known: DeviceMesh | None = world.named_meshes.get(key)
    if known is not None and all(world.groups.get(g.label) is g for g in known.groups):
        return known
    groups = []
    for dim, size in enumerate(shape):
        stride = math.prod(shape[dim + 1 :])
        first = world.rank - world.rank // stride % size * stride
        group = new_group(range(first, first + size * stride, stride))
        assert group is not None
        groups.append(group)
    mesh = world.named_meshes[key] = DeviceMesh(device_type, groups, mesh_dim_names)
    return mesh
