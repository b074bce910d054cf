"""PyTorch's own samples of its operators give the same here, but for what docs/pytorch.md lists."""

from __future__ import annotations

import importlib.util
import random
import re
import warnings
from pathlib import Path

import pytest

from differences import DIFFERENCES

DOCUMENT = Path(__file__).parents[2] / "docs" / "pytorch.md"


def test_each_difference_is_a_row_of_the_document() -> None:
    rows = re.findall(r"^\| (.+?) \| .* \| .* \|$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(DIFFERENCES.values()) <= set(rows)


@pytest.mark.full
def test_drawn_operators_agree(request: pytest.FixtureRequest) -> None:
    """Forty operators, others for each seed: every sample agrees, or its operator differs by intention."""
    for name in ("torch", "expecttest"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed, which PyTorch's own samples need")
    from torch.testing._internal.common_methods_invocations import op_db

    import opinfo

    draw = random.Random(request.config.getoption("--hypothesis-seed", None))
    names = draw.sample(sorted({op.name for op in op_db}), 40)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        counts, failures, _ = opinfo.run(names, most=4)
    unexpected = {name: texts for name, texts in failures.items() if name not in DIFFERENCES}
    assert not unexpected, names
    assert counts["passed"] > 0.9 * counts.total()
