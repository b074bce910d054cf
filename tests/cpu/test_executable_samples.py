"""Every sample call of every op, compiled, gives what it gives eagerly."""

from __future__ import annotations

import pytest
from tensorbus.ops import lazy_families
from tensorbus.ops.definition import table

from one_op import differences

pytestmark = pytest.mark.full

lazy_families.load_all()


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
@pytest.mark.parametrize("op", [op.name for op in table])
def test_compiled_equals_eager(op: str, dtype: str) -> None:
    assert differences(op, "cpu", dtype) == []
