"""ExecuTorch's own operator suite with tinyai's flow, beside XNNPACK's: what passes, what is
delegated, and why other operators are not.

    python benchmarks/executorch_suite.py [--flow FLOW ...] [-k EXPRESSION] [--results FILE]

Each case quantizes a module of one operator with the flow's quantizer, lowers it with the flow's
partitioner, runs the program and compares its outputs with the quantized module's. The whole suite
takes the better part of an hour. With ``--results`` each case is a line of a file: what it has is
not run again, and several processes may write to one file at the same time.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import fcntl
import importlib.util
import json
import os
import random
import signal
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.backends.test import harness
from executorch.backends.test.harness import stages
from executorch.backends.test.suite import flow as flows
from executorch.backends.test.suite import runner
from executorch.backends.test.suite.reporting import (
    TestCaseSummary,
    TestResult,
    begin_test_session,
)
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer
from executorch.backends.xnnpack.utils.configs import get_xnnpack_edge_compile_config

from tinyai import executorch as tinyai

XNNPACK, TINYAI = "xnnpack_static_int8_per_channel", "tinyai_static_int8_per_channel"
TIME_LIMIT = 60
Row = dict[str, Any]

# --- tinyai's flow -------------------------------------------------------------------------------


class Lower(stages.ToEdgeTransformAndLower):
    def __init__(self, **options: Any) -> None:
        super().__init__(
            default_partitioner_cls=tinyai.TinyAIPartitioner,
            edge_compile_config=get_xnnpack_edge_compile_config(),
            **options,
        )


class Quantize(stages.Quantize):
    def __init__(self) -> None:
        super().__init__(tinyai.TinyAIQuantizer(), tinyai.quantization_config())


class Tester(harness.Tester):
    last: Tester  # of the case that runs, or ran last

    def __init__(self, module: Any, example_inputs: Any, dynamic_shapes: Any = None) -> None:
        own = {
            stages.StageType.QUANTIZE: Quantize,
            stages.StageType.TO_EDGE_TRANSFORM_AND_LOWER: Lower,
        }
        classes = harness.Tester.default_stage_classes() | own
        super().__init__(module, example_inputs, classes, dynamic_shapes)
        Tester.last = self

    def reasons(self) -> list[tuple[str, str]]:
        """The operators that stay outside of delegates, each with the reason."""
        lowered = self.stages[stages.StageType.TO_EDGE_TRANSFORM_AND_LOWER]
        if lowered is None or not hasattr(lowered, "edge_dialect_program"):
            return []
        program = lowered.edge_dialect_program._etrecord.edge_dialect_program
        host = tinyai.explain(program).host
        floats = [(f"quantizer: {each.operator}", each.reason) for each in self._left()]
        computing = [(row.operator, _text(row.reason)) for row in host if row.computes]
        return sorted(set(floats + computing))

    def _left(self) -> tuple[Any, ...]:
        quantize = self.stages[stages.StageType.QUANTIZE]
        return tuple(quantize.quantizer.left) if quantize else ()


def _text(reason: Any) -> str:
    return f"{reason.clause}: found {reason.found}, allowed {reason.allowed}"


def flow_of(name: str) -> flows.TestFlow:
    if name == TINYAI:
        return flows.TestFlow(TINYAI, "tinyai", Tester, quantize=True)
    return next(each for each in flows._load_xnnpack() if each.name == name)


# --- Results -------------------------------------------------------------------------------------


class Results:
    """The rows of cases that ran, in memory or in a file that processes share.

    A line of the file says that a case was begun, was left, or how it ended.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lines: list[Row] = []
        self._read = 0

    def take(self, case: str, flow: str) -> bool:
        """Whether the case is this process's to run. One at which a process ended twice crashed."""
        with self._shared() as append:
            mine = [each for each in self._lines if (each["case"], each["flow"]) == (case, flow)]
            begun = [each["begun"] for each in mine if "begun" in each]
            left = [each["left"] for each in mine if "left" in each]
            over = [process for process in begun if not _lives(process)]
            if any("result" in each for each in mine) or len(begun) - len(over) > len(left):
                return False
            if len(over) - len(left) > 1:
                append({"case": case, "flow": flow, "result": "crash", "error": "process ended"})
                return False
            append({"case": case, "flow": flow, "begun": _process(os.getpid())})
        return True

    def leave(self, case: str, flow: str) -> None:
        with self._shared() as append:
            append({"case": case, "flow": flow, "left": _process(os.getpid())})

    def end(self, row: Row) -> None:
        with self._shared() as append:
            append(row)

    def rows(self) -> list[Row]:
        with self._shared():
            last = {(each["case"], each["flow"]): each for each in self._lines if "result" in each}
        return list(last.values())

    @contextlib.contextmanager
    def _shared(self) -> Iterator[Callable[[Row], None]]:
        """What others wrote is read, and others wait."""
        if self._path is None:
            yield self._lines.append
            return
        with self._path.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(self._read)
            self._lines += [json.loads(line) for line in file]

            def append(row: Row) -> None:
                file.write(json.dumps(row, sort_keys=True) + "\n")
                self._lines.append(row)

            yield append
            file.flush()
            self._read = file.seek(0, os.SEEK_END)


def _process(pid: int) -> list[int]:
    """A process's number and the time when it began: numbers are used again."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return [pid, -1]
    return [pid, int(status.rpartition(")")[2].split()[19])]


def _lives(process: list[int]) -> bool:
    return _process(process[0]) == process


# --- Running -------------------------------------------------------------------------------------


class OutOfTime(BaseException):
    """Not an ``Exception``: the suite takes these for a failure of a stage."""


@dataclasses.dataclass
class Recorder:
    """Runs each case of the suite, unless it has been run, and keeps how it ended."""

    results: Results
    time_limit: int
    until: float
    run: Callable[..., TestCaseSummary] = runner.run_test

    def __call__(self, *args: Any, **options: Any) -> TestCaseSummary:
        _model, _inputs, flow, name, base_name, index, *_ = args
        case = f"{_file()}::{_without(flow.name, name)}#{index}"
        summary = TestCaseSummary(
            flow.backend, base_name, flow.name, name, index, None, TestResult.SUCCESS, None, []
        )
        if time.monotonic() > self.until:
            pytest.exit("no time is left; the next call goes on here", returncode=0)
        if self.results.take(case, flow.name):
            began = time.monotonic()
            try:
                row = self._run(*args, **options)
            except BaseException:
                self.results.leave(case, flow.name)
                raise
            seconds = round(time.monotonic() - began, 2)
            self.results.end({"case": case, "flow": flow.name, "seconds": seconds, **row})
        # Whatever ran before: the next case of this test has the same numbers in every process.
        _seed(f"{case} is over")
        # A test ends at its first case that fails or is skipped. All are to run, in both flows.
        return summary

    def _run(self, *args: Any, **options: Any) -> Row:
        steps: list[float] = []
        signal.signal(signal.SIGALRM, _out_of_time)
        signal.alarm(self.time_limit)
        try:
            with _measured(steps):
                summary = self.run(*args, **options)
            signal.alarm(0)
            return _row(summary, steps)
        except OutOfTime:
            return {"result": "out of time", "error": f"more than {self.time_limit} seconds"}
        finally:
            signal.alarm(0)


def _out_of_time(*_: Any) -> None:
    raise OutOfTime


def _file() -> str:
    return Path(os.environ["PYTEST_CURRENT_TEST"].partition("::")[0]).name


def _without(flow: str, name: str) -> str:
    """The name of a test without that of its flow, which is the first or the only parameter."""
    return name.replace(f"[{flow}]", "").replace(f"[{flow}-", "[")


def _seed(text: str) -> None:
    number = zlib.crc32(text.encode())
    torch.manual_seed(number)
    random.seed(number)


@contextlib.contextmanager
def _measured(steps: list[float]) -> Iterator[None]:
    """Notes how many steps of the result's scale each comparison finds at most."""
    compare = harness.Tester._compare_outputs

    def noted(reference: Any, output: Any, scale: float | None = None, *rest: Any) -> None:
        if scale and isinstance(reference, torch.Tensor):
            (found,) = [output] if isinstance(output, torch.Tensor) else output
            steps.append(float((reference - found).abs().max()) / scale)
        compare(reference, output, scale, *rest)

    harness.Tester._compare_outputs = staticmethod(noted)
    try:
        yield
    finally:
        harness.Tester._compare_outputs = staticmethod(compare)


def _row(summary: TestCaseSummary, steps: list[float]) -> Row:
    delegated, undelegated = map(
        _operators, (summary.delegated_op_counts, summary.undelegated_op_counts)
    )
    row: Row = {
        "result": _ending(summary),
        "delegated": delegated,
        "undelegated": undelegated,
        "delegates": summary.is_delegated(),
    }
    if summary.error:
        row["error"] = f"{type(summary.error).__name__}: {summary.error}"[:400]
    if steps:
        row["steps"] = round(max(steps), 3)
    if summary.flow == TINYAI and undelegated:
        row["reasons"] = Tester.last.reasons()
    return row


def _ending(summary: TestCaseSummary) -> str:
    result = summary.result
    if result is TestResult.SKIPPED:
        if summary.error is None:
            return "skipped: no portable kernel for what stays outside of a delegate"
        what = "exported" if summary.quantize_time else "run by torch"
        return f"skipped: cannot be {what}"
    endings = {
        TestResult.SUCCESS: "passed, delegated",
        TestResult.SUCCESS_UNDELEGATED: "passed, nothing delegated",
        TestResult.OUTPUT_MISMATCH_FAIL: "wrong",
    }
    return endings.get(result, f"failed: {result.display_name()}")


def _operators(counts: dict[str, int] | None) -> dict[str, int]:
    """Without quantize and dequantize: pairs are no operators of a model."""
    return {name: n for name, n in sorted((counts or {}).items()) if "quantize" not in name}


class Seeds:
    """A plugin of pytest: each test makes the same module and inputs in every flow and process."""

    def __init__(self, flows: Iterable[str]) -> None:
        self.flows = tuple(flows)

    def pytest_runtest_call(self, item: Any) -> None:
        names = {_without(flow, item.name) for flow in self.flows} - {item.name}
        _seed(names.pop() if names else item.name)


def run(
    names: list[str],
    expression: str,
    results: Results,
    *,
    time_limit: int = TIME_LIMIT,
    seconds: float = float("inf"),
) -> None:
    """The suite with these flows: its cases that have no result yet."""
    chosen = {name: flow_of(name) for name in names}
    flows.all_flows = lambda: chosen  # its conftest asks when it is imported
    # They match batch norms, which are folded before the quantizer is asked; that takes seconds.
    patterns = [each for each in XNNPACKQuantizer.SUPPORTED_PATTERNS if not each.is_qat]
    XNNPACKQuantizer.SUPPORTED_PATTERNS = patterns
    begin_test_session(None, seed=0)  # else a seed is drawn for each case
    runner.run_test = Recorder(results, time_limit, time.monotonic() + seconds)
    spec = importlib.util.find_spec("executorch.backends.test.suite.operators")
    folder = Path(str(spec and spec.origin)).parent
    tinyai.load()
    options = ["-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(folder.parent)]
    options += ["--tb=short", "-W", "ignore", *(["-k", expression] if expression else [])]
    code = pytest.main([*options, str(folder)], plugins=[Seeds(names)])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        sys.exit(f"the suite itself did not end well: {code!r}")


# --- Tables --------------------------------------------------------------------------------------


def table(rows: list[Row], names: list[str]) -> str:
    """Markdown: of each flow how many cases ended how, and how many operators it delegates."""
    ran = [{row["case"] for row in rows if row["flow"] == name} for name in names]
    every = set.union(*ran)
    common = set.intersection(*ran)
    rows = [row for row in rows if row["case"] in common]
    lines: dict[str, dict[str, int | str]] = {"cases": {}}
    endings = sorted({row["result"] for row in rows}, key=lambda text: (text[0] != "p", text))
    for name in names:
        own = [row for row in rows if row["flow"] == name]
        lines["cases"][name] = len(own)
        for ending in endings:
            found = sum(row["result"] == ending for row in own)
            lines.setdefault(ending, {})[name] = found
        if "wrong" not in endings:
            lines.setdefault("wrong", {})[name] = 0
        for what in ("delegated", "undelegated"):
            count = sum(sum(row.get(what, {}).values()) for row in own)
            lines.setdefault(f"operators {what}", {})[name] = count
        steps = [row["steps"] for row in own if "steps" in row]
        within = sum(each < 1.01 for each in steps)
        lines.setdefault("within a step of the eager graph", {})[name] = f"{within} of {len(steps)}"
    head = ["| |" + "".join(f" {name.partition('_')[0]} |" for name in names)]
    head.append("|---|" + "---|" * len(names))
    body = [
        f"| {what} |" + "".join(f" {row[name]} |" for name in names) for what, row in lines.items()
    ]
    missing = [f"\nOnly some flows ran {len(every - common)} more cases."] * (every != common)
    return "\n".join(head + body + missing)


def behind(rows: list[Row]) -> str:
    """In which cases XNNPACK's flow delegates more than tinyai's, by why it is so: what the
    quantizer leaves in float, or else what the partitioner leaves outside."""
    by_case: dict[str, dict[str, Row]] = collections.defaultdict(dict)
    for row in rows:
        by_case[row["case"]][row["flow"]] = row
    found: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    for case, of in by_case.items():
        if XNNPACK not in of or TINYAI not in of:
            continue
        theirs, ours = of[XNNPACK], of[TINYAI]
        # They may count one operator as several: what counts is that some of ours stay outside.
        if not ours.get("undelegated") or _delegated(theirs) <= _delegated(ours):
            continue
        reasons = ours.get("reasons", [])
        first = [each for each in reasons if each[0].startswith("quantizer")]
        for operator, reason in {(each[0], each[1]) for each in first or reasons}:
            found[operator, reason].append(case)
    lines = []
    for (operator, reason), cases in sorted(found.items(), key=lambda each: -len(each[1])):
        lines.append(f"{len(cases):4} {operator}: {reason}")
        lines.append(f"     such as {', '.join(cases[:3])}")
    return "\n".join(lines)


def _delegated(row: Row) -> int:
    return sum(row.get("delegated", {}).values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--flow", nargs="*", default=[TINYAI, XNNPACK], choices=[TINYAI, XNNPACK])
    parser.add_argument("-k", default="", metavar="EXPRESSION", help="only tests of such names")
    parser.add_argument("--results", type=Path, metavar="FILE", help="lines of JSON, one a case")
    parser.add_argument("--only-table", action="store_true", help="of the results; run nothing")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="then begin no case")
    parser.add_argument("--time-limit", type=int, default=TIME_LIMIT, help="seconds for one case")
    options = parser.parse_args()
    results = Results(options.results)
    if not options.only_table:
        run(
            options.flow,
            options.k,
            results,
            time_limit=options.time_limit,
            seconds=options.seconds,
        )
    rows = results.rows()
    bad = [row for row in rows if not row["result"].startswith(("passed", "skipped"))]
    for row in bad:
        print(f"{row['flow']} {row['case']} {row['result']}: {row.get('error')}")
    print(behind(rows), table(rows, options.flow), sep="\n\n")
    return int(any(row["result"] == "wrong" and row["flow"] == TINYAI for row in rows))


if __name__ == "__main__":
    sys.exit(main())
