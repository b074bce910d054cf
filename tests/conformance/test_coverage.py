"""What manifests and docs/coverage.md say of kernels is what is registered; no op is without its rules."""

from __future__ import annotations

from pathlib import Path

import pytest
from tensorbus import Device, plugins
from tensorbus.cli import coverage as command
from tensorbus.cli.conformance_reports import saved_reports
from tensorbus.dtypes import definition as dt
from tensorbus.ops import lazy_families
from tensorbus.ops.definition import Op, table
from tensorbus.testing.coverage import TRANSFER, survey
from tensorbus.testing.sample import samples_of

ROOT = Path(__file__).parents[2]
lazy_families.load_all()
OPS = [op for op in table if table.owner(op.name) == "tensorbus" and op.family != TRANSFER]


def test_a_manifest_lists_the_kernels_that_are_registered(device: str) -> None:
    written = command.path(device).read_text(encoding="utf-8")
    expected = command.replaced(written, command.section(survey(Device(device), own=True)))
    assert written == expected, f"run `tensorbus coverage --device {device} --write`"


def test_every_op_runs_or_is_a_declared_gap(device: str) -> None:
    manifest = plugins.backend(device).manifest
    missing = {op for op, row in survey(Device(device), own=True).routes.items() if "missing" in row.values()}
    assert missing == set(manifest.gaps)


def test_the_matrix_of_all_devices_is_up_to_date() -> None:
    written = (ROOT / "docs" / "coverage.md").read_text(encoding="utf-8")
    own = [m for m in command.manifests() if m.name.startswith("tensorbus-")]
    expected = command.markdown(own, saved_reports(ROOT / "docs" / "reports"))
    assert written == expected, (
        "run `tensorbus coverage --all --markdown --reports docs/reports > docs/coverage.md`"
    )


@pytest.mark.parametrize("op", OPS, ids=repr)
def test_an_op_has_its_rules(op: Op[...]) -> None:
    samples = samples_of(op)
    assert any(s.raises is None for s in samples), "no sample calls"
    assert any(s.raises is not None for s in samples), "no bad calls among its samples"
    assert op.batch is not None or op.decompose is not None or op.family == "creation", "no batching rule"
    if op.vjp is None and op.decompose is None:
        assert not _carries_gradients(op), (
            "no derivative, no decomposition: give it a vjp, of None if it has none"
        )


def _carries_gradients(op: Op[...]) -> bool:
    """Return whether the op has an operand and a result that could carry a gradient."""
    if not op.operands or not any(d.is_inexact for d in op.dtypes):
        return False
    survey = survey_results(op)
    return any(d.is_inexact for d in survey)


def survey_results(op: Op[...]) -> set[dt.DType]:
    """Return the dtypes of the results of the op's float32 sample calls, as its rules have them."""
    from tensorbus_conformance.trial import Trial

    dtype = dt.float32 if dt.float32 in op.dtypes else next(d for d in op.dtypes if d.is_inexact)
    for place, sample in enumerate(samples_of(op)):
        if sample.raises is None and (sample.dtypes is None or dtype in sample.dtypes):
            trial = Trial(op=op, device="cpu", dtype=dtype, sample=sample, place=place)
            return set(trial.bind(trial.tensors()).outs)
    return set()
