"""Copies between GPUs, page-locked memory, DLPack."""
