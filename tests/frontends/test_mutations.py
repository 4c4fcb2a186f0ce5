"""Broken model files end in a clear error or in a correct result: no crash, no hang, no escape.

``mutations.py`` makes the files, ``mutation_worker.py`` takes them through the product in child
processes with a limit of memory. To see case 123: ``python -m tests.support.mutations 123 FOLDER``.
"""

from __future__ import annotations

import json
import os
import queue
import select
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support import mutations
from tests.support.mutation_worker import COMPILE
from tests.support.paths import ROOT
from tinyai.codegen.c import comment_text

WORKERS = 2
# A case's stages together, the comparison with TVM left out. They take at most 10 s; the limit is
# there to end a hang, and not to measure a busy machine.
SECONDS = 60.0
SECONDS_TO_COMPARE = 120.0  # TVM's own build of the whole network takes 3 to 10 s
SECONDS_TO_START = 120.0
FEW = range(60)
# Every sixth of these is run and compared where it comes so far; TVM's build is slow.
COMPARED = ("ad01_int8", "qoperator")

needs_models = pytest.mark.skipif(
    not mutations.MODELS.is_dir(), reason=f"no folder {mutations.MODELS} with the sample networks"
)
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")


class Worker:
    """A child process, started anew where it dies or is too slow."""

    def __init__(
        self, folder: Path, command: Sequence[str] = ("-m", "tests.support.mutation_worker")
    ) -> None:
        self.folder, self.command = folder, command
        self.process: subprocess.Popen[bytes] | None = None
        self.rest = b""

    def run(self, number: int) -> dict[str, Any]:
        """Outcome, details and seconds of a case."""
        if self.process is None:
            self._start()
        assert self.process is not None
        assert self.process.stdin is not None
        made = mutations.case(number)
        # Deep enough that "../../x" would be seen.
        home = self.folder / "cases" / str(number)
        home.mkdir(parents=True)
        (home / made.file).write_bytes(made.content)
        compare = made.source in COMPARED and number % 6 == 3
        asked = {"file": str(home / made.file), "told": made.told, "compare": compare}
        self.process.stdin.write(json.dumps(asked).encode() + b"\n")
        self.process.stdin.flush()
        begun, stage = time.monotonic(), "begin"
        limit = begun + SECONDS
        while True:
            told = self._line(limit)
            now = time.monotonic()
            if told is None:
                shutil.rmtree(home)
                return self._lost(stage, now - begun, hang=now >= limit)
            if "outcome" in told:
                return {**self._judged(told, home / made.file), "seconds": now - begun}
            stage = told["stage"]
            if stage == "compare":
                limit = now + SECONDS_TO_COMPARE

    def _judged(self, told: dict[str, Any], file: Path) -> dict[str, Any]:
        """What was told, and no file that should not be there. The case's folder goes."""
        shutil.rmtree(file.parent / "out")
        known = {file, self.folder / "log"}
        left = {path for path in self.folder.rglob("*") if path.is_file()} - known
        strange = sorted(str(path) for path in left if self.folder / "tmp" not in path.parents)
        shutil.rmtree(file.parent)
        return {"outcome": "DEFECT write", "details": f"{strange}"} if strange else told

    def _lost(self, stage: str, seconds: float, hang: bool) -> dict[str, Any]:
        code = self.close()
        what = "DEFECT hang" if hang else "DEFECT crash"
        return {"outcome": what, "details": f"in {stage}, exit code {code}", "seconds": seconds}

    def _start(self) -> None:
        (self.folder / "tmp").mkdir(exist_ok=True)
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *self.command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                env=os.environ
                | dict.fromkeys(("TVM_NUM_THREADS", "OMP_NUM_THREADS"), "1")
                | dict.fromkeys(("HOME", "XDG_CACHE_HOME"), str(self.folder / "home"))
                | {"TMPDIR": str(self.folder / "tmp"), "TOPHUB_LOCATION": "NONE"}
                | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
            )
        self.rest = b""
        told = self._line(time.monotonic() + SECONDS_TO_START)
        assert told == {"stage": "ready"}, (self.folder / "log").read_text()[-3000:]

    def _line(self, limit: float) -> dict[str, Any] | None:
        """The next line of the child, None where it ended or the time is over."""
        assert self.process is not None
        assert self.process.stdout is not None
        while b"\n" not in self.rest:
            wait = limit - time.monotonic()
            if wait <= 0 or not select.select([self.process.stdout], [], [], wait)[0]:
                return None
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            if not more:
                return None
            self.rest += more
        line, self.rest = self.rest.split(b"\n", 1)
        return dict(json.loads(line))

    def close(self) -> int:
        """End the child; its exit code."""
        if self.process is None:
            return 0
        process, self.process = self.process, None
        assert process.stdin is not None
        assert process.stdout is not None
        process.kill()
        code = process.wait()
        process.stdin.close()
        process.stdout.close()
        return code


def outcomes(numbers: Sequence[int], folder: Path) -> dict[int, dict[str, Any]]:
    """What became of each case, by two workers."""
    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in numbers:
        todo.put(number)
    found: dict[int, dict[str, Any]] = {}
    errors: list[BaseException] = []

    def work(index: int) -> None:
        (folder / str(index)).mkdir()
        worker = Worker(folder / str(index))
        try:
            while True:
                number = todo.get_nowait()
                found[number] = worker.run(number)
        except queue.Empty:
            pass
        except BaseException as error:
            errors.append(error)
        finally:
            worker.close()

    threads = [threading.Thread(target=work, args=(index,)) for index in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return dict(sorted(found.items()))


def check(numbers: Sequence[int], folder: Path) -> Counter[str]:
    """The histogram of outcomes; fails where one of them is a defect."""
    found = outcomes(numbers, folder)
    assert list(found) == list(numbers)
    defects = [
        f"case {number} ({kind_of(number)}), see "
        f"python -m tests.support.mutations {number} FOLDER:\n"
        f"{result['outcome']}: {result['details']}"
        for number, result in found.items()
        if result["outcome"].startswith("DEFECT")
    ]
    histogram = Counter(result["outcome"] for result in found.values())
    assert not defects, "\n\n".join([str(dict(histogram)), *defects])
    return histogram


def kind_of(number: int) -> str:
    made = mutations.case(number)
    return f"{made.kind} of {made.source}"


@pytest.mark.long
@needs_models
@needs_gcc
def test_some_broken_files_end_in_a_clear_error_or_a_correct_result(tmp_path: Path) -> None:
    histogram = check(FEW, tmp_path)
    assert histogram["refused by a check"] > 20
    assert histogram["C compiles with names"] + histogram["equal to TVM with names"] > 1


@needs_models
@needs_gcc
@pytest.mark.slow
def test_all_broken_files_end_in_a_clear_error_or_a_correct_result(tmp_path: Path) -> None:
    histogram = check(range(mutations.CASES), tmp_path)
    print(*(f"{count:4} {what}" for what, count in histogram.most_common()), sep="\n")
    assert histogram["refused by a check"] > 150
    assert histogram["C compiles with names"] > 10
    # Of 36 that are chosen by their number; the hostile names show in the C of most that are left.
    assert histogram["equal to TVM"] + histogram["equal to TVM with names"] > 5


@needs_models
def test_some_have_every_kind_and_a_case_is_the_same_each_time() -> None:
    cases = [mutations.case(number) for number in FEW]
    assert {made.kind for made in cases} == set(mutations.KINDS)
    assert {made.source for made in cases} == set(mutations.ALL)
    assert cases == [mutations.case(number) for number in FEW]
    assert len({made.content for made in cases}) > 55


# --- Names -------------------------------------------------------------------------------------


@needs_gcc
def test_no_hostile_name_ends_the_comment_that_it_is_in(tmp_path: Path) -> None:
    lines = [
        f"/* {comment_text(f'{before}{name}{after}', longest)} */"
        for name in mutations.HOSTILE_NAMES
        for before, after in (("", ""), ("*", "/"), ("/", "*"), ("x?", "?/"))
        for longest in (10, 200, 400)
    ]
    text = "\n".join([*lines, "int last;", ""])
    assert mutations.text_without_comments(text).split() == ["int", "last;"]
    source = tmp_path / "names.c"
    source.write_text(text, encoding="ascii")
    subprocess.run([*COMPILE, source], check=True)


@pytest.mark.parametrize(
    ("code", "left"),
    [
        ("a /* b */ c", "a  c"),
        ("a /* b ??/\n*/ c", "a  c"),
        ("a /* b *\\\n/ c", "a  c"),
        ("a // b ??/\nc\nd", "a \nd"),
        ('"/* b */" c', '"/* b */" c'),
        ('"\\"/*" c /* d', '"\\"/*" c '),
        ("'\"' /* d */ e", "'\"'  e"),
    ],
)
def test_what_is_left_of_c_without_comments(code: str, left: str) -> None:
    assert mutations.text_without_comments(code) == left


# --- The watch over the children ---------------------------------------------------------------

READY = 'import sys, time, os; print(\'{"stage": "ready"}\', flush=True); sys.stdin.readline(); '


@needs_models
@pytest.mark.parametrize(
    ("then", "outcome"),
    [
        ("os.abort()", "crash"),
        ("sys.exit(0)", "crash"),
        ("time.sleep(60)", "hang"),
        ('print("{", end="", flush=True); time.sleep(60)', "hang"),
    ],
)
def test_a_crash_and_a_hang_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str, outcome: str
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "SECONDS", 1.0)
    worker = Worker(tmp_path, ("-c", READY + then))
    assert worker.run(6)["outcome"] == f"DEFECT {outcome}"
    assert worker.process is None
    assert not list((tmp_path / "cases").iterdir())


@needs_models
@pytest.mark.parametrize(
    ("file", "told"), [("x", True), ("../x", True), ("../../x", True), ("out/x", False)]
)
def test_a_file_outside_of_the_output_folder_is_told(tmp_path: Path, file: str, told: bool) -> None:
    script = (
        f"import json; os.chdir({str(tmp_path / 'cases' / '6')!r}); os.mkdir('out'); "
        f"open({file!r}, 'w').close(); print(json.dumps(dict(outcome='fine', details='')))"
    )
    worker = Worker(tmp_path, ("-c", READY + script))
    assert worker.run(6)["outcome"] == ("DEFECT write" if told else "fine")
    worker.close()


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("open('x', 'w')", ["open 'x'"]),
        ("open('out/x', 'w')", []),
        ("open('out/../x', 'a')", ["open 'out/../x'"]),
        ("open('/dev/null', 'w')", []),
        ("open('out/here')", []),
        ("os.rename('out/here', 'x')", ["os.rename 'x'"]),
        ("os.symlink('../y', 'out/link')", []),
        ("os.symlink('out/here', 'link')", ["os.symlink 'link'"]),
        ("os.mkdir('../../x')", ["os.mkdir '../../x'"]),
    ],
)
def test_the_guard_sees_what_is_written_elsewhere(
    tmp_path: Path, code: str, told: list[str]
) -> None:
    folder = tmp_path / "a" / "b"
    (folder / "out").mkdir(parents=True)
    (folder / "out" / "here").touch()
    script = (
        "import os; from tests.support.mutation_worker import Guard; guard = Guard(); "
        f"os.chdir({str(folder)!r}); guard.folders = ({str(folder / 'out')!r} + os.sep,); "
        f"{code}; print(guard.found)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{told}\n"
