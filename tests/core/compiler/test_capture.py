"""A compiled function does what the function does; calls whose guards hold need no Python."""

from __future__ import annotations

import gc
import sys
import types
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import tensorbus as tb
from tensorbus.compiler import Compiled
from tensorbus.errors import CaptureError

from error_bounds import assert_alike

STEP_ROUNDINGS = 32  # sums of the batch and of a layer, forward and back, and the update


def replayed(compiled: Compiled, *args, **kwargs):
    """Call a compiled function; the result must come from a replay."""
    captures = compiled.replays[:]
    assert captures, compiled.reasons
    result = compiled(*args, **kwargs)
    assert compiled.replays == captures, compiled.recompiles
    return result


def test_a_second_call_runs_no_python() -> None:
    runs = []
    scale = 3.0

    def fn(x, y):
        return x * scale + y

    compiled = tb.compile(fn)
    assert compiled(tb.ones(3), tb.arange(3.0)).tolist() == [3.0, 4.0, 5.0]

    def traced(frame, event, arg):
        runs.append(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(traced)
    try:
        result = compiled(tb.ones(3) * 2, tb.arange(3.0))
    finally:
        sys.setprofile(before)
    assert result.tolist() == [6.0, 7.0, 8.0]
    assert fn.__code__ not in runs


SCALE = 2


def test_a_changed_global_is_captured_again(monkeypatch) -> None:
    compiled = tb.compile(lambda x: x * SCALE)
    assert compiled(tb.ones(1)).tolist() == [2.0]
    monkeypatch.setitem(globals(), "SCALE", 5)
    assert compiled(tb.ones(1)).tolist() == [5.0]
    assert "SCALE" in compiled.recompiles[0]
    monkeypatch.setitem(globals(), "SCALE", 2)
    assert replayed(compiled, tb.ones(1)).tolist() == [2.0]


@pytest.mark.parametrize(
    ("first", "second", "what"),
    [
        ((tb.ones(2),), (tb.ones(3),), "shape"),
        ((tb.ones(2),), (tb.ones(2, dtype=tb.float64),), "dtype"),
        ((tb.ones(2), 1), (tb.ones(2), 2), "argument 1"),
        ((tb.ones(2), "a"), (tb.ones(2), "b"), "argument 1"),
        ((tb.ones(2), None), (tb.ones(2), 1), "argument 1"),
        ((tb.ones(2), 0.0), (tb.ones(2), -0.0), "argument 1"),
        ((tb.ones(2), [1]), (tb.ones(2), [1, 2]), "length"),
        ((tb.ones(2), {"a": 1}), (tb.ones(2), {"b": 1}), "keys"),
        ((tb.ones(2), (1, 2)), (tb.ones(2), [1, 2]), "type"),
        ((tb.ones(2),), (tb.ones(2).requires_grad_(),), "gradient"),
    ],
)
def test_a_changed_argument_is_captured_again(first, second, what) -> None:
    compiled = tb.compile(lambda x, *rest: (x + 1, len(rest), rest and repr(rest[0])))
    compiled(*first)
    compiled(*second)
    assert what in compiled.recompiles[0]
    replayed(compiled, *first)
    replayed(compiled, *second)


def test_modes_are_guarded() -> None:
    x = tb.ones(2).requires_grad_()
    compiled = tb.compile(lambda x: x * 2)
    assert compiled(x).requires_grad
    with tb.no_grad():
        assert not compiled(x).requires_grad
    assert "gradients are recorded" in compiled.recompiles[0]
    compiled = tb.compile(lambda: tb.ones(2))
    assert compiled().dtype is tb.float32
    tb.set_default_dtype(tb.float64)
    try:
        assert compiled().dtype is tb.float64
    finally:
        tb.set_default_dtype(tb.float32)


def test_a_module_is_guarded_by_its_flags_children_and_attributes() -> None:
    model = tb.nn.Sequential(tb.nn.Linear(2, 2), tb.nn.Dropout(0.5))
    compiled = tb.compile(model)
    x = tb.ones((4, 2))
    model.eval()
    assert compiled(x).tolist() == model(x).tolist()
    replayed(compiled, x)
    model.train()
    tb.manual_seed(1)
    first = compiled(x).tolist()
    tb.manual_seed(1)
    assert first == model(x).tolist()
    model.eval()
    replayed(compiled, x)
    model[1] = tb.nn.ReLU()
    assert compiled(x).tolist() == model(x).tolist()
    model[0].bias = None
    assert compiled(x).tolist() == model(x).tolist()
    handle = model[0].register_forward_hook(lambda module, args, out: out * 2)
    assert compiled(x).tolist() == model(x).tolist()
    handle.remove()
    assert compiled(x).tolist() == model(x).tolist()


def test_new_values_of_parameters_need_no_capture() -> None:
    model = tb.nn.Linear(2, 1)
    compiled = tb.compile(model)
    compiled(tb.ones((1, 2)))
    with tb.no_grad():
        model.weight[...] = 5.0
        model.bias[...] = 1.0
    assert replayed(compiled, tb.ones((1, 2))).tolist() == [[11.0]]
    model.load_state_dict({"weight": tb.zeros((1, 2)), "bias": tb.ones(1)})
    assert replayed(compiled, tb.ones((1, 2))).tolist() == [[1.0]]


def test_a_whole_training_step_is_one_program_with_its_state_in_place() -> None:
    def build():
        tb.manual_seed(0)
        model = tb.nn.Sequential(tb.nn.Linear(3, 4), tb.nn.Tanh(), tb.nn.Linear(4, 1))
        optimizer = tb.optim.Adam(model.parameters(), lr=0.1)
        schedule = tb.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        model[0].weight.register_hook(lambda g: g * 0.5)

        def step(x, y):
            optimizer.zero_grad()
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            tb.optim.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            return loss.detach()

        return step, model, optimizer

    x, y = tb.uniform((8, 3), generator=tb.Generator(1)), tb.ones((8, 1))
    plain, model, _ = build()
    step, other, optimizer = build()
    compiled = tb.compile(step)
    for turn in range(8):
        assert_alike(
            compiled(x, y).item(), plain(x, y).item(), (turn + 1) * STEP_ROUNDINGS, message=str(turn)
        )
    assert len(compiled.replays) == 1, compiled.reasons
    assert len(compiled.graphs) == 1
    for name, value in model.state_dict().items():
        assert_alike(other.state_dict()[name], value, 8 * STEP_ROUNDINGS, message=name)
    assert optimizer.state[other[0].weight]["step"] == 8


def test_where_python_needs_a_number_the_graph_breaks() -> None:
    def fn(x):
        y = x * 2
        if y.sum() > 3:
            return y + 1
        return y - 1

    compiled = tb.compile(fn)
    for x in (tb.ones(2), tb.zeros(2), tb.ones(2)):
        assert compiled(x).tolist() == fn(x).tolist()
    report = tb.compile.explain(fn)(tb.ones(2))
    assert len(report.breaks) == 1
    assert report.breaks[0].text == "if y.sum() > 3:"
    assert report.breaks[0].file == __file__
    assert len(report.graphs) == 2
    assert "needs values" in str(report.reason)
    with pytest.raises(CaptureError, match=r"if y\.sum\(\) > 3"):
        tb.compile(fn, fullgraph=True)(tb.ones(2))


def test_explain_tells_graphs_guards_and_recompiles() -> None:
    compiled = tb.compile(lambda x: (x * 2 + 1).sum())
    report = tb.compile.explain(compiled)(tb.ones(4))
    assert (len(report.graphs), len(report.breaks), report.reason) == (1, 0, None)
    assert report.result.item() == 12.0
    text = str(tb.compile.explain(compiled)(tb.ones(5)))
    assert "one program, without Python" in text
    assert "multiply" in text
    assert "the shape of argument x " in text
    assert "1 recompile(s)" in text


def test_the_limit_of_captures_warns_once_and_names_the_guard() -> None:
    compiled = tb.compile(lambda x, n: x + int(n))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results = [compiled(tb.ones(1), str(n)).item() for n in range(12)]
    assert results == [1.0 + n for n in range(12)]
    (warning,) = caught
    assert issubclass(warning.category, tb.RecompileWarning)
    assert "last 'n', argument 1, which was" in str(warning.message)


def test_a_function_with_effects_is_run_by_python_each_time(capsys) -> None:
    log = []

    def fn(x):
        log.append(x.shape[0])
        print("called")
        return x + len(log)

    compiled = tb.compile(fn)
    assert [compiled(tb.ones(1)).item() for _ in range(5)] == [2.0, 3.0, 4.0, 5.0, 6.0]
    assert capsys.readouterr().out == "called\n" * 5
    assert log == [1] * 5
    assert "print" in compiled.reasons[0]


def test_results_with_a_history_are_differentiable_outside_also_twice() -> None:
    model = tb.nn.Sequential(tb.nn.Linear(3, 4), tb.nn.Tanh(), tb.nn.Linear(4, 1))
    compiled = tb.compile(model)
    x = tb.uniform((5, 3)).requires_grad_()

    def both(fn):
        model.zero_grad()
        x.grad = None
        (fn(x) ** 2).sum().backward()
        first = [p.grad.reshape(-1).tolist() for p in (*model.parameters(), x)]
        (g,) = tb.grad(fn(x).sum(), x, create_graph=True)
        (second,) = tb.grad((g * g).sum(), model[0].weight)
        return [*first, second.reshape(-1).tolist()]

    compiled(x)
    assert_alike(both(compiled), both(model), STEP_ROUNDINGS)
    loss = compiled(x).sum()
    loss.backward()
    with pytest.raises(RuntimeError, match="retain_graph"):
        loss.backward()


def test_decorator_forms_methods_and_nesting() -> None:
    class Scaler:
        def __init__(self, factor):
            self.factor = factor

        @tb.compile
        def scale(self, x):
            return x * self.factor

    assert Scaler(2.0).scale(tb.ones(1)).item() == 2.0
    assert Scaler(3.0).scale(tb.ones(1)).item() == 3.0

    @tb.compile(fullgraph=True, mode="max-autotune")
    def outer(x):
        return inner(x) + 1

    @tb.compile
    def inner(x):
        return x * 2

    assert outer(tb.ones(1)).item() == 3.0
    assert tb.compile(outer) is outer
    with pytest.raises(ValueError, match="default, reduce-overhead, max-autotune"):
        tb.compile(lambda x: x, mode="fast")
    with pytest.raises(ValueError, match="there is no backend to choose, got 'inductor'"):
        tb.compile(abs, backend="inductor")
    assert tb.compile(abs, mode=None).mode == "default"
    with pytest.raises(ValueError, match="no device has options of its own yet, got 'fast'"):
        tb.compile(lambda x: x, options={"fast": True})
    with pytest.raises(ValueError, match="function, a method or a module"):
        tb.compile(3)


def test_an_error_is_that_of_python_and_leaves_tensors_whole() -> None:
    x = tb.ones(2)

    def fn(x, y):
        x += 1
        return x + y

    compiled = tb.compile(fn)
    with pytest.raises(ValueError, match=r"\(2,\).*\(3,\)"):
        compiled(x, tb.ones(3))
    assert x.tolist() == [2.0, 2.0]
    assert compiled(x, tb.ones(2)).tolist() == [4.0, 4.0]


def test_random_numbers_are_those_of_the_stream() -> None:
    compiled = tb.compile(lambda x: x + tb.rand(3))
    tb.manual_seed(4)
    results = [compiled(tb.zeros(3)).tolist() for _ in range(3)]
    tb.manual_seed(4)
    assert results == [tb.rand(3).tolist() for _ in range(3)]


def test_many_threads_call_one_compiled_function() -> None:
    model = tb.nn.Linear(3, 3)
    compiled = tb.compile(lambda x: model(x).sum())
    inputs = [tb.ones((2, 3)) * k for k in range(20)]
    with tb.no_grad(), ThreadPoolExecutor(4) as pool:
        wanted = [model(x).sum().item() for x in inputs]
        actual = list(pool.map(lambda x: compiled(x).item(), inputs))
    assert_alike(actual, wanted, 3 * 3 + 18)  # sums of three, and of them all


def test_attribute_names_and_compiled_functions_add_no_state() -> None:
    scope = {"tb": tb, "__name__": __name__}
    exec(
        "model = tb.nn.Linear(2, 1)\n"
        "optimizer = tb.optim.Adam(model.parameters())\n"
        "@tb.compile\n"
        "def half(x):\n    return x / 2\n"
        "@tb.compile\n"
        "def step(x):\n"
        "    optimizer.zero_grad()\n    loss = half(model(x)).sum()\n    loss.backward()\n"
        "    optimizer.step()\n"
        "    return loss.detach()\n",
        scope,
    )
    half, step = scope["half"], scope["step"]
    for _ in range(4):
        half(tb.ones(2))
        step(tb.ones((3, 2)))
    assert (len(half.replays), len(step.replays)) == (1, 1), (half.reasons, step.reasons)


def test_functions_of_tensorbus_are_arguments_like_any_other() -> None:
    compiled = tb.compile(lambda g, x: g(x))
    x = tb.asarray([0.0, 1.0])
    for g in (tb.exp, tb.cos, tb.vmap(lambda row: row * 2)):
        plain = [g(x).tolist(), tb.vmap(tb.exp)(x).tolist()]
        for _ in range(2):
            assert_alike(compiled(g, x).tolist(), plain[0], roundings=2)
    assert compiled.reasons == []


def test_what_runs_when_garbage_is_collected_is_not_observed() -> None:
    thresholds = gc.get_threshold()

    def seen(phase, info):
        len(phase)

    gc.callbacks.append(seen)
    gc.set_threshold(1)
    try:
        compiled = tb.compile(lambda x: x * 2 + 1)
        assert compiled(tb.ones(2)).tolist() == [3.0, 3.0]
    finally:
        gc.callbacks.remove(seen)
        gc.set_threshold(*thresholds)
    assert len(compiled.replays) == 1, compiled.reasons
    assert gc.isenabled()


@pytest.mark.parametrize("kind", ["list", "instance"])
def test_a_result_that_holds_itself(kind: str) -> None:
    class Node:
        pass

    @tb.compile
    def ring(x):
        if kind == "list":
            results = [x * 2]
            results.append(results)
            return results
        node = Node()
        node.x, node.next = x * 2, node
        return node

    for k in (1.0, 2.0, 3.0):
        result = ring(tb.asarray([k]))
        value, inner = result if kind == "list" else (result.x, result.next)
        assert inner is result
        assert value.tolist() == [2 * k]


@pytest.mark.parametrize("how", ["import", "from"])
def test_modules_that_a_function_imports_are_guarded(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package, settings = types.ModuleType("pack"), types.ModuleType("pack.settings")
    package.settings, package.__file__ = settings, __file__
    settings.factor, settings.__file__ = 2.0, __file__
    monkeypatch.setitem(sys.modules, "pack", package)
    monkeypatch.setitem(sys.modules, "pack.settings", settings)

    @tb.compile
    def scale(x):
        if how == "import":
            import pack.settings

            return x * pack.settings.factor
        from pack.settings import factor

        return x * factor

    for value in (2.0, 2.0, 3.0, 3.0):
        settings.factor = value
        assert scale(tb.ones(1)).tolist() == [value]
    other = types.ModuleType("pack.settings")
    other.factor, other.__file__ = 7.0, __file__
    package.settings = other
    monkeypatch.setitem(sys.modules, "pack.settings", other)
    assert scale(tb.ones(1)).tolist() == [7.0]
    assert scale.replays, scale.reasons


def test_a_variable_that_has_no_value_yet() -> None:
    def scale(x):
        try:
            return x * factor
        except NameError:
            return x

    compiled = tb.compile(scale)
    for _ in range(2):
        assert compiled(tb.ones(1)).tolist() == [1.0]
    factor = 2.0
    assert compiled(tb.ones(1)).tolist() == [2.0]
    del factor
    assert replayed(compiled, tb.ones(1)).tolist() == [1.0]
