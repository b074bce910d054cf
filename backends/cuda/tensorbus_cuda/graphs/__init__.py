"""Launches, and programs recorded and replayed as CUDA graphs."""
