"""The op by which a scatter joins a value with the one that is there; none where it takes its place."""

from typing import Final

MODES: Final = {"add": "add", "multiply": "multiply", "min": "minimum", "max": "maximum"}
