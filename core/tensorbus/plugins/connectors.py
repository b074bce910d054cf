"""Plugins for ranks: communicators, the stores by which ranks find each other, and what starts them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from ..errors import PluginError
from . import allow_block
from .addon import Addon, announce
from .discovery import COMMUNICATORS, LAUNCHERS, STORES, EntryPoint
from .extension import COMMUNICATOR, LAUNCHER, STORE, Extension, extension_of

if TYPE_CHECKING:
    from ..backend_interface.communication import CommunicatorFactory, StoreFactory
    from ..backend_interface.launching import LauncherFactory


Connector = Literal["communicator", "store", "launcher"]
F = TypeVar("F")
"""What a package hands over."""


class Connectors:
    """A registry's communicators, stores and launchers. ``installed`` returns a group's entry points."""

    def __init__(self, installed: Callable[[str], Sequence[EntryPoint]]) -> None:
        self._installed = installed
        self._addons: dict[str | EntryPoint, Addon] = {}
        self._lock = threading.RLock()

    def communicators(self) -> dict[str, CommunicatorFactory]:
        """Return what connects ranks, by name; what was registered comes first.

        Those that fail are left out with a warning, and their failure is kept.

        >>> import tensorbus as tb
        >>> "threads" in tb.distributed.communicators()
        True
        """
        addons = self._of(COMMUNICATORS)
        offered: dict[str, CommunicatorFactory] = {}
        for addon in sorted(addons, key=lambda addon: addon.extension.entry_point is not None):
            for factory in addon.attempt(COMMUNICATOR, partial(_communicator_of, addon)):
                offered.setdefault(addon.extension.name, factory)
        announce(addons)
        return offered

    def store(self, scheme: str) -> StoreFactory | None:
        """Return what opens stores of a URL scheme; None where no package does.

        Raises ``PluginError`` where the package that does cannot be used.
        """
        return self._offered(STORES, STORE, scheme, _store_of, f"stores {scheme}://")

    def store_schemes(self) -> list[str]:
        """Return the URL schemes that packages open stores of; imports none of them."""
        return sorted({addon.extension.name for addon in self._of(STORES)})

    def launcher(self, name: str) -> LauncherFactory | None:
        """Return what starts ranks under a name; None where no package does.

        Raises ``PluginError`` where the package that does cannot be used.
        """
        return self._offered(LAUNCHERS, LAUNCHER, name, _launcher_of, f"the launcher {name!r}")

    def launchers(self) -> list[str]:
        """Return the names of what starts ranks; imports none of them."""
        return sorted({addon.extension.name for addon in self._of(LAUNCHERS)})

    def _offered(
        self, group: str, step: str, name: str, factories: Callable[[Addon], list[F]], title: str
    ) -> F | None:
        """Return what the package of a name offers; None where there is no such package."""
        for addon in self._of(group):
            if addon.extension.name == name:
                offered: list[F] = addon.attempt(step, partial(factories, addon))
                if offered:
                    return offered[0]
                reason = addon.failure.reason if addon.failure is not None else "it hands over nothing"
                raise PluginError(f"{title} of {addon.extension.owner} cannot be used: {reason}")
        return None

    def _of(self, group: str) -> list[Addon]:
        """Return the plugins of a group that connects ranks, and what was registered to connect them."""
        with self._lock:
            for claim in self._installed(group):
                if allow_block.refusal(claim) is None and claim not in self._addons:
                    self._addons[claim] = Addon(Extension(claim.name, claim))
            addons = list(self._addons.values())
        return [addon for addon in addons if _group_of(addon) == group]

    def register_communicator(self, name: str, extension: object) -> None:
        """Add a communicator while the program runs; ``extension`` has the hook ``tensorbus_communicator``.

        Raises ``PluginError`` where the name is taken, or where it fails.

        >>> import tensorbus as tb
        >>> threads = tb.distributed.communicators()["threads"]
        >>> class Extension:
        ...     @tb.backend_api.hookimpl
        ...     def tensorbus_communicator(self, name):
        ...         return threads
        >>> tb.distributed.register_communicator("mine", Extension())
        >>> tb.distributed.run_ranks(tb.distributed.get_rank, 2, prefer="mine")
        [0, 1]
        >>> tb.distributed.unregister_communicator("mine")
        """
        from .manifest import Manifest

        addon = Addon(extension_of(name, extension, None, Manifest(name=name)))
        if name in self.communicators():
            raise PluginError(f"communicator {name!r} is already there; choose another name.")
        addon.attempt(COMMUNICATOR, partial(_communicator_of, addon))
        if addon.failure is not None:
            reason = f"communicator {name!r} cannot be used: {addon.failure.reason}"
            raise PluginError(reason) from addon.failure.error
        with self._lock:
            self._addons[name] = addon

    def unregister_communicator(self, name: str) -> None:
        """Take out a communicator that was added by ``register_communicator``, which has an example.

        Raises ``PluginError`` where none of that name was.

        >>> import tensorbus as tb
        >>> tb.distributed.unregister_communicator("mine")
        Traceback (most recent call last):
            ...
        tensorbus.errors.PluginError: no communicator 'mine' was registered.
        """
        with self._lock:
            if self._addons.pop(name, None) is None:
                raise PluginError(f"no communicator {name!r} was registered.")

    def load(self, kind: str, name: str) -> None:
        """Import one of a kind, and get what it hands over; what goes wrong is kept in its status."""
        step, factories = _STEPS[kind]
        for other, addon in self.listed():
            if (other, addon.extension.name) == (kind, name):
                addon.attempt(step, partial(factories, addon))

    def listed(self) -> list[tuple[Connector, Addon]]:
        """Return every one with its kind; imports none of them."""
        communicators, stores, launchers = map(self._of, (COMMUNICATORS, STORES, LAUNCHERS))
        return [
            *(("communicator", x) for x in communicators),
            *(("store", x) for x in stores),
            *(("launcher", x) for x in launchers),
        ]

    def renew_after_fork(self) -> None:
        """In a forked child: renew the locks, which another thread of the parent may have held."""
        self._lock = threading.RLock()
        for addon in self._addons.values():
            addon.renew_after_fork()


def _communicator_of(addon: Addon) -> list[CommunicatorFactory]:
    return [addon.extension.communicator()]


def _store_of(addon: Addon) -> list[StoreFactory]:
    return [addon.extension.store()]


def _launcher_of(addon: Addon) -> list[LauncherFactory]:
    return [addon.extension.launcher()]


def _group_of(addon: Addon) -> str:
    claim = addon.extension.entry_point
    return COMMUNICATORS if claim is None else claim.group


_STEPS: Final[Mapping[str, tuple[str, Callable[[Addon], list[Any]]]]] = {
    "communicator": (COMMUNICATOR, _communicator_of), "store": (STORE, _store_of),
    "launcher": (LAUNCHER, _launcher_of),
}  # fmt: skip
