"""Recurrent layers: one step of a sequence, and whole sequences.

A sequence and a state come in, the states after each element leave. In order: ``rnn_cell``, ``rnn``.
"""
