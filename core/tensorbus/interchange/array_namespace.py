"""Inspection of the namespace: section "Inspection" of the Python array API standard 2025.12."""

from __future__ import annotations

import sys
from typing import Any, Final

from ..devices.device import Device, device, devices, get_default_device
from ..dispatch.kernel_tables import tables_of
from ..dtypes import definition as dt
from ..dtypes.definition import DType
from ..errors import ArgumentError
from ..ops.definition import MAX_RANK

API_VERSION: Final = "2025.12"
API_VERSIONS: Final = ("2021.12", "2022.12", "2023.12", "2024.12", API_VERSION)
"""The editions of the standard that the main namespace serves; each contains the ones before it."""

_STANDARD: Final[tuple[DType, ...]] = (
    *dt.BOOL, *dt.SIGNED, *dt.UNSIGNED, dt.float32, dt.float64, *dt.COMPLEX,
)  # fmt: skip


class Devices(tuple[Device, ...]):
    """A tuple of devices, to which a list may be added: one was returned by editions before 2025.12."""

    __slots__ = ()

    def __add__(self, other: Any) -> Any:
        return [*self, *other] if isinstance(other, list) else tuple.__add__(self, other)


class NamespaceInfo:
    """The result of ``__array_namespace_info__()``: capabilities, devices and dtypes.

    >>> import tensorbus as tb
    >>> tb.__array_namespace_info__().dtypes(kind="complex floating", device="cpu")
    {'complex64': tensorbus.complex64, 'complex128': tensorbus.complex128}
    """

    def capabilities(self) -> dict[str, Any]:
        """Return what is supported: indexing with bools, shapes that depend on values, the number of axes."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": MAX_RANK}

    def default_device(self) -> Device:
        """Return the device of new tensors."""
        return get_default_device()

    def devices(self) -> Devices:
        """Return every device that can be used here, as a tuple (section "Inspection"). Opens all."""
        return Devices(devices())

    def default_dtypes(self, *, device: Device | str | None = None) -> dict[str, DType]:
        """Return the dtypes of new tensors, by kind. A device without complex numbers has no such entry."""
        defaults = {
            "real floating": dt.default_float,
            "complex floating": dt.default_complex,
            "integral": dt.default_int,
            "indexing": dt.default_int,
        }
        return {kind: d for kind, d in defaults.items() if d in _known(device)}

    def dtypes(
        self, *, device: Device | str | None = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, DType]:
        """Return the standard's dtypes that a device has, by name; only those of a kind where one is given.

        Raises ``DtypeError`` for an unknown kind.
        """
        known = _known(device)
        from ..dtypes.info import isdtype  # defines classes, which not every program needs

        return {d.name: d for d in _STANDARD if d in known and (kind is None or isdtype(d, kind))}


def _known(where: Device | str | None) -> frozenset[DType]:
    target = device(where)
    known = tables_of(target.type).dtypes(target.index)
    return frozenset(dt.ALL) if known is None else known


def namespace_info() -> NamespaceInfo:
    """Return the inspection utilities of the array API standard."""
    return NamespaceInfo()


def namespace(api_version: str | None = None) -> Any:
    """Return the module that implements the standard. Raises ``ArgumentError`` for an unknown edition."""
    if api_version is not None and api_version not in API_VERSIONS:
        raise ArgumentError(
            f"__array_namespace__: the array API standard {api_version!r} is not served here;"
            f" {', '.join(API_VERSIONS)} are."
        )
    return sys.modules["tensorbus"]
