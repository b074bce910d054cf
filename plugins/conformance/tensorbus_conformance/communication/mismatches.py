"""Calls that do not match: the last rank asks for something else than the others, and all read what they get.

No rank has a value that is not what it asked for: it is told before, by the call or where it reads. At least
one is told in any case, at the latest in its next barrier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import tensorbus as tb
from tensorbus import distributed as dist

from ..outcome import Finding
from .setting import Report, Setting

F = dist.functional
FROM_OTHER_ROOTS: Final = "broadcast from other roots"
UNHARMED: Final = (
    FROM_OTHER_ROOTS, "broadcast of other shapes", "broadcast of other tensors of one shape",
    "all_to_all of more than is expected", "scatter of other shapes",
)  # fmt: skip
"""What the other ranks may have a value of: the root's own, or what they have asked for and got alike."""


def steps(setting: Setting) -> dict[str, Callable[[Any], Any]]:
    """Return the calls of this rank, which get a group and return what is read; None where nothing is."""
    odd, here, n = dist.get_rank() == setting.ranks - 1, dist.get_rank(), setting.ranks
    two, three, large = (_ones(setting, k) for k in (2, 3, 100_000))
    whole = _ones(setting, 2, dtype="int32")
    label = "'weight' of Linear #2" if odd else "'weight' of Linear #1"
    roots = two if here < 2 else two * 0

    def run(group: Any, name: str, x: tb.Tensor, call: Callable[[Any], Any], terms: str = "") -> Any:
        return group.run(name, [x], call, terms)

    def reduced(group: Any, *xs: tb.Tensor, reduction: str = "sum") -> tb.Tensor:
        return [all_reduce(group, x, reduction) for x in xs][-1]

    return {
        "all_reduce of other shapes": lambda g: reduced(g, three if odd else two),
        "all_reduce, small and large": lambda g: reduced(g, large if odd else two),
        "all_reduce of other dtypes": lambda g: reduced(g, whole if odd else two),
        "all_reduce by other reductions": lambda g: reduced(g, two, reduction="max" if odd else "sum"),
        "all_reduce in another order": lambda g: reduced(g, *((three, two) if odd else (two, three))),
        "all_gather of other shapes than were said": lambda g: run(
            g, "all_gather", two, lambda c: c.all_gather(two, [((3,) if odd else (2,))] * n),
            "in threes" if odd else "in twos",
        ),
        "reduce_scatter of other shapes": lambda g: run(
            g, "reduce_scatter", two, lambda c: c.reduce_scatter([three if odd else two] * n, "sum"),
            "of threes" if odd else "of twos",
        ),
        "all_to_all of other shapes than were said": lambda g: run(
            g, "all_to_all", two, lambda c: c.all_to_all([three if odd else two] * n, [(2,)] * n)
        ),
        "all_to_all of more than is expected": lambda g: F.all_to_all(
            _ones(setting, 2 * n), 0, 0, [2] * n, [3 if odd and not rank else 2 for rank in range(n)], g
        ),
        "gather of other shapes": lambda g: _gathered(setting, g),
        "scatter of other shapes": lambda g: _scattered(setting, g),
        "broadcast of other shapes": lambda g: run(
            g, "broadcast", two, lambda c: c.broadcast(three * 0 if odd else roots, 0),
            "of three" if odd else "of two",
        ),
        FROM_OTHER_ROOTS: lambda g: run(
            g, "broadcast", two, lambda c: c.broadcast(roots, 1 if odd else 0),
            "from place 1" if odd else "from place 0",
        ),
        "all_reduce of other tensors of one shape": lambda g: F.all_reduce(two, group=g, label=label),
        "all_gather of other tensors of one shape": lambda g: F.all_gather(two, group=g, label=label),
        "reduce_scatter of other tensors of one shape": lambda g: F.reduce_scatter(
            _ones(setting, n), group=g, label=label
        ),
        "all_to_all of other tensors of one shape": lambda g: F.all_to_all(
            _ones(setting, n), group=g, label=label
        ),
        "broadcast of other tensors of one shape": lambda g: F.broadcast(roots, group=g, label=label),
        "other collectives": lambda g: (
            run(g, "barrier", two, lambda c: c.barrier()) if odd else reduced(g, two)
        ),
        "a message of another shape": lambda g: (
            run(g, "send", three, lambda c: c.send(three, 0)) if odd
            else run(g, "recv", two, lambda c: c.receive(two, n - 1)) if not here else None
        ),
        "another program": lambda g: _programs(two, g, odd),
    }  # fmt: skip


def all_reduce(group: Any, x: tb.Tensor, reduction: str = "sum") -> tb.Tensor:
    """Return the combination, by the communicator itself."""
    terms = f"{reduction} of {x.dtype}{[*x.shape]}"
    total: tb.Tensor = group.run("all_reduce", [x], lambda c: c.all_reduce(x, reduction), terms)
    return total


def read(setting: Setting, report: Report, step: str, value: Any) -> None:
    """Read what a call has returned, where it raises what went wrong; a value that is none is reported."""
    tensors = [value] if isinstance(value, tb.Tensor) else [*(value or ())]
    elements = [x.tolist() for x in tensors]
    odd = dist.get_rank() == setting.ranks - 1
    if step == FROM_OTHER_ROOTS or (step in UNHARMED and not odd):
        wrong = [x for each in elements for x in each if x != 1]
    else:
        wrong = elements
    if wrong:
        problem = f"it read {str(elements)[:100]}, though the ranks had asked for different things"
        report.findings.append(Finding(check="faults", call=step, problem=problem))


def _ones(setting: Setting, *shape: int, dtype: str = "float32") -> tb.Tensor:
    return tb.ones(shape, dtype=dtype, device=setting.device)


def _gathered(setting: Setting, group: Any) -> Sequence[tb.Tensor] | None:
    """Let the last rank send less than the first one expects."""
    last = setting.ranks - 1
    there = [_ones(setting, 3 if rank == last else 2) for rank in range(setting.ranks)]
    dist.gather(_ones(setting, 2), None if dist.get_rank() else there, group=group)
    return None if dist.get_rank() else there


def _scattered(setting: Setting, group: Any) -> tb.Tensor:
    """Let the first rank send more than the last one expects."""
    last = setting.ranks - 1
    parts = [_ones(setting, 3 if rank == last else 2) for rank in range(setting.ranks)]
    mine = _ones(setting, 2)
    dist.scatter(mine, None if dist.get_rank() else parts, group=group)
    return mine


def _programs(x: tb.Tensor, group: Any, odd: bool) -> tb.Tensor:
    """Run two programs as all others do, until a device may have recorded them; then another one."""

    def program(x: tb.Tensor, label: str) -> tb.Tensor:
        first = F.all_reduce(x * 2 - 1, group=group, label="'bias' of Linear #1")
        return F.all_reduce(first * 3 + 1, group=group, label=label)

    one, other = (tb.compile(partial(program, label=f"'weight' of Linear #{k}")) for k in (1, 2))
    for _ in range(3):
        one(x).tolist()
        other(x).tolist()
    result: tb.Tensor = (other if odd else one)(x)
    return result
