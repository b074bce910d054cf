"""docs/prims.md lists every prim, with the attributes that its kernels are given."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import tensorbus as tb
from tensorbus.dispatch import selection
from tensorbus.dispatch.plan import invalidate
from tensorbus.ops import lazy_families
from tensorbus.ops.definition import table

ROW = re.compile(r"^\| (`[^|]*) \| ([^|]*) \| ([^|]*) \|$", re.MULTILINE)
DOCUMENT = Path(__file__).parents[3] / "docs" / "prims.md"
X = tb.ones((4, 3), device="cpu")
M = tb.eye(3, device="cpu")


def _calls() -> dict[str, Callable[[], Any]]:
    run = {name: table.function(name) for name in table.names()}
    index = tb.asarray([0, 1], device="cpu")
    reductions = {
        name: lambda name=name: run[name](X) for name in "sum prod max min any all argmax argmin".split()
    }
    names = "cholesky slogdet det eigh eig lu_factor matrix_exp".split()
    square = {name: lambda name=name: run[name](M) for name in names}
    return {
        **reductions, **square,
        "cast": lambda: run["cast"](X, tb.int32), "broadcast_to": lambda: tb.broadcast_to(X, (2, 4, 3)),
        "reshape": lambda: tb.reshape(X, (12,)), "permute_dims": lambda: tb.permute_dims(X, (1, 0)),
        "flip": lambda: tb.flip(X), "slice": lambda: X[1:3, ::-1],
        "slice_update": lambda: run["slice_update"](X, tb.ones((2, 2)), start=(1, 1), step=(1, 1)),
        "pad": lambda: run["pad"](X, low=(1, 0), high=(0, 2), value=1.5), "concat": lambda: tb.concat([X, X]),
        "windows": lambda: run["windows"](X, size=(2,), stride=(1,), dilation=(1,)),
        "full": lambda: tb.full((2,), 3.0, device="cpu"), "iota": lambda: run["iota"](5, device="cpu"),
        "gather": lambda: run["gather"](X, index),
        "scatter": lambda: run["scatter"](X, tb.ones((2, 3)), index, mode="add"),
        "cumulative_sum": lambda: run["cumulative_sum"](X, axis=0), "sort": lambda: tb.sort(X),
        "argsort": lambda: tb.argsort(X), "matmul": lambda: M @ M, "solve": lambda: run["solve"](M, M),
        "solve_triangular": lambda: run["solve_triangular"](M, M, upper=True), "qr": lambda: run["qr"](X),
        "svd": lambda: run["svd"](X), "fft": lambda: run["fft"](X + 1j), "rfft": lambda: run["rfft"](X),
        "irfft": lambda: run["irfft"](X + 1j, n=4),
    }  # fmt: skip


@pytest.fixture
def observed(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Mapping[str, Any]]]:
    results: dict[str, Mapping[str, Any]] = {}
    invalidate()
    monkeypatch.setattr(
        selection, "_observers", [lambda op, call, *_: results.setdefault(op.name, call.attrs)]
    )
    yield results
    invalidate()


def test_every_prim_is_listed_with_its_attributes(observed: dict[str, Mapping[str, Any]]) -> None:
    lazy_families.load_all()
    rows: dict[str, set[str]] = {}
    for names, _, attributes in ROW.findall(DOCUMENT.read_text(encoding="utf-8")):
        heads = " ".join(part.partition(":")[0] for part in attributes.replace("[", "").split(";"))
        message = set(re.findall(r"`(\w+)`", heads))
        rows |= dict.fromkeys(re.findall(r"`(\w+)`", names), message)
    prims = {
        op.name for op in table
        if op.is_prim and op.family != "elementwise" and table.owner(op.name) == "tensorbus"
    }  # fmt: skip
    assert rows.keys() == prims
    calls = _calls()
    assert calls.keys() == prims - {"transfer"}
    for name, call in calls.items():
        observed.clear()
        invalidate()
        call()
        optional = {"dtype"} if name in ("sum", "prod", "cumulative_sum") else set()
        assert observed[name].keys() == rows[name] - optional, name
