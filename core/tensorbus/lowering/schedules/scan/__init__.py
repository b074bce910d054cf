"""Schedules of prefix sums."""
