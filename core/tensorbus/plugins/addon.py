"""Plugins that supply no device: kernels for the devices of others, or ops. One that fails is left out."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from ..system import env
from .api_version import API_VERSION
from .backend import Failure
from .extension import Extension
from .probe import Probe


class Addon:
    """A plugin of the group ``tensorbus.plugins``: kernels for devices of others, or ops."""

    def __init__(self, extension: Extension) -> None:
        self.extension = extension
        self.failure: Failure | None = None
        self.loaded = False
        self.announced = False
        self.lock = threading.RLock()

    def attempt(self, what: str, step: Callable[[], list[Any]]) -> list[Any]:
        """Return what ``step`` returns once the extension is loaded; [] and a kept reason where it fails."""
        with self.lock:
            if self.failure is not None:
                return []
            stage = "importing it"
            try:
                self.extension.load()
                self.loaded = True
                stage = what
                name = f"tensorbus-plugin-{self.extension.name}"
                return Probe(step, name, inline=self.extension.being_imported).wait(env.probe_timeout())
            except (Exception, SystemExit) as error:
                self.failure = Failure(stage=stage, error=error, broken=True)
                return []


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
