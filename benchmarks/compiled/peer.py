"""The driver's side of a peer: its process, asked one thing at a time."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from typing import Any

from benchmarks.compiled.threads import environment

PATIENCE = 600.0
"""Seconds that an answer may take; a peer that needs longer is ended, and missing from then on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A peer: its column, its module and variant, and whether its process keeps freed memory."""

    name: str
    module: str
    variant: str = "-"
    keeps: bool = False


@dataclass
class Peer:
    """``why`` is set when the peer is not there, or no longer."""

    spec: Spec
    why: str = ""
    process: Any = field(default=None, repr=False)

    def start(self) -> None:
        """Start the process; the answer to come says whether the library is there."""
        command = [sys.executable, "-m", "benchmarks.compiled.worker", self.spec.module, self.spec.variant]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=environment(self.spec.keeps),
        )  # fmt: skip
        self.why = self._answer().get("missing", "")

    def ask(self, do: str, **options: Any) -> dict[str, Any]:
        """Return the answer; ``{"missing": why}`` where there is none."""
        if self.why:
            return {"missing": self.why}
        try:
            self.process.stdin.write(json.dumps({"do": do, **options}) + "\n")
            self.process.stdin.flush()
        except OSError:
            self.why = "its process ended"
            return {"missing": self.why}
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        timer = threading.Timer(PATIENCE, self.process.kill)
        timer.start()
        line = self.process.stdout.readline()
        timer.cancel()
        if not line:
            self.why = "its process ended"
            return {"missing": self.why}
        results: dict[str, Any] = json.loads(line)
        return results

    def stop(self) -> None:
        """End the process."""
        self.process.stdin.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
