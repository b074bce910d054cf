"""Files of other formats: what one is by its first bytes, and how its tensors get here.

Asked once a file is known to be no safetensors file. Nothing of one is loaded: a pickle may run any code.
"""

from __future__ import annotations

from typing import BinaryIO, Final

_TORCH: Final = (
    "a checkpoint of PyTorch's, a pickle, which may run code. Where torch is installed, write a safetensors"
    " file: safetensors.torch.save_file(torch.load({0!r}, weights_only=True), 'weights.safetensors'). It"
    " takes a flat dict of tensors, as state_dict() is."
)
_FORMATS: Final = {
    b"\x93NUMPY": "an array of NumPy's; tensorbus.asarray(numpy.load({0!r})) takes it.",
    b"\x89HDF\r\n\x1a\n": "an HDF5 file; read it with h5py, and give each array to tensorbus.asarray.",
    b"GGUF": "a GGUF file, of llama.cpp; its gguf package reads it, and tensorbus.asarray takes arrays.",
    b"\x1f\x8b": "compressed by gzip; unpack it first.",
}
"""What a file is that begins with these bytes; ``{0}`` is its path."""
_ARCHIVE: Final = b"PK\x03\x04"
_NUMPY_ARCHIVE: Final = (
    "several arrays of NumPy's; {{k: tensorbus.asarray(v) for k, v in numpy.load({0!r}).items()}} takes them."
)


def format_of(path: str, file: BinaryIO) -> str:
    """Return what a file is and what to do with it; empty where its first bytes say nothing.

    >>> import io
    >>> format_of("x.gz", io.BytesIO(bytes([0x1F, 0x8B, 8, 0, 1, 1, 1, 1])))
    'compressed by gzip; unpack it first.'
    """
    file.seek(0)
    lead = file.read(8)
    if not any(lead[4:]):  # the length of a safetensors header, whatever its low bytes say
        return ""
    if lead.startswith(_ARCHIVE):
        return _archive(path, file).format(path)
    if lead[:1] == b"\x80" and 2 <= lead[1] <= 5:  # how pickles of these protocols begin
        return _TORCH.format(path)
    for start, what in _FORMATS.items():
        if lead.startswith(start):
            return what.format(path)
    return ""


def _archive(path: str, file: BinaryIO) -> str:
    """Return what a zip archive is by the names in it."""
    import zipfile

    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return "a zip archive that is damaged; fetch another copy."
    if any(name.rpartition("/")[2] == "data.pkl" for name in names):
        return _TORCH
    if names and all(name.endswith(".npy") for name in names):
        return _NUMPY_ARCHIVE
    return "a zip archive; unpack it first."
