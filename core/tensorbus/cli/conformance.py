"""``tensorbus conformance``: finds the kit, which is a package of its own, and hands over."""

from __future__ import annotations

import importlib
import sysconfig
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import typer

from ..errors import TensorbusError

PACKAGE: Final = "tensorbus-conformance"


def run(
    devices: Sequence[str], ops: str, dtypes: str, checks: str, report: Path | None, quick: bool, jobs: int,
    shard: str, in_process: bool, time_limit: float | None,
) -> int:  # fmt: skip
    """Run the kit; return the exit code. Exits with 2 where it is not installed."""
    kit = _kit("command")
    names = ([name for name in option.split(",") if name] for option in (ops, dtypes, checks))
    path = None if report is None else str(report)
    limit = {} if time_limit is None else {"time_limit": time_limit}
    options = {"path": path, "quick": quick, "jobs": jobs, "shard": shard, "in_process": in_process, **limit}
    return int(kit.conformance(devices, *names, **options))


def run_communicator(
    communicator: str, devices: Sequence[str], dtypes: str, ranks: int, launch: str, report: Path | None,
    quick: bool, checks: str, time_limit: float | None,
) -> int:  # fmt: skip
    """Run the kit on a communicator; return the exit code. Exits with 2 where the kit is not installed."""
    kit = _kit("communication.command")
    names, programs = ([name for name in option.split(",") if name] for option in (dtypes, checks))
    path = None if report is None else str(report)
    limit = {} if time_limit is None else {"time_limit": time_limit}
    options = {"path": path, "quick": quick, "programs": programs, **limit}
    return int(kit.communication(communicator, devices, names, ranks, launch, **options))


def _kit(module: str) -> Any:
    try:
        return importlib.import_module(f"tensorbus_conformance.{module}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "tensorbus_conformance":
            raise
        typer.echo(f"The conformance kit is not installed: pip install {PACKAGE}", err=True)
        raise typer.Exit(2) from None


@contextmanager
def problems() -> Iterator[None]:
    """Print what was wrong with the question, and exit with 2."""
    try:
        yield
    except (TensorbusError, ValueError) as error:
        typer.echo(f"tensorbus: {error}{_place(error)}", err=True)
        raise typer.Exit(2) from None


def _place(error: Exception) -> str:
    """Return the line of the user's own program, such as a model of ``plan``, that an error came through."""
    own = (str(Path(__file__).parents[1]), sysconfig.get_path("stdlib"))
    frames = traceback.extract_tb(error.__traceback__)
    for frame in reversed(frames):
        if not frame.filename.startswith(own):
            return f" ({type(error).__name__} in {frame.name}, {frame.filename}:{frame.lineno})"
    return ""
