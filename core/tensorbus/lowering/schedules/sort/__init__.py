"""Schedules of sorts: by rank, by radix passes, by partition."""
