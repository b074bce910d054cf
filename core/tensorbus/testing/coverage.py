"""Coverage: each op on a device in each dtype runs by a kernel, its decomposition, the host, or not.

It asks dispatch about the op's sample calls and runs none of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from ..devices.device import Device
from ..dispatch.decision_log import Decision, listening
from ..dispatch.plan import plan
from ..dtypes.definition import ALL, DType
from ..eager.runner import operands_of
from ..errors import UnsupportedDtypeError, UnsupportedOpError
from ..kernels.via_host import HOST_KERNEL
from ..ops import lazy_families
from ..ops.definition import Op, table
from ..tensor.tensor import Tensor
from .sample import Fill, Sample, samples_of

Route = Literal["native", "host", "decomposed", "missing"]
ROUTES: Final[tuple[Route, ...]] = ("native", "decomposed", "host", "missing")
TRANSFER: Final = "transfer"
"""The family of ops that belong to no device: they move values between two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The coverage of the op table by a device. ``routes`` has, for each op, each dtype of op and device.

    Of sample calls that run in different ways the worst counts.
    """

    device: Device
    dtypes: tuple[DType, ...]
    routes: Mapping[str, Mapping[DType, Route]]

    def native(self, op: str) -> tuple[DType, ...]:
        """Return the dtypes in which the device has a kernel for every sample call of ``op``."""
        return tuple(d for d, route in self.routes[op].items() if route == "native")

    def on_host(self, op: str) -> bool:
        """Return whether ``op`` goes through the host in some dtype."""
        return "host" in self.routes[op].values()


def survey(device: Device, *, own: bool = False) -> Coverage:
    """Ask dispatch about every op of the table. Brings the device and all plugins' ops up.

    ``own`` is for what the device's package itself supplies, without the kernels that others add to it.
    """
    from .. import plugins
    from ..eager import plugin_ops

    plugin_ops.refresh()
    lazy_families.load_all()
    dtypes = tuple(d for d in ALL if d in device.properties.dtypes)
    tensors = _Tensors(device)
    owner = plugins.backend(device.type).extension.owner if own else None
    routes = {op.name: _routes(op, tensors, owner) for op in table if op.family != TRANSFER}
    return Coverage(device=device, dtypes=dtypes, routes=routes)


def routes_of(op: Op[...], device: Device, *, own: bool = False) -> Mapping[DType, Route]:
    """Return how ``op`` runs on a device, in each dtype that both have; ``own`` as for ``survey``."""
    from .. import plugins

    owner = plugins.backend(device.type).extension.owner if own else None
    return _routes(op, _Tensors(device), owner)


def _routes(op: Op[...], tensors: _Tensors, owner: str | None) -> dict[DType, Route]:
    here = tensors.device.properties.dtypes
    return {d: route for d in op.dtypes if d in here and (route := _route(op, d, tensors, owner)) is not None}


def _route(op: Op[...], dtype: DType, tensors: _Tensors, owner: str | None) -> Route | None:
    good = [sample for sample in samples_of(op) if is_good(sample, dtype)]
    routes = {_of_sample(op, dtype, sample, tensors, owner) for sample in good}
    return next((r for r in reversed(ROUTES) if r in routes), None)


def is_good(sample: Sample, dtype: DType) -> bool:
    """Return whether a sample call must succeed in ``dtype``."""
    return sample.raises is None and (sample.dtypes is None or dtype in sample.dtypes)


def _of_sample(
    op: Op[...], dtype: DType, sample: Sample, tensors: _Tensors, owner: str | None
) -> Route | None:
    """Return how a call runs; None where it needs a dtype that the device lacks."""
    try:
        args = [_filled(a, dtype, tensors) for a in sample.args]
        kwargs = {k: dtype if v is ... else _filled(v, dtype, tensors) for k, v in sample.kwargs.items()}
        if op.family == "creation":
            kwargs["device"] = tensors.device
        operands, attrs = operands_of(op, args, kwargs)
        return route(op, operands, attrs, owner)
    except UnsupportedDtypeError:
        return None


def route(op: Op[...], operands: Sequence[Any], attrs: Mapping[str, Any], owner: str | None = None) -> Route:
    """Return how a call of ``op`` runs; by kernels of ``owner`` only, where one is named.

    Raises what the call would raise, but for a missing kernel.
    """
    kinds = [x._vtype if isinstance(x, Tensor) else type(x) for x in operands]
    with listening() as decisions:
        try:
            plan(op, kinds, None if op.broadcasts else [x.shape for x in operands], attrs)
        except UnsupportedOpError:
            return "missing"
    return _taken([d for d in decisions if d.op is op][-1], owner)


def _taken(decision: Decision, owner: str | None) -> Route:
    chosen = decision.chosen
    if owner is not None:
        chosen = next((v for v in decision.verdicts if v.reason is None and v.owner == owner), None)
    if chosen is None:
        return "missing" if decision.op.decompose is None else "decomposed"
    return "host" if chosen.kernel.name == HOST_KERNEL else "native"


class _Tensors:
    """Zeros of each shape and dtype on a device, made once."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._tensors: dict[Any, Tensor] = {}

    def __call__(self, fill: Fill, dtype: DType) -> Tensor:
        key = (fill.shape, fill.dtype or dtype)
        tensor = self._tensors.get(key)
        if tensor is None:
            tensor = self._tensors[key] = table.function("full")(key[0], 0, dtype=key[1], device=self.device)
        return tensor


def _filled(tree: Any, dtype: DType, tensors: _Tensors) -> Any:
    if isinstance(tree, Fill):
        return tensors(tree, dtype)
    if isinstance(tree, (list, tuple)) and not hasattr(tree, "_fields"):
        return type(tree)(_filled(part, dtype, tensors) for part in tree)
    return tree
