"""Hints for PyTorch's names and the rows of docs/pytorch.md, run against what PyTorch computes."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import tensorbus as tb
from tensorbus.compat import torch_names

from error_bounds import assert_within, gamma
from torch_hints import HINTS, OURS, PATH, RANDOM, ROWS, SCOPE, evaluate

ROUNDINGS: Final = 128
"""Sums of the elements of a kernel or a row, and the ops around them; PyTorch's results are as far off."""
DOCUMENT: Final = Path(__file__).parents[3] / "docs" / "pytorch.md"
TEXTS: Final = {
    **{name: f"tensorbus.{value}" for name, value in torch_names.FUNCTIONS.items()},
    **torch_names.EXPRESSIONS,
    **torch_names.METHODS,
    **{name: f"tensorbus.{value}" for name, value in torch_names.DISTRIBUTIONS.items()},
    **{name: f"tensorbus.{home}.{name}" for name, home in torch_names.HOMES.items()},
}
SAID: Final = {
    "accelerator", "backends", "cuda", "mps", "xpu",  # devices, which PyTorch counts otherwise
    "GradScaler", "utils", "grad_fn", "Categorical",  # no one expression stands for them
    "Size", "ModuleDict", "ParameterDict", "default_generator",  # classes and objects, not results
}  # fmt: skip
"""Names whose hints compute nothing that PyTorch computes."""


@cache
def stored() -> dict[str, list[dict[str, Any]]]:
    results: dict[str, list[dict[str, Any]]] = json.loads(PATH.read_text())
    return results


def check(name: str, code: str, only_shapes: bool = False) -> None:
    """Compare what ``code`` computes here with what was stored for ``name``."""
    with tb.device("cpu"):
        arrays = {k: tb.asarray(v) if isinstance(v, np.ndarray) else v for k, v in SCOPE.items()}
        results = evaluate(tb, code, arrays)
    assert len(results) == len(stored()[name]), (code, results)
    for got, want in zip(results, stored()[name], strict=True):
        if "value" in want:
            assert got == want["value"], code
            continue
        assert list(got.shape) == want["shape"], code
        if not only_shapes:
            assert got.dtype.name == want["dtype"], code
            expected = np.array(want["values"], np.float64).reshape(want["shape"])
            size = np.abs(expected[np.isfinite(expected)]).max(initial=1.0)  # of operands and results
            assert_within(got.numpy(), expected, 2 * gamma(ROUNDINGS, "float32") * size, code)


def test_every_hint_and_row_is_run() -> None:
    assert TEXTS.keys() == HINTS.keys() | SAID
    assert stored().keys() == HINTS.keys() | ROWS.keys()
    text = DOCUMENT.read_text(encoding="utf-8")
    table = text.partition("## What means something else")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| (.+?) \| .* \| .* \|$", table, re.MULTILINE)
    assert listed == list(ROWS)


@pytest.mark.parametrize("name", HINTS)
def test_a_hint(name: str) -> None:
    entry, text = HINTS[name], TEXTS[name]
    if name in torch_names.HOMES:  # the same call, in that module
        call = entry if isinstance(entry, str) else entry[1]
        own = re.sub(rf"lib\.(linalg\.|nn\.functional\.)?{name}\b", text, call)
        assert own != call
    else:
        own = OURS.get(name, "{}").format(text.partition(": ")[0])
    check(name, own if isinstance(entry, str) else f"{entry[0]}; {own}", only_shapes=name in RANDOM)


@pytest.mark.parametrize("row", ROWS)
def test_a_row(row: str) -> None:
    check(row, ROWS[row][1])


def test_what_numpy_has() -> None:
    for name, call, own in (
        ("astype", lambda x: x.astype("float64"), "dtype = 'float64'; {}"),
        ("copy", lambda x: x.copy(), "{}"),
        ("itemsize", lambda x: x.itemsize, "{}"),
        ("fill", lambda x: np.full_like(x, 4.0), "value = 4.0; {}"),
    ):
        x = SCOPE["x"]
        (got,) = evaluate(tb, own.format(torch_names.NUMPY[name]), {"x": tb.asarray(x, device="cpu")})
        np.testing.assert_array_equal(np.asarray(got), call(x))
    assert torch_names.NUMPY.keys() == {"astype", "copy", "fill", "itemsize"}
