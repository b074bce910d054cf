"""The harness finds out compilers that cheat: each here has one fault, and some program shows it."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Any

import pytest
import tensorbus as tb

from families import closures, control_flow, indexing, layers, mutation, output, surroundings
from program import Program
from running import compare, run

Fn = Callable[..., Any]


def replays_the_first_result(fn: Fn) -> Fn:
    known: list[Any] = []

    def call(*args: Any) -> Any:
        if not known:
            known.append(fn(*args))
        return known[0]

    return call


def runs_twice_at_first(fn: Fn) -> Fn:
    calls = 0

    def call(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            fn(*args)
        return fn(*args)

    return call


def forgets_the_history(fn: Fn) -> Fn:
    return lambda *args: fn(*args).detach().requires_grad_()


def loses_identity(fn: Fn) -> Fn:
    return lambda *args: tuple(+x for x in fn(*args))


def spares_its_arguments(fn: Fn) -> Fn:
    return lambda *args: fn(*[x.clone() for x in args])


def rounds_otherwise(fn: Fn) -> Fn:
    return lambda *args: fn(*args) * (1 + 1e-5)


def widens(fn: Fn) -> Fn:
    return lambda *args: tb.cast(fn(*args), "float64")


def stays_silent(fn: Fn) -> Fn:
    def call(*args: Any) -> Any:
        with contextlib.redirect_stdout(io.StringIO()):
            return fn(*args)

    return call


def changes_the_error(fn: Fn) -> Fn:
    def call(*args: Any) -> Any:
        try:
            return fn(*args)
        except IndexError as error:
            raise tb.IndexingError(f"compiled: {error}") from None

    return call


@pytest.mark.parametrize(
    ("fault", "program"),
    [
        (replays_the_first_result, control_flow.powers_in_a_for_loop),
        (replays_the_first_result, closures.closure_over_a_tensor),
        (replays_the_first_result, mutation.log_outside),
        (runs_twice_at_first, mutation.results_kept_outside),
        (runs_twice_at_first, closures.global_counter),
        (forgets_the_history, layers.linear_layer),
        (loses_identity, surroundings.results_are_the_arguments),
        (spares_its_arguments, mutation.argument_tensor_changes_in_place),
        (rounds_otherwise, closures.constant_of_the_module),
        (widens, closures.constant_of_the_module),
        (stays_silent, output.prints_shapes),
        (changes_the_error, indexing.index_out_of_range),
    ],
    ids=lambda x: x.__name__ if callable(x) else x.name,
)
def test_fault_is_found(fault: Callable[[Fn], Fn], program: Program) -> None:
    eager = run(program, tb.get_default_device().type, lambda fn: fn)
    assert not compare(eager, run(program, tb.get_default_device().type, lambda fn: fn), program.ulps)
    assert compare(eager, run(program, tb.get_default_device().type, fault), program.ulps)
