"""Named data: one content a key, each content once, and files that are read whole or refused."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinyai.backend import NamedData, NamedDataStore
from tinyai.backend.container import LARGEST_ALIGNMENT, Buffer, Kind
from tinyai.errors import FormatError, OptionError


def stored(*entries: tuple[str, bytes, int]) -> NamedData:
    store = NamedDataStore()
    for key, data, alignment in entries:
        store.add(key, data, alignment)
    return store.output()


def test_the_same_key_with_the_same_data_is_fine_and_with_other_data_an_error() -> None:
    store = NamedDataStore()
    store.add("a", b"one")
    store.add("a", b"one")
    with pytest.raises(OptionError, match=r"named data 'a'\n  found:   5 bytes that are not"):
        store.add("a", b"other")
    assert dict(store.output().keys) == {"a": 0}
    assert store.output()["a"] == b"one"


def test_equal_bytes_under_different_keys_are_stored_once() -> None:
    data = stored(("a", b"same", 1), ("b", b"same", 1), ("c", b"else", 1), ("d", b"", 1))
    assert [each.data for each in data.buffers] == [b"same", b"else", b""]
    assert dict(data.keys) == {"a": 0, "b": 0, "c": 1, "d": 2}
    assert (list(data), len(data), data.size, "a" in data, "e" in data) == (
        ["a", "b", "c", "d"],
        4,
        8,
        True,
        False,
    )


def test_where_alignments_differ_the_least_common_multiple_serves_all() -> None:
    data = stored(("a", b"x", 4), ("b", b"x", 6), ("a", b"x", 10))
    assert (data.alignment("a"), data.alignment("b")) == (60, 60)


@pytest.mark.parametrize("alignment", [0, -1, 1.5, True, LARGEST_ALIGNMENT + 1])
def test_an_alignment_that_is_none_is_an_error(alignment: int) -> None:
    store = NamedDataStore()
    with pytest.raises(OptionError, match="alignment of named data 'a'"):
        store.add("a", b"x", alignment)
    assert len(store.output()) == 0


def test_alignments_without_a_multiple_that_memory_has_are_an_error_and_change_nothing() -> None:
    store = NamedDataStore()
    store.add("a", b"x", 2**20)
    with pytest.raises(OptionError, match="387420489, with 1048576 of the same data"):
        store.add("b", b"x", 3**18)
    assert store.output() == stored(("a", b"x", 2**20))


@pytest.mark.parametrize(("key", "data"), [(1, b""), ("a", "text"), (None, None)])
def test_what_is_no_key_or_no_bytes_is_an_error(key: str, data: bytes) -> None:
    with pytest.raises(OptionError, match="allowed: a str as key, and bytes"):
        NamedDataStore().add(key, data)


def test_stores_merge() -> None:
    one = NamedDataStore()
    one.add("a", b"x", 4)
    one.merge(stored(("b", b"x", 6), ("c", b"y", 2)))
    assert one.output() == stored(("a", b"x", 12), ("b", b"x", 1), ("c", b"y", 2))
    with pytest.raises(OptionError, match="named data 'a'"):
        one.merge(stored(("a", b"other", 1)))


def test_what_was_handed_out_does_not_change_any_more() -> None:
    store = NamedDataStore()
    store.add("a", b"x", 4)
    before = store.output()
    store.add("b", b"x", 6)
    assert before == stored(("a", b"x", 4))
    with pytest.raises(TypeError):
        before.keys["c"] = 0  # type: ignore[index]


@settings(deadline=None, max_examples=60)
@given(
    st.dictionaries(
        st.text(), st.tuples(st.binary(max_size=40), st.sampled_from([1, 3, 64, 4096])), max_size=9
    )
)
def test_what_is_written_is_read_again(entries: dict[str, tuple[bytes, int]]) -> None:
    data = stored(*((key, *rest) for key, rest in entries.items()))
    content = data.to_bytes()
    assert content == data.to_bytes()
    again = NamedData.from_bytes(content)
    assert again == data
    for buffer in data.buffers:
        assert not buffer.data or any(
            content[at : at + len(buffer.data)] == buffer.data
            for at in range(0, len(content), buffer.alignment)
        )


DATA = stored(("weights", bytes(range(200)), 64), ("same", bytes(range(200)), 1), ("b", b"12", 2))


def test_a_file_that_was_cut_off_is_refused_wherever_that_was() -> None:
    content = DATA.to_bytes()
    for size in range(len(content)):
        with pytest.raises(FormatError):
            NamedData.from_bytes(content[:size])
    with pytest.raises(FormatError, match="it was cut off or added to"):
        NamedData.from_bytes(content + b"\0")


def test_a_file_is_refused_whichever_byte_was_altered() -> None:
    content, chosen = DATA.to_bytes(), random.Random(1)
    for place in range(len(content)):
        altered = bytearray(content)
        altered[place] ^= 1 << chosen.randrange(8)
        with pytest.raises(FormatError):
            NamedData.from_bytes(bytes(altered))


def test_a_file_of_a_newer_version_says_so() -> None:
    newer = Kind(b"TINYDATA", 7, "named data").written({"keys": {}}, [])
    with pytest.raises(FormatError, match=r"named data x\.bin\n  found:   version 7") as caught:
        NamedData.from_bytes(newer, "x.bin")
    assert caught.value.hint == "load it with the tinyai that wrote it, or a newer one"


@pytest.mark.parametrize(
    "keys",
    [None, [], {"a": 1}, {"a": -1}, {"a": True}, {"a": 0.0}, {"a": [0]}],
)
def test_keys_that_lead_nowhere_are_refused_though_the_checksum_is_right(keys: object) -> None:
    content = Kind(b"TINYDATA", 1, "named data").written({"keys": keys}, [Buffer(b"x")])
    with pytest.raises(FormatError, match="keys of named data"):
        NamedData.from_bytes(content)


@pytest.mark.parametrize(
    "place",
    [[0, 1, 1], [60, 10**9, 1], [-1, 1, 1], [100, 1, 0], [101, 1, 2], [100, 1], ["a", 1, 1]],
)
def test_a_buffer_that_lies_nowhere_is_refused_though_the_checksum_is_right(
    place: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = Kind(b"TINYDATA", 1, "named data")
    placed = Kind._placed
    text = repr({"head": {"keys": {}}, "buffers": [place]}).encode()

    def wrong(self: Kind, *rest: object) -> object:
        places, said = placed(self, *rest)  # type: ignore[arg-type]
        return places, text.replace(b"'", b'"').ljust(len(said))

    monkeypatch.setattr(Kind, "_placed", wrong)
    content = kind.written({"keys": {}, "room": "x" * 99}, [Buffer(b"x")])
    with pytest.raises(FormatError, match="a head without sense"):
        NamedData.from_bytes(content)
