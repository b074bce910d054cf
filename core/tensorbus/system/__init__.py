"""The process: environment, locks, lazy imports, the cache on disk, the user's stack frame."""
