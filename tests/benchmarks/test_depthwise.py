"""The benchmark of depthwise layers times what it says."""

from __future__ import annotations

import pytest

from benchmarks.depthwise import FORMS, WANTED, depthwise, main, rates
from tinyai.ops import Conv2d


@pytest.mark.parametrize("alone", [False, True])
def test_every_form_is_a_depthwise_layer_of_as_many_channels(alone: bool) -> None:
    graph = depthwise(24, alone=alone)
    ops = [node.op for node in graph.nodes if alone or node.inputs[0] not in graph.inputs]
    assert all(isinstance(op, Conv2d) and op.groups == 24 for op in ops)
    windows = [op.window for op in ops if isinstance(op, Conv2d)]
    assert [(each.kernel[0], each.strides[1]) for each in windows] == list(FORMS)


def test_every_form_has_a_rate() -> None:
    found = rates(32, "scalar", 1)
    assert len(found) == len(FORMS)
    assert min(found) > 0


@pytest.mark.parametrize("least", [0.5, 0.7])
def test_the_exit_code_says_whether_all_forms_reach_their_share(
    least: float, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.depthwise.rates", lambda *_: [10.0, 10 * least, 12.0, 9.0])
    with pytest.raises(SystemExit) as ended:
        main(["--channels", "32,64", "--isa", "scalar"], standalone_mode=False)
    assert ended.value.code == (least < WANTED)
    assert f"The least share is {least:.2f}" in capsys.readouterr().out
