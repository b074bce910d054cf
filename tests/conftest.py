"""The hypothesis profiles of every test. Options come from the conformance kit."""

from __future__ import annotations

import os
from datetime import timedelta

from hypothesis import HealthCheck, settings

_QUIET = (
    HealthCheck.too_slow,
    HealthCheck.data_too_large,
    HealthCheck.filter_too_much,
    HealthCheck.differing_executors,
)
settings.register_profile(
    "ci", max_examples=15, derandomize=True, deadline=None, suppress_health_check=_QUIET, database=None
)
settings.register_profile(
    "thorough", max_examples=300, deadline=timedelta(minutes=1), suppress_health_check=_QUIET
)
settings.load_profile(os.environ.get("TENSORBUS_TEST_PROFILE", "ci"))
