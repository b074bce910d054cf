"""Layout: how a tensor lies on the ranks of a mesh; and the value of a tensor that lies so.

Such tensors are on a pseudo device, which stands for a mesh and the device of the parts: dispatch knows by it
that an op is one of distributed tensors. Layouts are one object for each mesh, placements and shape, so that
plans are looked up by identity.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final

from ...devices.device import Device, ValueType
from ...dispatch.modes import CompositeValue
from ...errors import DeviceError
from ...ops.definition import Shape
from ...ops.sharding_rules import ShardPart
from ...tensor.tensor import Tensor, wrap
from ..process_group.world import current
from .device_mesh import DeviceMesh
from .placements import Placements, local_part

MESH: Final = "mesh"
"""The type of the pseudo devices of distributed tensors."""
_numbers: Final = itertools.count()
_indices: Final[dict[Any, int]] = {}
"""The index of the pseudo device by the mesh's groups, names and device type, and the device of the parts."""
_devices: Final[dict[int, Device]] = {}
"""The device of the parts, by the index of the pseudo device."""


class MeshLayout:
    """A mesh, a placement for each of its dimensions, and the shape of the tensor as a whole."""

    __slots__ = ("_part", "mesh", "placements", "shape", "ways")

    def __init__(self, mesh: DeviceMesh, placements: Placements, shape: Shape) -> None:
        self.mesh, self.placements, self.shape = mesh, placements, shape
        self.ways: dict[MeshLayout, Any] = {}
        """How a rank brings a tensor that lies so to other layouts, by those: see ``redistribute``."""
        self._part: ShardPart | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> MeshLayout:
        """Return the layout itself, which is one object for all tensors that lie so."""
        return self

    @property
    def part(self) -> ShardPart:
        """This rank's part."""
        if self._part is None:
            coordinate = self.mesh.places("layout")
            lengths, starts = local_part(self.shape, self.placements, self.mesh.shape, coordinate)
            self._part = ShardPart(lengths, starts, self.shape)
        return self._part


class Distributed(CompositeValue):
    """Value of a distributed tensor: this rank's part, and how the whole lies."""

    __slots__ = ("layout", "local", "shape")
    PARTS = ("local",)
    FRAME = "layout"

    def __init__(self, local: Tensor, layout: MeshLayout) -> None:
        self.local, self.layout, self.shape = local, layout, layout.shape

    def rebuilt(self, *parts: Any) -> Distributed:
        """Return the value that lies so, whose part is another tensor."""
        (local,) = parts
        return Distributed(local, self.layout)


def layout_of(mesh: DeviceMesh, placements: Placements, shape: Shape) -> MeshLayout:
    """Return the one layout of a mesh with these placements and this shape."""
    key = placements, shape
    layout: MeshLayout | None = mesh.layouts.get(key)
    if layout is None:
        layout = mesh.layouts.setdefault(key, MeshLayout(mesh, placements, shape))
    return layout


def mesh_device(mesh: DeviceMesh, device: Device) -> Device:
    """Return the pseudo device of tensors on ``mesh`` whose parts lie on ``device``."""
    known: Device | None = mesh.devices.get(device)
    if known is None:
        key = tuple(group.label for group in mesh.groups), mesh.device_type, mesh.mesh_dim_names, device
        index = _indices.get(key)
        if index is None:
            index = _indices.setdefault(key, next(_numbers))
        _devices[index] = device
        known = mesh.devices[device] = Device(MESH, index)
    return known


def canonical(mesh: DeviceMesh, device: Device) -> DeviceMesh:
    """Return the first of equal meshes that this rank has used: it holds layouts and plans."""
    index = mesh_device(mesh, device).index
    first: DeviceMesh = mesh.groups[0].world.meshes.setdefault(index, mesh)
    return first


def mesh_of(device: Device) -> tuple[DeviceMesh, Device]:
    """Return the mesh that a pseudo device stands for, and the device of its parts on this rank."""
    mesh = current().meshes.get(device.index)
    if mesh is None:
        raise DeviceError(f"{device} is where tensors of another rank, or of a mesh that has ended, lie.")
    return mesh, _devices[device.index]


def part_device(device: Device) -> Device:
    """Return the device of the parts of tensors on a pseudo device."""
    return _devices[device.index]


def cell_of(local: Tensor, mesh: DeviceMesh, placements: Placements, shape: Sequence[int]) -> Any:
    """Return the distributed tensor, without history, whose part on this rank is ``local``."""
    device = mesh_device(mesh, local._vtype.device)
    layout = layout_of(canonical(mesh, local._vtype.device), placements, tuple(shape))
    return wrap(Distributed(local, layout), ValueType.of(local.dtype, device))
