"""One peer in a process of its own: ``python -m benchmarks.compiled.worker MODULE VARIANT``.

It is asked in lines of JSON and answers so: ``load`` a row (and warm it up), ``time`` it, ``drop`` it.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

MIN_SAMPLE_SECONDS = 2e-3
"""Seconds that one sample takes at least: quick calls are made many times for one."""
SLOW = 1.0
"""Seconds from which on the second call, the first after compiling, is all that is measured."""


class Work:
    """The row that is loaded."""

    def __init__(self, peer: Any) -> None:
        self.peer = peer
        self.call: Callable[[], object] | None = None
        self.count = 1

    def load(self, row: str, options: dict[str, Any]) -> dict[str, Any]:
        """Make the call of a row and warm it up; say how long the first call took, and one of the later."""
        make = getattr(self.peer, row, None)
        self.call = make(**options) if make is not None else None
        if self.call is None:
            return {"missing": "no such row"}
        first, once = self._sample(1), self._sample(1)
        if once < SLOW:
            once = min(once, *(self._sample(1) for _ in range(2)))
        if once < MIN_SAMPLE_SECONDS:
            once = self._sample(max(int(MIN_SAMPLE_SECONDS / once), 1))
        self.count = max(int(MIN_SAMPLE_SECONDS / once), 1)
        return {"first": first, "once": once}

    def time(self, seconds: float) -> dict[str, Any]:
        """Return samples: seconds for a call. At least one, and no more than fit into ``seconds``."""
        samples: list[float] = []
        end = time.perf_counter() + seconds
        while not samples or time.perf_counter() < end:
            samples.append(self._sample(self.count))
        return {"samples": samples}

    def drop(self) -> dict[str, Any]:
        """Let the row go."""
        self.call = None
        gc.collect()
        return {}

    def _sample(self, count: int) -> float:
        call = self.call
        assert call is not None
        with getattr(self.peer, "context", nullcontext)():
            start = time.perf_counter()
            for _ in range(count):
                call()
            return (time.perf_counter() - start) / count


def main() -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print goes elsewhere
    module, variant = sys.argv[1:]
    try:
        work = Work(importlib.import_module(f"benchmarks.compiled.peers.{module}").Peer(variant))
        answer: dict[str, Any] = {"ready": True}
    except Exception as error:
        answer = {"missing": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = getattr(work, asked.pop("do"))(**asked)
        except Exception as error:
            answer = {"missing": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
