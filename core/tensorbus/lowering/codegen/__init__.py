"""From loop IR to source: the dialect of a device as data, and one renderer for all."""
