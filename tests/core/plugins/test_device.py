"""Devices as values and contexts, the default device, streams and events."""

from __future__ import annotations

import copy
import pickle

from tensorbus.devices.device import Device, ValueType, parse
from tensorbus.dtypes.definition import float32, int8

from throwaway import RUNTIME, Site


def test_a_device_is_a_value() -> None:
    npu = Device("npu", 1)
    assert str(npu) == "npu:1"
    assert repr(npu) == "Device('npu:1')"
    assert npu == parse(" npu:1 ") == Device("npu", 1) != Device("npu")
    assert len({npu, Device("npu", 1), Device("gpu", 1)}) == 2
    assert npu == pickle.loads(pickle.dumps(npu)) == copy.deepcopy(npu)
    assert parse(npu) is npu


def test_a_value_type_is_one_object_for_each_pair() -> None:
    one = ValueType.of(float32, Device("npu"))
    assert one is ValueType.of(float32, Device("npu", 0))
    assert one is not ValueType.of(int8, Device("npu"))
    assert one is not ValueType.of(float32, Device("npu", 1))
    assert one is copy.deepcopy(one)
    assert one is pickle.loads(pickle.dumps(one))


def test_the_default_device(site: Site) -> None:
    site.install("alpha", device="host = false")
    site.install("beta", device="host = true")
    site.install("gamma")
    site.run(
        """
        check(get_default_device() == Device("beta") == device() == device(None))
        check(plugins.host_type() == "beta")
        check([entry for entry in log if entry[0] == "device"] == [("device", "beta")], log)
        set_default_device("gamma")
        with Device("alpha"):
            check(get_default_device() == Device("alpha") == device())
            with device("beta"), Device("gamma"):
                check(get_default_device() == Device("gamma"))
            check(get_default_device() == Device("alpha"))
            set_default_device("beta")
            check(get_default_device() == Device("alpha"))
        check(get_default_device() == Device("beta"))
        try:
            with Device("alpha"):
                raise KeyError
        except KeyError:
            check(get_default_device() == Device("beta"))
        check(type(error_of(set_default_device, "nothing")) is DeviceUnavailableError)
        check(type(error_of(set_default_device, "gamma:5")) is DeviceUnavailableError)
        check(get_default_device() == Device("beta"))
        set_default_device("gamma")
        set_default_device(None)
        check(get_default_device() == Device("beta"))
        plugins.unregister("beta")
        error = error_of(get_default_device)
        check("alpha, gamma" in str(error) and "set_default_device" in str(error), error)
        plugins.unregister("alpha")
        check(get_default_device() == Device("gamma"))
        """
    )
    site.run("check(get_default_device() == Device('alpha'))", TENSORBUS_DEFAULT_DEVICE="alpha")
    site.run(
        """
        set_default_device("gamma")
        check(get_default_device() == Device('gamma'))
        set_default_device(None)
        error = error_of(get_default_device)
        for word in ("TENSORBUS_DEFAULT_DEVICE='alphaa'", "Did you mean 'alpha'?"):
            check(word in str(error), error)
        with Device("beta"):
            check(get_default_device() == Device("beta"))
        """,
        TENSORBUS_DEFAULT_DEVICE="alphaa",
    )
    site.install("delta", device="host = true")
    two = (
        "text = str(error_of({})); check('beta, delta' in text and 'TENSORBUS_DEFAULT_DEVICE' in text, text)"
    )
    site.run(two.format("get_default_device"))
    site.run(two.format("plugins.host_backend"))
    site.run("check(plugins.host_backend().type == 'delta')", TENSORBUS_DEFAULT_DEVICE="delta:0")
    site.run("check(plugins.host_backend().type == 'beta')", TENSORBUS_BLOCK="delta")


def test_no_device_at_all(site: Site) -> None:
    site.run(
        """
        check("no default device" in str(error_of(get_default_device)) and devices() == [])
        check("host = true" in str(error_of(plugins.host_backend)))
        """
    )


def test_contexts_are_local_to_threads_and_tasks(site: Site) -> None:
    site.install("alpha", device="host = true")
    site.install("beta")
    site.run(
        """
        import asyncio
        seen = {}
        async def task(name, steps):
            with device(name):
                for _ in range(steps):
                    await asyncio.sleep(0)
                    seen.setdefault(name, set()).add(get_default_device().type)
        async def main():
            with device("beta"):
                await asyncio.gather(*(task(name, 5) for name in ("alpha", "beta", "alpha")))
                check(get_default_device().type == "beta")
        asyncio.run(main())
        check(seen == {"alpha": {"alpha"}, "beta": {"beta"}}, seen)

        inside, leave = threading.Event(), threading.Event()
        def thread():
            with device("beta"):
                inside.set()
                leave.wait(10)
        worker = threading.Thread(target=thread)
        worker.start()
        inside.wait(10)
        check(get_default_device().type == "alpha")
        with device("beta"):
            other = []
            second = threading.Thread(target=lambda: other.append(get_default_device().type))
            second.start(), second.join()
            check(other == ["alpha"])
        leave.set(), worker.join()

        def generator():
            with device("beta"):
                yield get_default_device().type
        check(list(generator()) == ["beta"] and get_default_device().type == "alpha")
        """
    )


def test_streams_and_events_of_a_device_without_streams(site: Site) -> None:
    counting = RUNTIME.replace(
        "def synchronize(self, index): pass",
        "synchronized = 0\n    def synchronize(self, index): self.synchronized += 1",
    )
    site.install("npu", runtime=counting, device="host = true")
    site.install("other")
    site.run(
        """
        from tensorbus.devices.stream import Event, Stream, stream
        runtime = plugins.backend("npu").runtime
        side, start = Stream("npu"), Event("npu")
        time.perf_counter = iter(range(1, 100)).__next__
        check("not recorded" in str(error_of(start.synchronize)))
        check("not recorded" in str(error_of(start.elapsed_time, start)))
        with stream(side) as current:
            check(current is side)
            start.record()
            end = side.record_event()
        check(start.elapsed_time(end) == 1000 and end.is_done() and runtime.synchronized == 2)
        side.wait_event(end), side.wait_stream(Stream()), side.synchronize()
        check(runtime.synchronized == 4)
        Device("npu").synchronize()
        check(runtime.synchronized == 5 and Device("npu").memory_stats().peak == 0)
        Device("npu").reset_peak_memory_stats()
        check("no common clock" in str(error_of(start.elapsed_time, Event("other"))))
        check(type(error_of(start.record, Stream("other"))) is DeviceError)
        """
    )


def test_streams_and_events_of_a_device_with_streams(site: Site) -> None:
    streams = """
    def __init__(self): self.calls, self.current = [], None
    def create_stream(self, index): return f"stream {len(self.calls)}"
    def use_stream(self, stream, index):
        replaced, self.current = self.current, stream
        self.calls.append(("use", stream))
        return replaced
    def synchronize_stream(self, stream, index): self.calls.append(("synchronize", stream))
    def record_event(self, stream, index): return (stream or self.current, len(self.calls))
    def wait_event(self, event, stream, index): self.calls.append(("wait", event, stream))
    def synchronize_event(self, event, index): self.calls.append(("reach", event))
    def event_done(self, event, index): return False
    def elapsed_time(self, start, end, index): return 7.5
"""
    site.install("npu", runtime=RUNTIME + streams)
    site.run(
        """
        from tensorbus.devices.stream import Event, Stream, stream
        calls = plugins.backend("npu").runtime.calls
        one = Stream("npu")
        calls.append("first")
        two = Stream("npu")
        with stream(one):
            with stream(two):
                event = Event()
                event.record()
            error_of(lambda: stream(two).__enter__() and 1 / 0)
        uses = [call[1] for call in calls if call[0] == "use"]
        check(uses[:3] == ["stream 0", "stream 1", "stream 0"] and uses[-1] is None, uses)
        one.wait_event(event)
        check(calls[-1] == ("wait", ("stream 1", 3), "stream 0"), calls)
        check(event.elapsed_time(two.record_event()) == 7.5 and not event.is_done())
        one.synchronize()
        check(calls[-1] == ("synchronize", "stream 0"))
        """
    )
