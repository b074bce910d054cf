"""A mesh: the ranks of a program as an array with named dimensions, and a group along each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from ...errors import ArgumentError, DeviceError, suggest
from ...interchange.host_array import asarray
from ...ops.movement.movement import reshape
from ...plugins import host_type, known_types
from ...tensor.tensor import Tensor
from ...tracing.mesh_policy import consulted, enter, mesh_policy
from ..process_group.group import ProcessGroup
from ..process_group.membership import new_group
from ..process_group.world import current

META: Final = "meta"
"""The type of tensors that have a shape and no elements, which is no plugin's."""


class MeshPart(NamedTuple):
    """Dimensions of a mesh that are one of a slice: one, or several that were flattened."""

    dims: tuple[int, ...]
    name: str | None
    group: ProcessGroup


class DeviceMesh:
    """Ranks of the program as an array ``mesh``; along each dimension this rank is in a group.

    ``init_device_mesh`` arranges all ranks; an array of some, ``DeviceMesh("cpu", [[0, 2], [4, 6]])``, makes
    a mesh of these. All ranks of the program make it; one that is not in it has no coordinate, and makes no
    tensors on it. ``device_type`` is where its tensors lie; None: on each rank where they are, so that ranks
    may have several types of devices. ``mesh["tp"]`` is the part along a dimension that this rank is in. In
    ``with mesh:`` it is the mesh of calls that name none, as ``distribute_tensor(x, placements=[Shard(0)])``.

    Raises ``ArgumentError`` for an array that is empty or not rectangular, a rank that does not exist or
    stands twice, and names that do not fit, ``DeviceError`` for a type of device that no plugin has.

    >>> import tensorbus as tb
    >>> def rank():
    ...     mesh = tb.distributed.DeviceMesh("cpu", [2, 0])
    ...     return mesh.get_coordinate(), mesh.mesh.tolist()
    >>> tb.distributed.run_ranks(rank, 3)
    [((1,), [2, 0]), (None, [2, 0]), ((0,), [2, 0])]
    """

    def __init__(
        self, device_type: str | None, mesh: Any, *, mesh_dim_names: Sequence[str] | None = None
    ) -> None:
        shape, ranks = _array_of("DeviceMesh", mesh)
        names = _checked_names("DeviceMesh", device_type, mesh_dim_names, len(shape))
        self._set(device_type, _groups_along(shape, ranks), names, shape, ranks, None)

    @staticmethod
    def from_group(
        group: ProcessGroup | Sequence[ProcessGroup], device_type: str | None, mesh: Any = None, *,
        mesh_dim_names: Sequence[str] | None = None,
    ) -> DeviceMesh:  # fmt: skip
        """Return the mesh of groups that are there: of one, or of those of this rank along each dimension.

        ``mesh`` is the array of ranks, which may be left out for one group. Raises ``ArgumentError`` where
        the groups are not those of this rank along the dimensions of the array.
        """
        groups = [group] if isinstance(group, ProcessGroup) else list(group)
        if mesh is None and len(groups) != 1:
            raise ArgumentError(
                f"DeviceMesh.from_group: mesh, the array of ranks, is needed for {len(groups)} groups."
            )
        shape, ranks = _array_of("DeviceMesh.from_group", groups[0].ranks if mesh is None else mesh)
        lines = _lines(shape, ranks)
        if [list(each.ranks) for each in groups] != lines:
            raise ArgumentError(
                f"DeviceMesh.from_group: this rank's groups along the dimensions of the mesh must have the"
                f" ranks {lines}, got {[[*each.ranks] for each in groups]}."
            )
        names = _checked_names("DeviceMesh.from_group", device_type, mesh_dim_names, len(shape))
        return _mesh_of(device_type, groups, names, shape, ranks)

    def _set(
        self, device_type: str | None, groups: Sequence[ProcessGroup], names: Sequence[str] | None,
        shape: tuple[int, ...], ranks: tuple[int, ...], root: DeviceMesh | None,
    ) -> None:  # fmt: skip
        self.device_type, self._root = device_type, root
        self.groups = tuple(groups)
        self.mesh_dim_names = None if names is None else tuple(names)
        self.shape, self.ndim = shape, len(shape)
        self._ranks = ranks
        """Those of the array, the last dimension fastest."""
        self.layouts: dict[Any, Any] = {}
        self.plans: dict[Any, Any] = {}
        self.devices: dict[Any, Any] = {}
        self.policies: dict[Any, Any] = {}
        self._tokens: list[Any] = []
        self._flattened: dict[str, DeviceMesh] = {}
        self._dims: tuple[int, ...] = ()
        """Those of the root that this one has flattened."""

    def __repr__(self) -> str:
        return f"DeviceMesh({self.device_type!r}, {self.shape}, mesh_dim_names={self.mesh_dim_names})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceMesh) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __enter__(self) -> DeviceMesh:
        self._tokens.append(enter(mesh=self))
        return self

    def __exit__(self, *raised: object) -> None:
        mesh_policy.reset(self._tokens.pop())

    def __getitem__(self, names: str | tuple[str, ...]) -> DeviceMesh:
        """Return the mesh along the named dimensions that this rank is in; it shares their groups.

        The name of a flattened part gives that, and beside other names stands for its dimensions.
        """
        chosen = names if isinstance(names, tuple) else (names,)
        if not all(isinstance(name, str) for name in chosen):
            raise ArgumentError(
                f"DeviceMesh: a slice takes names of {self!r}, got {names!r}; get_group(dim) takes numbers."
            )
        if len(chosen) == 1 and chosen[0] in self._flattened:
            return self._flattened[chosen[0]]
        self.places("DeviceMesh")
        parts = [self._part(name) for name in chosen]
        dims = [dim for part in parts for dim in part.dims]
        if not parts or parts != sorted(parts, key=_first_dim) or len(set(dims)) != len(dims):
            raise ArgumentError(
                f"DeviceMesh: a slice takes different dimensions in the mesh's order {self.mesh_dim_names},"
                f" got {chosen}."
            )
        return self.along(parts)

    def _part(self, name: str | int) -> MeshPart:
        flat = self._flattened.get(name) if isinstance(name, str) else None
        if flat is not None:
            (known,) = self.parts_of(flat)
            return known
        dim = self._dim(name)
        return MeshPart(
            (dim,), None if self.mesh_dim_names is None else self.mesh_dim_names[dim], self.groups[dim]
        )

    def parts_of(self, mesh: DeviceMesh) -> list[MeshPart]:
        """Return what another mesh's dimensions are of this one, by their groups; [] where one is none."""
        known = {group.label: self._part(dim) for dim, group in enumerate(self.groups)}
        for name, flat in self._flattened.items():
            if flat.groups:
                known[flat.groups[0].label] = MeshPart(flat._dims, name, flat.groups[0])
        parts = [known.get(group.label) for group in mesh.groups]
        return [part for part in parts if part is not None] if all(parts) else []

    def along(self, parts: Sequence[MeshPart]) -> DeviceMesh:
        """Return the mesh along parts of this one that this rank is in."""
        mine = self.places("DeviceMesh")
        dims = [dim for part in parts for dim in part.dims]
        strides = [math.prod(self.shape[dim + 1 :]) for dim in range(self.ndim)]
        start = sum(strides[dim] * mine[dim] for dim in range(self.ndim) if dim not in dims)
        ranks = tuple(
            self._ranks[start + sum(strides[dim] * place for dim, place in zip(dims, places, strict=True))]
            for places in itertools.product(*[range(self.shape[dim]) for dim in dims])
        )
        shape = tuple(math.prod(self.shape[dim] for dim in part.dims) for part in parts)
        names = [part.name for part in parts if part.name is not None]
        groups = [part.group for part in parts]
        return _mesh_of(
            self.device_type, groups, names if len(names) == len(parts) else None, shape, ranks, self.root
        )

    def on(self, device_type: str | None) -> DeviceMesh:
        """Return the same mesh with tensors on another type of device; None: on each rank where they are."""
        return _mesh_of(device_type, self.groups, self.mesh_dim_names, self.shape, self._ranks)

    def flatten(self, mesh_dim_name: str | None = None) -> DeviceMesh:
        """Return the mesh of one dimension that has all ranks of this one, in the same order.

        All ranks of the root call it. The root knows it by ``mesh_dim_name``, or by the names of this one's
        dimensions with ``_`` between. Raises ``ArgumentError`` where the root has such a name already.
        """
        self.places("flatten")
        root, shape = self.root, (len(self._ranks),)
        name = mesh_dim_name or "_".join(self.mesh_dim_names or [f"dim{dim}" for dim in range(self.ndim)])
        known = root._flattened.get(name)
        if known is not None and known._ranks == self._ranks:
            return known
        if known is not None or name in (root.mesh_dim_names or ()):
            raise ArgumentError(f"flatten: {root!r} has a dimension or a flattened part {name!r} already.")
        names = _checked_names("flatten", self.device_type, (name,), 1)
        groups = _groups_along(shape, self._ranks)
        flat = _mesh_of(self.device_type, groups, names, shape, self._ranks, root)
        flat._dims = tuple(dim for part in root.parts_of(self) for dim in part.dims)
        root._flattened[name] = flat
        return flat

    def unflatten(
        self, dim: int | str, mesh_sizes: Sequence[int], mesh_dim_names: Sequence[str] | None = None
    ) -> DeviceMesh:
        """Return the mesh with several dimensions in the place of one; the others keep their groups.

        It is a mesh of its own, of which slices are taken. All ranks of this one call it. Raises
        ``ArgumentError`` where the product of ``mesh_sizes`` is not the length of the dimension, or the
        names do not fit; a mesh with names needs them.
        """
        self.places("unflatten")
        place, sizes = self._dim(dim), tuple(mesh_sizes)
        if (
            not sizes
            or any(type(n) is not int or n < 1 for n in sizes)
            or math.prod(sizes) != self.shape[place]
        ):
            raise ArgumentError(
                f"unflatten: lengths >= 1 are needed whose product is that of dimension {dim!r},"
                f" {self.shape[place]}, got {mesh_sizes!r}."
            )
        own, names = self.mesh_dim_names, None
        if own is not None or mesh_dim_names is not None:
            parts = _checked_names("unflatten", self.device_type, mesh_dim_names or (), len(sizes)) or ()
            names = (*(own or ())[:place], *parts, *(own or ())[place + 1 :])
        shape = (*self.shape[:place], *sizes, *self.shape[place + 1 :])
        checked = _checked_names("unflatten", self.device_type, names, len(shape))
        split = _groups_along(shape, self._ranks)[place : place + len(sizes)]
        groups = [*self.groups[:place], *split, *self.groups[place + 1 :]]
        return _mesh_of(self.device_type, groups, checked, shape, self._ranks)

    def __reduce__(self) -> tuple[Any, ...]:
        labels = [group.label for group in self.groups]
        state = self.device_type, labels, self.mesh_dim_names, self.shape, self._ranks
        return _unpickled, (*state, self._root)

    def __deepcopy__(self, memo: dict[int, Any]) -> DeviceMesh:
        """Return the mesh itself: copies of tensors lie on the same ranks."""
        return self

    @property
    def mesh(self) -> Tensor:
        """The ranks as an array of integers in the host's memory."""
        return reshape(asarray([*self._ranks], dtype="int64", device=host_type()), self.shape)

    @property
    def root(self) -> DeviceMesh:
        """The mesh that this one is a slice of, or itself."""
        return self._root or self

    def get_group(self, mesh_dim: int | str | None = None) -> ProcessGroup:
        """Return the group of this rank along a dimension; None: the only one."""
        dim = self._dim(mesh_dim)
        self.places("get_group")
        return self.groups[dim]

    def get_all_groups(self) -> list[ProcessGroup]:
        """Return the groups of this rank, one along each dimension."""
        return [*self.groups]

    def get_rank(self) -> int:
        """Return the number of this rank in the program."""
        return current().rank

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """Return this rank's place along a dimension; None: the only one."""
        return self.get_group(mesh_dim).rank

    def get_coordinate(self) -> tuple[int, ...] | None:
        """Return this rank's place along each dimension; None where it is not in the mesh."""
        return self.places("get_coordinate") if self.groups else None

    def places(self, name: str) -> tuple[int, ...]:
        """Return this rank's place along each dimension, for the call ``name``.

        Raises ``ArgumentError`` where it is not in the mesh.
        """
        if not self.groups:
            raise ArgumentError(
                f"{name}: rank {current().rank} is not in {self!r}, whose ranks are {[*self._ranks]}; there"
                f" its get_coordinate() is None."
            )
        return tuple(group.rank for group in self.groups)

    def size(self, mesh_dim: int | str | None = None) -> int:
        """Return the number of ranks along a dimension; None: of the whole mesh."""
        return math.prod(self.shape) if mesh_dim is None else self.shape[self._dim(mesh_dim)]

    def _key(self) -> tuple[object, ...]:
        names = tuple(group.name for group in self.groups) or self._ranks
        return self.device_type, names, self.mesh_dim_names

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
    names = _checked_names("init_device_mesh", device_type, mesh_dim_names, len(shape))
    key = device_type, shape, names
    known: DeviceMesh | None = world.named_meshes.get(key)
    if known is not None and all(world.groups.get(g.label) is g for g in known.groups):
        return known
    ranks = tuple(range(world.size))
    mesh = world.named_meshes[key] = _mesh_of(device_type, _groups_along(shape, ranks), names, shape, ranks)
    return mesh


def _first_dim(part: MeshPart) -> int:
    return part.dims[0]


def mesh_for(name: str, mesh: object) -> DeviceMesh:
    """Return ``mesh``, or for None that of the innermost ``with mesh:``; raise where it is none."""
    chosen = consulted().mesh if mesh is None else mesh
    if not isinstance(chosen, DeviceMesh):
        raise ArgumentError(
            f"{name}: a DeviceMesh is needed, as init_device_mesh makes one, got {mesh!r}; in `with mesh:` it"
            f" may be left out."
        )
    return chosen


def _mesh_of(
    device_type: str | None, groups: Sequence[ProcessGroup], names: Sequence[str] | None,
    shape: tuple[int, ...], ranks: tuple[int, ...], root: DeviceMesh | None = None,
) -> DeviceMesh:  # fmt: skip
    """Return the mesh of groups that are there."""
    mesh = DeviceMesh.__new__(DeviceMesh)
    mesh._set(device_type, groups, names, shape, ranks, root)
    return mesh


def _array_of(name: str, mesh: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return shape and ranks of an array: nested lists, a tensor, or what has ``tolist``."""
    rows = mesh.tolist() if hasattr(mesh, "tolist") else mesh
    shape: list[int] = []
    level: list[Any] = [rows]
    while level and all(isinstance(row, list | tuple | range) and len(row) == len(level[0]) for row in level):
        shape.append(len(level[0]))
        level = [x for row in level for x in row]
    size = current().size
    if (
        not shape or not level or not all(type(rank) is int and 0 <= rank < size for rank in level)
        or len(set(level)) != len(level)
    ):  # fmt: skip
        raise ArgumentError(
            f"{name}: mesh must be an array of different ranks, 0 to {size - 1}, as [[0, 1], [2, 3]], got"
            f" {mesh!r}."
        )
    return tuple(shape), tuple(level)


def _checked_names(
    name: str, device_type: object, names: Sequence[str] | None, ndim: int
) -> tuple[str, ...] | None:
    """Return the names of dimensions: different words, or None; raise for an unknown type of device too."""
    if device_type is not None and device_type not in (*known_types(), META):
        raise DeviceError(
            f"{name}: a type of device is needed, as 'cpu', or None, got"
            f" {device_type!r}. Installed: {', '.join(known_types()) or 'none'}."
            f"{suggest(str(device_type), known_types())}"
        )
    if names is None:
        return None
    words = isinstance(names, Sequence) and not isinstance(names, str)
    if not words or not all(isinstance(x, str) for x in names) or not len(names) == len({*names}) == ndim:
        raise ArgumentError(
            f"{name}: mesh_dim_names are {ndim} different words, as {('dp', 'tp')[:ndim]}, got {names!r}."
        )
    return tuple(names)


def _lines(shape: tuple[int, ...], ranks: tuple[int, ...]) -> list[list[int]]:
    """Return the ranks of the lines along each dimension that this rank is in; [] where it is in none."""
    here = current().rank
    if here not in ranks:
        return []
    place, lines = ranks.index(here), []
    for dim, size in enumerate(shape):
        stride = math.prod(shape[dim + 1 :])
        first = place - place // stride % size * stride
        lines.append([ranks[first + k * stride] for k in range(size)])
    return lines


def _groups_along(shape: tuple[int, ...], ranks: tuple[int, ...]) -> list[ProcessGroup]:
    """Return a group of this rank along each dimension; meshes of the same array share them."""
    world = current()
    known: list[ProcessGroup] | None = world.named_meshes.get((shape, ranks))
    if known is None or not all(world.groups.get(g.label) is g for g in known):
        known = [group for line in _lines(shape, ranks) if (group := new_group(line))]
        world.named_meshes[shape, ranks] = known
    return known


def _unpickled(
    device_type: str | None, labels: Sequence[str], names: Sequence[str] | None, shape: tuple[int, ...],
    ranks: tuple[int, ...], root: DeviceMesh | None,
) -> DeviceMesh:  # fmt: skip
    """Return a mesh over the groups that it had, where they are there and this rank's, or over new ones."""
    groups = [group for label in labels if (group := current().groups.get(label)) is not None]
    if [[*group.ranks] for group in groups] != _lines(shape, ranks):
        groups = _groups_along(shape, ranks)
    return _mesh_of(device_type, groups, names, shape, ranks, root)
