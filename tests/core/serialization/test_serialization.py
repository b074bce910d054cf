"""Files of tensors: round trips, exchange with the safetensors package, damage."""

from __future__ import annotations

import gzip
import io
import json
import os
import socket
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from safetensors.numpy import load_file, save_file
from tensorbus import nn
from tensorbus.dtypes import definition as dtypes


def write(path: Path, header: Any, data: bytes = b"") -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_every_dtype_round_trips(dtype: tb.DType, tmp_path: Path):
    named = {
        "matrix": tb.asarray([[1, 0, 1], [0, 1, 1]]).to(dtype),
        "transposed": tb.asarray([[1, 0, 1], [0, 1, 1]]).to(dtype).T,
        "scalar": tb.asarray(1).to(dtype),
        "empty": tb.zeros((0, 3), dtype=dtype),
    }
    tb.save(named, tmp_path / "x.safetensors")
    data = tb.load(tmp_path / "x.safetensors", "cpu")
    assert set(data) == set(named)
    for name, x in named.items():
        assert data[name].dtype is dtype
        assert data[name].shape == x.shape
        assert data[name].tolist() == x.tolist()


def test_special_values_keep_their_bits(tmp_path: Path):
    bits = np.array([0x7FC00001, 0xFFC00000, 0x7F800000, 0x80000000, 0x00000001], np.uint32)
    tb.save({"x": tb.asarray(bits.view(np.float32))}, tmp_path / "x")
    assert (tb.load(tmp_path / "x")["x"].numpy().view(np.uint32) == bits).all()


def test_files_are_exchanged_with_the_safetensors_package(tmp_path: Path):
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        "a.weight": rng.standard_normal((3, 4)),
        "b": rng.integers(0, 9, (2, 1, 5)).astype(np.int16),
        "c": np.array(True),
        "d": np.zeros((2, 0), np.float32),
    }
    save_file(arrays, tmp_path / "theirs.safetensors", {"format": "np"})
    loaded = tb.load(tmp_path / "theirs.safetensors")
    tb.save(loaded, tmp_path / "ours.safetensors", metadata={"format": "np"})
    back = load_file(tmp_path / "ours.safetensors")
    assert set(loaded) == set(back) == set(arrays)
    for name, array in arrays.items():
        assert back[name].dtype == array.dtype
        np.testing.assert_array_equal(back[name], array)


def test_a_model_and_its_optimizer_come_back(tmp_path: Path):
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    optimizer = tb.optim.AdamW(model.parameters(), betas=(0.8, 0.9))
    model(tb.randn(2, 1, 5, 5)).sum().backward()
    optimizer.step()
    tb.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, tmp_path / "all")
    data = tb.load(tmp_path / "all")
    assert data["epoch"] == 3
    assert data["optimizer"]["param_groups"][0]["betas"] == (0.8, 0.9)
    other = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    assert other.load_state_dict(data["model"]) == ([], [])
    assert other[0].weight.tolist() == model[0].weight.tolist()
    tb.optim.AdamW(other.parameters()).load_state_dict(data["optimizer"])


def test_nested_data_keep_their_structure(tmp_path: Path):
    x = tb.ones((1,))
    named: dict[Any, Any] = {
        "a.b": x,
        "a": {"b": x * 2, 1: [None, True, 2, -1.5, "text", float("inf")]},
        "tuple": (x * 3, ()),
        "dict": ["tensor", "a.b"],
        "__metadata__": {},
    }
    tb.save(named, tmp_path / "x")
    data = tb.load(tmp_path / "x")
    assert [data["a.b"].item(), data["a"]["b"].item(), data["tuple"][0].item()] == [1, 2, 3]
    assert data["a"][1] == named["a"][1]
    assert data["tuple"][1] == ()
    assert data["dict"] == ["tensor", "a.b"]
    assert list(data) == list(named)


@pytest.mark.parametrize(
    ("thing", "text"),
    [
        (nn.Linear(1, 1), "model.state_dict"),
        ({"model": nn.Linear(1, 1)}, "'model' is a Linear"),
        ({"a": {"b": [1, {2}]}}, "'a.b.1' is a set"),
        ({"a": {(1, 2): 3}}, r"a string or an integer, got \(1, 2\)"),
        ([tb.ones((1,))], "got list"),
    ],
)
def test_what_cannot_be_saved_is_named_and_leaves_the_old_file(thing: Any, text: str, tmp_path: Path):
    path = tmp_path / "x"
    tb.save({"x": tb.ones((1,))}, path)
    with pytest.raises(tb.StateError, match=text):
        tb.save(thing, path)
    assert tb.load(path)["x"].item() == 1.0
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupted_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "x"
    tb.save({"x": tb.ones((1,))}, path)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        tb.save({"x": tb.zeros((1,))}, path)
    assert tb.load(path)["x"].item() == 1.0
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileNotFoundError):
        tb.save({}, tmp_path / "no" / "folder")
    with pytest.raises(FileNotFoundError):
        tb.load(tmp_path / "nothing")


def test_a_save_is_on_the_disk_and_refuses_what_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    synced, fsync = [], os.fsync
    monkeypatch.setattr("os.fsync", lambda number: (synced.append(os.fstat(number).st_ino), fsync(number)))
    path = tmp_path / "x"
    tb.save({}, path)
    assert synced == [path.stat().st_ino, tmp_path.stat().st_ino]
    with pytest.raises(IsADirectoryError, match="test_a_save_is_on"):
        tb.save({}, tmp_path)
    with socket.socket(socket.AF_UNIX) as server, monkeypatch.context() as context:
        context.chdir(tmp_path)
        server.bind("socket")
        with pytest.raises(tb.StateError, match="'socket' is a socket"):
            tb.save({}, "socket")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="loop"):
        tb.save({}, tmp_path / "loop")
    assert sorted(os.listdir(tmp_path)) == ["loop", "socket", "x"]


def entry(dtype: str = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


DAMAGED: dict[str, tuple[Any, bytes, str]] = {
    "not JSON": (b"{ no json", b"", "not JSON"),
    "not UTF-8": (b'{"\xff": 1}', b"", "not JSON"),
    "deep": (b'{"a":' * 100_000, b"", "not JSON"),
    "list": ([], b"", "no JSON object"),
    "twice": (b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{}}', b"", "stands twice"),
    "no dtype": ({"x": {"shape": [2], "data_offsets": [0, 8]}}, bytes(8), "'x' lacks"),
    "three offsets": ({"x": entry(offsets=(0, 8, 8))}, bytes(8), "'x' lacks"),
    "unknown dtype": ({"x": entry("F8_E8M0", (8,))}, bytes(8), "dtype 'F8_E8M0'"),
    "negative shape": ({"x": entry(shape=(-1, -2))}, bytes(8), "cannot lie"),
    "negative offset": ({"x": entry(offsets=(-8, 0))}, bytes(8), "cannot lie"),
    "text in shape": ({"x": entry(shape=["2"])}, bytes(8), "cannot lie"),
    "fraction": ({"x": entry(shape=(2.0,))}, bytes(8), "cannot lie"),
    "wrong size": ({"x": entry(shape=(3,))}, bytes(8), "cannot lie"),
    "huge": ({"x": entry(shape=(1 << 62, 1 << 62))}, bytes(8), "cannot lie"),
    "short": ({"x": entry()}, bytes(7), "its tensors have 8 bytes, and there are 7"),
    "long": ({"x": entry()}, bytes(9), "its tensors have 8 bytes, and there are 9"),
    "overlap": ({"x": entry(), "y": entry(offsets=(4, 12))}, bytes(12), "must begin at 8"),
    "gap": ({"x": entry(), "y": entry(offsets=(12, 20))}, bytes(20), "must begin at 8"),
    "metadata": ({"__metadata__": {"a": 1}}, b"", "metadata"),
    "metadata list": ({"__metadata__": []}, b"", "metadata"),
    "tree": ({"__metadata__": {"tensorbus.tree": '["tensor","x"]'}}, b"", "structure"),
    "tree tag": ({"__metadata__": {"tensorbus.tree": '["exec","x"]'}}, b"", "'exec' is no tag"),
    "tree text": ({"__metadata__": {"tensorbus.tree": "["}}, b"", "not JSON"),
    "pairs": ({"__metadata__": {"tensorbus.complex128": '["x"]'}, "x": entry()}, bytes(8), "complex128"),
    "pairs number": ({"__metadata__": {"tensorbus.complex128": "3"}, "x": entry()}, bytes(8), "complex128"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_named(name: str, tmp_path: Path):
    header, data, text = DAMAGED[name]
    with pytest.raises(tb.StateError, match=text):
        tb.load(write(tmp_path / "x", header, data))


def _zip(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(name, b"content")
    return buffer.getvalue()


FOREIGN: dict[str, tuple[bytes, str]] = {
    "weights.pt": (_zip("weights/data.pkl", "weights/data/0"), r"a checkpoint of PyTorch's.*save_file"),
    "older.pt": (bytes.fromhex("80028a0a6cfc9c46f920") + b"j", "a checkpoint of PyTorch's, a pickle"),
    "x.npz": (_zip("a.npy", "b.npy"), r"numpy\.load\('.*x\.npz'\)\.items"),
    "x.npy": (b"\x93NUMPY\x01\x00" + b"v" * 40, r"asarray\(numpy\.load"),
    "x.zip": (_zip("a.txt"), "a zip archive; unpack it"),
    "cut.zip": (_zip("a.npy")[:30], "a zip archive that is damaged"),
    "x.gguf": (b"GGUF" + struct.pack("<IQQ", 3, 1, 1), "a GGUF file"),
    "x.h5": (b"\x89HDF\r\n\x1a\n" + bytes(40), "h5py"),
    "x.gz": (gzip.compress(b"content" * 9), "compressed by gzip"),
    "a length of 640": (struct.pack("<Q", 640), "no whole safetensors file"),  # as a pickle's first two bytes
}


@pytest.mark.parametrize("name", FOREIGN)
def test_files_of_other_formats_are_named(name: str, tmp_path: Path) -> None:
    content, text = FOREIGN[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(tb.StateError, match=text):
        tb.load(tmp_path / name)


def test_every_truncation_and_every_flipped_header_byte_is_an_error_or_a_sound_load(tmp_path: Path):
    path = tmp_path / "x"
    tb.save({"weight": tb.ones((2, 3)), "bias": tb.zeros((3,))}, path)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(tb.StateError):
            tb.load(path)
    start = 8 + struct.unpack("<Q", whole[:8])[0]
    for place in range(start):
        for flip in (0x01, 0x80):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ flip]) + whole[place + 1 :])
            try:
                data = tb.load(path)
            except tb.StateError:
                continue
            assert sum(x.nbytes for x in data.values()) == len(whole) - start


def test_loading_needs_a_device_that_has_the_dtype(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from tensorbus.dispatch import kernel_tables

    tb.save({"x": tb.ones((1,), dtype=tb.float64)}, tmp_path / "x")
    for call in ({"device": "no-such"}, {"map_location": "no-such"}):
        with pytest.raises(tb.DeviceUnavailableError, match="no-such"):
            tb.load(tmp_path / "x", **call)
    for call in ({"map_location": {"cuda:1": "cpu"}}, {"map_location": "cpu", "device": "cpu"}):
        with pytest.raises(tb.ArgumentError, match=r"load: (device and )?map_location"):
            tb.load(tmp_path / "x", **call)
    assert tb.load(tmp_path / "x", map_location="cpu")["x"].device == tb.device("cpu")
    monkeypatch.setattr(kernel_tables.tables_of("cpu"), "dtypes", lambda index: frozenset({tb.float32}))
    with pytest.raises(
        tb.UnsupportedDtypeError, match=r"load: tensor 'x' of .* has no float64; it has float32"
    ):
        tb.load(tmp_path / "x")


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("dtype", ["F32"], r"has dtype \['F32'\]; tensorbus has"),
        ("dtype", None, "has dtype None; tensorbus has"),
        ("shape", [1] * 65, "has 65 dimensions, of at most 64"),
        ("shape", [1 << 62, 1 << 62], "cannot lie at"),
    ],
)
def test_entries_of_another_kind_are_refused_by_name(
    tmp_path: Path, field: str, value: object, words: str
) -> None:
    path = tmp_path / "checkpoint"
    tb.save({"x": tb.ones((1,))}, path)
    whole = path.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + length])
    header["x"][field] = value
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + whole[8 + length :])
    with pytest.raises(tb.StateError, match=words):
        tb.load(path)
