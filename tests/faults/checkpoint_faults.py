"""Damaged checkpoints: a file with other bytes is refused by tensorbus's own error, or it is another one."""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tensorbus as tb

from registry import fault


def _damaged(draw: random.Random, whole: bytes) -> bytes:
    data = bytearray(whole)
    how = draw.randrange(6)
    header = int.from_bytes(whole[:8], "little")
    if how == 0:  # cut off
        return bytes(data[: draw.randrange(len(data))])
    if how == 1:  # longer
        return bytes(data) + draw.randbytes(draw.randrange(1, 64))
    if how == 2:  # another length of the header
        data[:8] = draw.choice([0, 1, header - 1, header + 1, 1 << 40, (1 << 64) - 1]).to_bytes(8, "little")
        return bytes(data)
    if how == 3:  # single bytes
        for _ in range(draw.randrange(1, 9)):
            data[draw.randrange(min(len(data), header + 8))] = draw.randrange(256)
        return bytes(data)
    entries: dict[str, Any] = json.loads(whole[8 : 8 + header])
    name = draw.choice([key for key in entries if key != "__metadata__"])
    field, value = draw.choice(
        [
            ("dtype", draw.choice([["F32"], None, "F99", 3, {}])),
            (
                "shape",
                draw.choice([[-1], [1] * 65, [1 << 62, 1 << 62], [0, 1 << 62], "ab", [1.5], None, [[2]]]),
            ),
            ("data_offsets", draw.choice([[0], [8, 0], [-4, 4], [0, 1 << 60], None, ["a", "b"], [0.5, 4.5]])),
        ]
    )
    if how == 4:
        entries[name][field] = value
    else:
        entries[name] = draw.choice([None, [], 3, {field: value}])
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text + whole[8 + header :]


@fault("checkpoints.damaged", trials=20)
def damaged(draw: random.Random) -> None:
    """A damaged file raises ``StateError`` or the like, and is never an array of another size."""
    device = draw.choice(["cpu", "refdev"])
    state = {
        "x": tb.arange(24, device=device).reshape(4, 6), "steps": 3,
        "parts": [tb.ones((2,), device=device), "text"], "empty": tb.zeros((0, 3), device=device),
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint"
        tb.save(state, path)
        whole = path.read_bytes()
        path.write_bytes(_damaged(draw, whole))
        try:
            loaded = tb.load(path, device=device)
        except tb.TensorbusError:
            return
        if isinstance(loaded, dict):
            for value in loaded.values():
                if isinstance(value, tb.Tensor):
                    assert value.numpy().size == np.prod(value.shape, dtype=object)
