"""State dicts: what a module would need to be made again, and putting it back.

Loading looks at everything before it changes anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..autograd.engine import no_grad
from ..dispatch.modes import spread_like
from ..errors import StateError, TensorbusError, suggest
from ..tensor.tensor import Leaf, Tensor
from .parameter import hold, stored
from .uninitialized_parameter import fill, is_lazy

if TYPE_CHECKING:
    from .module import Module

_EXTRA: Final = "_extra_state"


class LoadResult(NamedTuple):
    """The result of ``load_state_dict``: keys missing in the state, and keys that the module lacks."""

    missing_keys: list[str]
    unexpected_keys: list[str]


def named_state(module: Module, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield the cells of a state dict: parameters and persistent buffers, then those of submodules."""
    for name, parameter in module._parameters.items():
        if parameter is not None:
            yield prefix + name, stored(parameter)
    for name, buffer in module._buffers.items():
        if buffer is not None and name not in module._transient:
            yield prefix + name, buffer
    for name, child in module._modules.items():
        if child is not None:
            yield from named_state(child, f"{prefix}{name}.")


def saved_state(module: Module, prefix: str = "") -> dict[str, Any]:
    """Return the values of the cells, and the extra state of the modules that have some."""
    cells: dict[str, Any] = {name: cell.detach() for name, cell in named_state(module, prefix)}
    extras = {f"{prefix}{name}": owner.get_extra_state() for name, owner in _extras(module)}
    return cells | extras


def _extras(module: Module) -> Iterator[tuple[str, Module]]:
    """Yield the modules that supply extra state, and the names that it has."""
    from .module import Module

    for name, owner in module.named_modules():
        if type(owner).get_extra_state is not Module.get_extra_state:
            yield f"{name}.{_EXTRA}" if name else _EXTRA, owner


def load_state(module: Module, state: Mapping[str, Any], strict: bool, assign: bool = False) -> LoadResult:
    """Put ``state`` into the cells of ``module``, in their dtype and on their device, spread as they are.

    With ``assign`` the cells take over dtype and device of the state; a gradient that they have is forgotten.
    """
    cells, extras = dict(named_state(module)), dict(_extras(module))
    known = cells.keys() | extras.keys()
    result = LoadResult(
        [n for n in (*cells, *extras) if n not in state], [n for n in state if n not in known]
    )
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
            saved = state[name]
            if not isinstance(saved, Tensor):
                problems.append(f"{name!r} is a {type(saved).__name__}, and must be a tensor.")
            elif not is_lazy(cell) and saved.shape != cell.shape:
                problems.append(f"{name!r} has shape {saved.shape}, and the module needs {cell.shape}.")
            elif assign and cell.requires_grad and not saved.dtype.is_inexact:
                problems.append(f"{name!r} is {saved.dtype}, which has no gradients, and the module's has.")
            else:
                try:
                    value = spread_like(saved.detach(), cell)
                    values.append((cell, value if assign else value.to(cell.device, cell.dtype, copy=True)))
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
            if assign and isinstance(cell._node, Leaf):
                cell.grad = None
            hold(cell, value)
    for name, owner in extras.items():
        if name in state:
            owner.set_extra_state(state[name])
    return result
