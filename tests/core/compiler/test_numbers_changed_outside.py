"""Numbers that others change between calls of a compiled function: one program serves all values."""

import warnings
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import tensorbus as tb

from error_bounds import assert_alike

warned = pytest.mark.filterwarnings("error::tensorbus.compiler.RecompileWarning")
scale = 1.0
STEP_ROUNDINGS = 32  # sums of four, forward and back, and the update


def data(rows, width):
    return tb.sin(tb.reshape(tb.arange(float(rows * width)), (rows, width)))


class Pair:
    """Two models with an optimizer and a schedule each, that play against each other."""

    def __init__(self) -> None:
        tb.manual_seed(3)
        self.models = [tb.nn.Linear(3, 1), tb.nn.Linear(3, 1)]
        one, other = (m.parameters() for m in self.models)
        self.optimizers = [tb.optim.Adam(one, lr=0.1), tb.optim.SGD(other, lr=0.05, momentum=0.9)]
        self.schedules = [
            tb.optim.lr_scheduler.CosineAnnealingLR(self.optimizers[0], 30),
            tb.optim.lr_scheduler.ExponentialLR(self.optimizers[1], 0.9),
        ]

    def loss(self, turn, x):
        return tb.square(self.models[turn](x) - self.models[1 - turn](x).detach() - 1.0).mean()


def schedules_in_the_call(pair):
    def play(turn):
        optimizer, schedule = pair.optimizers[turn], pair.schedules[turn]

        def step(x):
            optimizer.zero_grad()
            loss = pair.loss(turn, x)
            loss.backward()
            optimizer.step()
            schedule.step()
            return loss.detach()

        return step

    plays = [tb.compile(play(0)), tb.compile(play(1))]
    return plays, plays, lambda: None


def schedules_outside(pair):
    def play(turn):
        optimizer, schedule = pair.optimizers[turn], pair.schedules[turn]

        def step(x):
            optimizer.zero_grad()
            loss = pair.loss(turn, x)
            loss.backward()
            optimizer.step()
            if optimizer is None:  # the schedule is within reach of the call
                schedule.step()
            return loss.detach()

        return step

    plays = [tb.compile(play(0)), tb.compile(play(1))]
    return plays, plays, lambda: [s.step() for s in pair.schedules]


def one_function_for_both(pair):
    @tb.compile
    def step(optimizer, schedule, x):
        turn = 0 if optimizer is pair.optimizers[0] else 1
        optimizer.zero_grad()
        loss = pair.loss(turn, x)
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss.detach()

    def play(turn):
        return lambda x: step(pair.optimizers[turn], pair.schedules[turn], x)

    return [play(0), play(1)], [step], lambda: None


@warned
@pytest.mark.parametrize("make", [schedules_in_the_call, schedules_outside, one_function_for_both])
def test_two_alternating_optimizers_are_captured_a_few_times(make) -> None:
    pair, plain = Pair(), Pair()
    steps, compiled, after = make(pair)
    x = data(4, 3)
    for k in range(14):
        if k == 7:
            known = [[*c.replays] for c in compiled]
            assert all(known)
        for turn in (0, 1):
            optimizer = plain.optimizers[turn]
            optimizer.zero_grad()
            loss = plain.loss(turn, x)
            loss.backward()
            optimizer.step()
            if make is not schedules_outside:
                plain.schedules[turn].step()
            assert_alike(steps[turn](x).item(), loss.item(), (k + 1) * STEP_ROUNDINGS, size=1.0)
        after()
        if make is schedules_outside:
            for schedule in plain.schedules:
                schedule.step()
    assert [c.replays for c in compiled] == known
    rates = [g["lr"] for o in pair.optimizers for g in o.param_groups]
    assert rates == [g["lr"] for o in plain.optimizers for g in o.param_groups]


@dataclass
class Setting:
    weight: float
    times: int = 2


def of_an_object():
    owner = SimpleNamespace(weight=1.0)
    return tb.compile(lambda x: x * owner.weight), lambda k: setattr(owner, "weight", 1.0 + k)


def of_a_module():
    model = tb.nn.Linear(2, 2, bias=False)
    tb.nn.init.eye_(model.weight)
    model.weight_of_it = 1.0
    return (
        tb.compile(lambda x: model(x) * model.weight_of_it),
        lambda k: setattr(model, "weight_of_it", 1.0 + k),
    )


def of_a_dict():
    results = {"weight": 1.0}
    return tb.compile(lambda x: x * results["weight"]), lambda k: results.update(weight=1.0 + k)


def of_a_list():
    results = [1.0, 2.0, 3.0, 4.0, 5.0]
    return tb.compile(lambda x: x * results[0]), lambda k: results.__setitem__(0, 1.0 + k)


def of_a_cell():
    weight = 1.0

    def change(k):
        nonlocal weight
        weight = 1.0 + k

    return tb.compile(lambda x: x * weight), change


def of_a_global():
    def change(k):
        global scale
        scale = 1.0 + k

    change(0)
    return tb.compile(lambda x: x * scale), change


def of_an_argument():
    setting = Setting(1.0)
    compiled = tb.compile(lambda x, s: x * s.weight)

    def change(k):
        setting.weight = 1.0 + k

    return lambda x: compiled(x, setting), change, compiled


def of_arguments_made_anew():
    compiled = tb.compile(lambda x, s: x * s.weight)
    now = [Setting(1.0)]
    return lambda x: compiled(x, now[0]), lambda k: now.__setitem__(0, Setting(1.0 + k)), compiled


def of_a_dict_given():
    compiled = tb.compile(lambda x, s: x * s["weight"])
    now = [{"weight": 1.0}]
    return lambda x: compiled(x, now[0]), lambda k: now.__setitem__(0, {"weight": 1.0 + k}), compiled


OWNERS = [
    of_an_object, of_a_module, of_a_dict, of_a_list, of_a_cell, of_a_global, of_an_argument,
    of_arguments_made_anew, of_a_dict_given,
]  # fmt: skip


@warned
@pytest.mark.parametrize("make", OWNERS)
def test_one_program_serves_a_number_that_others_change(make) -> None:
    call, change, *rest = make()
    compiled = rest[0] if rest else call
    for k in range(12):
        change(k)
        assert call(tb.ones((1, 2))).tolist() == [[1.0 + k] * 2]
    assert len(compiled.recompiles) == 1
    assert len(compiled.replays) == 1


@warned
def test_a_number_in_a_branch_is_captured_for_each_branch() -> None:
    owner = SimpleNamespace(step=0)
    compiled = tb.compile(lambda x: x * owner.step if owner.step < 5 else x - owner.step)
    for k in range(12):
        owner.step = k
        assert compiled(tb.ones(1)).item() == (k if k < 5 else 1 - k)
    assert len(compiled.replays) == 2


def test_a_number_that_python_needs_is_captured_for_each_value() -> None:
    owner = SimpleNamespace(times=1)
    compiled = tb.compile(lambda x: x + len([0] * owner.times))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for k in (1, 2, 3, 1, 2, 3):
            owner.times = k
            assert compiled(tb.ones(1)).item() == 1 + k
    assert len(compiled.replays) == 3


@warned
@pytest.mark.parametrize("through", ["an object", "an argument"])
@pytest.mark.parametrize("together", [False, True])
def test_a_number_stays_symbolic_beside_one_that_python_needs(through, together) -> None:
    owner = SimpleNamespace(rate=0.0, times=1)

    @tb.compile
    def decayed(x, rate, times):
        for _ in range(owner.times if times is None else times):
            x = x * (owner.rate if rate is None else rate)
        return x

    for k in range(24):
        rate, times = operands = 1.0 + k, 1 + (k % 4 if together else k // 6)
        if through == "an object":
            owner.rate, owner.times = operands
            operands = None, None
        assert decayed(tb.ones(1), *operands).item() == rate**times
    assert len(decayed.replays) == 4


def test_a_number_that_becomes_another_type_is_captured_again() -> None:
    owner = SimpleNamespace(weight=2)
    compiled = tb.compile(lambda x: x * owner.weight)
    for weight in (2, 3, 4, 2.5, 3.5, True, 5):
        owner.weight = weight
        out = compiled(tb.asarray([2]))
        assert out.tolist() == [2 * weight]
        assert out.dtype == (tb.asarray([2]) * weight).dtype


@warned
@pytest.mark.parametrize("through", ["an object", "an argument"])
def test_differentiable_results_depend_on_a_varying_number(through) -> None:
    model, owner = tb.nn.Linear(2, 2), SimpleNamespace(weight=1.0)
    compiled = tb.compile(lambda x, weight: model(x) * (owner.weight if weight is None else weight))
    for k in range(10):
        owner.weight = weight = 1.0 + k
        model.zero_grad()
        compiled(tb.ones((1, 2)), None if through == "an object" else weight).sum().backward()
        assert model.bias.grad.tolist() == [weight, weight]
    assert len(compiled.replays) == 1


def test_a_number_is_a_plain_one_again_after_a_dry_run() -> None:
    owner = SimpleNamespace(weight=1.5, seen=[])
    compiled = tb.compile(lambda x: x * owner.weight)
    for weight in (1.5, 2.5, 3.5):
        owner.weight = weight
        compiled(tb.ones(1))
        owner.seen.append(owner.weight)
    assert owner.seen == [1.5, 2.5, 3.5]
    assert all(type(w) is float for w in owner.seen)


def test_static_programs_hold_no_numbers() -> None:
    owner = SimpleNamespace(weight=1.0)
    compiled = tb.compile(lambda x: x * owner.weight, dynamic=False)
    for k in range(3):
        owner.weight = float(k)
        assert compiled(tb.ones(1)).item() == k
    assert len(compiled.replays) == 3


def cube(moving, **x):
    return tb.kernel(
        {}, name="cube", tensors={"x": tb.float32}, out=lambda x: x,
        **x or {"default": lambda x: x * x * x, "vjp": lambda g, x: (g * x * x * 3 * moving[0],)},
    )  # fmt: skip


@pytest.mark.parametrize("inside", [False, True])
def test_the_vjp_of_a_user_kernel_reads_its_number_each_time(inside) -> None:
    moving = [1.0]
    kernel = cube(moving)

    def fn(x):
        if inside:
            moving[0] += 1.0
        return kernel(x)

    compiled = tb.compile(fn)
    for k in range(5):
        if not inside:
            moving[0] = 1.0 + k
        x = tb.asarray([1.0, 2.0]).requires_grad_()
        compiled(x).sum().backward()
        assert x.grad.tolist() == [3 * moving[0], 12 * moving[0]]


@pytest.mark.parametrize("inside", [False, True])
def test_the_default_of_a_kernel_reads_its_number_each_time(inside) -> None:
    moving = [1.0]
    kernel = cube(moving, default=lambda x: x * moving[0])

    def fn(x):
        if inside:
            moving[0] += 1.0
        return kernel(x) + 1.0

    compiled = tb.compile(fn)
    for k in range(5):
        if not inside:
            moving[0] = 1.0 + k
        assert compiled(tb.ones(1)).item() == moving[0] + 1.0


@pytest.mark.parametrize("inside", [False, True])
def test_entries_that_come_to_a_dict_of_objects_are_seen(inside) -> None:
    class Key:
        pass

    key, other = Key(), Key()
    weights = {key: 1.0}

    def fn(x):
        if inside:
            weights[key] += 1.0
        return x * sum(weights.values())

    compiled = tb.compile(fn)
    for k in range(4):
        if not inside:
            weights[key] = 1.0 + k
        assert compiled(tb.ones(1)).item() == weights[key]
    weights[other] = 100.0
    assert compiled(tb.ones(1)).item() == weights[key] + 100.0
    del weights[other]
    assert compiled(tb.ones(1)).item() == weights[key]


def test_a_location_that_is_deleted_raises_as_in_eager() -> None:
    class Owner:
        weight = 7.0

    owner = Owner()
    compiled = tb.compile(lambda x: x * owner.weight)
    for k in range(4):
        owner.weight = 1.0 + k
        assert compiled(tb.ones(1)).item() == 1.0 + k
    del owner.weight
    assert compiled(tb.ones(1)).item() == 7.0
    del Owner.weight
    with pytest.raises(AttributeError, match="weight"):
        compiled(tb.ones(1))
    owner.weight = 3.0
    assert compiled(tb.ones(1)).item() == 3.0


def test_tuples_of_numbers_may_grow() -> None:
    state = {"parts": (1.0, 2.0)}
    compiled = tb.compile(lambda x: x * sum(state["parts"]))
    for parts in ((1.0, 2.0), (2.0, 3.0), (4.0, 5.0), (4.0, 5.0, 6.0), [4.0, 5.0, 6.0, 7.0], (1.0,)):
        state["parts"] = parts
        assert compiled(tb.ones(1)).item() == sum(parts)


def test_different_tensors_at_one_location() -> None:
    """State of an attribute, a dict and a global that a call only reads: each is read where it is."""

    class Holder:
        weight = tb.ones(3)

    held = {"k": tb.ones((2, 3))}
    compiled = tb.compile(lambda q: (q @ held["k"].T).sum() + Holder.weight.sum())
    for n in range(2, 14):
        held["k"], Holder.weight = tb.ones((n, 3)) * n, tb.ones(3) * n
        assert compiled(tb.ones((2, 3))).item() == 6 * n * n + 3 * n
    assert compiled.reasons == []
    assert len(compiled.recompiles) <= 3
    held["k"] = Holder.weight = tb.ones((1, 3))  # one tensor in both
    assert compiled(tb.ones((2, 3))).item() == 9
    Holder.weight = tb.ones((2, 3))
    assert compiled(tb.ones((2, 3))).item() == 12
