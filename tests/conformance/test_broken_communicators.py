"""Communicators that break their contract: the error names them, and others connect the ranks afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus import plugins
from tensorbus.backend_api import hookimpl
from tensorbus_threads.communicator import Factory

from thread_communicators import thread_communicators


def _broken(method: str, call: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    def change(end: Any, meeting: Any) -> Any:
        setattr(end, method, call)
        return end

    return change


def _raise(*args: object) -> Any:
    raise KeyError("mine")


def _ones(*shape: int, **kind: str) -> tb.Tensor:
    return tb.ones(shape, **{"device": "cpu", **kind})


PLUGIN, DISTRIBUTED = tb.PluginError, dist.DistributedError
FAULTS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[], Any], type[Exception], str]] = {
    "a list": (
        _broken("all_reduce", lambda x, _: x.tolist()),
        lambda: dist.all_reduce(_ones(2)),
        PLUGIN,
        r"'broken': all_reduce returned \['float', 'float'\], where \['float32\[2\] on cpu:0'\] is due",
    ),
    "nothing": (_broken("broadcast", lambda *_: None), lambda: dist.broadcast(_ones(2), 0), PLUGIN, "None"),
    "a shape": (
        _broken("all_reduce", lambda x, _: x[:1] * 1),
        lambda: dist.all_reduce(_ones(2)),
        PLUGIN,
        r"all_reduce returned \['float32\[1\] on cpu:0'\]",
    ),
    "a dtype": (
        _broken("reduce_scatter", lambda xs, _: xs[0].to(tb.float64)),
        lambda: dist.reduce_scatter(_ones(1), [_ones(1), _ones(1)]),
        PLUGIN,
        r"reduce_scatter returned \['float64\[1\] on cpu:0'\], where \['float32\[1\]",
    ),
    "a device": (
        _broken("all_reduce", lambda x, _: x.to("refdev")),
        lambda: dist.all_reduce(_ones(2)),
        PLUGIN,
        "on refdev:0",
    ),
    "too few": (
        _broken("all_gather", lambda x, shapes: [x * 1]),
        lambda: dist.all_gather([_ones(2), _ones(2)], _ones(2)),
        PLUGIN,
        "all_gather returned",
    ),
    "an error of its own": (_broken("barrier", _raise), dist.barrier, DISTRIBUTED, "barrier raised KeyError"),
    "no end": (
        lambda end, meeting: object(),
        dist.barrier,
        PLUGIN,
        "'broken': connect returned 'object', which has no all_reduce, .* close",
    ),
    "no cable": (_raise, dist.barrier, DISTRIBUTED, "'broken' does not connect .*KeyError: 'mine'"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_told_with_the_name(name: str) -> None:
    change, call, kind, text = FAULTS[name]
    with thread_communicators("broken", change), pytest.raises(kind, match=text):
        dist.run_ranks(call, 2, prefer="broken")
    assert dist.run_ranks(lambda: dist.functional.all_reduce(_ones(1)).item(), 2) == [2.0, 2.0]


@pytest.mark.parametrize(
    ("verdict", "text"), [(_raise, "its verdict raised KeyError"), (lambda *_: None, "is None")]
)
def test_one_that_says_not_whether_it_connects_is_left_out(verdict: Callable[..., Any], text: str) -> None:
    class Silent:
        priority = 1

        @hookimpl
        def tensorbus_communicator(self, name: str) -> Any:
            return self

        def verdict(self, device_type: str, rendezvous: Any) -> Any:
            return verdict()

        def connect(self, rendezvous: Any) -> Any:
            return Factory().connect(rendezvous)

    dist.register_communicator("silent", Silent())
    try:
        with pytest.warns(RuntimeWarning, match=f"'silent' is left out: .*{text}"):
            assert dist.run_ranks(lambda: dist.functional.all_reduce(_ones(1)).item(), 2) == [2.0, 2.0]
    finally:
        dist.unregister_communicator("silent")


def test_a_priority_is_a_number() -> None:
    class Odd(Factory):
        priority = "high"

        @hookimpl
        def tensorbus_communicator(self, name: str) -> Any:
            return self

    with pytest.raises(tb.PluginError, match=r"'odd' of .*: its priority is a number, got 'high'"):
        dist.register_communicator("odd", Odd())
    assert "odd" not in plugins.communicators()


def test_one_without_tags_is_named() -> None:
    class Plain:
        def __init__(self, end: Any) -> None:
            self.end = end

        def __getattr__(self, name: str) -> Any:
            if name in ("post_receive", "complete_receive", "exchange"):
                raise AttributeError(name)
            return getattr(self.end, name)

    def rank() -> None:
        if dist.get_rank():
            dist.recv(_ones(2), src=0, tag=3)
        else:
            dist.send(_ones(2), 1, tag=3)

    with (
        thread_communicators("plain", lambda end, meeting: Plain(end)),
        pytest.raises(DISTRIBUTED, match=r"connects the tensors' device, plain, matches messages"),
    ):
        dist.run_ranks(rank, 2, prefer="plain")
