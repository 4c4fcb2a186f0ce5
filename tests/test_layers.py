"""Time layer by layer: the library's function and the command."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from tests.example_graphs import small_network
from tinyai.cli import main
from tinyai.errors import OptionError
from tinyai.runtime.layers import LayerTime, time_layers, times_table
from tinyai.target import Target


@pytest.mark.parametrize("isa", ["auto", "scalar"])
def test_every_layer_has_its_time_name_and_cost(isa: str) -> None:
    times = time_layers(small_network(), Target(isa=isa), runs=5)
    names = [("image",), ("conv", "residual"), ("pool", "result")]
    assert [each.sources for each in times] == names
    assert all(each.microseconds >= 0 for each in times)
    assert [each.macs for each in times] == [0, 4 * 4 * 2 * 3 * 3 * 2, 0]
    assert times[2].bytes == 4 * 4 * 2 + 4 * 2 * 2 * 2 + 4
    assert times[1].operator.startswith("conv2d(")


def test_no_run_is_no_time() -> None:
    with pytest.raises(OptionError, match="runs"):
        time_layers(small_network(), runs=0)


def test_the_table_tells_the_share_of_the_peak_where_it_is_known() -> None:
    times = (
        LayerTime(("a",), "conv2d", "int8[1]", 2.0, 100_000, 10),
        LayerTime(("b",), "elementwise", "int8[1]", 2.0, 0, 10),
    )

    def shares(peak: float | None) -> list[str]:
        (column,) = (c for c in times_table("r", times, peak=peak).columns if c.header == "of peak")
        return [*map(str, column.cells), str(column.footer)]

    assert shares(200.0) == ["25 %", "–", "12 %"]
    assert shares(None) == ["–"] * 3


def test_the_command_prints_a_row_a_layer_or_json(tflite_kws: str) -> None:
    pytest.importorskip("tvm.relay")
    command = ["bench", tflite_kws, "--runs", "3"]
    table = CliRunner().invoke(main, [*command, "--layers"], env={"COLUMNS": "200"})
    assert table.exit_code == 0, table.output
    assert "13 layers" in table.output
    assert "functional_1/average_pooling2d/AvgPool" in table.output
    printed = CliRunner().invoke(main, [*command, "--json"])
    (layers,) = json.loads(printed.output).values()
    assert [layer["operator"].split("(")[0] for layer in layers][-2:] == ["dense", "softmax"]


def test_a_missing_file_is_an_error_with_exit_code_2() -> None:
    pytest.importorskip("tvm.relay")
    result = CliRunner().invoke(main, ["bench", "nothing.tflite"])
    assert result.exit_code == 2
    assert "nothing.tflite" in result.output


@pytest.fixture
def tflite_kws() -> str:
    pytest.importorskip("tvm.relay")
    from tests.prequantized import tflite_path

    return str(tflite_path("kws_ref_model"))
