"""Saving and loading tensors in the safetensors format, which holds data and no code.

The format is a length, a JSON header and the tensors' bytes. It is read and written here, a tensor at a time,
straight between a device and the file: no array library is needed, and no second copy is held in memory.
Source: the safetensors project's README, section "Format".
"""

from __future__ import annotations

import json
import mmap
import os
import sys
from collections.abc import Mapping
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, Final

from ..devices.device import Device, device
from ..dtypes import definition as dt
from ..errors import ArgumentError, StateError
from ..interchange.transfer import check_dtype, from_bytes, to_bytes
from ..ops.call_errors import with_form
from ..ops.definition import MAX_RANK
from ..tensor.tensor import Tensor
from ..tracing.host_prologue import note_read, note_write
from .atomic_file import write_file
from .pytree_json import pack, unpack

CODES: Final = {
    dt.bool_: "BOOL", dt.int8: "I8", dt.int16: "I16", dt.int32: "I32", dt.int64: "I64", dt.uint8: "U8",
    dt.uint16: "U16", dt.uint32: "U32", dt.uint64: "U64", dt.float16: "F16", dt.bfloat16: "BF16",
    dt.float32: "F32", dt.float64: "F64", dt.complex64: "C64", dt.float8_e4m3fn: "F8_E4M3",
    dt.float8_e5m2: "F8_E5M2",
}  # fmt: skip
"""What the format calls each dtype. It has no complex128: those are saved as pairs of F64, and so marked."""

_BY_CODE: Final = {code: dtype for dtype, code in CODES.items()}
_LARGEST_HEADER: Final = 100_000_000
_TREE: Final = "tensorbus.tree"
_PAIRS: Final = "tensorbus.complex128"


@with_form
def save(obj: Any, path: str | os.PathLike[str], *, metadata: Mapping[Any, Any] | None = None) -> None:
    """Write ``obj`` to ``path``: a dict of tensors, or dicts and lists of tensors, numbers, strings and None.

    A dict from names to tensors, such as ``model.state_dict()``, becomes a plain safetensors file that any
    library reads; what else an optimizer's ``state_dict()`` holds goes into the file's metadata, as JSON. The
    file takes the place of an older one only when it is whole, and keeps its mode and owner; a new one is
    readable to its owner alone. A symbolic link stays one: what it points to is replaced. To a pipe or a
    character device such as ``/dev/null`` the bytes are written. Raises ``StateError`` naming what cannot be
    saved, ``OSError`` where the file cannot be written.

    >>> import tempfile, tensorbus as tb
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tb.save({"w": tb.ones((2,))}, f"{folder}/model.safetensors")
    ...     tb.load(f"{folder}/model.safetensors")["w"].tolist()
    [1.0, 1.0]
    """
    note_write("a file")
    tensors, tree = pack(obj)
    notes = dict(metadata or {})
    for key, value in notes.items():
        if not isinstance(key, str) or not isinstance(value, str) or key in (_TREE, _PAIRS):
            raise StateError(
                f"save: metadata are strings by names that tensorbus does not use, got {key!r}: {value!r}."
            )
    if tree is not None:
        notes[_TREE] = json.dumps(tree)
    pairs = [name for name, x in tensors.items() if x.dtype is dt.complex128]
    if pairs:
        notes[_PAIRS] = json.dumps(pairs)
    # Wide elements first, as the format's own writer does: every tensor then starts at a multiple of its
    # size.
    names = sorted(tensors, key=lambda name: (-_stored(tensors[name])[0].itemsize, name))
    header: dict[str, Any] = {"__metadata__": notes} if notes else {}
    place = 0
    for name in names:
        kind, shape = _stored(tensors[name])
        end = place + tensors[name].nbytes
        header[name] = {"dtype": CODES[kind], "shape": list(shape), "data_offsets": [place, end]}
        place = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    _write(os.fspath(path), text, [tensors[name] for name in names])


def _stored(x: Tensor) -> tuple[dt.DType, tuple[int, ...]]:
    return (dt.float64, (*x.shape, 2)) if x.dtype is dt.complex128 else (x.dtype, x.shape)


def _write(path: str, header: bytes, tensors: list[Tensor]) -> None:
    if len(header) > _LARGEST_HEADER:
        raise StateError(
            f"save: the names and shapes take {len(header)} bytes, and the format allows 100 MB."
        )
    if not Path(path).name:
        raise StateError(f"save: {path!r} names no file; give the path of one.")
    data = (_little_endian(to_bytes(x), x.dtype) for x in tensors)
    write_file(path, chain((len(header).to_bytes(8, "little"), header), data))


def _little_endian(data: memoryview, dtype: dt.DType) -> memoryview:
    size = dtype.itemsize // 2 if dtype.is_complex else dtype.itemsize
    if sys.byteorder == "little" or size == 1:
        return data
    swapped = bytearray(len(data))
    for k in range(size):
        swapped[k::size] = data[size - 1 - k :: size]
    return memoryview(swapped)


@with_form
def load(
    path: str | os.PathLike[str], device: Device | str | None = None, *,
    map_location: Device | str | None = None,
) -> Any:  # fmt: skip
    """Return what ``save`` wrote, or the tensors of any safetensors file, on ``device`` (None: the default).

    ``map_location`` is PyTorch's name of ``device``; the file does not say where its tensors lay, so there is
    nothing for a dict or a function to map. Nothing in the file is ever run. Raises ``StateError`` for a file
    that is damaged or of another format, ``UnsupportedDtypeError`` for a dtype that the device lacks,
    ``OSError`` where the file cannot be read.
    """
    note_read("a file")
    if map_location is not None:
        device = _location(device, map_location)
    where = _device(device)
    name = os.fspath(path)
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        header, start = _header(name, file.read(8), file, size)
        notes = header.pop("__metadata__", {})
        if not isinstance(notes, dict) or not all(isinstance(v, str) for v in notes.values()):
            raise _damaged(name, "its metadata are not strings")
        pairs = _json(name, notes[_PAIRS]) if _PAIRS in notes else []
        if not isinstance(pairs, list):
            raise _damaged(name, "its list of complex128 tensors is none")
        tensors = {}
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as view:
            for key, (kind, shape, begin, end) in _entries(name, header, size - start).items():
                with view[start + begin : start + end] as part:
                    tensors[key] = _tensor(name, key, part, kind, shape, key in pairs, where)
    if _TREE not in notes:
        return tensors
    try:
        return unpack(_json(name, notes[_TREE]), tensors)
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        raise _damaged(name, f"its structure is not what save() writes ({error!r})") from error


def _device(spec: Device | str | None) -> Device:
    return device(spec)


def _location(device: Device | str | None, map_location: Device | str) -> Device | str:
    if device is not None:
        raise ArgumentError(
            f"load: device and map_location name one argument, got {device!r} and {map_location!r}; give one."
        )
    if not isinstance(map_location, Device | str):
        raise ArgumentError(
            f"load: map_location is a device, such as 'cpu', got {map_location!r}: a file does not say where"
            f" its tensors lay. For several devices load on one, and move each tensor by x.to(device)."
        )
    return map_location


def _damaged(name: str, why: str) -> StateError:
    return StateError(
        f"load: {name!r} is no whole safetensors file: {why}. Save it again, or fetch another copy."
    )


def _foreign(name: str, file: BinaryIO) -> StateError | None:
    """Return the error of a file of another format; None where nothing says which."""
    from .foreign_formats import format_of  # only where something is already wrong

    what = format_of(name, file)
    return StateError(f"load: {name!r} is no safetensors file: it is {what}") if what else None


def _json(name: str, text: str | bytes) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise _damaged(name, f"its header is not JSON ({error})") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise ValueError("a name stands twice")
    return entries


def _header(name: str, lead: bytes, file: BinaryIO, size: int) -> tuple[dict[str, Any], int]:
    """Return the header and where the data start. The length is checked before anything is read."""
    length = int.from_bytes(lead, "little")
    if len(lead) < 8 or length < 2:
        raise _foreign(name, file) or _damaged(name, f"it has {size} bytes, and begins with no header")
    if length > _LARGEST_HEADER or 8 + length > size:
        raise _foreign(name, file) or _damaged(
            name, f"its header would have {length} bytes, and the file has {size}"
        )
    header = _json(name, file.read(length))
    if not isinstance(header, dict):
        raise _damaged(name, "its header is no JSON object")
    return header, 8 + length


def _entries(
    name: str, header: dict[str, Any], size: int
) -> dict[str, tuple[dt.DType, tuple[int, ...], int, int]]:
    """Return dtype, shape and place of every tensor; together they cover the data, without gap or overlap."""
    entries = {}
    for key, entry in header.items():
        try:
            code, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
            sound = all(type(n) is int and n >= 0 for n in (*shape, begin, end))
        except (KeyError, TypeError, ValueError):
            raise _damaged(name, f"tensor {key!r} lacks dtype, shape or place") from None
        if not isinstance(code, str) or code not in _BY_CODE:
            raise StateError(
                f"load: {name!r}: tensor {key!r} has dtype {code!r}; tensorbus has {', '.join(_BY_CODE)}."
            )
        kind = _BY_CODE[code]
        if len(shape) > MAX_RANK:
            raise _damaged(name, f"tensor {key!r} has {len(shape)} dimensions, of at most {MAX_RANK}")
        if not sound or end - begin != prod(shape) * kind.itemsize:
            raise _damaged(name, f"tensor {key!r} of {code}{list(shape)} cannot lie at {begin} to {end}")
        entries[key] = (kind, shape, begin, end)
    place = 0
    for key, (_, _, begin, end) in sorted(entries.items(), key=lambda item: item[1][2:]):
        if begin != place:
            raise _damaged(
                name, f"tensor {key!r} begins at byte {begin} of the data, and must begin at {place}"
            )
        place = end
    if place != size:
        raise _damaged(name, f"its tensors have {place} bytes, and there are {size}")
    return entries


def _tensor(
    name: str, key: str, data: memoryview, kind: dt.DType, shape: tuple[int, ...], pair: bool, where: Device
) -> Tensor:
    if pair:
        if kind is not dt.float64 or shape[-1:] != (2,):
            raise _damaged(name, f"tensor {key!r} is marked as complex128, and is {kind}{list(shape)}")
        kind, shape = dt.complex128, shape[:-1]
    check_dtype(f"load: tensor {key!r} of {name!r}", kind, where)
    return from_bytes(_little_endian(data, kind), shape, kind, where)
