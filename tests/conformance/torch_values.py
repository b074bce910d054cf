"""Makes ``torch_values.json``: what PyTorch computes for every call of ``functional_cases``, with gradients.

Run it where torch is installed: ``python tests/conformance/torch_values.py``. The gradient is that of the sum
of the first result times ``cos(0), cos(1)`` and so on, in C order.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np

from functional_cases import CALLS, Call, parameter

PATH = pathlib.Path(__file__).with_name("torch_values.json")


def compute(call: Call) -> dict[str, Any]:
    """Return the results of a call and the gradients of what went into it, as rounded lists."""
    import torch

    operands = [torch.tensor(a) for a in call.drawn()]
    operands = [
        t.double().requires_grad_(not a.fixed) if t.dtype is torch.float32 else t
        for t, a in zip(operands, call.arrays, strict=True)
    ]
    leaves = {str(k): t for k, t in enumerate(operands) if t.requires_grad}
    if call.module:
        module: Any = getattr(torch.nn, call.name)(*call.rest, **call.named).double()
        state = module.state_dict()
        module.load_state_dict({k: torch.tensor(parameter(k, tuple(v.shape))) for k, v in state.items()})
        out = module(*operands)
        leaves |= dict(module.named_parameters())
    else:
        out = getattr(torch.nn.functional, call.name)(*operands, *call.rest, **call.named)
    results: list[Any] = []
    _flatten(out, results)
    first = results[0]
    (first * torch.cos(torch.arange(first.numel(), dtype=first.dtype)).reshape(first.shape)).sum().backward()
    grads = {k: None if t.grad is None else _rounded(t.grad.numpy()) for k, t in leaves.items()}
    return {"results": [_rounded(r.detach().numpy()) for r in results], "grads": grads}


def _flatten(out: Any, results: list[Any]) -> None:
    if isinstance(out, (tuple, list)):
        for part in out:
            _flatten(part, results)
    elif out is not None:
        results.append(out)


def _rounded(x: np.ndarray[Any, Any]) -> dict[str, Any]:
    values = [v if isinstance(v, int) else float(f"{v:.6g}") for v in x.reshape(-1).tolist()]
    return {"shape": list(x.shape), "values": values}


if __name__ == "__main__":
    results = {call.label: compute(call) for call in CALLS}
    PATH.write_text(json.dumps(results, separators=(",", ":")).replace('},"', '},\n"') + "\n")
