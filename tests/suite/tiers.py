"""The fast tier: which cases of a parametrized test it runs. The full tier runs all of them.

What is marked ``full`` runs in the full tier only, what is marked ``fast`` always. Of any other test with
parameters the fast tier takes as many cases as it needs for every value of every parameter to occur in one
("each-choice coverage"): 20 dtypes times 4 shapes are 20 cases, in which the shapes take turns. Devices
need not all occur: a test of every device runs on one in the fast tier, which one its name decides, seldom
one that compiles each kernel; one with further parameters on all of them in turn.

The choice depends on the test alone, so that it is the same in every process, and stays when others come.
"""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import Final

DEVICE = "device"
QUICK: Final = frozenset({"cpu", "refdev"})
"""The devices that run small eager programs without a compiler."""
COMPILING_EACH: Final = 8
"""In how many turns of the devices one that compiles each kernel has one."""
COMPILED_FOLDERS: Final = tuple(
    f"tests/{name}/" for name in "conformance conformance_kit cpu cuda metal opencl".split()
)
"""Where most cases wait for a compiler."""
COMPILED_CASES: Final = 3
"""How many cases of one test the fast tier runs there at most."""
DRIVER_FOLDERS: Final = ("tests/opencl/", "tests/metal/")
"""Where the compiler is a driver's, which takes seconds for a kernel of long rows."""
DRIVER_CASES: Final = 2
"""How many cases of one test the fast tier runs there at most."""
KIT_CPU_EACH: Final = 6
"""Of how many ops the fast tier has the kit examine one on cpu, which compiles their programs in C."""
KIT_EACH: Final = 16
"""Of how many ops the fast tier has the conformance kit examine one on devices that compile each kernel."""
KIT_TURN: Final = 3
"""The place of the first of these: other ops than those that cpu has."""
KIT_SLOW: Final = frozenset("min max prod sum any all".split())
"""Their kernels take a driver for processors up to a minute to compile: the full tier tries them there."""

Case = Mapping[str, Hashable]
"""A case: the value of each parameter, or anything that stands for it."""


def most_cases(nodeid: str) -> int | None:
    """Return how many cases of a test the fast tier runs at most; None: as many as it takes."""
    if nodeid.startswith(DRIVER_FOLDERS):
        return DRIVER_CASES
    return COMPILED_CASES if nodeid.startswith(COMPILED_FOLDERS) else None


def fast_cases(name: str, cases: Sequence[Case], most: int | None = None) -> list[int]:
    """Return the places of those of a test's cases that the fast tier runs, in ascending order.

    Where that takes more than ``most``, so many of them, evenly spread.
    """
    own: dict[tuple[str, Hashable], list[int]] = defaultdict(list)
    for place, case in enumerate(cases):
        for pair in case.items():
            own[pair].append(place)
    first = _first_device(name, list(dict.fromkeys(case[DEVICE] for case in cases if DEVICE in case)))
    used: Counter[tuple[str, Hashable]] = Counter()

    def cost(place: int) -> tuple[int, int, int]:
        case = cases[place]
        device = case.get(DEVICE)
        turn = (used[DEVICE, device] + (device != first)) * _weight(device)
        return sum(used[pair] for pair in case.items() if pair[0] != DEVICE), turn, place

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
    places = sorted(chosen)
    if most is None or len(places) <= most:
        return places
    return [places[k * len(places) // most] for k in range(most)]


def _weight(device: Hashable) -> int:
    """Return in how many turns a device has one; it is a name, or a pair whose second is the name."""
    name = device[1] if isinstance(device, tuple) else device
    return 1 if name in QUICK else COMPILING_EACH


def _first_device(name: str, devices: Sequence[Hashable]) -> Hashable:
    number = zlib.crc32(name.encode())
    quick = [device for device in devices if _weight(device) == 1]
    slow = [device for device in devices if _weight(device) > 1]
    own = slow if not quick or (slow and number % COMPILING_EACH == 0) else quick
    return own[number // COMPILING_EACH % len(own)] if own else None


def kit_is_fast(device: str, op: str, dtype: str, first: str, place: int) -> bool:
    """Return whether the fast tier examines an op, the ``place``-th of all, on a device in a dtype.

    In the plainest, ``first``: on refdev all ops, on cpu every sixth, elsewhere few, and others than there.
    """
    each = {"refdev": 1, "cpu": KIT_CPU_EACH}.get(device, KIT_EACH)
    turn = 0 if device in QUICK else KIT_TURN
    return dtype == first and place % each == turn and (device in QUICK or op not in KIT_SLOW)
