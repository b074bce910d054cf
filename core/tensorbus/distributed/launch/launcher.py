"""``tensorbus run``: chooses the launcher by name and runs a program's ranks to their end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Final, TextIO

from ... import plugins
from ...backend_interface.launching import Launcher, LaunchRequest, Ranks, Show
from ...errors import ArgumentError, suggest
from ...plugins.contract import check_methods, naming
from ..stores.urls import check_scheme
from .local_launcher import LocalLauncher
from .supervisor import supervise

LOCAL: Final = "local"


def run(
    command: Sequence[str], size: int, *, max_restarts: int = 0, store: str | None = None,
    launcher: str = LOCAL, options: Mapping[str, str] | None = None,
    out: TextIO | None = None, err: TextIO | None = None, log_dir: Path | None = None,
    progress: Callable[[str], AbstractContextManager[None]] = lambda what: nullcontext(),
) -> int:  # fmt: skip
    """Start ``command`` as ``size`` ranks, and return 0, or the exit code of the rank that failed first.

    Each line is shown with its rank. When a rank fails the others are ended, and its last lines are shown
    once more; up to ``max_restarts`` times all are started again. ``launcher`` is ``"local"``, for processes
    of this machine, or the name of a plugin's, which ``options`` are for. The ranks meet at ``store``, or at
    one that the launcher serves. ``log_dir`` is a folder for what each of them says; ``progress`` is entered
    while the launcher starts them, and a cluster before, say.

    Raises ``ArgumentError`` for numbers, a store, launcher or options that make no sense,
    ``DistributedError`` where the launcher cannot start the ranks.
    """
    if store is not None:
        check_scheme(store)
    opened: Launcher = _Shown(open_launcher(launcher, options or {}), progress, launcher)
    request = LaunchRequest(command=tuple(command), size=size, store=store)
    failed = supervise(opened, request, max_restarts=max_restarts, out=out, err=err, log_dir=log_dir)
    return 0 if failed is None else failed.exit_code


class _Shown:
    """A launcher whose start, which may take a while, is shown."""

    def __init__(
        self, launcher: Launcher, progress: Callable[[str], AbstractContextManager[None]], name: str
    ) -> None:
        self._launcher, self._progress, self._name = launcher, progress, name

    def start(self, request: LaunchRequest, show: Show) -> Ranks:
        with self._progress(f"Starting {request.size} ranks by the launcher {self._name!r}"):
            return self._launcher.start(request, show)

    def close(self) -> None:
        self._launcher.close()


def open_launcher(name: str, options: Mapping[str, str]) -> Launcher:
    """Return the launcher of a name. Raises ``ArgumentError`` where it, or an option, does not exist."""
    factory = None if name == LOCAL else plugins.launcher(name)
    if factory is None and name != LOCAL:
        names = [LOCAL, *plugins.launchers()]
        raise ArgumentError(
            f"run: there is no launcher {name!r}.{suggest(name, names)} Installed: {', '.join(names)}; others"
            f" come with packages, as with pip install tensorbus[ray]."
        )
    known = {} if factory is None else dict(factory.options)
    for option in options:
        if option not in known:
            listed = "; ".join(f"{key}: {meaning}" for key, meaning in known.items()) or "none"
            raise ArgumentError(
                f"run: the launcher {name!r} has no option {option!r}.{suggest(option, list(known))}"
                f" Options: {listed}."
            )
    if factory is None:
        return LocalLauncher()
    what = f"the launcher {name!r}: open"
    with naming(what):
        launcher = factory.open(options)
    check_methods(what, launcher, ("start", "close"), "Launcher")
    return launcher
