"""What is special to an instruction set is in its folder: the rest of the package names none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tinyai
from tinyai.target import ARCHITECTURES, PORTABLE

ROOT = Path(tinyai.__file__).parent
NAMES = [isa for arch, isas in ARCHITECTURES.items() if arch != PORTABLE for isa in isas]
NAMED = re.compile(rf"x86|AVX|VNNI|SSE\d|\bSDOT|SMMLA|{'|'.join(NAMES)}", re.IGNORECASE)
# Files that may name them, each with the reason and a word that it still says.
MAY = {
    "target.py": ("the values of the option", "avx512vnni"),
    "doctor.py": ("the description of the CPU", "avx_vnni"),
    "install_tvm.py": ("the one platform that the wheel is for", "x86_64"),
    "tvm_wheel.py": ("the one platform that the wheel is for", "x86_64"),
    "cli/install_tvm.py": ("what the command says of it", "x86-64"),
    "arithmetic/onnx.py": ("whose arithmetic: ONNX Runtime's there", "x86"),
    "ops/scales.py": ("what TVM's own code does there", "x86"),
    "frontends/model.py": ("an example of a target string", "avx2"),
    "frontends/relay/float_model.py": ("the CPU for LLVM's code of calibration", "core-avx2"),
    "runtime/library.py": ("machines by their number in ELF files", "x86-64"),
}


def named(text: str) -> list[str]:
    return sorted({found.group() for found in NAMED.finditer(text)})


def files() -> list[Path]:
    found = [*ROOT.rglob("*.py"), *ROOT.rglob("*.j2"), *ROOT.rglob("*.[ch]")]
    outside = [path.relative_to(ROOT) for path in found]
    return [path for path in outside if path.parts[:2] not in (("codegen", "isa"),)]


def test_no_file_outside_of_the_folders_of_instruction_sets_names_one() -> None:
    ours = [path for path in files() if path.parts[0] != "tvm_include" and str(path) not in MAY]
    assert len(ours) > 200
    found = {str(path): named((ROOT / path).read_text()) for path in ours}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize("path", MAY)
def test_an_exception_is_still_one(path: str) -> None:
    _, word = MAY[path]
    assert word in (ROOT / path).read_text()
    assert named(word)


def test_names_are_found() -> None:
    assert named("a loop for Avx512-vnni on x86_64, and with i8mm") == [
        "Avx",
        "i8mm",
        "vnni",
        "x86",
    ]
