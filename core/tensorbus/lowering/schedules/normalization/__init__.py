"""Schedules that pass over a row several times and keep it near: softmax, layer norm."""
