"""Every collective, reduction and dtype, in groups, layouts and ways of calling, compared with NumPy."""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus import dtypes as dt
from tensorbus.backend_api import REDUCTIONS
from tensorbus.distributed.collectives.functional import check_reduction
from tensorbus.distributed.process_group.world import current
from tensorbus.dtypes import DType
from tensorbus.errors import DtypeError, UnsupportedOpError

from ..native import Array
from ..outcome import Finding
from .progress import cell
from .setting import Report, Setting
from .values import array, combined, content, difference, error_bound, tensor

Shape = tuple[int, ...]
LATE_SECONDS: Final = 0.3
"""Seconds that a rank comes late to a barrier: one that does not wait is over by then."""


class Layout(NamedTuple):
    """The look of tensors: the shape that rank ``k`` of a group brings, what is in it, how it lies."""

    name: str
    shape: Callable[[int], Shape]
    fill: str = "small"
    strided: bool = False
    uneven: bool = False


LAYOUTS: Final = (
    Layout("matrix", lambda k: (4, 3)),
    Layout("scalar", lambda k: ()),
    Layout("empty", lambda k: (0, 3)),
    Layout("strided", lambda k: (5, 2), strided=True),
    Layout("bits", lambda k: (33,), "bits"),
    Layout("special", lambda k: (64,), "special"),
    Layout("rounding", lambda k: (257,), "rounding"),
    Layout("large", lambda k: (70_001,), "rounding"),
    Layout("uneven", lambda k: ((0, 3, 1, 5)[k % 4], 2), uneven=True),
    Layout("large and uneven", lambda k: (20_000 * k + 1,), uneven=True),
)


@dataclass(slots=True, kw_only=True)
class _Case:
    """One call on one rank: which group, dtype and layout, and where findings go."""

    setting: Setting
    report: Report
    group: Any
    dtype: DType
    layout: Layout
    is_async: bool = False
    name: str = ""

    @property
    def terms(self) -> str:
        return f"of {self.dtype}, {self.layout.name}"

    @property
    def size(self) -> int:
        return int(self.group.size)

    @property
    def rank(self) -> int:
        return int(self.group.rank)

    def arrays(self, what: str = "") -> list[Array]:
        """Return what each rank of the group brings."""
        return [
            array(self.layout.fill, self.dtype, self.layout.shape(k), f"{self.layout.name} {what} {k}")
            for k in range(self.size)
        ]

    def tensor(self, x: Array) -> tb.Tensor:
        return tensor(x, self.dtype, self.setting.device, strided=self.layout.strided)

    def call(self, tensors: Sequence[tb.Tensor], call: Callable[[Any], Any]) -> list[tb.Tensor]:
        """Communicate; return the results, and note where operands changed or share memory with results."""
        before = [content(x).copy() for x in tensors]
        if self.is_async:
            work = self.group.submit(self.name, tensors, call, terms=self.terms)
            result = work.wait(self.setting.timeout)
        else:
            result = self.group.run(self.name, tensors, call, self.terms)
        results = list(result) if isinstance(result, list | tuple) else [] if result is None else [result]
        self.report.calls += 1
        contents = [content(y).copy() for y in results]
        for y in results:
            y.zero_()
        for x, was in zip(tensors, before, strict=True):
            if content(x).tobytes() != was.tobytes():
                self.find("an operand changed, or shares its memory with a result")
        return [tensor(x, y.dtype, y.device) for x, y in zip(contents, results, strict=True)]

    def compare(self, y: tb.Tensor, right: Array, bound: Any = 0) -> None:
        """Note where a result is not right."""
        if y.device.type != self.setting.device or y.dtype != self.dtype or y.shape != right.shape:
            self.find(
                f"the result is {y.dtype}{[*y.shape]} on {y.device}; right is"
                f" {self.dtype}{[*right.shape]} on {self.setting.device}"
            )
        elif problem := difference(content(y), right, bound):
            self.find(problem)

    def agree(self, y: tb.Tensor) -> None:
        """Leave the bits of what must be the same on all ranks of the group."""
        key = f"{self} in group {self.group.label}"
        self.report.digests[key] = hashlib.sha256(content(y).tobytes()).hexdigest()

    def find(self, problem: str) -> None:
        self.report.findings.append(Finding(check=self.name.split(" ")[0], call=str(self), problem=problem))

    def __str__(self) -> str:
        ranks = ",".join(map(str, self.group.ranks))
        way = ", async" if self.is_async else ""
        return f"{self.name}({self.dtype} {self.layout.name}, ranks {ranks}{way})"


def _all_reduce(case: _Case, reduction: str) -> None:
    xs = case.arrays()
    x = case.tensor(xs[case.rank])
    (y,) = case.call([x], lambda c: c.all_reduce(x, reduction))
    case.compare(y, combined(xs, reduction, case.dtype), _bound(case, xs, reduction))
    case.agree(y)


def _reduce_scatter(case: _Case, reduction: str) -> None:
    """The part of place k has the shape that the layout gives rank k."""
    parts = [_parts(case, k) for k in range(case.size)]
    mine = [case.tensor(x) for x in parts[case.rank]]
    (y,) = case.call(mine, lambda c: c.reduce_scatter(mine, reduction))
    column = [part[case.rank] for part in parts]
    case.compare(y, combined(column, reduction, case.dtype), _bound(case, column, reduction))


def _all_gather(case: _Case) -> None:
    xs = case.arrays()
    x = case.tensor(xs[case.rank])
    results = case.call([x], lambda c: c.all_gather(x, [y.shape for y in xs]))
    for y, right in zip(results, xs, strict=True):
        case.compare(y, right)


def _all_to_all(case: _Case) -> None:
    """Rank k sends to rank j what has the shape of rank k + j of the layout."""
    sent = [[_part(case, k, j, case.layout.shape(k + j)) for j in range(case.size)] for k in range(case.size)]
    mine = [case.tensor(x) for x in sent[case.rank]]
    due = [row[case.rank] for row in sent]
    results = case.call(mine, lambda c: c.all_to_all(mine, [x.shape for x in due]))
    for y, right in zip(results, due, strict=True):
        case.compare(y, right)


def _broadcast(case: _Case) -> None:
    for root in range(case.size):
        right = _part(case, root, 0, case.layout.shape(root))
        x = case.tensor(right if case.rank == root else np.zeros_like(right))
        (y,) = case.call([x], partial(_broadcast_from, x, root))
        case.compare(y, right)


def _send_receive(case: _Case) -> None:
    """Around the ring, two messages at once; the even ranks send first."""
    if case.size == 1:
        return
    to, source = (case.rank + 1) % case.size, (case.rank - 1) % case.size
    first, second = case.arrays("first"), case.arrays("second")
    out = [case.tensor(xs[case.rank]) for xs in (first, second)]
    due = [xs[source] for xs in (first, second)]
    like = [case.tensor(np.zeros_like(x)) for x in due]

    def send() -> None:
        for x in out:
            case.call([x], partial(_send_to, x, to))

    def receive() -> None:
        for x, right in zip(like, due, strict=True):
            (y,) = case.call([x], partial(_receive_from, x, source))
            case.compare(y, right)

    steps = (send, receive) if case.rank % 2 == 0 else (receive, send)
    if case.size % 2 and case.rank == case.size - 1:
        steps = (receive, send)
    for step in steps:
        step()


def _messages_at_once(case: _Case) -> None:
    """Each rank sends to the next one around the ring, and to the one before: none waits for another."""
    if case.size == 1:
        return
    xs = {step: case.arrays(f"step {step}") for step in (1, -1)}
    ops, due = [], []
    for step in (1, -1):
        to, source = ((case.rank + k) % case.size for k in (step, -step))
        right = xs[step][source]
        due.append((case.tensor(np.zeros_like(right)), right))
        mine = case.tensor(xs[step][case.rank])
        ops.append(dist.P2POp(dist.isend, mine, case.group.ranks[to], case.group))
        ops.append(dist.P2POp(dist.irecv, due[-1][0], case.group.ranks[source], case.group))
    for work in dist.batch_isend_irecv(ops):
        work.wait(case.setting.timeout)
    case.report.calls += 1
    for y, right in due:
        case.compare(y, right)


def _broadcast_from(x: tb.Tensor, root: int, communicator: Any) -> Any:
    return communicator.broadcast(x, root)


def _send_to(x: tb.Tensor, to: int, communicator: Any) -> Any:
    return communicator.send(x, to)


def _receive_from(x: tb.Tensor, source: int, communicator: Any) -> Any:
    return communicator.receive(x, source)


def _sum(x: tb.Tensor, communicator: Any) -> Any:
    return communicator.all_reduce(x, "sum")


def _barrier(case: _Case) -> None:
    """The tensor says which communicator is meant."""
    case.call([tb.zeros((1,), device=case.setting.device)], lambda c: c.barrier())


_MOVES: Final[dict[str, Callable[[_Case], None]]] = {
    "all_gather": _all_gather, "all_to_all": _all_to_all, "broadcast": _broadcast,
    "send and receive": _send_receive, "messages at once": _messages_at_once, "barrier": _barrier,
}  # fmt: skip
_REDUCES: Final[dict[str, Callable[[_Case, str], None]]] = {
    "all_reduce": _all_reduce, "reduce_scatter": _reduce_scatter,
}  # fmt: skip


def _part(case: _Case, source: int, place: int, shape: Shape) -> Array:
    return array(case.layout.fill, case.dtype, shape, f"{case.layout.name} {source} {place}")


def _parts(case: _Case, source: int) -> list[Array]:
    return [_part(case, source, k, case.layout.shape(k)) for k in range(case.size)]


def _bound(case: _Case, xs: Sequence[Array], reduction: str) -> Any:
    rounds = case.layout.fill == "rounding" or case.dtype.itemsize == 1  # of float8, small numbers too
    return error_bound(xs, case.dtype) if rounds and reduction == "sum" else 0


def _has_reduction(reduction: str, dtype: DType, layout: Layout, device: str) -> bool:
    """Return whether core lets the reduction through, and NumPy says what is right of it."""
    x = tb.zeros((1,), dtype=dtype, device=device)
    try:
        check_reduction("all_reduce", reduction, x)
        if reduction in ("min", "max"):
            tb.maximum(x, x)
        else:
            x & x if reduction.startswith("bitwise") else x + x
    except (DtypeError, UnsupportedOpError):
        return False
    exact = layout.fill not in ("rounding", "special") or dtype.is_integer
    if reduction == "product" and not exact:
        return False  # its bound depends on the order, and the sign of a NaN's neighbours on it too
    return not (dtype.is_complex and layout.fill == "special")


def groups(setting: Setting) -> Iterator[Any]:
    """Make the groups of this launch; every rank makes all of them, and yields those that it is in."""
    n = setting.ranks
    wanted = [
        tuple(range(n)),
        tuple(reversed(range(n))),
        (n - 1, 0),
        tuple(range(0, n, 2)),
        tuple(range(1, n, 2)),
    ]
    for ranks in dict.fromkeys(wanted):
        group = dist.new_group(ranks)
        if group:
            yield group


def program(setting: Setting, report: Report) -> None:
    """Call everything; all ranks run this."""
    dtypes = [dt.dtype(name) for name in setting.dtypes]
    for number, group in enumerate(groups(setting)):
        everything = not setting.quick and group.size == setting.ranks and number == 0
        for dtype, layout in itertools.product(dtypes, LAYOUTS):
            is_main = layout.name in ("matrix", "large and uneven")
            rounds = number == 0 and layout.name == "rounding"  # what ranks that add in another order show
            if not (everything or is_main or rounds):
                continue
            for is_async in (False, True) if is_main else (False,):
                case = _Case(
                    setting=setting, report=report, group=group, dtype=dtype, layout=layout,
                    is_async=is_async, name="every collective",
                )  # fmt: skip
                with cell(setting, report, str(case)):
                    _calls(case)
    with cell(setting, report, "many collectives in flight in two groups"):
        _several_at_once(setting, report)
    with cell(setting, report, "a message that waits beside collectives"):
        _message_beside_collectives(setting, report)
    with cell(setting, report, "messages with tags and from any rank"):
        _tagged_messages(setting, report)
    with cell(setting, report, "a barrier that one rank comes to late"):
        _late_to_a_barrier(setting, report)


def _calls(case: _Case) -> None:
    for name, move in _MOVES.items():
        case.name = name
        move(case)
    for name, combine in _REDUCES.items():
        if case.layout.uneven and name == "all_reduce":
            continue
        for reduction in REDUCTIONS:
            if _has_reduction(reduction, case.dtype, case.layout, case.setting.device):
                case.name = f"{name} {reduction}"
                combine(case, reduction)


def _several_at_once(setting: Setting, report: Report) -> None:
    """Many collectives in flight in two groups, in another order on each rank between the groups."""
    pair = [dist.new_group(range(setting.ranks)) for _ in range(2)]
    x = tb.ones((3,), device=setting.device)
    order = pair if dist.get_rank() % 2 else pair[::-1]
    works = {}
    for group in order:
        assert group
        for k in range(10):
            scaled = x * k
            works[group.label, k] = group.submit("all_reduce", [scaled], partial(_sum, scaled))
    for (label, k), work in reversed(works.items()):
        total = work.wait(setting.timeout).tolist()
        report.calls += 1
        if total != [k * setting.ranks] * 3:
            call = f"all_reduce number {k} of group {label}, twenty in flight"
            right = [k * setting.ranks] * 3
            report.findings.append(
                Finding(check="async", call=call, problem=f"it is {total}, right is {right}")
            )


def _message_beside_collectives(setting: Setting, report: Report) -> None:
    """Ask for a message that is sent behind collectives of the same ranks; what queues keeps one order."""
    group = dist.new_group(range(setting.ranks))
    assert group
    here, last = dist.get_rank(), setting.ranks - 1
    x, sent = tb.ones((3,), device=setting.device), tb.ones((20_000,), device=setting.device) * 7
    like = tb.zeros_like(sent)
    group.run("barrier", [x], lambda c: c.barrier())  # which connects the ranks
    if group.connection(x.device).queues:
        return
    results = {}
    if here == 0:
        work = group.submit("recv", [like], lambda c: c.receive(like, last), needs=[last])
        time.sleep(LATE_SECONDS)  # until it waits
    for k in (1, 10_000):
        many = tb.ones((k,), device=setting.device)
        results[f"all_reduce of {k} beside a message"] = group.run(
            "all_reduce", [many], partial(_sum, many), f"sum of float32[{k}]"
        ), setting.ranks  # fmt: skip
    if here == last:
        group.run("send", [sent], lambda c: c.send(sent, 0), needs=[0])
    if here == 0:
        results["a message beside collectives"] = work.wait(setting.timeout), 7
    for call, (result, right) in results.items():
        report.calls += 1
        if set(result.tolist()) != {right}:
            problem = f"its elements are {set(result.tolist())}, right is {right}"
            report.findings.append(Finding(check="async", call=call, problem=problem))


def _tagged_messages(setting: Setting, report: Report) -> None:
    """Receive by tags in another order than was sent, then one from each rank, whichever comes first."""
    group = dist.new_group(range(setting.ranks))
    assert group
    here, last = dist.get_rank(), setting.ranks - 1
    x, y = (tb.zeros((3,), device=setting.device) for _ in range(2))
    group.run("barrier", [x], lambda c: c.barrier())  # which connects the ranks
    if getattr(group.connection(x.device).communicator, "post_receive", None) is None or not last:
        return
    results: list[Any] = []
    if here == last:
        for tag in (1, 2):
            dist.send(tb.ones((3,), device=setting.device) * tag, 0, group, tag)
    if here:
        dist.send(tb.ones((3,), device=setting.device) * here, 0, group, 3)
    else:
        works = dist.irecv(x, last, group, 2), dist.irecv(y, None, group, 1)
        results += [(work.wait(setting.timeout), z.tolist()) for work, z in zip(works, (x, y), strict=True)]
        results += sorted((dist.recv(x, group=group, tag=3), x.tolist()) for _ in range(last))
        right = [(last, [2.0] * 3), (last, [1.0] * 3), *((k, [float(k)] * 3) for k in range(1, last + 1))]
        if results != right:
            report.findings.append(
                Finding(
                    check="send", call="messages with tags and from any rank",
                    problem=f"senders and elements are {results}, right is {right}",
                )
            )  # fmt: skip
    report.calls += 1


def _late_to_a_barrier(setting: Setting, report: Report) -> None:
    """Come late to a barrier on the last rank; it is over for nobody before."""
    group = dist.new_group(range(setting.ranks))
    assert group
    x = tb.zeros((1,), device=setting.device)
    group.run("barrier", [x], lambda c: c.barrier())  # which connects the ranks
    store, last, came = current().store, setting.ranks - 1, f"kit/{group.label}/came"
    if dist.get_rank() == last:
        time.sleep(LATE_SECONDS)
        store.set(came, b"1")
    group.run("barrier", [x], lambda c: c.barrier())
    (x + 1).tolist()  # where a device only queued it, this waits for it
    report.calls += 1
    if not store.check([came]):
        problem = f"it was over before rank {last} had come to it"
        report.findings.append(Finding(check="barrier", call="a barrier of all ranks", problem=problem))
