"""The peak memory of the demo on each device, each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

DEMO = Path(__file__).parent.parent / "examples" / "train_digits.py"
DEVICES = ("cpu", "opencl", "refdev")


def run() -> list[dict[str, Any]]:
    """Train for two epochs on each device; return a row for each."""
    rows = []
    for device in DEVICES:
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.json"
            picture = str(Path(folder) / "demo.png")
            command = [sys.executable, str(DEMO), "--device", device, "--epochs", "2", "--output", picture]
            subprocess.run([*command, "--report", str(report)], capture_output=True, check=False)
            rows.append(_row(device, json.loads(report.read_text()) if report.exists() else []))
    return rows


def _row(device: str, report: list[dict[str, Any]]) -> dict[str, Any]:
    if not report or report[0].get("peak_bytes") is None:
        return {"device": device, "peak, MB": None, "counted": "did not run"}
    result = report[0]
    return {
        "device": device,
        "peak, MB": round(result["peak_bytes"] / 1e6, 1),
        "counted": result["memory_scope"],
    }
