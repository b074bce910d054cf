"""The kit for communicators finds nothing wrong with those that are right, and each defect of others."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus.backend_api import combined
from tensorbus_conformance.communication.command import FAULTS, VALUES, examine, settings
from tensorbus_conformance.communication.setting import Setting

from thread_communicators import thread_communicators


def setting(
    name: str, program: str, device: str = "cpu", dtypes: Sequence[str] = (), **options: Any
) -> Setting:
    return next(s for s in settings(name, [device], dtypes, 3, **options) if s.program == program)


@pytest.mark.parametrize(
    "program", [pytest.param(name, marks=[pytest.mark.full] if name == "late" else []) for name in FAULTS]
)
def test_threads_stand_faults(program: str) -> None:
    calls, findings = examine(setting("threads", program))
    assert not findings
    assert calls >= 2


def test_threads_combine_values() -> None:
    calls, findings = examine(setting("threads", VALUES, dtypes=["bfloat16", "bool"], quick=True))
    assert not findings
    assert calls > 500


@pytest.mark.full
@pytest.mark.parametrize("program", [VALUES, *FAULTS])
@pytest.mark.parametrize(("name", "device"), [("threads", "cpu"), ("threads", "refdev"), ("tcp", "cpu")])
def test_everything(name: str, device: str, program: str) -> None:
    calls, findings = examine(setting(name, program, device, quick=device == "refdev"))
    assert not findings
    ended_by_launcher = (
        program == "killed" and name != "threads"
    )  # the others are, with the one that was killed
    assert ended_by_launcher or calls >= 2


def communicator(**methods: Callable[..., Any]) -> AbstractContextManager[str]:
    def change(right: Any, meeting: Any) -> Any:
        for name, method in methods.items():
            setattr(right, name, partial(method, getattr(right, name)))
        return right

    return thread_communicators("defective", change)


def _in_place(all_reduce: Any, x: tb.Tensor, reduction: str) -> Any:
    x.copy_(all_reduce(x, reduction))
    return x


def _forgives(all_reduce: Any, x: tb.Tensor, reduction: str) -> Any:
    return x if x.size > 3 or reduction == "max" or x.dtype != tb.float32 else x + 0


def _tells_one(all_reduce: Any, x: tb.Tensor, reduction: str) -> Any:
    try:
        return all_reduce(x, reduction)
    except dist.DistributedError:
        if dist.get_rank():
            raise
        return x


DEFECTS: dict[str, tuple[dict[str, Callable[..., Any]], str, str]] = {
    "a product in the place of a sum": (
        {"all_reduce": lambda f, x, r: f(x, "product" if r == "sum" else r)}, VALUES, "elements are wrong",
    ),
    "a rank that has other bits": (
        {"all_reduce": lambda f, x, r: f(x, r) * (1 + 2e-7 * dist.get_rank())}, VALUES,
        "agreement: .*other bits",
    ),
    "a result that is an operand": ({"all_reduce": _in_place}, VALUES, "shares its memory"),
    "another dtype": (
        {"all_gather": lambda f, x, s: [y.to("float64") for y in f(x, s)]}, VALUES, "returned .*float64",
    ),
    "uneven parts in another order": (
        {"all_to_all": lambda f, xs, s: f(xs, s)[::-1]}, VALUES, "all_to_all",
    ),
    "halves of a strided tensor": (
        {"broadcast": lambda f, x, root: f(x, root)[:1].expand(x.shape) if x.ndim else f(x, root)}, VALUES,
        "broadcast",
    ),
    "labels that nobody compares": (
        {"expect": lambda f, label: None}, "mismatched", "all_gather of other tensors of one shape",
    ),
    "a barrier that does not wait": ({"barrier": lambda f: None}, VALUES, "over before rank 2 had come"),
    "a mismatch that not all are told": (
        {"all_reduce": _tells_one}, "mismatched", "it read .*the ranks had asked for different things",
    ),
    "a mismatch that nobody tells": ({"all_reduce": _forgives}, "mismatched", "all_reduce of other shapes"),
}  # fmt: skip


@pytest.mark.parametrize("name", DEFECTS)
def test_defects_are_found(name: str) -> None:
    methods, program, text = DEFECTS[name]
    with communicator(**methods) as defective:
        _, findings = examine(setting(defective, program, dtypes=["float32"], quick=True))
    assert findings
    assert any(re.search(text, str(finding)) for finding in findings), findings[:3]


def _one_at_a_time(right: Any, meeting: Any) -> Any:
    """Make one call after the other, whoever waits for whom."""
    lock = threading.Lock()

    def locked(call: Any, *arguments: Any) -> Any:
        with lock:
            return call(*arguments)

    for name in ("all_reduce", "send", "receive", "barrier"):
        setattr(right, name, partial(locked, getattr(right, name)))
    return right


def _patient(right: Any, meeting: Any) -> Any:
    """Wait for other ranks for ever."""
    right._meeting.timeout = 1e6
    return right


def _by_number(right: Any, meeting: Any) -> Any:
    """Take places in the group for numbers in the program."""
    gather, broadcast = right.all_gather, right.broadcast
    right.all_gather = lambda x, shapes: [
        y for _, y in sorted(zip(meeting.ranks, gather(x, shapes), strict=True), key=lambda pair: pair[0])
    ]
    right.broadcast = lambda x, root: broadcast(x, meeting.ranks[root] % meeting.size)
    return right


def _newest_first(right: Any, meeting: Any) -> Any:
    """Receive of several messages the last one."""

    def receive(like: Any, source: int) -> Any:
        first, second = (right.post_receive(source, 0) for _ in range(2))
        received, _ = right.complete_receive(first, like)
        right._mailbox.withdraw(first if second.sender >= 0 else second)
        return received if second.sender < 0 else right.complete_receive(second, like)[0]

    right.receive = receive
    return right


def _shares(right: Any, meeting: Any) -> Any:
    """Give one result to all ranks."""

    def all_reduce(x: Any, reduction: str) -> Any:
        def combine(xs: Any) -> Any:
            return [combined(xs, reduction)] * len(xs)

        return right._meeting.exchange(meeting.rank, f"{reduction} of {x.dtype}{x.shape}", x, combine)

    right.all_reduce = all_reduce
    return right


def _deaf_to_tags(right: Any, meeting: Any) -> Any:
    """Match messages by their order alone."""
    send, post = right.send, right.post_receive
    right.send = lambda x, to, tag=0: send(x, to)
    right.post_receive = lambda source, tag: post(source, 0)
    return right


def _lends(right: Any, meeting: Any) -> Any:
    """Send the operand itself."""
    right.send = lambda x, to: right._meeting.mailboxes[to].put(meeting.rank, 0, (x, []))
    return right


def _on_time(right: Any, meeting: Any) -> Any:
    """Tell of a rank that does not come as of anything else."""

    def as_plain(call: Any, *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except dist.DistributedTimeoutError as error:
            raise dist.DistributedError(str(error)) from error

    for name in ("all_reduce", "receive", "barrier"):
        setattr(right, name, partial(as_plain, getattr(right, name)))
    return right


PLANTED: dict[str, tuple[Callable[[Any, Any], Any], str, str, str]] = {
    "messages and collectives in one queue": (
        _one_at_a_time, VALUES, "float32", r"^launch: .*in a message that waits beside",
    ),
    "no limit of time": (_patient, "late", "float32", r"^launch: .*late took more than 20 seconds"),
    "numbers in the place of places": (_by_number, VALUES, "float32", r"ranks 2,1,0"),
    "messages out of order": (_newest_first, VALUES, "float32", r"^send: |^async: |^launch: "),
    "a result of several ranks": (_shares, VALUES, "float32", r"^agreement: |^all_reduce: "),
    "tags that are not looked at": (_deaf_to_tags, VALUES, "float32", "^send: .*with tags and from any rank"),
    "an operand that is lent": (_lends, VALUES, "float32", r"^send: .*shares its memory"),
    "another class of error": (_on_time, "late", "float32", r"^faults: timeout: "),
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_named(name: str) -> None:
    change, program, dtype, text = PLANTED[name]
    with thread_communicators("planted", change) as planted:
        launch = setting(planted, program, dtypes=[dtype], quick=True, time_limit=20)
        _, findings = examine(replace(launch, timeout=5.0) if program == VALUES else launch)
    assert any(re.search(text, str(finding), re.DOTALL) for finding in findings), findings[:3]


def test_wrong_questions() -> None:
    with pytest.raises(ValueError, match="no communicator is called 'nobody'; installed: "):
        settings("nobody")
    with pytest.raises(ValueError, match="2 are needed"):
        settings("threads", ranks=1)
