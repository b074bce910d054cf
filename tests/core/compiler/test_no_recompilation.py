"""Numbers, functions and locations that vary from call to call do not recompile."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import pytest
import tensorbus as tb
from tensorbus.compiler.programs import program_cache as executables

from error_bounds import assert_alike


@pytest.fixture
def compiled_programs(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Collect every program that is compiled."""
    results: list[object] = []
    compile_one = executables._compile

    def counted(*args):
        result = compile_one(*args)
        results.append(result)
        return result

    monkeypatch.setattr(executables, "_compile", counted)
    executables.clear()
    return results


def test_a_count_beside_printing_is_lifted_once_it_has_varied(compiled_programs, capsys) -> None:
    state = {"n": 0}

    @tb.compile
    def fn(x):
        state["n"] += 1
        print(state["n"])
        return x * state["n"] + 0.5

    assert [fn(tb.ones(2))[0].item() for _ in range(12)] == [k + 1.5 for k in range(12)]
    assert len(compiled_programs) <= 3
    assert capsys.readouterr().out.split() == [str(k + 1) for k in range(12)]


def test_a_number_read_from_a_tensor_is_lifted_too(compiled_programs) -> None:
    @tb.compile
    def fn(x):
        return x / x.max().item() + 1.0

    for k in range(1, 11):
        assert fn(tb.asarray([0.0, float(k)])).tolist() == [1.0, 2.0]
    assert len(compiled_programs) <= 4


def test_only_constants_that_differed_are_given(compiled_programs) -> None:
    state = {"n": 10.0}

    @tb.compile
    def fn(x):
        state["n"] += 1
        print(end="")
        return x * state["n"] + 2.0

    for _ in range(8):
        fn(tb.ones(2))
    inputs = [len(program.graph.inputs) for program in compiled_programs]
    constants = [sum(node.op == "constant" for node in program.graph) for program in compiled_programs]
    assert (inputs[-1], constants[-1]) == (2, 1)
    assert len(compiled_programs) <= 3


def captures(fn: Callable[..., object], calls: list[tuple[object, ...]]) -> int:
    """Call ``fn`` compiled; return how many captures it has in the end, without a change of a guard after."""
    compiled = tb.compile(fn)
    for args in calls:
        want, got = fn(*args), compiled(*args)
        assert want.tolist() == got.tolist()
    assert not compiled.reasons
    return len(compiled.replays)


def test_functions_recreated_at_each_call_are_known_by_their_code() -> None:
    x = tb.arange(3.0)
    assert captures(lambda f, v: f(v), [(lambda v: v * 2, x) for _ in range(20)]) == 1
    assert captures(lambda f, v: f(v), [(partial(tb.clip, max=1.0), x) for _ in range(20)]) == 1

    def scaled(w, by=2.0):
        return lambda v, *, shift=by: v * w + shift

    assert captures(lambda f, v: f(v), [(scaled(x + k), x) for k in range(20)]) == 1
    assert captures(lambda f, v: f(v), [(scaled(x, by), x) for by in (1.0, 2.0, 1.0, 2.0)]) == 2


def test_unread_gradients_are_not_guarded() -> None:
    a, b = tb.ones(2).requires_grad_(), tb.ones(2).requires_grad_()

    def fn(x, first):
        w = a if first else b
        (w * x).sum().backward()
        return w.grad

    compiled = tb.compile(fn)
    for k in range(12):
        compiled(tb.ones(2), k % 2 == 0)
    assert (a.grad.tolist(), b.grad.tolist()) == ([6.0, 6.0], [6.0, 6.0])
    assert len(compiled.replays) <= 4


@pytest.mark.parametrize("read", [False, True])
def test_gradients_replaced_outside_are_read_anew(read) -> None:
    """A compiled step of an optimizer, or a norm, beside a backward pass outside of it."""
    models = [tb.nn.Linear(3, 2), tb.nn.Linear(3, 2)]
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [tb.optim.Adam(m.parameters(), lr=0.1) for m in models]
    norms = [lambda m=m: sum((p.grad**2).sum() for p in m.parameters()) for m in models]
    runs = norms if read else [optimizer.step for optimizer in optimizers]
    compiled = runs[1] = tb.compile(runs[1])
    for k in range(12):
        results = []
        for model, optimizer, run in zip(models, optimizers, runs, strict=True):
            optimizer.zero_grad()
            (model(tb.ones((4, 3)) * k) ** 2).mean().backward()
            results.append(run())
        if read:
            assert_alike(results[1].item(), results[0].item(), roundings=16)  # a sum of eight squares
    assert_alike(models[1].weight, models[0].weight, roundings=12 * 16)  # twelve steps
    assert (len(compiled.replays), compiled.recompiles) == (1, [])


def test_rows_by_a_counter_are_one_program() -> None:
    data, state = tb.reshape(tb.arange(20.0), (10, 2)), {"at": 0}

    @tb.compile
    def fn(step):
        at = state["at"]
        state["at"] = (at + step) % 8
        return data[at] + data[at : at + 2].sum(axis=0)

    for k in range(10):
        at = 2 * k % 8
        want = data[at] + data[at] + data[at + 1]
        assert fn(2).tolist() == want.tolist()
    assert (len(fn.replays), fn.reasons) == (1, [])
    state["at"] = 9  # where the slice is shorter, and another program
    assert fn(2).tolist() == [36.0, 38.0]
    state["at"] = 10
    with pytest.raises(tb.IndexingError, match="index 10 is out of range"):
        fn(2)


def test_few_values_of_a_counter_are_captured_each() -> None:
    weights, state = [tb.ones(2) * k for k in range(3)], {"n": 0}

    @tb.compile
    def fn(x):
        w = weights[state["n"] % 3]
        state["n"] += 1
        return x * w

    assert [fn(tb.ones(2))[0].item() for _ in range(9)] == [0.0, 1.0, 2.0] * 3
    assert (len(fn.replays), fn.reasons) == (3, [])


def test_what_a_cache_keeps_is_computed_once() -> None:
    computed = []

    @cache
    def table(n):
        computed.append(n)
        return tb.arange(float(n))

    @tb.compile
    def fn(x):
        return x + table(x.shape[0]), table(3)

    for n in (3, 4, 3, 4, 3, 4):
        out, retained = fn(tb.ones(n))
        assert retained is table(3)
        assert out.tolist() == [k + 1.0 for k in range(n)]
    assert sorted(computed) == [3, 4]
    assert len(fn.replays) == 2


def test_plain_averages_over_batches_need_no_number() -> None:
    layer = tb.nn.BatchNorm1d(2, momentum=None)
    compiled = tb.compile(layer, fullgraph=True)
    batches = [tb.reshape(tb.arange(8.0), (4, 2)) * k for k in range(1, 5)]
    for x in batches:
        compiled(x)
    want = sum(x.mean(axis=0) for x in batches) / 4
    assert [round(v, 4) for v in layer.running_mean.tolist()] == [round(v, 4) for v in want.tolist()]
    assert layer.num_batches_tracked.item() == 4


def test_an_idle_optimizer_is_not_guarded() -> None:
    """As in adversarial training, where one of two models takes a step at every fifth call."""

    def training():
        tb.manual_seed(1)
        models = tb.nn.Linear(2, 2), tb.nn.Linear(2, 1)
        optimizers = [tb.optim.Adam(m.parameters(), lr=0.05) for m in models]

        def fn(x, k):
            loss = tb.square(models[1](models[0](x))).mean()
            optimizers[k].zero_grad()
            loss.backward()
            optimizers[k].step()
            return loss.detach()

        return fn

    plain, compiled = training(), tb.compile(training(), compare_eager=False)
    x = tb.reshape(tb.arange(6.0), (3, 2))
    for k in range(20):
        want, got = plain(x, int(k % 5 == 4)), compiled(x, int(k % 5 == 4))
        assert abs(want.item() - got.item()) < 1e-5
    assert (len(compiled.replays), compiled.reasons) == (3, [])  # one more before the other has gradients


def test_code_that_reads_an_idle_optimizer_sees_its_state() -> None:
    models = tb.nn.Linear(2, 2), tb.nn.Linear(2, 1)
    optimizers = [tb.optim.Adam(m.parameters(), lr=0.05) for m in models]

    @tb.compile
    def fn(x, k):
        optimizers[k].zero_grad()
        tb.square(models[1](models[0](x))).mean().backward()
        optimizers[k].step()
        return [len(optimizer.state) for optimizer in optimizers]

    x = tb.ones((3, 2))
    assert [fn(x, k) for k in (0, 0, 0, 1, 1, 0, 0)] == [[2, 0]] * 3 + [[2, 2]] * 4
