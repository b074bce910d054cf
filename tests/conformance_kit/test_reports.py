"""Reports of the kit that are kept, and the part of docs/coverage.md that is made of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tensorbus.cli.conformance_reports import (
    ConformanceReport,
    merge_shards,
    read_reports,
    save,
    saved_reports,
    section,
)
from tensorbus_conformance import report
from tensorbus_conformance.outcome import Case, Finding, Outcome


def outcome(op: str, dtype: str, route: str, problem: str = "", device: str = "npu") -> Outcome:
    result = (Finding(check="value", call=f"{op}(3)", problem=problem),) if problem else ()
    return Outcome(
        case=Case(device=device, op=op, dtype=dtype), route=route, calls=7, seconds=1.0, findings=result
    )


WHOLE = (
    outcome("(manifest)", "-", "native"),
    outcome("add", "float32", "native"),
    outcome("add", "int8", "native"),
    outcome("add", "bfloat16", "native", "off by 3"),
    outcome("svd", "float32", "host"),
    outcome("silu", "float32", "decomposed"),
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A report on a device that is installed nowhere, as the kit writes it there."""
    path = tmp_path / "kit.json"
    report.write(WHOLE, path, ["--quick"])
    text = json.loads(path.read_text())
    text["about"] = {"npu": {"name": "NPU 3000 (rev. 2)", "driver": "NPU 3.1"}}
    path.write_text(json.dumps(text))
    return path


def test_what_is_kept_says_which_run_it_was_and_how_each_op_ran(file: Path, tmp_path: Path) -> None:
    (report,) = read_reports(file)
    assert (report.device, report.name, report.driver) == ("npu", "NPU 3000 (rev. 2)", "NPU 3.1")
    assert (report.limits, report.calls) == (["--quick"], 42)
    assert report.ops["add"] == {"native": "float32 int8", "failed": "bfloat16"}
    assert report.findings == ["add bfloat16: value: add(3): off by 3"]
    path = save(report, tmp_path / "reports")
    assert path.name == "npu-npu-3000-rev-2.json"
    assert saved_reports(tmp_path / "reports") == [report]


def test_the_document_counts_by_family_and_lists_what_was_found(file: Path) -> None:
    (report,) = read_reports(file)
    lines = section([report])
    where = f"NPU 3000 (rev. 2), NPU 3.1, {report.system}; Python {report.python}, --quick"
    assert f"| npu | {where} | {report.date} | 6 | 42 | 1 |" in lines
    assert "| elementwise | 2 kernel, 1 decomposed, 1 failed |" in lines
    assert "| linalg | 1 host |" in lines
    assert lines[-2] == "- add bfloat16: value: add(3): off by 3"


def test_a_device_that_the_other_report_lacks_has_an_empty_cell(file: Path) -> None:
    (report,) = read_reports(file)
    other = ConformanceReport(**{**{k: getattr(report, k) for k in report.__slots__}, "name": "", "ops": {}})
    assert "| linalg | 1 host |  |" in section([report, other])


def test_a_report_on_a_part_of_the_checks_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kit.json"
    report.write(WHOLE, path, report.limits(ops=(), dtypes=(), checks=["value"]))
    with pytest.raises(ValueError, match="made with --checks"):
        read_reports(path)


def shards(file: Path, tmp_path: Path, which: dict[str, slice]) -> list[ConformanceReport]:
    """Return reports of parts of the run that the file is of."""
    parts = []
    for number, (shard, rows) in enumerate(which.items()):
        path = tmp_path / f"{number}.json"
        report.write(WHOLE[rows], path, report.limits((), (), quick=True, shard=shard))
        text = json.loads(path.read_text()) | {"about": json.loads(file.read_text())["about"]}
        path.write_text(json.dumps(text))
        parts += read_reports(path)
    return parts


def test_shards_of_several_counts_are_merged_where_each_op_is_in_one(file: Path, tmp_path: Path) -> None:
    which = {"1/2": slice(4), "4/4": slice(4, 5), "2/4": slice(5, None)}
    parts = shards(file, tmp_path, which)
    assert merge_shards(parts) == read_reports(file)
    assert merge_shards(parts[:2]) == parts[:2]
    twice = shards(file, tmp_path, {"1/2": slice(4), "1/4": slice(4, 5), "2/4": slice(5, None)})
    assert merge_shards(twice) == twice


def test_shards_of_a_run_are_merged_and_one_alone_takes_its_place(file: Path, tmp_path: Path) -> None:
    (whole,) = read_reports(file)
    parts = shards(file, tmp_path, {"1/2": slice(4), "2/2": slice(4, None)})
    assert merge_shards(parts) == merge_shards([whole]) == [whole]
    assert merge_shards(parts[1:]) == parts[1:]
    folder = tmp_path / "reports"
    with pytest.raises(ValueError, match="no such report on all ops of npu"):
        save(parts[1], folder)
    save(whole, folder)
    save(parts[1], folder)
    (report,) = saved_reports(folder)
    assert (report.ops, report.again) == (whole.ops, f"shard 2/2 again on {whole.date}")


def test_cases_of_a_run_that_was_stopped_take_their_place(file: Path, tmp_path: Path) -> None:
    folder, path = tmp_path / "reports", tmp_path / "stopped.json"
    save(read_reports(file)[0], folder)
    limits = [*report.limits((), (), shard="2/2"), "stopped after 1 cases"]
    report.write([outcome("add", "bfloat16", "native")], path, limits)
    text = json.loads(path.read_text()) | {"about": json.loads(file.read_text())["about"]}
    path.write_text(json.dumps(text))
    (part,) = merge_shards(read_reports(path))
    save(part, folder)
    (explained,) = saved_reports(folder)
    assert explained.ops["add"] == {"native": "float32 int8 bfloat16"}
    assert explained.again == f"shard 2/2 in 1 cases again on {part.date}"


def test_ops_that_were_run_again_take_their_place(file: Path, tmp_path: Path) -> None:
    folder, path = tmp_path / "reports", tmp_path / "again.json"
    save(read_reports(file)[0], folder)
    mended = (outcome("add", "float32", "native"), outcome("add", "bfloat16", "native"))
    report.write(mended, path, report.limits(["add"], ()))
    text = json.loads(path.read_text())
    text["about"] = {"npu": {"name": "NPU 3000 (rev. 2)", "driver": "NPU 3.1"}}
    path.write_text(json.dumps(text))
    (part,) = read_reports(path)
    save(part, folder)
    (explained,) = saved_reports(folder)
    assert explained.ops["add"] == {"native": "float32 bfloat16"}
    assert explained.ops["svd"] == {"host": "float32"}
    assert (explained.findings, explained.limits) == ([], ["--quick"])
    assert explained.again == f"add again on {part.date}"
    with pytest.raises(ValueError, match="no such report on all ops of npu"):
        save(part, tmp_path / "empty")


def test_dtypes_that_were_run_again_join_the_others(file: Path, tmp_path: Path) -> None:
    folder, path = tmp_path / "reports", tmp_path / "again.json"
    save(read_reports(file)[0], folder)
    calls = saved_reports(folder)[0].calls
    later = outcome("add", "float8_e5m2", "native"), outcome("add", "bfloat16", "native")
    report.write(later, path, report.limits((), ["float8_e5m2", "bfloat16"]))
    text = json.loads(path.read_text())
    text["about"] = {"npu": {"name": "NPU 3000 (rev. 2)", "driver": "NPU 3.1"}}
    path.write_text(json.dumps(text))
    save(read_reports(path)[0], folder)
    (explained,) = saved_reports(folder)
    assert explained.ops["add"] == {"native": "float32 int8 bfloat16 float8_e5m2"}
    assert explained.again.startswith("float8_e5m2, bfloat16 again on ")
    new = text["devices"]["npu"]["add"]["float8_e5m2"]["calls"]
    assert new > 0
    assert (explained.calls, explained.findings) == (calls + new, [])


def test_pytest_says_which_part_of_the_kit_it_ran(tmp_path: Path) -> None:
    def limits(*more: str) -> list[str]:
        path = tmp_path / "kit.json"
        command = "-m pytest -q -p no:cacheprovider --pyargs tensorbus_conformance --device cpu --quick"
        subprocess.run(
            [sys.executable, *command.split(), "--ops", "sin,cos", "--report", str(path), *more],
            capture_output=True, check=False,
        )  # fmt: skip
        return list(json.loads(path.read_text())["limits"])

    assert limits() == ["--quick", "--ops sin,cos"]
    (deselected,) = set(limits("-k", "sin")) - {"--quick", "--ops sin,cos"}
    assert deselected.endswith(" cases deselected")


@pytest.mark.parametrize("text", ["", "[]", '{"devices": 3}', '{"devices": {"npu": {"add": {"int8": {}}}}}'])
def test_another_file_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="no report of `tensorbus conformance"):
        read_reports(path)


def test_one_command_takes_a_report_in_and_writes_the_document(file: Path, tmp_path: Path) -> None:
    def coverage(*more: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "tensorbus", "coverage", "--all", "--markdown", *more],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    folder = tmp_path / "reports"
    first = coverage("--reports", str(folder), "--add", str(file))
    assert "| npu | NPU 3000" in first
    assert first == coverage("--reports", str(folder))
    assert "NPU 3000" not in coverage()
    assert "no report" in coverage("--reports", str(folder), "--add", str(folder / "none.json"), code=2)
    assert "--reports" in coverage("--add", str(file), code=2)
