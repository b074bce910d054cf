"""Devices as values; their streams, events, threads and memory."""
