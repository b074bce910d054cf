"""What lies in the wheels."""

from __future__ import annotations

import tomllib
import zipfile
from email.parser import Parser
from typing import Any

import pytest

NAMES = [
    "tensorbus", "tensorbus-conformance", "tensorbus-core", "tensorbus-cpu", "tensorbus-cuda",
    "tensorbus-fake", "tensorbus-metal", "tensorbus-mpi", "tensorbus-nccl", "tensorbus-opencl",
    "tensorbus-ray", "tensorbus-redis", "tensorbus-refdev", "tensorbus-tcp", "tensorbus-threads",
]  # fmt: skip
COMMUNICATORS = ["tensorbus-fake", "tensorbus-mpi", "tensorbus-nccl", "tensorbus-tcp", "tensorbus-threads"]
STORES = ["tensorbus-redis"]
LAUNCHERS = ["tensorbus-ray"]


def _files(built: Any) -> dict[str, str]:
    with zipfile.ZipFile(built.wheel) as archive:
        return {name: archive.read(name).decode("utf-8", "replace") for name in archive.namelist()}


def _metadata(files: dict[str, str]) -> Any:
    return Parser().parsestr(
        next(text for name, text in files.items() if name.endswith(".dist-info/METADATA"))
    )


def test_every_project_is_built(built):
    assert sorted(built) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_wheel_has_its_license_and_its_metadata(built, name):
    files = _files(built[name])
    licenses = [text for path, text in files.items() if path.endswith("LICENSE")]
    assert licenses == [(built["tensorbus"].folder / "LICENSE").read_text()]
    metadata = _metadata(files)
    assert metadata["Name"] == name
    assert metadata["Version"] == built["tensorbus"].project["version"]
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Summary"]
    assert len(metadata.get_payload()) > 100, "the README is the description"


@pytest.mark.parametrize("name", NAMES[1:])
def test_a_wheel_holds_one_typed_package(built, name):
    files = _files(built[name])
    package = "tensorbus" if name == "tensorbus-core" else name.replace("-", "_")
    assert f"{package}/py.typed" in files
    assert {path.split("/")[0] for path in files if ".dist-info/" not in path} == {package}
    folders = {path.rpartition("/")[0] for path in files if path.endswith(".py")}
    assert all(f"{folder}/__init__.py" in files for folder in folders), folders


def test_the_metapackage_holds_nothing_but_names_its_parts(built):
    files = _files(built["tensorbus"])
    assert all(".dist-info/" in path for path in files)
    metadata = _metadata(files)
    required = metadata.get_all("Requires-Dist")
    assert {r.split("==")[0] for r in required if ";" not in r} == {
        "tensorbus-core", "tensorbus-cpu", "tensorbus-fake", "tensorbus-tcp", "tensorbus-threads",
    }  # fmt: skip
    assert set(metadata.get_all("Provides-Extra")) == {
        "bench", "cuda12", "cuda13", "opencl", "opencl-cpu", "metal", "mkl", "mpi", "nccl", "ray", "redis",
        "refdev", "dev",
    }  # fmt: skip


@pytest.mark.parametrize(
    "name", [name for name in NAMES[3:] if name not in COMMUNICATORS + STORES + LAUNCHERS]
)
def test_a_device_has_an_entry_point_and_a_manifest_that_agree(built, name):
    files = _files(built[name])
    device = name.removeprefix("tensorbus-")
    entry_points = next(text for path, text in files.items() if path.endswith("entry_points.txt"))
    assert entry_points.split() == ["[tensorbus.devices]", device, "=", f"tensorbus_{device}.extension"]
    manifest = tomllib.loads(files[f"tensorbus_{device}/manifest.toml"])
    assert manifest["plugin"]["name"] == name
    assert manifest["device"]["type"] == device
    assert manifest["device"]["requires"]
    assert name in manifest["device"]["install"]
    assert f"tensorbus_{device}/extension.py" in files


@pytest.mark.parametrize("name", COMMUNICATORS + STORES + LAUNCHERS)
def test_what_serves_ranks_has_an_entry_point_and_a_manifest_that_agree(built, name):
    files = _files(built[name])
    short = name.removeprefix("tensorbus-")
    entry_points = next(text for path, text in files.items() if path.endswith("entry_points.txt"))
    lines = entry_points.split("\n")
    group = "stores" if name in STORES else "launchers" if name in LAUNCHERS else "communicators"
    assert f"[tensorbus.{group}]" in lines
    assert {line for line in lines if "=" in line} == {f"{short} = tensorbus_{short}.extension"}
    manifest = tomllib.loads(files[f"tensorbus_{short}/manifest.toml"])
    assert manifest["plugin"]["name"] == name
    assert f"tensorbus_{short}/extension.py" in files


def test_the_conformance_kit_is_a_pytest_plugin_and_holds_its_tests(built):
    files = _files(built["tensorbus-conformance"])
    entry_points = next(text for path, text in files.items() if path.endswith("entry_points.txt"))
    assert entry_points.split() == [
        "[pytest11]",
        "tensorbus-conformance",
        "=",
        "tensorbus_conformance.plugin",
    ]
    assert "tensorbus_conformance/test_conformance.py" in files


def test_all_versions_are_one(built):
    versions = {item.project["version"] for item in built.values()}
    source = _files(built["tensorbus-core"])["tensorbus/version.py"]
    assert len(versions) == 1
    assert f'__version__ = "{versions.pop()}"' in source
