"""State dicts: what a module would need to be made again, and putting it back.

Loading looks at everything before it changes anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ..autograd import no_grad
from ..errors import StateError, TensorbusError, suggest
from ..tensor import Tensor
from .parameter import hold
from .uninitialized import fill, is_lazy

if TYPE_CHECKING:
    from .module import Module


class LoadResult(NamedTuple):
    """What ``load_state_dict`` did not find in the state, and what it did not find in the module."""

    missing_keys: list[str]
    unexpected_keys: list[str]


def named_state(module: Module, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield the cells of a state dict: parameters and persistent buffers, then those of submodules."""
    for name, parameter in module._parameters.items():
        if parameter is not None:
            yield prefix + name, parameter
    for name, buffer in module._buffers.items():
        if buffer is not None and name not in module._transient:
            yield prefix + name, buffer
    for name, child in module._modules.items():
        if child is not None:
            yield from named_state(child, f"{prefix}{name}.")


def load_state(module: Module, state: Mapping[str, Tensor], strict: bool) -> LoadResult:
    """Put ``state`` into the cells of ``module``, in their dtype and on their device."""
    cells = dict(named_state(module))
    result = LoadResult([n for n in cells if n not in state], [n for n in state if n not in cells])
    problems = []
    if strict and result.missing_keys:
        problems.append(f"missing key(s): {', '.join(map(repr, result.missing_keys))}.")
    if strict and result.unexpected_keys:
        hints = "".join(suggest(n, result.missing_keys) for n in result.unexpected_keys[:1])
        problems.append(f"unexpected key(s): {', '.join(map(repr, result.unexpected_keys))}.{hints}")
    values = []
    with no_grad():
        for name, cell in cells.items():
            if name not in state:
                continue
            given = state[name]
            if not isinstance(given, Tensor):
                problems.append(f"{name!r} is a {type(given).__name__}, and must be a tensor.")
            elif not is_lazy(cell) and given.shape != cell.shape:
                problems.append(f"{name!r} has shape {given.shape}, and the module needs {cell.shape}.")
            else:
                try:
                    values.append((cell, given.detach().to(cell.device, cell.dtype)))
                except TensorbusError as error:
                    problems.append(f"{name!r}: {error}")
    if problems:
        raise StateError(
            f"the state dict does not fit {type(module).__name__}; nothing was loaded:\n  "
            + "\n  ".join(problems)
        )
    for cell, value in values:
        if is_lazy(cell):
            fill(cell, value)
        else:
            hold(cell, value)
    return result
