"""The claims of a manifest about the device as a whole, against what the device says and does."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tensorbus import asarray, plugins, zeros
from tensorbus.devices.device import Device
from tensorbus.dtypes import definition as dt
from tensorbus.errors import UnsupportedDtypeError, UnsupportedOpError, suggest
from tensorbus.ops.definition import Op, table
from tensorbus.testing.coverage import is_good, routes_of
from tensorbus.testing.sample import samples_of

from ..trial import Trial, caught


def claims(device: str) -> Iterator[str]:
    """Yield what is not true: dtypes that are there or not, ops and kernels of ops that do not exist."""
    manifest = plugins.backend(device).manifest
    declared, optional = set(manifest.dtypes), set(manifest.optional)
    for unit in range(plugins.backend(device).device_count):
        here = Device(device, unit)
        own = {d.name for d in here.properties.dtypes}
        for name in sorted(own - declared):
            yield f"{here} says that it has {name}, which the manifest's [device] dtypes lacks"
        for name in sorted(declared - own - optional):
            yield f"the manifest says that every unit has {name}; {here} does not"
        for dtype in dt.ALL:
            yield from _works(here, dtype) if dtype.name in own else _is_refused(here, dtype)
    yield from _ops(device, declared)
    for owner, kernels in plugins.backend(device).kernels:
        for name in kernels:
            if name not in table:
                near = suggest(name, (op.name for op in table))
                yield f"{owner} has a kernel for {name!r}, which is no op.{near}"


def _works(device: Device, dtype: dt.DType) -> Iterator[str]:
    """A dtype that a unit has can be created, filled, read and cast to."""
    try:
        numbers = zeros((2, 2), dtype=dtype, device=device).tolist()
        whole = asarray([0, 1], dtype=dtype, device=device).tolist()
    except Exception as error:
        yield f"{device} says that it has {dtype}, but using it raised {type(error).__name__}: {error}"
        return
    if numbers != [[0, 0], [0, 0]] or whole != [0, 1]:
        yield f"{device} says that it has {dtype}, but zeros are {numbers} and [0, 1] is {whole}"


def _is_refused(device: Device, dtype: dt.DType) -> Iterator[str]:
    for what, call in (
        ("zeros", lambda: zeros((2,), dtype=dtype, device=device)),
        ("asarray", lambda: asarray([1], dtype=dtype, device=device)),
    ):
        error = caught(call)
        if not isinstance(error, UnsupportedDtypeError):
            got = "made it" if error is None else f"raised {type(error).__name__}: {error}"
            yield f"{device} does not say that it has {dtype}, but {what} {got}; UnsupportedDtypeError is due"


def _ops(device: str, declared: set[str]) -> Iterator[str]:
    manifest = plugins.backend(device).manifest
    for name, dtypes in manifest.ops.items():
        if name not in table:
            yield f"[ops] claims {name!r}, which is no op"
        elif dtypes != "all":
            wrong = [d for d in dtypes if d not in declared or dt.BY_NAME[d] not in table[name].dtypes]
            if wrong:
                yield f"[ops] claims {name} for {', '.join(wrong)}, which the op or the device does not have"
    for section, names in (("[ops] host", manifest.host_ops), ("[gaps]", manifest.gaps)):
        for name in names:
            if name not in table:
                yield f"{section} names {name!r}, which is no op"
            elif name in manifest.ops:
                yield f"{section} names {name}, which [ops] claims"


def denials(device: str, op: Op[...]) -> Iterator[str]:
    """Yield what the manifest denies though it is there: an op in ``[gaps]`` or ``host`` that the device has.

    All dtypes count, as a gap is of the op, and only the device's own kernels, not those that others add.
    """
    manifest = plugins.backend(device).manifest
    if op.name not in manifest.gaps and op.name not in manifest.host_ops:
        return
    routes = routes_of(op, Device(device), own=True)
    ways = " and ".join(sorted(set(routes.values())))
    if op.name in manifest.host_ops and "host" not in routes.values():
        yield f"the manifest lists it in [ops] host, but it is {ways} in every dtype"
    if op.name in manifest.gaps and not any(_is_missing(op, device, d, r) for d, r in routes.items()):
        yield f"the manifest declares it in [gaps], but it is {ways} in every dtype"


def _is_missing(op: Op[...], device: str, dtype: dt.DType, route: str) -> bool:
    """Return whether some sample call has nothing to run it, or decomposes into what the device lacks."""
    if route != "decomposed":
        return route == "missing"
    for place, sample in enumerate(samples_of(op)):
        if is_good(sample, dtype):
            trial = Trial(op=op, device=device, dtype=dtype, sample=sample, place=place)
            if isinstance(caught(partial(trial.run, trial.tensors())), UnsupportedOpError):
                return True
    return False
