"""Objects whose classes define how they are read or written: compiling runs none of their code."""

from typing import Any

import pytest
import tensorbus as tb


class Counted:
    """Counts how often its code runs."""

    def __init__(self) -> None:
        self.runs = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "factor":
            self.runs += 1
            return 2.0
        return object.__getattribute__(self, name)


class Slots:
    __slots__ = ("factor", "runs")

    def __init__(self) -> None:
        self.runs = 0

    def __getattr__(self, name: str) -> float:
        self.runs += 1
        return 2.0


class Items(list[float]):
    runs = 0

    def __len__(self) -> int:
        self.runs += 1
        return 2

    def __iter__(self) -> Any:
        self.runs += 1
        return iter([1.0, 1.0])


class Doubled(dict[str, float]):
    runs = 0

    def __getitem__(self, key: str) -> float:
        self.runs += 1
        return dict.__getitem__(self, key) * 2


class Named(dict[str, float]):
    runs = 0

    def __getattr__(self, name: str) -> float:
        return self[name]


CLASSES: dict[str, tuple[Any, Any]] = {
    "__getattribute__": (Counted, lambda x, one: x * one.factor),
    "__getattr__ beside slots": (Slots, lambda x, one: x * one.factor),
    "__len__": (lambda: Items([3.0]), lambda x, one: x * len(one)),
    "__iter__": (lambda: Items([3.0]), lambda x, one: x * sum(one)),
    "__getitem__": (lambda: Doubled(factor=1.0), lambda x, one: x * one["factor"]),
    "__getattr__ that raises KeyError": (lambda: Named(factor=2.0), lambda x, one: x * one.factor),
}


@pytest.mark.parametrize("actual", ["given", "outside"])
@pytest.mark.parametrize("name", CLASSES)
def test_code_of_a_class_runs_as_often_as_without_compile(name: str, actual: str) -> None:
    make, function = CLASSES[name]

    def runs(wrap: Any) -> tuple[list[Any], int]:
        thing = make()
        call = wrap(function) if actual == "given" else wrap(lambda x: function(x, thing))
        operand = (thing,) if actual == "given" else ()
        return [call(tb.asarray([x]), *operand).tolist() for x in (1.0, 2.0, 3.0, 4.0)], thing.runs

    assert runs(tb.compile) == runs(lambda f: f)


def test_items_that_no_iteration_reaches_are_taken() -> None:
    class Closed(list[Any]):
        def __iter__(self) -> Any:
            raise RuntimeError("not to be iterated")

    total = tb.compile(lambda xs: xs[0] + xs[1])
    for _ in range(3):
        assert total(Closed([tb.asarray([1.0]), tb.asarray([2.0])])).tolist() == [3.0]


def test_items_are_assigned_once() -> None:
    notes: list[str] = []

    class Noted(dict[str, Any]):
        def __setitem__(self, key: str, value: Any) -> None:
            notes.append(key)
            dict.__setitem__(self, key, value)

    noted = Noted(last=tb.zeros(1))

    @tb.compile
    def put(x: Any) -> Any:
        noted["last"] = x * 2
        return noted["last"]

    assert [put(tb.asarray([x])).tolist() for x in (1.0, 2.0, 3.0, 4.0)] == [[2.0], [4.0], [6.0], [8.0]]
    assert notes == ["last"] * 4
