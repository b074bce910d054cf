"""The steps of a program that each step waits for: a graph runs the others side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tensorbus.backend_api import Queued

LANES: Final = 3
"""How many calls of libraries run side by side at most: each has memory of its own to work in."""
CHAINS: Final = 16
"""How many kernels of one batch run side by side at most."""


def shared_places(
    ranges: Sequence[tuple[int, int, int]], pairs: Iterable[tuple[int, int]]
) -> Mapping[int, Sequence[int]]:
    """Return for each slot that shares memory with others which these are.

    ``ranges`` are slots, where each begins and how long it is; ``pairs`` are of slots that may be the same.

    >>> shared_places([(5, 0, 8), (6, 8, 8), (7, 4, 8)], [(1, 9)])
    {5: [7], 7: [5, 6], 6: [7], 1: [9], 9: [1]}
    """
    sharing: dict[int, list[int]] = {}
    ordered = sorted(ranges, key=lambda x: x[1])
    for k, (slot, at, size) in enumerate(ordered):
        for other, start, _ in ordered[k + 1 :]:
            if start >= at + size:
                break
            sharing.setdefault(slot, []).append(other)
            sharing.setdefault(other, []).append(slot)
    for one, other in pairs:
        sharing.setdefault(one, []).append(other)
        sharing.setdefault(other, []).append(one)
    return sharing


def waits(steps: Sequence[Queued], shared: Mapping[int, Sequence[int]]) -> list[list[int]]:
    """Return for each step the earlier ones that it follows directly: by what they write and read.

    None of them follows another of them. Ordered steps follow each other.
    """
    wrote: dict[int, int] = {}
    read: dict[int, int] = {}
    before: list[int] = []
    dependencies: list[list[int]] = []
    ordered = 0
    for k, step in enumerate(steps):
        after = 0
        if step.ordered:
            after, ordered = ordered, 1 << k
        for slot in dict.fromkeys(step.slots):
            for place in (slot, *shared.get(slot, ())):
                after |= wrote.get(place, 0)
                if slot in step.written:
                    after |= read.get(place, 0)
        direct, seen = [], 0
        for earlier in reversed(range(k)):
            bit = 1 << earlier
            if after & bit and not seen & bit:
                direct.append(earlier)
                seen |= before[earlier]
        dependencies.append(direct)
        before.append(after | seen)
        for slot in step.slots:
            to = wrote if slot in step.written else read
            to[slot] = to.get(slot, 0) | 1 << k
    return dependencies


def in_turn(counts: Iterable[int]) -> list[list[int]]:
    """Return what each step follows directly, of batches of these many steps that come one after the other.

    >>> in_turn([1, 3, 1])
    [[], [0], [0], [0], [1, 2, 3]]
    """
    dependencies: list[list[int]] = []
    before: list[int] = []
    for count in counts:
        batch = [*range(len(dependencies), len(dependencies) + count)]
        dependencies += [before] * count
        before = batch
    return dependencies


def branched(
    counts: Iterable[int], waits: Sequence[Sequence[int]], beside: Sequence[bool]
) -> list[list[int]]:
    """Return what each step follows directly where some run ``beside`` the others.

    Those follow what they wait for, by ``waits``, and what waits for them follows them; all others are as
    ``in_turn`` has them.

    >>> branched([1, 1, 1, 1, 1], [[], [0], [], [], [1, 3]], [False, True, False, False, False])
    [[], [0], [0], [2], [3, 1]]
    """
    bits = sum(1 << k for k, is_beside in enumerate(beside) if is_beside)
    dependencies: list[list[int]] = []
    needed: list[int] = []
    reached: list[int] = []
    before: list[int] = []
    for count in counts:
        batch = [*range(len(dependencies), len(dependencies) + count)]
        for k in batch:
            needs = 0
            for n in waits[k]:
                needs |= needed[n] | 1 << n
            follows = [] if beside[k] else [*before]
            covered = 0
            for n in follows:
                covered |= reached[n] | 1 << n
            open_ends = (needs if beside[k] else needs & bits) & ~covered
            while open_ends:
                last = open_ends.bit_length() - 1
                follows.append(last)
                covered |= reached[last] | 1 << last
                open_ends &= ~covered
            dependencies.append(follows)
            needed.append(needs)
            reached.append(covered)
        if not beside[batch[0]]:
            before = batch
    return dependencies


def alive_longer(counts: Iterable[int], steps: Sequence[Queued]) -> dict[int, int]:
    """Return until which batch of ``counts`` steps the operands of ordered steps had better be left alone.

    These run beside what comes behind them: until their result is read. Else that would wait for them.

    >>> from types import SimpleNamespace as Step
    >>> reads = lambda *slots, to: Step(slots=(*slots, to), written={to}, ordered=False)
    >>> reduced = Step(slots=(1, 2), written={2}, ordered=True)
    >>> alive_longer([1, 1, 2], [reads(0, to=1), reduced, reads(0, to=3), reads(2, to=4)])
    {1: 2}
    """
    batch = [k for k, count in enumerate(counts) for _ in range(count)]
    until: dict[int, int] = {}
    for k, step in enumerate(steps):
        if not step.ordered:
            continue
        readers = (
            n for n in range(k + 1, len(steps))
            if any(s in step.written and s not in steps[n].written for s in steps[n].slots)
        )  # fmt: skip
        end = batch[next(readers, len(steps) - 1)]
        for slot in step.slots:
            if slot not in step.written:
                until[slot] = max(end, until.get(slot, end))
    return until


def in_chains(counts: Iterable[int], order: Sequence[Sequence[int]], most: int = CHAINS) -> list[list[int]]:
    """Return the order with at most so many steps of a batch side by side, each other behind one of them.

    A GPU takes tens of microseconds to begin each of a hundred steps that become due at once, whatever they
    take: an optimizer has one for each parameter. Behind another one it begins in one.

    >>> in_chains([1, 4, 1], [[], [0], [0], [0], [0], [1, 2, 3, 4]], most=2)
    [[], [0], [0], [1], [2], [3, 4]]
    """
    result: list[list[int]] = []
    reached: list[int] = []
    for count in counts:
        first = len(result)
        for k in range(first, first + count):
            follows = [*order[k], *([k - most] if k - most >= first else [])]
            covered, direct = 0, set[int]()
            for n in sorted(follows, reverse=True):
                if not covered >> n & 1:
                    direct.add(n)
                    covered |= reached[n] | 1 << n
            result.append([n for n in dict.fromkeys(follows) if n in direct])
            reached.append(covered)
    return result


def lanes(
    order: Sequence[Sequence[int]], calls: Sequence[bool], most: int = LANES
) -> tuple[list[list[int]], list[int]]:
    """Return the order with calls of one lane one after the other, and the lane of each step.

    >>> lanes([[], [], [0, 1], [2]], [True, True, True, True])
    ([[], [], [0, 1], [2]], [0, 1, 1, 1])
    >>> lanes([[], [], []], [True, False, True], most=1)
    ([[], [], [0]], [0, 0, 0])
    """
    last: list[int] = []
    before: list[int] = []
    dependencies: list[list[int]] = []
    chosen: list[int] = []
    for k, (after, called) in enumerate(zip(order, calls, strict=True)):
        follows = [*after]
        seen = 0
        for earlier in after:
            seen |= before[earlier] | 1 << earlier
        lane = 0
        if called:
            free = [n for n, step in enumerate(last) if seen >> step & 1]
            if free:
                lane = max(free, key=lambda n: last[n])
            elif len(last) < most:
                lane = len(last)
                last.append(k)
            else:
                lane = min(range(most), key=lambda n: last[n])
                follows.append(last[lane])
                seen |= before[last[lane]] | 1 << last[lane]
            last[lane] = k
        dependencies.append(follows)
        before.append(seen)
        chosen.append(lane)
    return dependencies, chosen


def with_joins(
    counts: Iterable[int], order: Sequence[Sequence[int]]
) -> tuple[list[list[int]], dict[int, dict[int, list[int]]]]:  # fmt: skip
    """Return the order with batches behind the same steps behind one node that follows all of those.

    Where a hundred steps follow a hundred others each, the GPU waits ten thousand times. Such a node has a
    negative number; by the first step behind it: that number, and what it follows.

    >>> with_joins([2, 3, 1], [[], [], [0, 1], [0, 1], [0, 1], [2, 3, 4]])
    ([[], [], [-1], [-1], [-1], [2, 3, 4]], {2: {-1: [0, 1]}})
    """
    result, joins = [[*follows] for follows in order], dict[int, dict[int, list[int]]]()
    first = 0
    for count in counts:
        batch = range(first, first + count)
        common = {*order[first]}.intersection(*(order[k] for k in batch)) if count else set()
        first += count
        if count * len(common) > count + len(common):
            number = -1 - len(joins)
            joins[batch[0]] = {number: [n for n in order[batch[0]] if n in common]}
            for k in batch:
                result[k] = [number, *(n for n in order[k] if n not in common)]
    return result, joins
