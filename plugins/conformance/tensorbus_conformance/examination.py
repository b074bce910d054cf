"""Examining one case: every check on every sample call of an op in a dtype."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from zlib import crc32

from tensorbus import fallback_counts, plugins
from tensorbus.devices.device import Device
from tensorbus.dtypes import definition as dt
from tensorbus.dtypes.definition import DType
from tensorbus.eager import plugin_ops
from tensorbus.errors import TensorbusError, UnsupportedDtypeError, UnsupportedOpError
from tensorbus.ops import lazy_families
from tensorbus.ops.definition import Op, table
from tensorbus.plugins.manifest import Manifest
from tensorbus.testing.coverage import TRANSFER, is_good, route
from tensorbus.testing.sample import samples_of

from .checks.claims import claims, denials
from .checks.compiled import compiled, compiled_gradient
from .checks.copies import copies
from .checks.derivative import derivative
from .checks.forward import forward_derivative
from .checks.kernel import aliased, bounds, large, many, steady, stretched, value
from .checks.rules import batching, decomposition, refusal
from .checks.views import compiled_views, is_view, view_gradients, views
from .outcome import MANIFEST, Case, Finding, Outcome
from .trial import HOST, Trial, array

CHECKS = (
    "value", "bounds", "large", "repeated", "decomposition", "batching", "derivative", "jvp", "views",
    "compiled", "refusal", "route",
)  # fmt: skip
TIME_LIMIT = 600.0
"""For how many seconds one check of one call may go on: far more than slow devices take."""
LONGEST = 2000
"""How many characters of an exception's text a finding has."""
QUICK_STEP = 5
"""Every how many sample calls all checks are run, where the kit is quick."""
QUICK_OPS = 6
"""One in how many ops has its forward derivative checked, where the kit is quick."""
REPEATABLE_SIZES = range(20, 30)
"""How many elements a sample call has whose elements are repeated to make a large one."""
DERIVATIVE_DTYPES = (dt.float32, dt.float64, dt.complex64, dt.complex128)
"""The dtypes in which derivatives are checked; the others have too few digits to compare them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The extent of a run. ``quick`` tries values in all sample calls, and the rest in a few, in one dtype.

    ``time_limit`` is for how many seconds a process beside this one may be at one check of one call.
    """

    checks: tuple[str, ...] = CHECKS
    quick: bool = False
    time_limit: float = TIME_LIMIT


def cases(
    devices: Iterable[str], ops: Iterable[str] = (), dtypes: Iterable[str] = (), quick: bool = False
) -> list[Case]:
    """Return what there is to examine on devices: every op in every dtype that op and device have.

    ``quick`` takes one dtype of each kind. Raises ``UnsupportedOpError`` for an op that nobody defined,
    ``DtypeError`` for an unknown dtype.
    """
    all_ops()
    chosen = [table[name] for name in ops] or [op for op in table if op.family != TRANSFER]
    wanted = {dt.dtype(name) for name in dtypes} or set(dt.ALL)
    listed = []
    for device in devices:
        if not tuple(ops):
            listed.append(Case(device=device, op=MANIFEST, dtype="-"))
        here = Device(device).properties.dtypes
        for op in chosen:
            kinds = [d for d in op.dtypes if d in wanted and d in here]
            listed += [
                Case(device=device, op=op.name, dtype=d.name) for d in (few(kinds) if quick else kinds)
            ]
    return listed


def shard(listed: Sequence[Case], which: str) -> list[Case]:
    """Return the cases of one run of several: ``"2/3"`` is for every third op, from the second on.

    Raises ``ValueError`` for what is not of this form.
    """
    if not which:
        return list(listed)
    number, _, count = which.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise ValueError(f"--shard {which}: a number and how many there are is needed, such as 1/2.")
    ops = list(dict.fromkeys(case.op for case in listed))
    own = set(ops[int(number) - 1 :: int(count)])
    return [case for case in listed if case.op in own]


def few(dtypes: list[DType]) -> list[DType]:
    """Return one dtype of each kind, the plainest."""
    order = (dt.float32, dt.int64, dt.bool_, dt.complex64, dt.uint8)
    few: dict[str, DType] = {}
    for d in sorted(dtypes, key=lambda d: order.index(d) if d in order else len(order)):
        few.setdefault(d.kind, d)
    return list(few.values())


def all_ops() -> None:
    """Put every op into the table: core's that are imported late, and those of plugins."""
    lazy_families.load_all()
    plugin_ops.refresh()


def examine(case: Case, options: Options, at: Callable[[str, str], object] | None = None) -> Outcome:
    """Run the checks. Never raises for what the device or an op does wrong: that is a finding.

    ``at`` hears of each check, and the call that it is of, before it begins.
    """
    all_ops()
    started = time.perf_counter()
    if case.op == MANIFEST:
        findings = [Finding(check="manifest", call=case.device, problem=p) for p in claims(case.device)]
        return Outcome(
            case=case, route="native", seconds=time.perf_counter() - started, findings=tuple(findings)
        )
    return _Examination(case, options, at).outcome(started)


class _Examination:
    def __init__(self, case: Case, options: Options, at: Callable[[str, str], object] | None) -> None:
        self.case, self.options = case, options
        self.at = at or (lambda check, call: None)
        self.op: Op[...] = table[case.op]
        self.dtype = dt.BY_NAME[case.dtype]
        self.manifest = plugins.backend(case.device).manifest
        self.findings: list[Finding] = []
        self.routes: set[str] = set()
        self.ran: list[Trial] = []
        self.best: float | None = None
        self.calls = 0
        self.lacks = "it has no kernel here and no decomposition"

    def outcome(self, started: float) -> Outcome:
        samples = samples_of(self.op)
        if not samples:
            self._report(
                "samples", self.op.name, "the op has no samples: define it in a family, or with samples="
            )
        trials = [
            Trial(op=self.op, device=self.case.device, dtype=self.dtype, sample=sample, place=place)
            for place, sample in enumerate(samples)
        ]
        for trial in trials:
            if is_good(trial.sample, self.dtype):
                self._tried(trial)
        if "repeated" in self.options.checks:
            plain = [t for t in self.ran if not t.sample.large and any(a.size > 1 for a in t.arrays)]
            if plain:
                self._check("repeated", plain[0], lambda: steady(plain[0]))
        if "compiled" in self.options.checks:
            self._compiled()
        if "views" in self.options.checks and self.dtype in few(list(self.op.dtypes)):
            self._compiled_views()
        for trial in trials if self.routes != {"missing"} else ():
            if trial.sample.raises is not None:
                self._refused(trial)
        if not self.calls and samples:
            self._report("samples", self.op.name, f"none of the op's sample calls is one in {self.dtype}")
        worst = next((r for r in ("missing", "host", "decomposed", "native") if r in self.routes), "missing")
        if "route" in self.options.checks and self.routes:
            for problem in self._promises(worst):
                self._report("route", self.op.name, problem)
        return Outcome(
            case=self.case, route=worst, calls=self.calls, seconds=time.perf_counter() - started,
            microseconds=None if self.best is None else 1e6 * self.best, findings=tuple(self.findings),
        )  # fmt: skip

    def _report(self, check: str, call: str, problem: str) -> None:
        self.findings.append(Finding(check=check, call=call, problem=problem))

    def _refused(self, trial: Trial) -> None:
        if "refusal" in self.options.checks:
            self._check("refusal", trial, lambda: refusal(trial))

    def _tried(self, trial: Trial) -> None:
        self.calls += 1
        self.at("value", trial.title)
        try:
            bound = trial.operands_of(trial.tensors())
            how = route(self.op, *bound)
        except UnsupportedDtypeError:
            return  # the op needs a dtype that the device does not have
        except TensorbusError as error:
            self._report("value", trial.title, f"raised {type(error).__name__}: {error}")
            return
        if how == "decomposed" and self._is_beyond(trial):
            how = "missing"
        self.routes.add(how)
        if how == "missing":
            return
        self.ran.append(trial)
        fell_back = fallback_counts().get((self.op.name, self.case.device))
        for check in self.options.checks:
            for name, run in self._runs(trial):
                if name == check:
                    self._check(name, trial, run)
        if fallback_counts().get((self.op.name, self.case.device)) != fell_back:
            self.routes.add("host")
        self._time(trial)

    def _is_beyond(self, trial: Trial) -> bool:
        """Return whether a decomposition comes down to an op that the device does not have."""
        try:
            trial.run(trial.tensors())
        except UnsupportedOpError as error:
            self.lacks = f"it has no kernel here, and its decomposition does not run ({error})"
            return True
        except Exception:
            return False  # the check of values says so
        return False

    def _runs(self, trial: Trial) -> Iterator[tuple[str, Callable[[], Iterator[str]]]]:
        yield "value", lambda: value(trial)
        if trial.sample.large:
            return
        plain = few(list(self.op.dtypes))
        if self.options.quick and (self.dtype is not plain[0] or trial.place % QUICK_STEP != 1):
            return
        yield "value", lambda: aliased(trial)
        yield "bounds", lambda: bounds(trial)
        yield "bounds", lambda: stretched(trial)
        if self.routes == {"native"}:
            yield "route", lambda: copies(trial)
        yield "decomposition", lambda: decomposition(trial)
        if trial.arrays and trial.arrays[0].size in REPEATABLE_SIZES:
            yield "large", lambda: large(trial)
        if self.dtype in plain:
            yield "batching", lambda: batching(trial)
        if self.dtype in DERIVATIVE_DTYPES and trial.sample.smooth:
            yield "derivative", lambda: derivative(trial, wide_device(self.case.device))
            if not self.options.quick or self._is_picked(trial):
                yield "jvp", lambda: forward_derivative(trial, wide_device(self.case.device))
        if is_view(trial):
            yield "views", lambda: views(trial)
            if self.dtype in DERIVATIVE_DTYPES:
                yield "views", lambda: view_gradients(trial)

    def _is_picked(self, trial: Trial) -> bool:
        """Return whether a quick run takes this call where it takes few: one of each of some ops."""
        return trial.place == 1 and crc32(self.op.name.encode()) % QUICK_OPS == 0

    def _check(self, name: str, trial: Trial, run: Callable[[], Iterator[str]]) -> None:
        self.at(name, trial.title)
        try:
            for problem in run():
                self._report(name, trial.title, problem)
        except Exception as error:
            self._report(name, trial.title, raised(error))

    def _compiled(self) -> None:
        """Compile the calls that ran as one function, and the gradient of one of them."""
        plain = self.dtype is few(list(self.op.dtypes))[0]
        if self.options.quick and not plain:
            return
        chosen = [t for t in self.ran if not t.sample.large]
        if self.options.quick:
            chosen = [t for t in chosen if t.place % QUICK_STEP == 1] or chosen[:1]
        smooth = [t for t in chosen if t.sample.smooth and any(a.size for a in t.arrays)]
        if not self.options.quick:
            middling = [t for t in chosen if t.arrays and t.arrays[0].size in REPEATABLE_SIZES]
            chosen = [*self.ran, *filter(None, map(many, middling))]
        self.at("compiled", f"{self.op.name}: all its sample calls in one function")
        try:
            for trial, problem in compiled(chosen):
                self._report("compiled", trial.title, problem)
        except Exception as error:
            self._report("compiled", self.op.name, raised(error))
        if plain and self.dtype in DERIVATIVE_DTYPES and smooth:
            self._check("compiled", smooth[0], lambda: compiled_gradient(smooth[0]))

    def _compiled_views(self) -> None:
        """Compile writes to views of all the calls that ran as one function."""
        chosen = [t for t in self.ran if not t.sample.large]
        self.at("views", f"{self.op.name}: writes to views of all its sample calls in one function")
        try:
            for trial, problem in compiled_views(chosen):
                self._report("views", trial.title, problem)
        except Exception as error:
            self._report("views", self.op.name, raised(error))

    def _time(self, trial: Trial) -> None:
        tensors = trial.tensors()
        started = time.perf_counter()
        try:
            for x in trial.run(tensors):
                array(x)
        except Exception:
            return  # the check of values has said so
        spent = time.perf_counter() - started
        self.best = spent if self.best is None else min(self.best, spent)

    def _promises(self, route: str) -> Iterator[str]:
        """Compare how the op ran with what the manifest says."""
        name, manifest = self.op.name, self.manifest
        claimed = is_claimed(manifest, name, self.dtype)
        if claimed and self.routes != {"native"}:
            ways = " and ".join(sorted(self.routes))
            yield f"the manifest claims a kernel for {self.dtype}, but it ran {ways}"
        if route == "host" and name not in manifest.host_ops:
            yield "it ran on the host, and the manifest does not list it in [ops] host"
        if route == "missing" and name not in manifest.gaps:
            yield f"{self.lacks}, and the manifest does not declare it in [gaps]"
        yield from denials(self.case.device, self.op)


def raised(error: BaseException) -> str:
    """Return what an exception says, at most ``LONGEST`` characters of it, and where it was raised."""
    line = traceback.extract_tb(error.__traceback__)[-1]
    where = f" ({line.filename.rpartition('/')[2]}:{line.lineno})"
    text = str(error)
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}... ({len(text)} characters)"
    return f"raised {type(error).__name__}: {text}{where}"


def is_claimed(manifest: Manifest, op: str, dtype: DType) -> bool:
    """Return whether a manifest says that the device has a kernel for ``op`` in ``dtype``."""
    claimed = manifest.ops.get(op, ())
    return claimed == "all" or dtype.name in claimed


@cache
def wide_device(device: str) -> str:
    """Return where derivatives are taken in float64: on the device itself, else on the host."""
    return device if {dt.float64, dt.int64} <= Device(device).properties.dtypes else HOST
