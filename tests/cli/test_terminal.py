"""What a terminal shows: the start page, one bar for the stage that runs, notes and next steps."""

from __future__ import annotations

import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from tests.support.paths import MODELS, ROOT
from tinyai.cli import main
from tinyai.stages import stage, tracked, watched

KWS = MODELS / "kws_ref_model.tflite"
SCALAR = ("--isa", "scalar")


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model and a sample, as the current one."""
    if not KWS.exists():
        pytest.skip(f"{KWS} is missing")
    shutil.copy(KWS, tmp_path / "model.tflite")
    np.save(tmp_path / "x.npy", np.zeros((1, 49, 10, 1), np.int8))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)])


def in_terminal(*arguments: str, **environment: str) -> str:
    """What a command of its own prints on a terminal of 80 columns."""
    master, slave = pty.openpty()
    variables = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "80",
        "TERM": "xterm",
        **environment,
    }
    command = [sys.executable, "-m", "tinyai", *arguments]
    with subprocess.Popen(command, stdout=slave, stderr=slave, env=variables) as process:
        os.close(slave)
        printed = b""
        while True:
            try:
                read = os.read(master, 65536)
            except OSError:  # the other end is closed
                break
            if not read:
                break
            printed += read
    os.close(master)
    assert process.returncode == 0, printed.decode()
    return printed.decode()


def test_without_arguments_the_start_page_leads_to_commands_that_exist() -> None:
    result = run()
    assert result.exit_code == 0
    assert len(result.output.splitlines()) <= 16
    assert max(map(len, result.output.splitlines())) <= 88
    for name in re.findall(r"^  tinyai (\w+)", result.output, re.MULTILINE):
        assert name in main.commands


def test_help_has_each_command_once_with_a_whole_sentence() -> None:
    lines = run("--help").output.splitlines()
    for name in main.commands:
        (row,) = [line for line in lines if line.startswith(f"  {name} ")]
        assert row.endswith(".")
        assert not row.endswith("...")


@pytest.mark.parametrize("output", ["net.so", "folder", "net.tar"])
def test_the_next_steps_of_compile_run(inside: Path, output: str) -> None:
    result = run("compile", "model.tflite", "-o", output, *SCALAR)
    assert result.exit_code == 0, result.output
    _, steps = result.stdout.split("next:\n")
    commands = [shlex.split(line) for line in steps.splitlines()]
    assert len(commands) == (3 if output == "folder" else 2)
    for words in commands:
        if words[0] == "make":
            assert subprocess.run(words, capture_output=True, check=True)
        else:
            done = run(*words[1:])
            assert done.exit_code == 0, done.output


def test_next_steps_are_written_for_a_shell(inside: Path) -> None:
    (inside / "model.tflite").rename("a b;c.tflite")
    result = run("compile", "a b;c.tflite", "-o", "net.so", *SCALAR, "--name", "net")
    assert "  tinyai check 'a b;c.tflite' --with net.so\n" in result.stdout


def test_what_was_quantized_on_the_way_is_compared_with_nothing(inside: Path) -> None:
    shutil.copy(MODELS / "ad01_fp32.onnx", "float.onnx")
    rng = np.random.default_rng(0)
    name = "input_1"
    np.savez("samples.npz", **{name: rng.random((2, 1, 640), np.float32)})
    result = run("compile", "float.onnx", "--calibrate", "samples.npz", "-o", "net.so", *SCALAR)
    assert result.exit_code == 0, result.output
    assert "tinyai check" not in result.stdout
    assert "tinyai run net.so" in result.stdout


def test_quiet_leaves_the_result_alone(inside: Path) -> None:
    result = run("compile", "-q", "model.tflite", "-o", "net.so", *SCALAR)
    assert (result.exit_code, result.output) == (0, "")
    assert Path("net.so").exists()
    whole = run("run", "-q", "model.tflite", "-i", "x.npy", *SCALAR).output
    assert whole.startswith("Identity: int8[1, 12]\n")
    assert len(whole.splitlines()) == 2
    assert run("compile", "-q", "-v", "model.tflite", "-o", "net.so").exit_code == 2
    assert "error: " in run("compile", "-q", "none.tflite", "-o", "net.so").output


def test_a_terminal_shows_the_stage_and_its_time_and_keeps_nothing_of_it(inside: Path) -> None:
    shown = in_terminal("compile", "model.tflite", "-o", "net.so", *SCALAR)
    assert re.search(r"C compiler.*0:00:00", shown)
    _, erased, rest = shown.rpartition("\x1b[2K")  # the line of the last bar
    assert erased
    assert rest.replace("\r", "").splitlines()[0].endswith("bytes")


def test_no_bar_where_nobody_sees_it(inside: Path) -> None:
    quiet = in_terminal("compile", "-q", "model.tflite", "-o", "net.so", *SCALAR)
    assert quiet == ""
    assert "\x1b" not in run("compile", "model.tflite", "-o", "net.so", *SCALAR).output


def test_no_color_and_the_width_are_respected(inside: Path) -> None:
    shown = in_terminal("explain", "model.tflite", *SCALAR, NO_COLOR="1")
    assert not re.search("\x1b\\[[0-9;]*3[0-9]m", shown)
    plain = re.sub("\x1b\\[[0-9;?]*[A-Za-z]", "", shown).replace("\r", "\n")
    assert max(map(len, plain.split("\n"))) <= 80


def test_stages_are_shown_while_they_run_and_items_move_them() -> None:
    class Seen:
        def __init__(self) -> None:
            self.events: list[object] = []

        def show(self, stages: object) -> None:
            self.events.append(stages)

        def track(self, items: object, count: int | None) -> object:
            self.events.append(count)
            return items

    seen = Seen()
    with watched(lambda *_: None, display=seen):  # type: ignore[arg-type]
        with stage("outer"):
            with stage("inner"):
                pass
            list(tracked([1, 2], 2))
        with pytest.raises(ValueError, match="fails"), stage("fails"):
            raise ValueError("fails")
    both = ("outer", "inner")
    assert seen.events == [("outer",), both, ("outer",), 2, (), ("fails",), ()]


# --- A shell completes ----------------------------------------------------------------------------


def completed(shell: str, words: str, **variables: str) -> str:
    """What the installed command prints where a shell asks for ``words``."""
    command = Path(sys.executable).with_name("tinyai")
    asked = os.environ | variables | {"_TINYAI_COMPLETE": f"{shell}_complete", "COMP_WORDS": words}
    asked["PYTHONPATH"] = str(ROOT)
    done = subprocess.run([command], env=asked, capture_output=True, text=True, check=True)
    return done.stdout


def test_the_lines_of_the_page_give_a_shell_its_completion() -> None:
    page = (ROOT / "docs" / "reference" / "install.md").read_text()
    lines = re.findall(r"_TINYAI_COMPLETE=(\w+)_source tinyai", page)
    assert lines == ["bash", "zsh", "fish"]
    for shell in ("zsh", "fish"):  # bash is asked for its version, which needs bash
        asked = os.environ | {"_TINYAI_COMPLETE": f"{shell}_source", "PYTHONPATH": str(ROOT)}
        command = Path(sys.executable).with_name("tinyai")
        done = subprocess.run([command], env=asked, capture_output=True, text=True, check=True)
        assert f"_TINYAI_COMPLETE={shell}_complete" in done.stdout


def test_commands_options_and_choices_are_completed() -> None:
    assert completed("bash", "tinyai comp", COMP_CWORD="1").split() == ["plain,compile"]
    options = completed("bash", "tinyai explain --ht", COMP_CWORD="2").split()
    assert options == ["plain,--html"]
    choices = completed("bash", "tinyai explain --format t", COMP_CWORD="3").split()
    assert choices == ["plain,table", "plain,text"]


def test_the_line_of_bash_works_in_bash() -> None:
    script = '''eval "$(_TINYAI_COMPLETE=bash_source tinyai)"
    COMP_WORDS=(tinyai qua) COMP_CWORD=1
    _tinyai_completion tinyai
    echo "${COMPREPLY[@]}"'''
    # The command is found as a user's shell finds it; its folder's name may hold a space.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    asked = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-c", script], env=asked, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["quantize"], done.stderr
