"""PyTorch's own samples of its operators give the same here, but for what docs/pytorch.md lists."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

from differences import DIFFERENCES
from drawn_operators import drawn_operators

DOCUMENT = Path(__file__).parents[2] / "docs" / "pytorch.md"


def test_each_difference_is_a_row_of_the_document() -> None:
    rows = re.findall(r"^\| (.+?) \| .* \| .* \|$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(DIFFERENCES.values()) <= set(rows)


@pytest.mark.full
def test_drawn_operators_agree(request: pytest.FixtureRequest) -> None:
    """Forty operators, others for each seed: every sample agrees, or its operator differs by intention."""
    names = drawn_operators(request, lambda op: True)
    import opinfo

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        counts, failures, _ = opinfo.run(names, most=4)
    unexpected = {name: texts for name, texts in failures.items() if name not in DIFFERENCES}
    assert not unexpected, names
    assert counts["passed"] > 0.9 * counts.total()
