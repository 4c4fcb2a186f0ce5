"""How ExecuTorch's operator suite is run: every case counts once, and no ending is hidden."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from executorch.backends.test.suite.reporting import TestCaseSummary, TestResult

from benchmarks import executorch_suite as suite

ROOT = Path(__file__).parents[2]
FLOWS = [suite.TINYAI, suite.XNNPACK]
CASE = "test_abs.py::test_abs_dtype[float32]#0"


def ended(flow: str, result: str, **more: Any) -> dict[str, Any]:
    return {"case": CASE, "flow": flow, "result": result, **more}


def recorded(
    monkeypatch: pytest.MonkeyPatch, results: suite.Results, run: Any, time_limit: int = 60
) -> None:
    """What the suite would call for a case, with ``run`` in place of the case."""
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "operators/test_abs.py::test_abs_dtype (call)")
    recorder = suite.Recorder(results, time_limit, float("inf"), run)
    name = f"test_abs_dtype[{suite.TINYAI}-float32]"
    recorder(None, (), suite.flow_of(suite.TINYAI), name, "test_abs_dtype", 0)


def summary(result: TestResult) -> TestCaseSummary:
    return TestCaseSummary("tinyai", "", suite.XNNPACK, "", 0, None, result, None, [])


@pytest.mark.slow
def test_cases_of_both_flows_run_and_are_not_run_again(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    command = [sys.executable, "-W", "ignore", str(ROOT / "benchmarks" / "executorch_suite.py")]
    command += ["-k", "test_abs_dtype", "--results", str(results)]

    said = []
    for _ in range(2):
        done = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        said.append(done.stdout[done.stdout.index("| |") :])

    rows = [json.loads(line) for line in results.read_text().splitlines()]
    assert [(row["case"], row["flow"]) for row in rows if "result" in row] == [
        (CASE, flow) for flow in FLOWS
    ]
    assert all(row["result"] == "passed, delegated" for row in rows if "result" in row)
    assert all(row["delegated"] == {"aten::abs": 1} for row in rows if "result" in row)
    assert said[0] == said[1]
    assert "| operators delegated | 1 | 1 |" in said[0]


def test_a_case_is_one_process_s(tmp_path: Path) -> None:
    first, second = (suite.Results(tmp_path / "results.jsonl") for _ in range(2))
    assert first.take(CASE, suite.TINYAI)
    assert not second.take(CASE, suite.TINYAI)
    assert second.take(CASE, suite.XNNPACK)
    first.leave(CASE, suite.TINYAI)
    assert second.take(CASE, suite.TINYAI)
    second.end(ended(suite.TINYAI, "wrong"))
    assert not first.take(CASE, suite.TINYAI)
    assert first.rows() == [ended(suite.TINYAI, "wrong")]


def test_a_case_at_which_processes_end_is_a_crash(tmp_path: Path) -> None:
    results = suite.Results(tmp_path / "results.jsonl")
    for _ in range(2):
        child = os.fork()
        if not child:
            results.take(CASE, suite.TINYAI)
            os._exit(0)
        os.waitpid(child, 0)
    assert not results.take(CASE, suite.TINYAI)
    (row,) = results.rows()
    assert row["result"] == "crash"


def test_a_case_that_takes_too_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*_: Any) -> TestCaseSummary:
        # Stages catch every exception, and call it a failure of theirs.
        try:
            time.sleep(60)
        except Exception:
            return summary(TestResult.LOWER_FAIL)
        return summary(TestResult.SUCCESS)

    results = suite.Results(None)
    recorded(monkeypatch, results, slow, time_limit=1)
    assert [row["result"] for row in results.rows()] == ["out of time"]


@pytest.mark.parametrize(
    ("result", "ending"),
    [
        (TestResult.SUCCESS, "passed, delegated"),
        (TestResult.SUCCESS_UNDELEGATED, "passed, nothing delegated"),
        (TestResult.OUTPUT_MISMATCH_FAIL, "wrong"),
        (TestResult.PTE_RUN_FAIL, "failed: Fail (PTE Run)"),
    ],
)
def test_a_case_is_recorded_as_it_ended(
    monkeypatch: pytest.MonkeyPatch, result: TestResult, ending: str
) -> None:
    results = suite.Results(None)
    recorded(monkeypatch, results, lambda *_: summary(result))
    assert [row["result"] for row in results.rows()] == [ending]


def test_the_table_counts_cases_that_every_flow_ran() -> None:
    rows = [
        ended(suite.TINYAI, "wrong", delegated={"aten::abs": 2}, undelegated={}),
        ended(suite.XNNPACK, "passed, delegated", delegated={}, undelegated={"aten::abs": 2}),
        ended(suite.XNNPACK, "crash") | {"case": "another"},
    ]
    said = suite.table(rows, FLOWS)
    assert "| cases | 1 | 1 |" in said
    assert "| wrong | 1 | 0 |" in said
    assert "| operators delegated | 2 | 0 |" in said
    assert "| operators undelegated | 0 | 2 |" in said
    assert "Only some flows ran 1 more cases." in said


def test_what_xnnpack_alone_delegates_is_told_with_the_reason() -> None:
    ours = ended(suite.TINYAI, "passed, nothing delegated", undelegated={"aten::abs": 1})
    theirs = ended(suite.XNNPACK, "passed, delegated", delegated={"aten::abs": 1})
    reasons = [["aten.abs", "floats"], ["quantizer: aten.abs.default", "no row"]]
    said = suite.behind([ours | {"reasons": reasons}, theirs])
    assert "1 quantizer: aten.abs.default: no row" in said
    assert "floats" not in said
    assert suite.behind([ours | {"delegated": {"aten::abs": 1}}, theirs]) == ""
    assert suite.behind([ours | {"undelegated": {}}, theirs]) == ""
