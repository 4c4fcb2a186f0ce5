"""Weights in groups whose sums fit into 16 bits (AVX2): what is packed is read again, every bound
is checked, and code of planted weights equals the reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tests.support.c_checks import QUICK_COMPILERS, SANITIZERS, assert_warning_free, run_sanitized
from tests.support.example_graphs import random_inputs
from tests.support.machines import require_isa, runner
from tinyai.backend import compile_graph
from tinyai.codegen.isa.x86_64.avx2 import tile
from tinyai.codegen.isa.x86_64.avx2.groups import COPY, ORDERS, PIECE, grouped
from tinyai.ir import Array, Builder, DType, Graph, Type
from tinyai.ops import Conv2d, Dense
from tinyai.ops.window import Window
from tinyai.reference import run_graph
from tinyai.target import Target

ENDS = np.array([-128, -127, 127], np.int8)


def normal(deviation: float) -> Callable[[np.random.Generator, tuple[int, ...]], Array]:
    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return np.clip(np.rint(rng.normal(0, deviation, shape)), -128, 127).astype(np.int8)

    return draw


def largest_pairs(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Neighbours of 127, or of -128, among zeros: each pair that saturates, in every place."""
    flat = np.zeros(int(np.prod(shape)), np.int8)
    for first in range(0, flat.size - 4, 4):
        places = rng.choice(4, rng.integers(0, 5), replace=False)
        flat[first + places] = rng.choice(ENDS)
    return flat.reshape(shape)


WEIGHTS: dict[str, Callable[[np.random.Generator, tuple[int, ...]], Array]] = {
    "tiny": normal(3),
    "small": normal(18),
    "middle": normal(40),
    "large": normal(70),
    "any": lambda rng, shape: rng.integers(-128, 128, shape, np.int8),
    "at the ends": lambda rng, shape: rng.choice(ENDS, shape),
    "all -128": lambda rng, shape: np.full(shape, -128, np.int8),
    "all 127": lambda rng, shape: np.full(shape, 127, np.int8),
    "none": lambda rng, shape: np.zeros(shape, np.int8),
    "largest pairs": largest_pairs,
    "few": lambda rng, shape: np.where(rng.random(shape) < 0.05, rng.choice(ENDS, shape), 0).astype(
        np.int8
    ),
}


class Reader:
    """Reads a block's bytes of one piece as C does."""

    def __init__(self, block: bytes) -> None:
        self.block, self.at = block, 0

    def take(self, dtype: str, count: int) -> Array:
        found = np.frombuffer(self.block, dtype, count, self.at).astype(np.int64)
        self.at += found.size * np.dtype(dtype).itemsize
        return found

    def half(self, weights: Array) -> None:
        """Adds the weights of 8 channels to [channels, bytes of the piece], and checks groups."""
        begin = self.at
        counts = self.take("<u2", 5)
        sizes = np.repeat([4, 3, 2, 1, 1], counts)
        wide = np.repeat([False, True], [counts[:4].sum(), counts[4]])
        places = self.take("<u2", int(sizes.sum()))
        self.at = begin + -(-(self.at - begin) // 32) * 32
        word = 0
        for size, widened in zip(sizes, wide, strict=True):
            lanes = np.zeros((8, 2, 2), np.int64)  # channel, lane of 16 bits, sign
            for place in places[word : word + size]:
                copy, byte = divmod(int(place), COPY)
                assert byte % 4 == 0
                assert 0 <= byte < weights.shape[1]
                if widened:
                    assert copy == len(ORDERS)
                    even, odd = self.take("<i2", 16), self.take("<i2", 16)
                    weights[:, [byte, byte + 2]] += even.reshape(8, 2)
                    weights[:, [byte + 1, byte + 3]] += odd.reshape(8, 2)
                else:
                    own = self.take("i1", 32).reshape(8, 4)
                    weights[:, byte + ORDERS[copy]] += own
                    lanes[..., 0] += np.maximum(own, 0).reshape(8, 2, 2).sum(axis=-1)
                    lanes[..., 1] += np.maximum(-own, 0).reshape(8, 2, 2).sum(axis=-1)
            # Of unsigned bytes: no sum of some of the products leaves 16 bits.
            assert (255 * lanes <= (2**15 - 1, 2**15)).all()
            word += size


@pytest.mark.parametrize("bytes", [4, 16, 60, 4 * PIECE - 4, 4 * PIECE, 4 * PIECE + 4, 1300])
@pytest.mark.parametrize("kind", WEIGHTS)
def test_groups_hold_every_weight_once_and_no_sum_leaves_16_bits(kind: str, bytes: int) -> None:
    taps = WEIGHTS[kind](np.random.default_rng(bytes), (48, bytes))
    found = grouped(taps)
    read = np.zeros(taps.shape, np.int64)
    for block, pieces in enumerate(found.streams):
        for piece, stream in enumerate(pieces):
            reader = Reader(stream)
            for half in range(2):
                first = 16 * block + 8 * half
                reader.half(read[first : first + 8, 4 * PIECE * piece : 4 * PIECE * (piece + 1)])
            assert reader.at == len(stream)
    np.testing.assert_array_equal(read, taps)


def test_a_word_is_widened_where_its_bytes_fit_in_no_order() -> None:
    """Two large weights of one sign are not neighbours in another order; three always are."""
    words = {(127, 127, 0, 0): 0, (0, -127, 0, -127): 0, (127, -128, 127, 0): 1, (-128, 0, 0, 0): 1}
    words |= {
        (127, 127, -127, -127): 0,
        (127, 127, 127, 0): 1,
        (64, 63, 64, 63): 0,
        (65, 63, 65, 63): 1,
    }
    for word, wide in words.items():
        assert grouped(np.tile(np.array(word, np.int8), (16, 1))).sizes[0] == 2 * wide, word


def test_small_weights_make_groups_of_four_and_equal_weights_equal_groups() -> None:
    taps = np.full((16, 64), 7, np.int8)
    assert grouped(taps).sizes == (0, 0, 0, 0, 8)
    assert grouped(taps * 4).sizes == (0, 0, 16, 0, 0)
    assert grouped(taps * 4).streams == grouped(taps * 4).streams


@pytest.fixture
def every_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups also where most words are widened."""
    monkeypatch.setattr(tile, "TOO_MANY", 1)


def planted(kinds: Sequence[str] = tuple(WEIGHTS)) -> Graph:
    """Convolutions and dense layers of every kind of weights, in one piece of a window and in
    several, with whole blocks of channels and without, of signed and unsigned images."""
    builder, rng = Builder("planted"), np.random.default_rng(2)
    results = []
    for number, draw in enumerate(WEIGHTS[kind] for kind in kinds):
        dtype = (DType.INT8, DType.UINT8)[number % 2]
        width = 1 + (7 * number) % 17
        for channels, kernel, out in ((24, 3, 20), (12, 1, 9), (600, 1, 32), (65, 2, 40)):
            x = builder.input(Type((1, kernel, width + kernel - 1, channels), dtype))
            weight = builder.constant(draw(rng, (out, kernel, kernel, channels)))
            op = Conv2d(Window((kernel, kernel)), zero_point=dtype.range[number % 3 % 2])
            results.append(builder.add(op, [x, weight]))
        x = builder.input(Type((3, 40), dtype))
        results.append(builder.add(Dense(), [x, builder.constant(draw(rng, (24, 40)))]))
        x = builder.input(Type((1, 4, 9, 64), dtype))
        weight = builder.constant(draw(rng, (40, 3, 3, 32)))
        results.append(builder.add(Conv2d(Window((3, 3), padding=(1, 1, 1, 1)), 2), [x, weight]))
    return builder.graph(results)


def hard_inputs(graph: Graph) -> list[list[Array]]:
    """The least values, the greatest, and random ones."""
    types = graph.types(graph.inputs)
    ends = [
        [np.full(of.shape, of.dtype.range[end], of.dtype.numpy) for of in types] for end in (0, 1)
    ]
    return [*ends, random_inputs(graph, 0)]


@pytest.mark.usefixtures("every_layer")
@pytest.mark.parametrize("threads", [1, 3])
def test_code_of_planted_weights_equals_the_reference(threads: int) -> None:
    require_isa("avx2")
    graph = planted()
    run = runner(graph, Target(isa="avx2", threads=threads))
    for inputs in hard_inputs(graph):
        for node, *pair in zip(graph.nodes, run(*inputs), run_graph(graph, inputs), strict=True):
            np.testing.assert_array_equal(*pair, err_msg=str(graph.types(node.inputs)))


@pytest.mark.long
@pytest.mark.usefixtures("every_layer")
@pytest.mark.parametrize("sanitizer", SANITIZERS, indirect=True)
def test_code_of_planted_weights_is_clean_under_the_sanitizers(sanitizer: str) -> None:
    """Intrinsics stand for instructions there."""
    require_isa("avx2")
    graph = planted(("small", "middle", "at the ends"))
    compiled = compile_graph(graph, Target(isa="avx2"), abi="plain")
    for inputs in hard_inputs(compiled.graph):
        found = run_sanitized(compiled, inputs, sanitizer, optimize="-O0")
        for pair in zip(found, run_graph(compiled.graph, inputs), strict=True):
            np.testing.assert_array_equal(*pair)


@pytest.mark.usefixtures("every_layer")
@pytest.mark.parametrize("compiler", QUICK_COMPILERS, indirect=True)
def test_code_of_planted_weights_compiles_without_a_warning(compiler: str) -> None:
    graph = planted(("small", "middle", "at the ends"))
    assert_warning_free(compile_graph(graph, Target(isa="avx2"), abi="plain").source.text, compiler)


@pytest.mark.usefixtures("every_layer")
def test_a_file_for_avx2_alone_has_groups_and_tells_of_them_and_others_have_none() -> None:
    graph = planted()
    alone = compile_graph(graph, Target(isa="avx2"), abi="plain").source.text
    told = [line for line in alone.splitlines() if "words of weights in groups: " in line]
    assert len(told) == len(graph.nodes)
    for isa in ("auto", "avxvnni", "avx512vnni"):
        other = compile_graph(graph, Target(isa=isa), abi="plain").source.text
        assert "in groups" not in other


def test_layers_of_which_most_words_would_be_widened_have_none() -> None:
    graph = planted(("small", "at the ends"))
    found = compile_graph(graph, Target(isa="avx2"), abi="plain")
    assert found.source.text.count("words of weights in groups: ") == len(graph.nodes) / 2
    for inputs in hard_inputs(graph):
        results = runner(graph, Target(isa="avx2"))(*inputs)
        for pair in zip(results, run_graph(graph, inputs), strict=True):
            np.testing.assert_array_equal(*pair)
