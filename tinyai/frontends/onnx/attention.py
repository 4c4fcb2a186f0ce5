"""Attention of ONNX's opsets 23 to 25, spelled out by the operators that it stands for.

What onnx itself defines it by changed from version to version and computes its mask in floats of
which some are infinite; what is here has integers for all but the choice by a mask.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyai.frontends.onnx.nodes import Nodes
from tinyai.frontends.onnx.reader import Site, fixed_sizes
from tinyai.ir import Array
from tinyai.source import require

# What a softmax gives no share, as a number of the file: an infinite one has no grid.
_MASKED = float(np.finfo(np.float32).min)
_FLOAT = 1  # of onnx.TensorProto


def as_attention(site: Site, names: Iterable[str]) -> list[Any]:
    """The nodes of an Attention: products of matrices around a softmax.

    Raises ``Refusal`` for a result of scores, for the precision of another type, and for a mask
    that is shorter than the keys.
    """
    spelled = _Attention(site, Nodes.inside_of(site.name, names))
    spelled.add()
    site.require_all_read()
    return spelled.nodes.made


@dataclass(frozen=True)
class _Mask:
    """Of the places that a query sees: a ``choice`` of bools, and ``added`` numbers; "" where there
    is none. ``may_hide_all``: some query may see no place; its result is zeros."""

    choice: str = ""
    added: str = ""
    may_hide_all: bool = False


@dataclass(frozen=True)
class _Attention:
    site: Site
    nodes: Nodes

    def add(self) -> None:
        site, value = self.site, self.nodes.value
        outputs = [*site.node.output, "", "", ""]
        require(not outputs[3], "result 3", outputs[3], "none: other scores than ONNX Runtime's")
        precision = site.attr("softmax_precision", _FLOAT)
        require(precision == _FLOAT, "softmax_precision", precision, f"float32, {_FLOAT}")
        query, *shape = self._heads(0, "q_num_heads", "query")
        key, *_ = self._heads(1, "kv_num_heads", "key")
        values, _, groups, length, depth = self._heads(2, "kv_num_heads", "value")
        batch, heads, rows, size = shape
        require(heads % groups == 0, "q_num_heads", heads, f"a multiple of {groups}, kv_num_heads")
        past = fixed_sizes(site.expr(4))[2] if site.has(4) else 0
        key, values = self._behind(4, key, outputs[1]), self._behind(5, values, outputs[2])
        places = past + length
        # Queries of the heads that share keys are the rows of one product.
        together = [batch, groups, heads // groups * rows]
        apart = [batch, heads, rows]
        is_shared = heads != groups
        if is_shared:
            query = self.nodes.reshaped("query/together", query, [*together, size])
        scores = value(
            "MatMul", "scores", query, value("Transpose", "keys", key, perm=[0, 1, 3, 2])
        )
        if is_shared:
            scores = self.nodes.reshaped("scores/apart", scores, [*apart, places])
        scale = site.attr("scale", 1 / math.sqrt(size))
        scores = value("Mul", "scores/scaled", scores, self.nodes.constant("scale", scale))
        shares = self._softmax(self._capped(scores), self._mask(rows, places, past))
        if is_shared:
            shares = self.nodes.reshaped("shares/together", shares, [*together, places])
        result = value("MatMul", "result", shares, values)
        if is_shared:
            result = self.nodes.reshaped("result/apart", result, [*apart, depth])
        if len(fixed_sizes(site.expr(0))) == 4:
            self.nodes.add("Identity", outputs[0], result)
            return
        turned = value("Transpose", "result/turned", result, perm=[0, 2, 1, 3])
        flat = self.nodes.constant("result/shape", [batch, rows, heads * depth], np.int64)
        self.nodes.add("Reshape", outputs[0], turned, flat)

    def _heads(self, place: int, count: str, name: str) -> tuple[str, int, int, int, int]:
        """An operand as [batch, heads, rows, size], and these numbers."""
        given, shape = self.site.operand(place), fixed_sizes(self.site.expr(place))
        heads = int(self.site.attr(count, 0))
        if len(shape) == 4:
            batch, own, rows, size = shape
            require(heads in (0, own), count, heads, f"{own}, as the operand has")
            return given, batch, own, rows, size
        require(len(shape) == 3, f"dimensions of operand {place}", shape, "3 or 4")
        batch, rows, wide = shape
        require(heads > 0 and wide % heads == 0, count, heads, f"a part of {wide}")
        size = wide // heads
        apart = self.nodes.reshaped(f"{name}/apart", given, [batch, rows, heads, size])
        turned = self.nodes.value("Transpose", name, apart, perm=[0, 2, 1, 3])
        return turned, batch, heads, rows, size

    def _behind(self, place: int, value: str, result: str) -> str:
        """Keys or values behind those of the past, which are a result, too."""
        past = self.site.operand(place)
        if not past and not result:
            return value
        if not past:
            return self.nodes.add("Identity", result, value)
        name = result or f"{self.nodes.name}/present{place}"
        return self.nodes.add("Concat", name, past, value, axis=2)

    def _capped(self, scores: str) -> str:
        cap = float(self.site.attr("softcap", 0.0))
        if not cap:
            return scores
        whole = self.nodes.constant("cap", cap)
        share = self.nodes.value("Div", "scores/share", scores, whole)
        return self.nodes.value(
            "Mul", "scores/capped", self.nodes.value("Tanh", "scores/tanh", share), whole
        )

    def _mask(self, rows: int, places: int, past: int) -> _Mask:
        site, near = self.site, self._near(rows, places, past)
        if not site.has(3):
            return self._of_known(near, near, "")
        expr, known = site.expr(3), site.known(3)
        last = fixed_sizes(expr)[-1:]
        require(last in ((1,), (places,)), "last dimension of attn_mask", last, f"1 or {places}")
        if known is not None and known.dtype != bool:
            seen = ~np.isneginf(known)
            added = np.where(seen, known, 0).astype(np.float32)
            name = self.nodes.constant("added", added) if added.any() else ""
            return self._of_known(seen, near, name)
        if known is not None:
            return self._of_known(known, near, "")
        given = site.operand(3)
        if expr.type.dtype != "bool":
            return self._of_known(near, near, given)
        if near.all():
            return _Mask(given, may_hide_all=True)
        choice = self.nodes.constant("mask", near, bool)
        both = self.nodes.value("And", "mask/both", given, choice)
        return _Mask(both, may_hide_all=True)

    def _near(self, rows: int, places: int, past: int) -> Array:
        """Which places each query may see, whatever a mask says: those before it, and of opset 25
        those in a window around it."""
        site, own, place = self.site, np.arange(rows)[:, None] + past, np.arange(places)
        before, behind = (int(site.attr(f"{s}_window_size", -1)) for s in ("left", "right"))
        near = np.ones((rows, places), bool)
        if site.attr("is_causal", 0):
            near &= place <= own
        if before >= 0:
            near &= place >= own - before
        if behind >= 0:
            near &= place <= own + behind
        return near

    def _of_known(self, seen: Array, near: Array, added: str) -> _Mask:
        seen = seen & near
        choice = "" if seen.all() else self.nodes.constant("mask", seen, bool)
        return _Mask(choice, added, bool((~seen.any(axis=-1)).any()))

    def _softmax(self, scores: str, mask: _Mask) -> str:
        value = self.nodes.value
        if mask.added:
            scores = value("Add", "scores/added", scores, mask.added)
        if mask.choice:
            hidden = self.nodes.constant("hidden", _MASKED)
            scores = value("Where", "scores/seen", mask.choice, scores, hidden)
        shares = value("Softmax", "shares", scores, axis=-1)
        if not mask.may_hide_all:
            return shares
        none = self.nodes.constant("none", 0.0)
        return value("Where", "shares/seen", mask.choice, shares, none)
