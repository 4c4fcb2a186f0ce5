"""The target: options from values, strings, attributes and target strings, and what they refuse."""

from __future__ import annotations

import dataclasses
import json
import platform
from dataclasses import replace
from pathlib import Path

import pytest

from tinyai.errors import OptionError
from tinyai.target import Target, architecture_named, split_target, this_architecture, with_host

NAMES = [field.name for field in dataclasses.fields(Target)]


# --- Options -----------------------------------------------------------------------------------

# An option, a value and its string, and what both mean.
GOOD = [
    ("isa", "scalar", " Scalar ", "scalar"),
    ("isa", "packed", "Packed", "generic"),
    ("arch", "", " ", ""),
    ("arch", "aarch64", "AArch64", "aarch64"),
    ("arch", "arm64", "ARM64", "aarch64"),
    ("arch", "amd64", "x86-64", "x86_64"),
    ("rounding", "upward", "UPWARD", "upward"),
    ("abi", "unpacked", "Unpacked", "unpacked"),
    ("threads", 3, "3", 3),
    ("threads", 16, "0x10", 16),
    ("arena_limit", 0, "0", 0),
    ("weight_limit", 1 << 20, "1048576", 1 << 20),
    ("tuning", Path("a b.json"), " a b.json ", "a b.json"),
]
# An option, a value that it does not take, and a word of what is allowed.
BAD = [
    ("isa", "avx1024", "scalar"),
    ("isa", "", "scalar"),
    ("isa", None, "scalar"),
    ("arch", "vax", "aarch64, portable, x86_64"),
    ("arch", None, "aarch64"),
    ("rounding", "downward", "upward"),
    ("abi", "c++", "packed, unpacked"),
    ("threads", 0, "a whole number >= 1, at most 512 (threads)"),
    ("threads", 1000, "at most 512"),
    ("threads", -1, "a whole number >= 1"),
    ("threads", "two", "a whole number >= 1"),
    ("threads", "", "a whole number >= 1"),
    ("threads", 1.5, "a whole number >= 1"),
    ("threads", 2.0, "a whole number >= 1"),
    ("threads", True, "a whole number >= 1"),
    ("threads", None, "a whole number >= 1"),
    ("arena_limit", -1, "a whole number >= 0 (bytes, 0 for no limit)"),
    ("arena_limit", "64k", "a whole number >= 0"),
    ("arena_limit", False, "a whole number >= 0"),
    ("weight_limit", "1e6", "a whole number >= 0"),
    ("tuning", 1, "a file, or nothing"),
    ("tuning", None, "a file, or nothing"),
]


def test_the_cases_below_cover_every_option() -> None:
    assert {name for name, *_ in GOOD} == {name for name, *_ in BAD} == set(NAMES)


@pytest.mark.parametrize(("name", "value", "text", "meaning"), GOOD)
def test_an_option_comes_as_a_value_or_as_its_string(
    name: str, value: object, text: str, meaning: object
) -> None:
    for given in (value, text):
        target = Target.from_options({name: given})
        assert getattr(target, name) == meaning
        assert type(getattr(target, name)) is type(meaning)
    assert Target.from_options({name: value}) == Target.from_options({name: text})


@pytest.mark.parametrize(("name", "value", "allowed"), BAD)
def test_a_bad_value_is_refused_with_its_option_what_was_found_and_what_is_allowed(
    name: str, value: object, allowed: str
) -> None:
    with pytest.raises(OptionError) as raised:
        Target.from_options({name: value})
    assert f"option {name!r}" in str(raised.value)
    assert raised.value.found in (str(value), repr(value)) or value is None
    assert allowed in str(raised.value.allowed)
    assert f"allowed: {raised.value.allowed}" in str(raised.value)


def test_an_old_name_of_an_instruction_set_is_understood_wherever_options_come_from() -> None:
    options, _ = split_target("tinyai -isa=packed -threads=2, llvm")
    region = {Target.attribute("isa"): "packed", Target.attribute("threads"): "2"}
    assert Target.from_options(with_host(options, "llvm")) == Target.from_attributes(region)
    assert Target.from_attributes(region) == Target(isa="generic", threads=2)


def test_an_unknown_option_is_refused_with_a_list_of_the_known() -> None:
    with pytest.raises(OptionError) as raised:
        Target.from_options({"treads": 2, "isa": "scalar", "colour": "red"})
    assert raised.value.found == "colour, treads"
    assert raised.value.allowed is not None
    assert raised.value.allowed.split(", ") == NAMES
    assert "-name=value" in str(raised.value.hint)


def test_a_dash_in_a_name_is_an_underscore() -> None:
    assert Target.from_options({"arena-limit": "64"}) == Target(arena_limit=64)


def test_an_option_error_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="threads"):
        Target(threads=0)


def test_a_target_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Target().threads = 2  # type: ignore[misc]


def test_equal_targets_are_equal_and_hash_alike() -> None:
    assert Target() == Target(isa="AUTO") != Target(threads=2)
    assert hash(Target()) == hash(Target(isa="AUTO"))


# --- Whose instructions -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "architecture"),
    [
        ({"isa": "avx2"}, "x86_64"),
        ({"isa": "avx2", "arch": "amd64"}, "x86_64"),
        ({"isa": "scalar", "arch": "aarch64"}, "aarch64"),
        ({"arch": "portable"}, "portable"),
        ({}, architecture_named(platform.machine())),
        ({"isa": "generic"}, architecture_named(platform.machine())),
    ],
)
def test_the_architecture_is_what_arch_says_else_what_isa_means_else_this_machines(
    options: dict[str, object], architecture: str
) -> None:
    assert Target.from_options(options).architecture == architecture


@pytest.mark.parametrize(
    ("machine", "name"),
    [("x86_64", "x86_64"), ("AMD64", "x86_64"), ("arm64", "aarch64"), ("riscv64", "portable")],
)
def test_a_machine_without_instructions_of_ours_gets_portable_c(machine: str, name: str) -> None:
    assert architecture_named(machine) == name


def test_an_instruction_set_of_another_architecture_is_refused() -> None:
    with pytest.raises(OptionError) as raised:
        Target(isa="avx2", arch="aarch64")
    assert raised.value.found == "avx2"
    assert "arch=aarch64" in str(raised.value)
    assert "avx2" not in str(raised.value.allowed)
    assert "scalar" in str(raised.value.allowed)


# --- Attributes of a region --------------------------------------------------------------------

FULL = Target(
    arch="aarch64",
    threads=4,
    arena_limit=1000,
    weight_limit=2000,
    abi="unpacked",
    tuning="my own/tuning.json",
)


def test_all_options_are_one_attribute_of_names_and_texts() -> None:
    ((name, text),) = FULL.attributes().items()
    assert name == "tinyai.compile_specs"
    specs = json.loads(text)
    assert list(specs) == sorted(NAMES)
    assert all(isinstance(value, str) for value in specs.values())
    assert specs["threads"] == "4"


def test_an_attribute_of_one_option_is_read_and_overrules_the_compile_specs() -> None:
    """As regions carried all options once."""
    single = {"tinyai.threads": "3", "tinyai.isa": "scalar"}
    assert Target.from_attributes(single) == Target(threads=3, isa="scalar")
    assert Target.from_attributes(FULL.attributes() | single) == replace(
        FULL, threads=3, isa="scalar", arch=FULL.arch
    )


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"isa": 1}', "7", "[" * 100_000])
def test_compile_specs_that_nobody_can_read_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"attribute tinyai\.compile_specs of a region"):
        Target.from_attributes({"tinyai.compile_specs": text})


@pytest.mark.parametrize("target", [Target(), FULL])
def test_a_target_comes_back_from_its_attributes(target: Target) -> None:
    others = {"Compiler": "tinyai", "global_symbol": "f", "Primitive": "1"}
    assert Target.from_attributes({**others, **target.attributes()}) == target
    assert Target.from_attributes(others) == Target()


def test_an_attribute_that_is_no_option_is_refused() -> None:
    with pytest.raises(OptionError, match="speed"):
        Target.from_attributes({"tinyai.speed": "fast"})


# --- Target strings ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "options", "host"),
    [
        ("tinyai", {}, "llvm"),
        ("tinyai, llvm", {}, "llvm"),
        ("tinyai,llvm", {}, "llvm"),
        ("llvm -mcpu=znver4, tinyai", {}, "llvm -mcpu=znver4"),
        (
            "tinyai -isa=scalar -threads=2, llvm -mcpu=x",
            {"isa": "scalar", "threads": "2"},
            "llvm -mcpu=x",
        ),
        ("  tinyai   --threads=2 ,  c ", {"threads": "2"}, "c"),
        ("tinyai -isa='scalar', llvm", {"isa": "scalar"}, "llvm"),
        ("tinyai -isa=, llvm", {"isa": ""}, "llvm"),
        ("tinyai,", {}, "llvm"),
    ],
)
def test_a_target_string_is_split_into_options_and_host(
    text: str, options: dict[str, str], host: str
) -> None:
    assert split_target(text) == (options, host)


def test_a_dash_in_an_option_of_a_target_string_is_an_underscore() -> None:
    options, _ = split_target("tinyai -arena-limit=4096")
    assert Target.from_options(options) == Target(arena_limit=4096)


def test_what_a_target_prints_is_a_target_string_of_it() -> None:
    options, host = split_target(str(FULL))
    assert Target.from_options(options) == FULL
    assert host == "llvm"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "llvm",
        "tinyai, tinyai",
        "tinyai -threads=2, llvm, tinyai",
        "tinyaix, llvm",
        "llvm tinyai",
    ],
)
def test_a_target_string_names_tinyai_exactly_once(text: str) -> None:
    with pytest.raises(OptionError, match="target string") as raised:
        split_target(text)
    assert raised.value.found == repr(text)
    assert raised.value.allowed == "exactly one part that begins with tinyai"
    assert raised.value.hint


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("tinyai isa=scalar, llvm", "isa=scalar"),
        ("tinyai -isa scalar, llvm", "-isa"),
        ("tinyai -threads=2 fast, llvm", "fast"),
        ("tinyai --, llvm", "--"),
    ],
)
def test_a_word_that_is_no_option_is_refused(text: str, word: str) -> None:
    with pytest.raises(OptionError, match="word in the tinyai target") as raised:
        split_target(text)
    assert raised.value.found == repr(word)
    assert raised.value.allowed == "-name=value"


def test_a_quote_that_is_not_closed_is_refused() -> None:
    with pytest.raises(OptionError):
        split_target('tinyai -isa="scalar, llvm')


def test_commas_inside_of_the_hosts_options_stay() -> None:
    _, host = split_target("tinyai -threads=2, llvm -mattr=+avx2,+fma")
    assert host == "llvm -mattr=+avx2,+fma"


@pytest.mark.parametrize(("isa", "arch"), [("neon", ""), ("auto", "aarch64"), ("avx2", "")])
def test_code_of_another_architecture_is_none_that_runs_here(isa: str, arch: str) -> None:
    target = Target(isa=isa, arch=arch)
    if target.architecture == this_architecture():
        assert target.here() is target
    else:
        with pytest.raises(OptionError, match="target of code that runs here"):
            target.here()


@pytest.mark.parametrize("isa", ["auto", "native", "generic", "scalar"])
def test_portable_code_runs_here(isa: str) -> None:
    assert Target(isa=isa).here() == Target(isa=isa)
