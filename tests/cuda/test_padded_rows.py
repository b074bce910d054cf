"""Products whose rows are made packed and then padded: where they lie meanwhile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import tensorbus as tb
from tensorbus.backend_api import Call
from tensorbus_cuda.gemm import kernels_matmul as products


def test_each_stream_has_room_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may run in two streams at once: neither writes over what the other has yet to copy."""
    streams, rooms = [SimpleNamespace(ptr=k) for k in (1, 2)], list[Any]()

    def multiply(x: Any, y: Any, out: Any, lead: int = 0, packs: bool = True) -> bool:
        return not lead

    unit = SimpleNamespace(
        pool=SimpleNamespace(allocate=lambda nbytes: SimpleNamespace(nbytes=nbytes)),
        copy_rows=lambda room, *rest: rooms.append(room), workplace=lambda stream: (stream.ptr, 0),
    )  # fmt: skip
    monkeypatch.setattr(products, "_multiplier", lambda call: multiply)
    monkeypatch.setattr(products, "runtime", lambda: SimpleNamespace(units=[unit]))
    call = Call(
        op="matmul", dtypes=(tb.bfloat16,) * 2, shapes=((4, 8), (8, 5)), attrs={}, out_dtype=tb.bfloat16,
        out_shape=(4, 5), index=0, row_stride=8,
    )  # fmt: skip
    run = products.into(call)
    assert run is not None
    for k in (0, 1, 0, 1):
        unit.stream = lambda k=k: streams[k]
        assert run((None, None), (None,))
    assert [room.nbytes for room in rooms] == [4 * 5 * 2] * 4
    assert rooms[0] is rooms[2]
    assert rooms[1] is rooms[3]
    assert rooms[0] is not rooms[1]
