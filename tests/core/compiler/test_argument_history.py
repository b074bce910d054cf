"""Instances that are passed at each call: what they hold may grow, and they are not kept."""

from __future__ import annotations

import gc
import weakref
from collections import deque

import pytest
import tensorbus as tb


class Trainer:
    """Counts its steps and keeps what it has done."""

    def __init__(self) -> None:
        self.weight, self.count = tb.ones(3), 0
        self.log, self.recent, self.by_phase = [], deque(maxlen=3), {}


def counts_before(trainer, x):
    trainer.count += 1
    trainer.weight = trainer.weight * x
    trainer.log.append(trainer.count)
    if trainer.weight.max() > 20:
        trainer.weight = tb.ones(3)
    return trainer.weight.sum()


def counts_behind(trainer, x):
    trainer.weight = trainer.weight * x
    if trainer.weight.max() > 20:
        trainer.weight = tb.ones(3)
    trainer.count += 2
    trainer.log.append(trainer.count)
    return trainer.weight * 2


def keeps_tensors(trainer, x):
    trainer.weight = trainer.weight * x
    trainer.log.append(trainer.weight.max())
    if trainer.weight.max() > 20:
        trainer.weight = tb.ones(3)
    return trainer.log[-1]


def raises(trainer, x):
    trainer.log.append(x.shape[0])
    trainer.weight = trainer.weight * x
    if trainer.weight.max() > 20:
        trainer.weight = tb.ones(3)
        raise OverflowError(len(trainer.log))
    return trainer.weight


def is_whole(trainer, x):
    trainer.count += 1
    trainer.log.append(trainer.count)
    return trainer.weight * x


STEPS = [counts_before, counts_behind, keeps_tensors, raises, is_whole]


def plain(x):
    if isinstance(x, tb.Tensor):
        return x.tolist()
    if isinstance(x, Trainer):
        return {name: plain(value) for name, value in vars(x).items()}
    return [*map(plain, x)] if isinstance(x, (list, deque)) else x


def outcome(step, trainer):
    try:
        return plain(step(trainer, tb.full((3,), 1.5)))
    except OverflowError as error:
        return str(error)


@pytest.mark.parametrize("step", STEPS)
def test_what_one_instance_holds_grows(step) -> None:
    compiled = tb.compile(step, compare_eager=False)
    trainers = Trainer(), Trainer()
    for _ in range(24):
        want, got = outcome(step, trainers[0]), outcome(compiled, trainers[1])
        assert (got, plain(trainers[1])) == (want, plain(trainers[0]))
    parts = compiled.segments or [compiled]
    assert all(part._captures <= 4 and not part.reasons for part in parts), [p.recompiles for p in parts]


@pytest.mark.filterwarnings("ignore::tensorbus.compiler.RecompileWarning")
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("turns", [(0, 1) * 8, (0,) * 6 + (1,) * 6 + (0,) * 6, (0, 1, 2, 3) * 4])
def test_several_instances_take_turns(step, turns) -> None:
    compiled = tb.compile(step, compare_eager=False)
    trainers = [(Trainer(), Trainer()) for _ in range(4)]
    for k in turns:
        want, got = outcome(step, trainers[k][0]), outcome(compiled, trainers[k][1])
        assert (got, plain(trainers[k][1])) == (want, plain(trainers[k][0]))


def test_an_instance_is_let_go_when_another_has_come() -> None:
    compiled = tb.compile(counts_before, compare_eager=False)
    held = []
    for _ in range(4):
        trainer = Trainer()
        held.append(weakref.ref(trainer))
        for _ in range(8):
            outcome(compiled, trainer)
    del trainer
    gc.collect()
    assert sum(each() is not None for each in held) <= 1
    assert not any(part.reasons for part in compiled.segments)
