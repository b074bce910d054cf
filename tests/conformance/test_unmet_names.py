"""The kernel tables of this repository's devices name ops and kernels that there are."""

from __future__ import annotations

from tensorbus import plugins
from tensorbus.dispatch.kernel_tables import unmet
from tensorbus.ops.definition import table


def test_kernel_tables_name_what_there_is(device: str) -> None:
    plugins.backend(device)
    assert unmet(device, table) == []


def test_an_op_that_there_is_not_is_told(device: str) -> None:
    class Without:
        def __contains__(self, name: object) -> bool:
            return name != "add" and name in table

    (problem,) = unmet(device, Without())
    assert "'add', and there is no such op" in problem
