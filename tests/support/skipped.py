"""Which tests could not run for want of an instruction set: the end of a run lists them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

import pytest

# What a test that skips for an instruction set gives as its reason, before the set's name.
LACKS = "the CPU lacks "


def not_run(skipped: Iterable[pytest.TestReport]) -> list[str]:
    """For each instruction set its tests, as many as there are of each, with their parameters."""
    tests: defaultdict[str, Counter[str]] = defaultdict(Counter)
    parameters: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for report in skipped:
        _, _, lacking = _reason(report).partition(LACKS)
        if lacking:
            test, _, parameter = report.nodeid.partition("[")
            tests[lacking][test] += 1
            parameters[lacking, test].append(parameter.removesuffix("]"))
    return [*_lines(tests, parameters)]


def _lines(
    tests: dict[str, Counter[str]], parameters: dict[tuple[str, str], list[str]]
) -> Iterator[str]:
    for isa in sorted(tests):
        yield f"{isa}: {tests[isa].total()} tests"
        for test, count in sorted(tests[isa].items()):
            yield f"  {count:4} {test}"
            if names := sorted(filter(None, parameters[isa, test])):
                yield f"       {', '.join(names)}"


def _reason(report: pytest.TestReport) -> str:
    return str(report.longrepr[2]) if isinstance(report.longrepr, tuple | list) else ""
