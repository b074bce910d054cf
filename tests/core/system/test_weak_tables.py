"""Weak tables forget what is gone without running Python, where a Ctrl-C would be lost."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus.system import fork_safe_locks
from tensorbus.system.build_folder import run_compiler
from tensorbus.system.weak_tables import WeakSet, WeakTable, WeakValues
from tensorbus.tracing.lazy_value import pending_copy


class Node:
    """What may be watched."""


def calls_when(forget: Callable[[], Any]) -> list[str]:
    """Return the functions written in Python that run while something is forgotten, but for itself."""
    calls: list[str] = []

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is not getattr(forget, "__code__", None):
            calls.append(frame.f_code.co_name)

    enabled = gc.isenabled()
    gc.disable()
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        forget()
    finally:
        sys.setprofile(before)
        if enabled:
            gc.enable()
    return calls


def test_what_they_hold_and_when() -> None:
    node, other = Node(), Node()
    members: WeakSet[Node] = WeakSet()
    table: WeakTable[Node, int] = WeakTable()
    values: WeakValues[str, Node] = WeakValues()
    members.update([node, other, node])
    table[node] = 1
    table[node] = 2
    assert table.setdefault(node, 3) == 2
    assert table.setdefault(other, 4) == 4
    values["node"], values["other"] = node, other
    values["node"] = node
    assert (set(members), len(table), dict(values.items())) == (
        {node, other},
        2,
        {"node": node, "other": other},
    )

    def forget() -> None:
        nonlocal node
        del node

    assert calls_when(forget) == []
    assert (list(members), len(members), len(table), len(values)) == ([other], 1, 1, 1)
    assert table.get(other) == 4
    assert table.get(Node(), 5) == 5
    assert values.get("node") is None
    assert table.pop(other, None) == 4
    assert table.pop(other, None) is None
    assert values.pop("other") is other
    members.discard(other)
    members.discard(other)
    assert not len(members) + len(table) + len(values)


def lent() -> Any:
    """Return a tensor whose memory is lent, where the device can."""
    x = tb.ones(3)
    np.asarray(x)
    return x


def detached() -> Any:
    """Return a tensor that had a gradient, and asks for none any more."""
    x = tb.ones(3).requires_grad_()
    x.sum().backward()
    return x.requires_grad_(False)


def marked() -> Any:
    """Return a tensor with an open axis."""
    x = tb.ones(3)
    tb.mark_dynamic(x, 0)
    return x


WATCHED: dict[str, Callable[[], Any]] = {
    "compiled function": lambda: tb.compile(lambda x: x + 1),
    "lock": fork_safe_locks.simple,
    "reentrant lock": fork_safe_locks.reentrant,
    "copy": lambda: pending_copy((3,), lambda: None),
    "lent": lent,
    "detached": detached,
    "marked": marked,
    "view": lambda: tb.ones(3)[1:],
}


@pytest.mark.parametrize("name", WATCHED)
def test_nothing_in_python_runs_when_they_are_gone(name: str) -> None:
    watched = [WATCHED[name]()]
    assert calls_when(watched.clear) == []


def test_nor_when_the_process_of_a_compiler_is_gone() -> None:
    def run() -> None:
        run_compiler([sys.executable, "-c", ""])

    calls = calls_when(run)
    assert "run_compiler" in calls
    assert "__del__" not in calls
