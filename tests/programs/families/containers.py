"""Containers of tensors: what the library has and what users define, as arguments, results and locals."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import tensorbus as tb

from program import Family

program = Family(__name__)

Pair = namedtuple("Pair", "left right")


class Moments(NamedTuple):
    mean: tb.Tensor
    spread: tb.Tensor
    count: int = 0


@dataclass
class Batch:
    x: tb.Tensor
    y: tb.Tensor | None = None
    names: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Interval:
    low: tb.Tensor
    high: tb.Tensor

    def width(self) -> tb.Tensor:
        return self.high - self.low


class Store(Mapping):
    """A mapping of the user's own, that counts how often it is read."""

    def __init__(self, **items: Any) -> None:
        self._items = items
        self.reads = 0

    def __getitem__(self, key):
        self.reads += 1
        return self._items[key]

    def __iter__(self):
        return iter(self._items)

    def __len__(self):
        return len(self._items)


@program
def dict_in_dict_out():
    def fn(parts):
        scaled = {k: v * 2 for k, v in parts.items()}
        scaled["total"] = sum(v.sum() for v in parts.values())
        return scaled

    a, b = tb.arange(3.0), tb.ones((2, 2))
    return fn, [({"a": a, "b": b},), ({"b": b, "a": a},), ({"a": a},), ({"a": b, "c": a},)]


@program
def nested_tree():
    def fn(tree):
        (x, [y, named]), label = tree
        z = named["z"]
        return {"sum": (x + y, [z]), label: None}

    def tree(k, label):
        return (tb.ones(2) * k, [tb.arange(2.0), {"z": tb.zeros(1) + k}]), label

    return fn, [(tree(1, "one"),), (tree(2, "one"),), (tree(3, "three"),)]


@program
def named_tuples():
    def fn(pair):
        if pair.right is None:
            return pair._replace(right=pair.left)
        swapped = Pair(*reversed(pair))
        mean = (pair.left + pair.right) / 2
        return swapped, Moments(mean, pair.left - mean), Moments(mean, mean, count=len(pair))

    a, b = tb.arange(3.0), tb.ones(3)
    return fn, [(Pair(a, b),), (Pair(b, a),), (Pair(a, None),)]


@program
def data_classes():
    def fn(batch, interval):
        inside = tb.clip(batch.x, interval.low, interval.high) * interval.width()
        target = tb.zeros_like(inside) if batch.y is None else batch.y
        return replace(batch, x=inside, y=target, names=[*batch.names, "clipped"])

    interval = Interval(tb.asarray(0.0), tb.asarray(2.0))
    x = tb.arange(4.0) - 1
    return fn, [
        (Batch(x), interval),
        (Batch(x, x, ["a"]), interval),
        (Batch(x * 2), Interval(tb.asarray(1.0), tb.asarray(3.0))),
    ]


@program
def sets_of_names():
    def fn(x, names):
        chosen = names & {"mean", "max", "sum"}
        return {name: getattr(tb, name)(x) for name in sorted(chosen)}, frozenset(names - chosen)

    x = tb.arange(4.0)
    return fn, [(x, {"mean", "min"}), (x, {"max", "sum"}), (x * 2, {"mean", "min"}), (x, set())]


@program
def queue_of_recent_values():
    recent = deque(maxlen=3)

    def fn(x):
        recent.append(x)
        return sum(recent) / len(recent)

    return fn, [(tb.arange(3.0) * k,) for k in range(5)], recent


@program
def counter_of_shapes():
    seen = Counter()

    def fn(*tensors):
        seen.update(x.shape for x in tensors)
        (most, times), *_ = seen.most_common(1)
        return [x * times for x in tensors if x.shape == most]

    a, b = tb.ones(2), tb.ones((1, 2))
    return fn, [(a, b), (b, b), (a, b), (b,)], seen


@program
def ordered_dict_moves():
    def fn(parts):
        ordered_dict = OrderedDict(parts)
        ordered_dict.move_to_end("first")
        key, last = ordered_dict.popitem()
        ordered_dict[key + "!"] = last + 1
        return ordered_dict

    a, b = tb.arange(2.0), tb.ones(2)
    return fn, [({"first": a, "second": b},), ({"first": b, "second": a},), ({"first": a},)]


@program
def default_dict_groups():
    def fn(rows, labels):
        groups = defaultdict(list)
        for row, label in zip(rows, labels, strict=True):
            groups[label].append(row)
        return {label: tb.stack(group).mean(axis=0) for label, group in groups.items()}

    rows = tb.reshape(tb.arange(8.0), (4, 2))
    return fn, [(rows, "abab"), (rows * 2, "abab"), (rows, "aaab"), (rows[:2], ("x", "y"))]


@program
def mapping_of_the_users_own():
    def fn(store, scale):
        return {**store}, store["a"] * scale, "b" in store, store.get("c"), len(store)

    first, second = Store(a=tb.ones(2), b=tb.arange(2.0)), Store(a=tb.zeros(3))
    return fn, [(first, 2.0), (first, 3.0), (second, 2.0)], (first, second)


@program
def tensors_as_keys():
    def fn(x, y):
        names = {x: "x", y: "y"}
        total = names.keys() and x + y
        names[total] = "total"
        return [names[t] for t in (y, total, x)], total

    x, y = tb.arange(2.0), tb.ones(2)
    return fn, [(x, y), (y, x), (x, y + 1)]


@program
def slicing_and_sorting_lists():
    def fn(parts):
        by_length = sorted(parts, key=len, reverse=True)
        by_length[1:2] = [by_length[0][:1], by_length[-1]]
        return by_length, by_length[::-1][0] + 1, len(by_length)

    a, b, c = tb.arange(3.0), tb.ones(1), tb.zeros(2)
    return fn, [([a, b, c],), ([c, b, a],), ([b, c],)]
