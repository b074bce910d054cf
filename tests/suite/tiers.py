"""The fast tier: which cases of a parametrized test it runs. The full tier runs all of them.

What is marked ``full`` runs in the full tier only, what is marked ``fast`` always. Of any other test with
parameters the fast tier takes as many cases as it needs for every value of every parameter to occur in one
("each-choice coverage"): 20 dtypes times 4 shapes are 20 cases, in which the shapes take turns. Devices
need not all occur: a test of every device runs on one in the fast tier, which one its name decides; one
with further parameters on all of them in turn.

The choice depends on the test alone, so that it is the same in every process, and stays when others come.
"""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import Final

DEVICE = "device"
KIT_EACH: Final = 8
"""Of how many ops the fast tier has the conformance kit examine one on devices that compile each kernel."""
KIT_SLOW: Final = frozenset("min max prod sum any all".split())
"""Their kernels take a driver for processors up to a minute to compile: the full tier tries them there."""

Case = Mapping[str, Hashable]
"""A case: the value of each parameter, or anything that stands for it."""


def fast_cases(name: str, cases: Sequence[Case]) -> list[int]:
    """Return the places of those of a test's cases that the fast tier runs, in ascending order."""
    own: dict[tuple[str, Hashable], list[int]] = defaultdict(list)
    for place, case in enumerate(cases):
        for pair in case.items():
            own[pair].append(place)
    devices = list(dict.fromkeys(case[DEVICE] for case in cases if DEVICE in case))
    start = zlib.crc32(name.encode())
    turn = {device: (k - start) % len(devices) for k, device in enumerate(devices)}
    used: Counter[tuple[str, Hashable]] = Counter()

    def cost(place: int) -> tuple[int, int, int]:
        case = cases[place]
        return sum(used[pair] for pair in case.items()), turn.get(case.get(DEVICE), 0), place

    chosen: set[int] = set()

    def choose(places: Sequence[int]) -> None:
        place = min(places, key=cost)
        chosen.add(place)
        used.update(cases[place].items())

    for pair, places in own.items():
        if pair[0] != DEVICE and not used[pair]:
            choose(places)
    if not chosen and cases:
        choose(range(len(cases)))
    return sorted(chosen)


def kit_is_fast(device: str, op: str, dtype: str, first: str, place: int) -> bool:
    """Return whether the fast tier examines an op, the ``place``-th of all, on a device in a dtype.

    On cpu it does so in a dtype of each kind, on refdev in the plainest, ``first``, elsewhere so for few ops.
    """
    if device == "cpu":
        return True
    if device == "refdev":
        return dtype == first
    return dtype == first and place % KIT_EACH == 0 and op not in KIT_SLOW
