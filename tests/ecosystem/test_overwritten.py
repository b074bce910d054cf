"""Where PyTorch lets a tensor be written to before gradients are taken, so does tensorbus."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

from drawn_operators import drawn_operators

DOCUMENT = Path(__file__).parents[2] / "docs" / "views.md"


def _documented() -> set[str]:
    """Return the operators that may raise in PyTorch only: the second column of the document's table."""
    text = DOCUMENT.read_text(encoding="utf-8")
    (table,) = re.findall(r"^\| why nothing is read .*\n\|---\|---\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    return {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row)}


def test_each_operator_has_one_reason() -> None:
    names = re.findall(r"`(\w+)`", DOCUMENT.read_text(encoding="utf-8").partition("| why nothing is read")[2])
    listed = [name for name in names if name in _documented()]
    assert len(listed) > 100
    assert len(listed) == len({*listed})


@pytest.mark.full
def test_drawn_operators_raise_where_pytorch_does(request: pytest.FixtureRequest) -> None:
    """Forty operators, others for each seed: each operand and result is written over after the call."""
    names = drawn_operators(request, lambda op: op.supports_autograd)
    import overwritten

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcomes = overwritten.run(names, most=3)
    pairs = {(name, what, pair) for name, of in outcomes.items() for what, all in of.items() for pair in all}
    assert not [(name, what) for name, what, (there, here) in pairs if here and not there], names
    assert {name for name, _, (there, here) in pairs if there and not here} <= _documented(), names
    assert any(there and here for _, _, (there, here) in pairs)
