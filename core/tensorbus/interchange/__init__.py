"""In and out: nested lists, NumPy, buffers, DLPack, transfers between devices, pinned memory, printing."""
