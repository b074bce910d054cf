"""Plugins that supply no device: kernels for the devices of others, or ops. One that fails is left out."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ..errors import PluginError
from ..system import env
from .api_version import API_VERSION
from .backend import Backend, Failure, State
from .extension import IMPORT, Extension
from .probe import Probe, ProbeTimeoutError

T = TypeVar("T")


class Addon:
    """A plugin of the group ``tensorbus.plugins``: kernels for devices of others, or ops."""

    def __init__(self, extension: Extension) -> None:
        self.extension = extension
        self.failure: Failure | None = None
        self.loaded = False
        self.announced = False
        self.lock = threading.RLock()

    def may_define(self, op: str) -> bool:
        """Return whether it may define an op, as far as its manifest says; nothing is imported."""
        try:
            ops = self.extension.manifest.defines
        except PluginError:  # which is told when it is loaded
            return True
        return ops is None or op in ops

    @property
    def state(self) -> State:
        """Whether it has been loaded, has failed, or neither."""
        return "unavailable" if self.failure else "ready" if self.loaded else "discovered"

    def renew_after_fork(self) -> None:
        """In a forked child: renew the lock, which another thread of the parent may have held."""
        self.lock = threading.RLock()

    def attempt(self, what: str, step: Callable[[], list[Any]], backend: Backend | None = None) -> list[Any]:
        """Return what ``step`` returns once the extension is loaded; [] and a kept reason where it fails.

        Each has the time limit of probes. ``backend`` is being opened meanwhile, and may not be asked for.
        """
        with self.lock:
            if self.failure is not None:
                return []
            stage = IMPORT
            try:
                watched = _unwatched if backend is None else backend.watched
                self._limited(watched(self.extension.load))
                self.loaded = True
                stage = what
                return self._limited(watched(step))
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                self.failure = Failure(stage=stage, error=error, broken=True)
                return []

    def _limited(self, step: Callable[[], T]) -> T:
        name = f"tensorbus-plugin-{self.extension.name}"
        try:
            return Probe(step, name, inline=self.extension.being_imported).wait(env.probe_timeout())
        except ProbeTimeoutError as error:
            raise ProbeTimeoutError(f"{error} (TENSORBUS_PROBE_TIMEOUT sets the limit): it hangs") from None


def _unwatched(work: Callable[[], T]) -> Callable[[], T]:
    return work


def announce(addons: Iterable[Addon]) -> None:
    """Warn of every plugin that failed, once."""
    for addon in addons:
        if addon.failure is not None and not addon.announced:
            addon.announced = True
            warnings.warn(
                f"plugin {addon.extension.name!r} of {addon.extension.owner} is left out:"
                f" {addon.failure.reason} (API here: {API_VERSION}; `tensorbus doctor` shows details).",
                RuntimeWarning,
                stacklevel=4,
            )
