"""ExecuTorch's own operator suite with tinyai's flow, beside XNNPACK's: what passes, what is
delegated.

    python benchmarks/executorch_suite.py [--flow FLOW ...] [-k EXPRESSION]

Each test quantizes a module of one operator with the flow's quantizer, lowers it with the flow's
partitioner, runs the program and compares its outputs with the quantized module's.
"""

from __future__ import annotations

import argparse
import collections
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from executorch.backends.test import harness
from executorch.backends.test.harness import stages
from executorch.backends.test.suite import flow as flows
from executorch.backends.test.suite import runner
from executorch.backends.test.suite.reporting import TestCaseSummary, TestResult
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer
from executorch.backends.xnnpack.utils.configs import get_xnnpack_edge_compile_config

from tinyai import executorch as tinyai

XNNPACK, TINYAI = "xnnpack_static_int8_per_channel", "tinyai_static_int8_per_channel"


class Lower(stages.ToEdgeTransformAndLower):
    def __init__(self, **options: Any) -> None:
        super().__init__(
            default_partitioner_cls=tinyai.TinyAIPartitioner,
            edge_compile_config=get_xnnpack_edge_compile_config(),
            **options,
        )


class Tester(harness.Tester):
    def __init__(self, module: Any, example_inputs: Any, dynamic_shapes: Any = None) -> None:
        own = {stages.StageType.TO_EDGE_TRANSFORM_AND_LOWER: Lower}
        super().__init__(
            module, example_inputs, harness.Tester.default_stage_classes() | own, dynamic_shapes
        )


def quantize() -> stages.Quantize:
    return stages.Quantize(tinyai.TinyAIQuantizer(), tinyai.quantization_config())


def tinyais_flow() -> flows.TestFlow:
    return flows.TestFlow(TINYAI, "tinyai", Tester, quantize=True, quantize_stage_factory=quantize)


class Recorder:
    """Keeps the summary of each test of the suite."""

    def __init__(self) -> None:
        self.found: list[TestCaseSummary] = []
        self._run = runner.run_test

    def __call__(self, *args: Any, **options: Any) -> TestCaseSummary:
        summary = self._run(*args, **options)
        self.found.append(summary)
        return summary


def counts(found: list[TestCaseSummary]) -> dict[str, dict[str, int]]:
    """Of each flow how many tests ended how, and how many nodes were delegated."""
    table: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for each in found:
        row = table[each.flow]
        row["tests"] += 1
        row[each.result.name.lower()] += 1
        row["passed"] += each.result.is_success()
        # Nodes that would be float without quantization; pairs are no operators of their own.
        row["delegated nodes"] += _nodes(each.delegated_op_counts)
        row["undelegated nodes"] += _nodes(each.undelegated_op_counts)
    return {name: dict(row) for name, row in table.items()}


def _nodes(operators: dict[str, int] | None) -> int:
    return sum(count for name, count in (operators or {}).items() if "quantize" not in name)


def run(names: list[str], expression: str = "") -> tuple[list[TestCaseSummary], int]:
    """The suite with these flows; the summaries, and pytest's code."""
    known = {XNNPACK: flows._load_xnnpack, TINYAI: lambda: [tinyais_flow()]}
    chosen = {each.name: each for name in names for each in known[name]() if each.name == name}
    flows.all_flows = lambda: chosen  # its conftest asks when it is imported
    # They match batch norms, which are folded before the quantizer is asked; that takes seconds.
    patterns = [each for each in XNNPACKQuantizer.SUPPORTED_PATTERNS if not each.is_qat]
    XNNPACKQuantizer.SUPPORTED_PATTERNS = patterns
    recorder = Recorder()
    runner.run_test = recorder
    spec = importlib.util.find_spec("executorch.backends.test.suite.operators")
    folder = Path(str(spec and spec.origin)).parent
    tinyai.load()
    options = ["-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(folder.parent)]
    options += ["--tb=no", "-W", "ignore", *(["-k", expression] if expression else [])]
    code = pytest.main([*options, str(folder)])
    return recorder.found, int(code)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--flow", nargs="*", default=[TINYAI, XNNPACK], choices=[TINYAI, XNNPACK])
    parser.add_argument("-k", default="", metavar="EXPRESSION", help="only tests of such names")
    parser.add_argument("--json", help="where the counts are written")
    options = parser.parse_args()
    found, _ = run(options.flow, options.k)
    for each in found:
        if not each.result.is_success() and each.result is not TestResult.SKIPPED:
            print(f"{each.name} {each.result.name}: {str(each.error)[:300]}")
    table = counts(found)
    print(json.dumps(table, indent=1, sort_keys=True))
    if options.json:
        Path(options.json).write_text(json.dumps(table, indent=1, sort_keys=True))
    wrong = [each for each in found if each.result is TestResult.OUTPUT_MISMATCH_FAIL]
    return int(any(each.flow == TINYAI for each in wrong))


if __name__ == "__main__":
    sys.exit(main())
