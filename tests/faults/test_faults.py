"""A few trials of every fault in the folder; see ``registry``."""

from __future__ import annotations

from typing import Any

import pytest
import tensorbus as tb
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from registry import Fault, faults


def _case(fault: Fault) -> Any:
    return pytest.param(fault, id=fault.name, marks=pytest.mark.full if fault.full else pytest.mark.fast)


@pytest.mark.parametrize("fault", [_case(fault) for fault in faults().values()])
def test_fault(fault: Fault) -> None:
    """No trial finds something wrong."""
    if fault.device is not None and not tb.Device(fault.device, 0).is_available():
        pytest.skip(f"{fault.device} is not available")

    trials_of_tier = fault.trials * settings.default.max_examples // settings.get_profile("fast").max_examples

    @settings(max_examples=trials_of_tier, phases=[Phase.generate])
    @given(st.integers(0, 2**32 - 1))
    def trials(seed: int) -> None:
        fault.run(seed)

    trials()
