"""Hoisting: what is the same in every iteration of a loop is computed before it; what may differ stays."""

from __future__ import annotations

from tensorbus.dtypes import definition as dt
from tensorbus.lowering.codegen.loop_invariant_motion import hoisted
from tensorbus.lowering.ir.loop_ir import (
    INDEX,
    Apply,
    Array,
    Assign,
    Cast,
    Const,
    Expr,
    If,
    Let,
    Load,
    Report,
    Stmt,
    Store,
    Var,
)

ITEM, N, ROW = Var("i0", INDEX), Var("n0", INDEX), Var("row", INDEX)
ZERO = Const(0, INDEX)
FOUND = Var("found", dt.float32)


def load(name: str, index: Expr) -> Load:
    return Load(name, index, dt.float32)


def split(*body: Stmt, written: frozenset[str] = frozenset()) -> tuple[list[Stmt], list[Stmt]]:
    before, left = hoisted(body, ITEM, written)
    assert len(before) + len(left) == len(body)
    return before, left


def test_a_row_is_looked_up_and_reported_once() -> None:
    row = Let(ROW, Cast(Load("rows", N, dt.int64), INDEX))
    report = Report("errors", Const(1, INDEX), ROW, N)
    inside = Apply("less", (ROW, N), dt.bool_)
    start = Let(FOUND, Const(0.0, dt.float32), mutable=True)
    choice = If(inside, (Assign(FOUND, load("x", ROW)),))
    store = Store("out", ITEM, FOUND)
    assert split(row, report, start, choice, store) == ([row, report, start, choice], [store])


def test_what_depends_on_the_iteration_stays_and_so_does_what_reads_it() -> None:
    own = Let(ROW, Apply("add", (ITEM, N), INDEX))
    after = Let(FOUND, load("x", ROW))
    store = Store("out", ITEM, FOUND)
    assert split(own, after, store) == ([], [own, after, store])


def test_sums_and_what_changes_them_stay() -> None:
    start = Let(FOUND, Const(0.0, dt.float32), mutable=True)
    grows = Assign(FOUND, Apply("add", (FOUND, load("x", ITEM)), dt.float32))
    store = Store("out", ITEM, FOUND)
    assert split(start, grows, store) == ([], [start, grows, store])


def test_what_is_read_before_it_changes_stays() -> None:
    start = Let(FOUND, Const(0.0, dt.float32), mutable=True)
    early = Store("out", ITEM, FOUND)
    change = Assign(FOUND, load("x", ZERO))
    assert split(start, early, change) == ([], [start, early, change])


def test_what_is_written_is_not_read_before() -> None:
    array = Array("kept", dt.float32, 4)
    fill = Store("kept", ZERO, load("x", ITEM))
    back = Let(FOUND, load("kept", ZERO))
    store = Store("out", ITEM, FOUND)
    assert split(array, fill, back, store) == ([], [array, fill, back, store])
    shared = Let(FOUND, load("x", ZERO))
    assert split(shared, store, written=frozenset({"x"})) == ([], [shared, store])
    assert split(shared, store) == ([shared], [store])
    over = Store("x", ITEM, FOUND)
    assert split(shared, over) == ([], [shared, over])
