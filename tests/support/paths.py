"""Where things are that several test files read."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Models that stand beside the project and are never copied into it.
MODELS = ROOT.parent / "shared" / "models"
# C programs that call compiled regions.
DRIVERS = ROOT / "tests" / "support" / "drivers"
DIGITS = ROOT / "benchmarks" / "digits" / "digits.onnx"
