"""Ops that plugins define: added to the table when a name is asked for that core does not have.

``tensorbus.<name>`` and ``Tensor.<name>`` then work as for core's own ops, on every device, with gradients.
A package whose ops cannot be added, and a name that two packages claim, are left out; asking says why.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from .. import plugins
from ..errors import PluginError
from ..ops import lazy_families
from ..ops.definition import Op, table
from ..system import fork_safe_locks
from .methods import attach_op, detach_op

_lock = fork_safe_locks.reentrant()
_added: dict[str, Op[...]] = {}
_refused: dict[str, PluginError] = {}
_faults: dict[str, PluginError] = {}
_announced: set[str] = set()
_stale = True


@cache
def modules() -> frozenset[str]:
    """Return the names of the modules of ``tensorbus``, imported or not."""
    import pkgutil

    return frozenset(part.name for part in pkgutil.iter_modules(sys.modules["tensorbus"].__path__))


def find(name: str) -> Callable[..., Any] | None:
    """Return the function of the plugin op called ``name``, or None where no plugin defines it.

    From then on ``tensorbus`` has it among its names, until plugins come or go: asking costs nothing more,
    and compiled functions find it where they find core's own. Raises ``PluginError`` where plugins define it
    and it had to be left out.
    """
    if _stale or name not in _added:
        refresh(name)
    if name in _added:
        function = table.function(name)
        setattr(sys.modules["tensorbus"], name, function)
        return function
    _check(name)
    return None


def refresh(name: str | None = None) -> None:
    """Make the table hold the ops of the plugins that are installed now, and of no others.

    Plugins whose manifests say that they do not define the op ``name`` are not imported. None: all are.
    Those that cannot be added are warned of, once.
    """
    global _stale
    with _lock:
        _stale = False
        offered = plugins.ops(name)
        if offered:
            lazy_families.load_all()
        chosen = _chosen(offered)
        for former in [n for n, op in _added.items() if n not in chosen or chosen[n][1] is not op]:
            detach_op(table[former])
            table.discard(former)
            del _added[former]
        for new, (owner, op) in chosen.items():
            if new not in _added:
                try:
                    table.add(op, owner)
                except PluginError as error:  # the program has made one of this name
                    _refused[new] = error
                    continue
                _added[new] = op
                attach_op(op)
        causes = {str(error) for error in [*_faults.values(), *_refused.values()]} - _announced
        _announced.update(causes)
    for cause in sorted(causes):
        warnings.warn(f"{cause} `tensorbus doctor` shows details.", RuntimeWarning, stacklevel=3)


def faults() -> Mapping[str, PluginError]:
    """Return what is wrong with the ops of plugins, by owner, as ``refresh`` found it last."""
    return dict(_faults)


def _chosen(offered: list[tuple[str, object]]) -> dict[str, tuple[str, Op[...]]]:
    """Return the ops to be added by name, each with its owner; note what is wrong with the others."""
    _refused.clear()
    _faults.clear()
    claims: dict[str, list[tuple[str, Op[...]]]] = {}
    for owner in dict.fromkeys(owner for owner, _ in offered):
        # Custom ops, which have an op, have put themselves into the table when they were defined.
        items = [item for each, item in offered if each == owner and not hasattr(item, "register_fake")]
        ops = [item for item in items if isinstance(item, Op)]
        fault = next(filter(None, (_fault(owner, item, ops) for item in items)), None)
        if fault is not None:
            _faults[owner] = fault
            _refused.update((op.name, fault) for op in ops)
            continue
        for op in ops:
            claims.setdefault(op.name, []).append((owner, op))
    for name, claimed in claims.items():
        if len(claimed) > 1:
            owners = [owner for owner, _ in claimed]
            error = PluginError(
                f"op {name!r} is defined by {len(owners)} packages: {', '.join(owners)}. It is left out until"
                f" one of them is taken out: uninstall it, or name it in TENSORBUS_BLOCK."
            )
            _refused[name] = error
            _faults.update((owner, error) for owner in owners if owner not in _faults)
    return {name: claimed[0] for name, claimed in claims.items() if len(claimed) == 1}


def _fault(owner: str, item: object, ops: list[Op[...]]) -> PluginError | None:
    """Return what keeps the ops of a package from being added, as far as ``item`` is the cause."""
    if isinstance(item, PluginError):
        return item
    if not isinstance(item, Op):
        wrong = f"tensorbus_ops returned {item!r} among its ops; it must return objects of the class Op"
    elif sum(op.name == item.name for op in ops) > 1:
        wrong = f"tensorbus_ops returned two ops that are called {item.name!r}"
    elif not str(item.name).isidentifier():
        wrong = f"an op cannot be called {item.name!r}: it must be a Python identifier"
    elif (item.name in table and item.name not in _added) and table.owner(item.name) != "the program":
        wrong = f"op {item.name!r} is already defined by {table.owner(item.name)!r}; it needs another name"
    elif item.name not in _added and _is_public(item.name):
        wrong = f"an op cannot be called {item.name!r}: tensorbus.{item.name} is something else"
    else:
        return None
    return PluginError(f"the ops of {owner} are left out: {wrong}.")


def _is_public(name: str) -> bool:
    package = sys.modules["tensorbus"]
    return name in dir(package) or name in modules()


def _check(name: str) -> None:
    """Raise what keeps an op from being used, if there is such an op."""
    with _lock:
        error = _refused.get(name)
    if error is not None and name not in table:
        raise PluginError(str(error)) from error.__cause__


def _mark_stale() -> None:
    global _stale
    _stale = True
    for name in list(_added):
        vars(sys.modules["tensorbus"]).pop(name, None)


def _look(name: str) -> None:
    lazy_families.load_all()
    refresh(name)
    _check(name)


plugins.on_change(_mark_stale)
table.on_miss(_look)
