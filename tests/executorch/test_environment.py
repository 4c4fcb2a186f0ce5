"""What is said of torch before it is downloaded."""

from tests.executorch import torch_build

SAID = "torch (2.15.0)\nAvailable versions: 2.15.0, {}, 2.12.1\n  LATEST: 2.15.0\n"


def test_a_build_for_cpus_is_not_worth_a_word() -> None:
    build = torch_build.offered("2.13.0", SAID.format("2.13.0+cpu, 2.13.0"))
    assert build == "2.13.0+cpu"
    assert torch_build.warning("2.13.0", build, "x86_64") == ""


def test_builds_for_gpus_are_told_with_what_to_expect_and_what_to_try() -> None:
    for offered in ("2.13.0", "2.13.0+cu130, 2.13.0+cpu, 2.13.0"):
        build = torch_build.offered("2.13.0", SAID.format(offered))
        message = torch_build.warning("2.13.0", build, "x86_64")
        assert f"found:   {build}" in message
        assert "expect:  several GB" in message
        assert "PIP_EXTRA_INDEX_URL=URL make executorch" in message


def test_the_plain_build_of_another_architecture_is_one_for_cpus() -> None:
    assert torch_build.warning("2.13.0", "2.13.0", "aarch64") == ""


def test_an_index_that_does_not_answer_is_left_to_the_installation() -> None:
    assert torch_build.warning("2.13.0", torch_build.offered("2.13.0", ""), "x86_64") == ""


def test_the_version_asked_for_is_the_pinned_one() -> None:
    version = torch_build.pinned(torch_build.REQUIREMENTS.read_text())
    assert version.count(".") == 2
