"""Faults between ranks: every rank gets an error that says what is wrong, soon, and none hangs.

Ranks meet by the store where the order of events matters, so nothing here waits for a while and hopes.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus.distributed.process_group.world import current
from tensorbus.errors import TensorbusError

from ..outcome import Finding
from .mismatches import all_reduce, read, steps
from .progress import shown
from .setting import Report, Setting

INTERRUPT_SECONDS: Final = 5.0
"""Seconds in which Ctrl-C is to end a wait."""
WAIT_SECONDS: Final = 1.0
"""Seconds that collectives wait in a launch whose fault is a rank that does not come."""


class RankEndedError(Exception):
    """The end of a rank that is a thread; one that is a process ends itself."""


def _world(setting: Setting) -> Any:
    """Return a new group of all ranks, which have met in it."""
    group = dist.new_group(range(setting.ranks))
    assert group
    _barrier(setting, group)
    return group


def _barrier(setting: Setting, group: Any) -> None:
    """Wait for all ranks; the tensor says which communicator is meant."""
    group.run("barrier", [_ones(setting, 1)], lambda c: c.barrier())


def _ones(setting: Setting, *shape: int, dtype: str = "float32") -> tb.Tensor:
    return tb.ones(shape, dtype=dtype, device=setting.device)


def _attempt(setting: Setting, report: Report, step: str, call: Callable[[], Any]) -> None:
    """Note which error a call raises, and show how long that takes."""
    report.calls += 1
    try:
        with shown(setting, step):
            call()
    except TensorbusError as error:
        report.errors[step] = f"{type(error).__name__}: {error}"
        if isinstance(error, dist.DistributedError):
            return
    else:
        report.errors[step] = ""
        return
    report.findings.append(
        Finding(
            check="faults",
            call=step,
            problem=f"it raised {report.errors[step]}, which is no DistributedError",
        )
    )


def everybody(setting: Setting, event: str) -> None:
    """Wait by the store until all ranks are here."""
    store = current().store
    store.set(f"kit/{event}/{dist.get_rank()}", b"1")
    store.wait([f"kit/{event}/{rank}" for rank in range(setting.ranks)], 60)


def _all_reduce(group: Any, x: tb.Tensor) -> Any:
    total = all_reduce(group, x)
    total.tolist()  # where a device only queued it, errors come where it is read
    return total


def mismatched(setting: Setting, report: Report) -> None:
    """Ranks ask for different things, each time in a group of its own, and read what they get."""

    def asked(step: str, call: Callable[[Any], Any], group: Any) -> None:
        read(setting, report, step, call(group))
        _barrier(setting, group)

    for step, call in steps(setting).items():
        group = _world(setting)
        _attempt(setting, report, step, partial(asked, step, call, group))
        everybody(setting, step)


def late(setting: Setting, report: Report) -> None:
    """A rank comes to no collective until the others have given up; then a new group works on all."""
    group, messages = _world(setting), _world(setting)
    last = setting.ranks - 1
    x = _ones(setting, 2)
    if dist.get_rank() != last:
        _attempt(setting, report, "timeout: all_reduce", lambda: _all_reduce(group, x))
        _attempt(setting, report, "timeout: receive", lambda: _receive(messages, x, last))
        _attempt(setting, report, "timeout: the first collective of a group", lambda: _world_of_late(setting))
    everybody(setting, "gave up")
    everybody(setting, "new group")
    total = _all_reduce(_second_world(setting), x)
    if total.tolist() != [setting.ranks] * 2:
        report.findings.append(
            Finding(check="faults", call="a group after a timeout", problem=f"it is {total}")
        )


def _receive(group: Any, like: tb.Tensor, source: int) -> Any:
    received = group.run("recv", [like], lambda c: c.receive(like, source), needs=[source])
    return received.tolist()


def _world_of_late(setting: Setting) -> None:
    group = dist.new_group(range(setting.ranks))
    assert group
    _barrier(setting, group)


def _second_world(setting: Setting) -> Any:
    """Return a group that no rank has used, whichever of them made how many before."""
    world = current()
    ranks = tuple(range(setting.ranks))
    world.group_counts[ranks] = 100
    return dist.new_group(ranks)


def dies(setting: Setting, report: Report) -> None:
    """A rank ends while the others wait for it."""
    group = _world(setting)
    everybody(setting, "met")
    if dist.get_rank() == setting.ranks - 1:
        if setting.threads:
            raise RankEndedError("this rank was to end")
        os._exit(0)  # no exit handler runs, and no launcher sees a failure
    _attempt(setting, report, "dies: all_reduce", lambda: _all_reduce(group, _ones(setting, 2)))


def killed(setting: Setting, report: Report) -> None:
    """A process is killed, without a word to anybody, while the others wait for it."""
    group = _world(setting)
    everybody(setting, "met")
    if dist.get_rank() == setting.ranks - 1:
        if setting.threads:
            raise RankEndedError("this rank was to end")
        os.kill(os.getpid(), signal.SIGKILL)
    _attempt(setting, report, "killed: all_reduce", lambda: _all_reduce(group, _ones(setting, 2)))


def interrupted(setting: Setting, report: Report) -> None:
    """Ctrl-C comes to ranks that wait for one that works; the call ends soon, and another group goes on."""
    group, other = _world(setting), _world(setting)
    if dist.get_rank() != setting.ranks - 1 and not setting.threads:  # a signal comes to a process as a whole
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        begun = time.monotonic()
        try:
            _barrier(setting, group)
        except KeyboardInterrupt:
            report.calls += 1
        else:
            problem = "a barrier that Ctrl-C came to returned"
            report.findings.append(Finding(check="faults", call="interrupted: barrier", problem=problem))
        if time.monotonic() - begun > INTERRUPT_SECONDS:
            problem = f"Ctrl-C ended a barrier after {time.monotonic() - begun:.1f} seconds"
            report.findings.append(Finding(check="faults", call="interrupted: barrier", problem=problem))
    everybody(setting, "interrupted")
    total = _all_reduce(other, _ones(setting, 2)).tolist()
    report.calls += 1
    if total != [setting.ranks] * 2:
        report.findings.append(Finding(check="faults", call="another group", problem=f"it is {total}"))


def abort(setting: Setting, report: Report) -> None:
    """A group is closed with a reason, from another thread, while a collective waits in it."""
    group = _world(setting)
    if dist.get_rank() != setting.ranks - 1:
        waiting = threading.Timer(0.3, lambda: group.close("the program asked for it"))
        waiting.start()
        _attempt(setting, report, "abort: all_reduce", lambda: _all_reduce(group, _ones(setting, 2)))
        waiting.join()
        _attempt(setting, report, "abort: after it", lambda: _all_reduce(group, _ones(setting, 2)))
    everybody(setting, "aborted")


def closed(setting: Setting, report: Report) -> None:
    """A group that was closed is used again; another goes on."""
    group, other = _world(setting), _world(setting)
    group.close()
    _attempt(setting, report, "closed: all_reduce", lambda: _all_reduce(group, _ones(setting, 2)))
    total = _all_reduce(other, _ones(setting, 2)).tolist()
    if total != [setting.ranks] * 2:
        report.findings.append(Finding(check="faults", call="another group", problem=f"it is {total}"))


FAULTS: Final[dict[str, tuple[Callable[[Setting, Report], None], float]]] = {
    "mismatched": (mismatched, 2 * WAIT_SECONDS), "late": (late, WAIT_SECONDS), "dies": (dies, 60.0),
    "killed": (killed, 60.0), "interrupted": (interrupted, 60.0), "abort": (abort, 60.0),
    "closed": (closed, 60.0),
}  # fmt: skip
"""By name: what each rank runs, and how many seconds collectives wait in it."""


def judge(setting: Setting, reports: list[Report | None], ended: bool) -> list[Finding]:
    """Return what is wrong with the errors that the ranks got.

    ``ended``: the ranks were processes, none of which runs any more.
    """
    missing = [rank for rank, report in enumerate(reports) if report is None]
    if missing:
        return [Finding(check="faults", call=setting.program, problem=f"rank {missing} reported nothing")]
    dies = setting.program in ("dies", "killed")
    due = reports[: -1 if dies else None]
    missing = [rank for rank, report in enumerate(due) if report is None or not report.is_complete]
    if missing and dies and ended:
        return []  # a launcher that ends all ranks with one is as good; what a rank raised is in its report
    if missing:
        return [
            Finding(check="faults", call=setting.program, problem=f"rank {missing} did not get to its end")
        ]
    findings = []
    by_step: dict[str, list[str]] = {}
    for report in due:
        for step, error in (report.errors if report else {}).items():
            by_step.setdefault(step, []).append(error)
    for step, errors in by_step.items():
        texts = {"timeout": "DistributedTimeoutError", "abort": ""}.get(step.split(":")[0], "Distributed")
        if step == "abort: all_reduce":
            texts = "the program asked for it"
        some = any if setting.program == "mismatched" else all
        if not some(error and texts in error for error in errors):
            problem = f"the ranks got {errors}; a DistributedError was due" + (
                f" with {texts!r}" if texts else ""
            )
            findings.append(Finding(check="faults", call=step, problem=problem))
    return findings
