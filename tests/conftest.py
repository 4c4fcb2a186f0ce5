"""Options and fixtures that several test files share."""

from __future__ import annotations

import functools
import os
from collections.abc import Generator, Iterator

import pytest
from tvm.relay.backend import te_compiler

from tests.support import compilers, kernels_of_constants
from tests.support.c_checks import (
    COMPILERS,
    QUICK_COMPILERS,
    SANITIZERS,
    missing,
    missing_sanitizers,
)
from tests.support.paths import MODELS
from tests.support.skipped import not_run
from tinyai.backend import pipeline
from tinyai.runtime import tuner

# These tests need torch or another TVM: `make executorch`, `make relax` run them in environments
# of their own.
collect_ignore = ["executorch", "relax"]

# Without it TVM looks for tuning logs on the network at every build.
os.environ.setdefault("TOPHUB_LOCATION", "NONE")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write golden files anew, then compare"
    )


@pytest.fixture(autouse=True, scope="session")
def _one_look_at_tvms_build_flags() -> Iterator[None]:
    """TVM asks for all of them at every operator that it lowers: a third of a small build."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(te_compiler, "libinfo", functools.cache(te_compiler.libinfo))
        yield


@pytest.fixture(autouse=True, scope="session")
def _tvm_compiles_no_kernel_of_constants_twice() -> Iterator[None]:
    with kernels_of_constants.kept():
        yield


@pytest.fixture(autouse=True, scope="session")
def _nothing_is_compiled_twice() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        compilers.use(patch)
        yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    lines = not_run(terminalreporter.stats.get("skipped", []))
    if lines:
        terminalreporter.section("instruction sets that this machine could not run")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What needs the models beside the project skips where there are none."""
    report = yield
    if report.failed and not MODELS.is_dir() and str(MODELS) in report.longreprtext:
        report.outcome = "skipped"
        report.longrepr = (str(item.path), item.location[1] or 0, f"no folder {MODELS}")
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        compilers.drop_old()


@pytest.fixture(autouse=True)
def _threads_share_small_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs of tests have too little work for two threads."""
    for module in (pipeline, tuner):
        monkeypatch.setattr(module, "with_useful_threads", lambda graph, target: target)


@pytest.fixture(
    params=[
        name if name in QUICK_COMPILERS else pytest.param(name, marks=pytest.mark.slow)
        for name in COMPILERS
    ]
)
def compiler(request: pytest.FixtureRequest) -> str:
    """Each compiler that must take emitted C without a warning."""
    return _or_skip(request.param, missing(request.param))


@pytest.fixture(params=SANITIZERS)
def sanitizer(request: pytest.FixtureRequest) -> str:
    """Each compiler whose sanitizers must find nothing in emitted C."""
    return _or_skip(request.param, missing_sanitizers(request.param))


def _or_skip(name: str, reason: str | None) -> str:
    if reason is not None:
        pytest.skip(reason)
    return name
