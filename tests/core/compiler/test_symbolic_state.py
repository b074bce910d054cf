"""Symbolic state: functions that mutate Python numbers and lists at each call are captured too."""

from __future__ import annotations

import contextlib
import math
import pickle
import threading
from collections import deque
from functools import lru_cache

import pytest
import tensorbus as tb
from tensorbus.errors import DtypeError

from error_bounds import assert_alike


def calls(fn, compiled, xs):
    """Call both; return how many captures the compiled one has."""
    for x in xs:
        want, got = fn(x), compiled(x)
        assert [t.tolist() for t in want] == [t.tolist() for t in got]
    return len(compiled.replays)


class Counting:
    def __init__(self, every: int = 3) -> None:
        self.steps, self.mean, self.log, self.every = 0, 0.0, [], every

    def __call__(self, x):
        self.steps += 1
        self.mean += (self.steps - self.mean) / 2
        y = x * self.mean
        if self.steps % self.every == 0:
            y = -y
        self.log.append(y)
        return y, x + math.sqrt(self.steps)


def test_counters_averages_and_logs_need_no_python() -> None:
    one, two = Counting(), Counting()
    compiled = tb.compile(two)
    assert (
        calls(one, compiled, [tb.arange(3.0) + k for k in range(10)]) == 2
    )  # with and without the third step
    assert (one.steps, one.mean) == (two.steps, two.mean)
    assert [t.tolist() for t in one.log] == [t.tolist() for t in two.log]
    assert not compiled.reasons


def test_state_that_others_change_is_read_anew() -> None:
    state = {"n": 0}

    def fn(x):
        state["n"] += 1
        return (x * state["n"],)

    compiled = tb.compile(fn)
    for _ in range(3):
        compiled(tb.ones(1))
    state["n"] = 41
    assert compiled(tb.ones(1))[0].tolist() == [42.0]
    state["n"] = 0.5
    assert compiled(tb.ones(1))[0].tolist() == [1.5]
    assert state == {"n": 1.5}


@pytest.mark.parametrize(
    "use",
    [
        lambda n, x: x * (2 if type(n) is int else 3),
        lambda n, x: x * len(f"{n}" * n),
        lambda n, x: x + [5, 6, 7, 8, 9, 10, 11][n],
        lambda n, x: sum([x] * n, x),
        lambda n, x: x * {1: 2.0}.get(n, 3.0),
        lambda n, x: x * float(n),
        lambda n, x: x * (n if isinstance(n, int) else 100),
    ],
)
def test_the_value_of_a_counter_can_be_read(use) -> None:
    state = [0]

    def fn(x):
        state[0] += 1
        return (use(state[0], x),)

    compiled = tb.compile(fn)
    got = [compiled(tb.ones(2))[0].tolist() for _ in range(6)]
    state[0] = 0
    assert got == [fn(tb.ones(2))[0].tolist() for _ in range(6)]


def test_a_division_by_a_counter_that_reaches_zero_is_pythons() -> None:
    state = {"n": 4}

    def fn(x):
        state["n"] -= 1
        return x / (6 / state["n"])

    compiled = tb.compile(fn)
    assert_alike([compiled(tb.ones(1)).item() for _ in range(3)], [1 / 2, 1 / 3, 1 / 6], roundings=2)
    with pytest.raises(ZeroDivisionError):
        compiled(tb.ones(1))
    assert state == {"n": 0}


def test_a_list_that_is_read_is_left_to_python() -> None:
    log = []

    def fn(x):
        log.append(x)
        return x * len(log)

    compiled = tb.compile(fn)
    assert [compiled(tb.ones(1)).item() for _ in range(5)] == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_a_bound_method_of_a_list_is_inspected() -> None:
    log, last = [], {}
    add, put = log.append, last.__setitem__

    def fn(x):
        add(x * 2)
        put("x", x)
        return x

    compiled = tb.compile(fn)
    for k in range(5):
        compiled(tb.ones(1) * k)
    assert [t.item() for t in log] == [0.0, 2.0, 4.0, 6.0, 8.0]
    assert last["x"].item() == 4.0


def test_a_full_queue_forgets_its_oldest() -> None:
    recent = deque(maxlen=2)

    def fn(x):
        recent.append(x + 1)
        return x

    compiled = tb.compile(fn)
    for k in range(6):
        compiled(tb.ones(1) * k)
    assert [t.item() for t in recent] == [5.0, 6.0]
    assert compiled.replays


def test_a_dry_run_fills_no_cache_of_the_user() -> None:
    asked = []

    @lru_cache
    def mask(n):
        asked.append(n)
        return tb.ones(n)

    compiled = tb.compile(lambda x: x * mask(x.shape[0]), dynamic=True)
    for n in (3, 4, 5, 4, 3):
        assert compiled(tb.arange(float(n))).tolist() == [*map(float, range(n))]
    assert asked == [3, 4, 5]
    assert all(type(n) is int for n in asked)


def test_a_global_that_the_first_call_defines() -> None:
    def fn(x):
        global made_by_the_call
        made_by_the_call = x * 2
        return x

    compiled = tb.compile(fn)
    for k in range(4):
        compiled(tb.ones(1) * k)
        assert globals()["made_by_the_call"].item() == 2.0 * k


@pytest.mark.parametrize(
    "function",
    [
        lambda x: tb.relu(x),
        lambda x: getattr(tb, "relu")(x),  # noqa: B009 - that is what is tested
        lambda x: tb.relu(x) if not hasattr(x, "absent") else x,
    ],
)
def test_a_function_of_tensorbus_that_was_replaced_is_called(monkeypatch, function) -> None:
    compiled = tb.compile(function)
    for _ in range(2):
        assert compiled(tb.ones(1)).item() == 1.0
    monkeypatch.setattr(tb, "relu", lambda x: x * 5)
    assert compiled(tb.ones(1)).item() == 5.0
    monkeypatch.undo()
    assert compiled(tb.ones(1)).item() == 1.0


@pytest.mark.parametrize("module", [tb, tb.nn.functional])
def test_what_names_a_module_of_tensorbus_is_still_pickled(module) -> None:
    """What pickles functions by value, as cloudpickle does for Ray, comes to the modules that they name."""
    compiled = tb.compile(lambda x: module.relu(x))
    assert compiled(tb.ones(1)).item() == 1.0
    assert pickle.loads(pickle.dumps(module)) is module


@pytest.mark.parametrize("module", [tb, tb.nn.functional])
@pytest.mark.parametrize("value", [abs, 2])
def test_names_that_tensorbus_lacks_may_come(monkeypatch, module, value) -> None:
    compiled = tb.compile(lambda x: x * 3 if hasattr(module, "absent") else x)
    for _ in range(3):
        assert compiled(tb.ones(1)).item() == 1.0
    assert not compiled.reasons
    monkeypatch.setattr(module, "absent", value, raising=False)
    assert compiled(tb.ones(1)).item() == 3.0
    monkeypatch.undo()
    assert compiled(tb.ones(1)).item() == 1.0


def test_tuples_of_tensors_are_kept_from_call_to_call() -> None:
    class Recurrent:
        def __init__(self):
            self.hidden = (tb.zeros(2), [tb.ones(2)])

        def __call__(self, x):
            a, (b,) = self.hidden
            self.hidden = (a + x, [b * 2])
            return a, b

    one, two = Recurrent(), Recurrent()
    compiled = tb.compile(two)
    assert calls(one, compiled, [tb.ones(2) * k for k in range(4)]) == 1
    hidden = two.hidden
    before = hidden[0].tolist()
    compiled(tb.ones(2))
    assert hidden[0].tolist() == before
    one.hidden = two.hidden = (tb.ones(2), [tb.zeros(2)])
    assert calls(one, compiled, [tb.ones(2)] * 2) == 1


def test_the_rate_of_a_schedule_may_be_read_and_set() -> None:
    def build():
        tb.manual_seed(0)
        model = tb.nn.Linear(2, 1)
        optimizer = tb.optim.SGD(model.parameters(), lr=0.1)
        schedule = tb.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        rates = []

        def step(x):
            optimizer.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            schedule.step()
            rates.append(schedule.get_last_lr()[0])
            for group in optimizer.param_groups:
                group["lr"] = group["lr"] * 0.9
            return (loss.detach(), tb.asarray(0.0) + optimizer.param_groups[0]["lr"])

        return step, rates

    (one, rates), (two, others) = build(), build()
    compiled = tb.compile(two)
    assert calls(one, compiled, [tb.ones((3, 2))] * 7) == 1
    assert rates == others


def test_what_a_random_draw_precedes_may_still_decide() -> None:
    state = {"n": 0}

    def fn(x):
        noise = tb.rand(2)
        state["n"] += 1
        return x + noise * 0 if state["n"] < 3 else -x

    compiled = tb.compile(fn)
    assert [compiled(tb.ones(1)).tolist()[0] for _ in range(5)] == [1.0, 1.0, -1.0, -1.0, -1.0]
    assert len(compiled.replays) == 2


def test_threads_do_not_see_a_dry_run() -> None:
    state = {"n": 0}

    def fn(x):
        state["n"] += 1
        return x * 2

    compiled = tb.compile(fn)
    seen = []
    workers = [threading.Thread(target=lambda: seen.append(compiled(tb.ones(1)).item())) for _ in range(4)]
    for worker in workers:
        worker.start()
        worker.join()
    assert seen == [2.0] * 4
    assert state == {"n": 4}


def test_numbers_among_the_arguments_that_differ_are_one_capture() -> None:
    def fn(x, k, rate=0.5):
        return x * k + rate, x - 1 if k > 5 else x, tb.asarray(0) + k

    compiled = tb.compile(fn)
    for k in range(12):
        want, got = fn(tb.ones(2), k, rate=k / 3), compiled(tb.ones(2), k, rate=k / 3)
        assert [t.tolist() for t in want] == [t.tolist() for t in got]
    assert len(compiled.replays) == 2
    assert len(compiled.recompiles) == 2
    assert compiled(tb.ones(2), 2.5)[0].tolist() == [3.0, 3.0]
    fixed = tb.compile(lambda x, k: x * k, dynamic=False)
    assert [fixed(tb.ones(1), k).item() for k in range(4)] == [0.0, 1.0, 2.0, 3.0]
    assert len(fixed.replays) == 4


def test_a_number_that_an_op_does_not_take_is_an_error_as_without_a_capture() -> None:
    compiled = tb.compile(lambda x, k: x + k)
    x = tb.ones(1, dtype=tb.uint8)
    assert [compiled(x, k).item() for k in (1, 2, 3, 254)] == [2, 3, 4, 255]
    with pytest.raises(tb.DtypeError):
        compiled(x, 300)
    assert compiled(x, 7).item() == 8
    assert compiled(x, 2.5).item() == 3.5


def of_place(x, i):
    try:
        return x[i]
    except IndexError:
        return x * 0 - 1


def of_written_place(x, i):
    y = x.clone()
    try:
        y[i] = 5.0
    except IndexError:
        y[0] = -9.0
    return y


def of_quotient(x, i):
    try:
        return x * (1 / i)
    except ZeroDivisionError:
        return x * 0 - 1


def of_logarithm(x, i):
    try:
        return x * math.log(i)
    except ValueError:
        return x * 0 - 1


def of_power(x, i):
    with contextlib.suppress(ZeroDivisionError):
        x = x * 0**i
    return x + 1


def of_narrow_sum(x, i):
    try:
        return tb.astype(x, tb.int8) + i
    except DtypeError:
        return tb.astype(x * 0 - 1, tb.int8)


@pytest.mark.parametrize(
    "fn", [of_place, of_written_place, of_quotient, of_logarithm, of_power, of_narrow_sum]
)
@pytest.mark.parametrize("one", [(0, 500, 0, 1, 2, -1, 0), (1, 0, 1, 2, 0), (-1, 2, -1, 500, 1), (5, 0, 1)])
def test_that_an_operation_fails_depends_on_its_numbers(fn, one) -> None:
    compiled, x = tb.compile(fn), tb.arange(3.0)
    for i in one:
        assert compiled(x, i).tolist() == fn(x, i).tolist(), i


def test_a_loader_that_begins_again_where_it_ends() -> None:
    data = [tb.ones(2) * k for k in range(3)]

    def load(state):
        state["n"] += 1
        try:
            result = data[state["n"]] * (1 / (state["n"] - 2))
        except ZeroDivisionError:
            result = data[2] * 10
        except IndexError:
            state["n"], result = 0, data[0]
        return result + 1

    one, two = {"n": -1}, {"n": -1}
    compiled = tb.compile(lambda: load(two))
    for _ in range(9):
        assert compiled().tolist() == load(one).tolist()
        assert one == two


def test_tensors_that_are_attributes_of_classes() -> None:
    class Shared:
        total = tb.zeros(2)

    class Derived(Shared):
        pass

    @tb.compile
    def add(x):
        Shared.total = Shared.total + x
        Derived.total = Derived.total * 2
        return Shared.total

    for k in range(5):
        assert add(tb.ones(2)).tolist() == [k + 1.0] * 2
    assert (Shared.total.tolist(), Derived.total.tolist()) == ([5.0] * 2, [32.0] * 2)


def test_a_varying_number_that_is_deleted() -> None:
    def take(actual, x):
        del actual["count"]
        actual["last"] = x * 2
        return len(actual)

    compiled = tb.compile(take)
    shared, plain = {}, {}
    for k in (2, 1, 3, 4):
        shared["count"] = plain["count"] = k
        assert compiled(shared, tb.ones(1)) == take(plain, tb.ones(1))
        assert [*shared] == [*plain]
        assert shared["last"].tolist() == [2.0]
