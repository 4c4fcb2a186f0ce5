"""``TinyAIQuantizer``: which values of an exported graph torch's own flow quantizes.

The rows that write integers (``tinyai/qdq/rules.py``) decide, as they do for ``tinyai.quantize``:
``operators/`` reads the graph into the vocabulary, ``tinyai/quantizer/points.py`` says which values
get a pair and which of them share a grid, and here each becomes an annotation of torchao's.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any, TypeAlias

import torch
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e import (
    FusedMovingAvgObsFakeQuantize,
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    PerChannelMinMaxObserver,
)
from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e, prepare_qat_pt2e
from torchao.quantization.pt2e.quantizer import (
    FixedQParamsQuantizationSpec,
    QuantizationAnnotation,
    QuantizationConfig,
    QuantizationSpec,
    Quantizer,
    SharedQuantizationSpec,
)
from torchao.quantization.pt2e.quantizer.quantizer import Q_ANNOTATION_KEY

from tinyai.errors import OptionError, UsageWarning
from tinyai.frontends.executorch.exported import PICKING, Exported
from tinyai.qdq import FloatOperator
from tinyai.qdq.operands import Grid, is_call
from tinyai.quantizer.config import QuantConfig
from tinyai.quantizer.points import Points
from tinyai.quantizer.roles import Role
from tinyai.quantizer.softmax_inputs import has_mask, least_telling
from tinyai.source import Call, Expr, Refusal

Edge: TypeAlias = "tuple[Node, Node]"
# Of weights too: the smallest scale. Sums of a dead channel keep a multiplier that way.
SMALLEST_SCALE = 2**-12
# The grid of a mask: far enough below all other values, which their sum's grid cuts off.
MASK = Grid("int8", 0.25, 127)
OBSERVERS = {"histogram": HistogramObserver, "minmax": MinMaxObserver}


def quantization_config(
    *,
    per_channel: bool = True,
    symmetric: bool = False,
    observer: str = "histogram",
    is_qat: bool = False,
    reduce_range: bool = False,
) -> QuantizationConfig:
    """How activations and weights become int8.

    Weights are symmetric: a scale for each output channel (``per_channel``) or one a tensor; with
    ``reduce_range`` they have 7 bits (-63 to 63), of which two products fit into 16 bits: some CPUs
    multiply more of them at once.
    Activations have one scale a tensor and a zero point, which is 0 if they are ``symmetric``.
    ``observer`` chooses their ranges from what it saw: ``histogram`` with the least squared error,
    or ``minmax`` all. With ``is_qat`` the quantization is simulated in training.
    """
    switches = {
        "per_channel": per_channel,
        "symmetric": symmetric,
        "is_qat": is_qat,
        "reduce_range": reduce_range,
    }
    for name, value in switches.items():
        if not isinstance(value, bool):
            raise OptionError(name, found=repr(value), allowed="True or False")
    if observer not in OBSERVERS:
        raise OptionError("observer", found=repr(observer), allowed=" or ".join(OBSERVERS))
    scheme = torch.per_tensor_symmetric if symmetric else torch.per_tensor_affine
    kind = FusedMovingAvgObsFakeQuantize if is_qat else OBSERVERS[observer]
    activation = _int8(-128, 127, kind.with_args(eps=SMALLEST_SCALE), scheme)
    scheme = torch.per_channel_symmetric if per_channel else torch.per_tensor_symmetric
    largest = QuantConfig(reduce_range=reduce_range).largest_weight
    weight = _int8(-largest, largest, _weight_observer(per_channel, is_qat), scheme, axis=0)
    return QuantizationConfig(activation, activation, weight, None, is_qat)


def _int8(
    least: int, largest: int, observer: Any, scheme: Any, axis: int | None = None
) -> QuantizationSpec:
    return QuantizationSpec(
        dtype=torch.int8,
        observer_or_fake_quant_ctr=observer,
        quant_min=least,
        quant_max=largest,
        qscheme=scheme,
        ch_axis=axis,
    )


def _weight_observer(per_channel: bool, is_qat: bool) -> Any:
    if is_qat:
        moving = (
            MovingAveragePerChannelMinMaxObserver if per_channel else MovingAverageMinMaxObserver
        )
        return FusedMovingAvgObsFakeQuantize.with_args(observer=moving, eps=SMALLEST_SCALE)
    observer = PerChannelMinMaxObserver if per_channel else MinMaxObserver
    return observer.with_args(eps=SMALLEST_SCALE)


class TinyAIQuantizer(Quantizer):  # type: ignore[misc]  # torchao has no type hints
    """Quantizes what tinyai runs as integers, for ``prepare_pt2e`` and ``prepare_qat_pt2e``.

    A module's own configuration goes before that of its type, and both before the global one; None
    leaves a module in float. Where nothing was configured, ``quantization_config()`` is for all.
    ``left`` says after the annotation what stays float, and why.
    """

    def __init__(self) -> None:
        super().__init__()
        self.left: tuple[FloatOperator, ...] = ()
        self._global: QuantizationConfig | None = None
        self._names: dict[str, QuantizationConfig | None] = {}
        self._types: dict[str, QuantizationConfig | None] = {}
        self._configured = False

    def set_global(self, config: QuantizationConfig | None) -> TinyAIQuantizer:
        """The configuration of all that has no other."""
        self._global = self._taken(config)
        return self

    def set_module_name(self, name: Any, config: QuantizationConfig | None) -> TinyAIQuantizer:
        """That of a module and all inside of it, by its name in the model, as ``layers.0.conv``."""
        if not isinstance(name, str) or not name:
            raise OptionError("name of a module", found=repr(name), allowed="text: layers.0.conv")
        self._names[name] = self._taken(config)
        return self

    def set_module_type(self, kind: Any, config: QuantizationConfig | None) -> TinyAIQuantizer:
        """That of all modules of a class and of what is inside of them."""
        if not isinstance(kind, type) or not issubclass(kind, torch.nn.Module):
            raise OptionError("type of a module", found=repr(kind), allowed="a class of torch.nn")
        self._types[f"{kind.__module__}.{kind.__qualname__}"] = self._taken(config)
        return self

    def annotate(self, model: GraphModule) -> GraphModule:
        """Say of each value that is to be quantized how, in its node's annotation."""
        self._require_known_names(model)
        in_training = _is_in_training()
        if not self._configured:
            self._global = quantization_config(is_qat=bool(in_training))
        configs = {node: self._config_of(node) for node in model.graph.nodes}
        _tell_of_training(filter(None, configs.values()), in_training)
        reading = Exported(model)
        points = _Points(reading.root, QuantConfig(), floats=_left_float(reading, configs))
        _Annotations(reading, points, configs).write()
        self.left = tuple(points.left)
        return model

    def validate(self, model: GraphModule) -> None:
        """Nothing to do: ``annotate`` asks for nothing that the partitioner refuses."""

    def _taken(self, config: QuantizationConfig | None) -> QuantizationConfig | None:
        self._configured = True
        return _checked(config)

    def _config_of(self, node: Node) -> QuantizationConfig | None:
        inside = [*_modules_around(node)]
        for name, _ in reversed(inside):
            if name in self._names:
                return self._names[name]
        for _, kind in reversed(inside):
            if kind in self._types:
                return self._types[kind]
        return self._global

    def _require_known_names(self, model: GraphModule) -> None:
        known = {name for node in model.graph.nodes for name, _ in _modules_around(node)} - {""}
        for name in self._names:
            if name not in known:
                raise OptionError(
                    "name of a module",
                    found=name,
                    allowed=", ".join([*sorted(known)[:8], *["..."][: len(known) > 8]]) or "none",
                    hint="the names are those of model.named_modules()",
                )


def _is_in_training() -> bool | None:
    """Which function of torchao's annotates: ``prepare_qat_pt2e``, or not; None where neither does.
    It does not tell a quantizer."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code in (prepare_pt2e.__code__, prepare_qat_pt2e.__code__):
            return frame.f_code is prepare_qat_pt2e.__code__
        frame = frame.f_back
    return None


def _tell_of_training(configs: Iterable[QuantizationConfig], in_training: bool | None) -> None:
    """Warns of configurations for training without it, and the other way round."""
    unlike = any(bool(config.is_qat) is not in_training for config in configs)
    if in_training is None or not unlike:
        return
    flow = "prepare_qat_pt2e" if in_training else "prepare_pt2e"
    simulated = "nothing is simulated in training" if in_training else "ranges are moving averages"
    warnings.warn(
        UsageWarning(
            f"is_qat of a configuration, and {flow}",
            found=f"is_qat={not in_training}: {simulated}",
            allowed=f"is_qat={in_training}",
            hint=f"quantization_config(is_qat={in_training})",
        ),
        stacklevel=3,
    )


def _modules_around(node: Node) -> Iterator[tuple[str, str]]:
    """Names and classes of the modules that a node is of, the outermost first."""
    for name, kind in node.meta.get("nn_module_stack", {}).values():
        spelled = f"{kind.__module__}.{kind.__qualname__}" if isinstance(kind, type) else kind
        yield name.removeprefix("L['self']").removeprefix("."), spelled


def _checked(config: QuantizationConfig | None) -> QuantizationConfig | None:
    """Raise ``OptionError`` for what no integer code is made of."""
    hint = "tinyai.executorch.quantization_config(), or XNNPACK's get_symmetric_quantization_config"
    if config is None:
        return None
    if not isinstance(config, QuantizationConfig):
        allowed = "a QuantizationConfig, or None: float"
        raise OptionError("quantization", found=repr(config), allowed=allowed, hint=hint)
    schemes = (torch.per_tensor_affine, torch.per_tensor_symmetric)
    weights = (torch.per_tensor_symmetric, torch.per_channel_symmetric)
    for what, spec, allowed_schemes in (
        ("inputs", config.input_activation, schemes),
        ("results", config.output_activation, schemes),
        ("weights", config.weight, weights),
    ):
        if spec is None or spec.is_dynamic:
            found = "none" if spec is None else "a dynamic one"
            raise OptionError(
                f"quantization of {what}", found=found, allowed="a static one", hint=hint
            )
        if spec.dtype is not torch.int8:
            raise OptionError(f"dtype of {what}", found=spec.dtype, allowed="torch.int8", hint=hint)
        if spec.qscheme not in allowed_schemes:
            allowed = " or ".join(map(str, allowed_schemes))
            raise OptionError(f"scheme of {what}", found=spec.qscheme, allowed=allowed, hint=hint)
    return config


def _left_float(
    reading: Exported, configs: dict[Node, QuantizationConfig | None]
) -> dict[Expr, Refusal]:
    """What stays float: nobody reads it, or its module has no configuration."""
    found = {reading(node): refusal for node, refusal in reading.refused.items()}
    for expr, node in reading.nodes.items():
        if isinstance(expr, Call) and configs[node] is None:
            found[expr] = Refusal("configuration", "none", "one of set_global or of its module")
    return found


class _Points(Points):
    """Functions of the model's own inputs too: who configures a module asks for all that is in it.
    What only moves an input is left where nothing after it is quantized."""

    def _pending_or(self, expr: Expr, role: Role) -> None:
        computes = role is not Role.MOVE or is_call(expr, *PICKING)
        if computes and all(type(each) is Expr for each in self.operands(expr)):
            self.roles[expr] = role
        else:
            super()._pending_or(expr, role)


@dataclass
class _Annotations:
    """The points of a graph as annotations of its nodes."""

    reading: Exported
    points: Points
    configs: dict[Node, QuantizationConfig | None]

    def write(self) -> None:
        self._by_node = {self.reading.nodes[each.expr]: each for each in self.points.points}
        self._roots: dict[int, Edge | Node] = {}
        self._annotations: dict[Node, QuantizationAnnotation] = {}
        for node in self.reading.graph.nodes:
            if node in self._roles:
                self._annotate(node)
        for node, annotation in self._annotations.items():
            annotation._annotated = True
            node.meta[Q_ANNOTATION_KEY] = annotation

    @functools.cached_property
    def _roles(self) -> dict[Node, Role]:
        found: dict[Node, Role] = {}
        for expr, role in self.points.roles.items():
            found[self.reading.nodes[expr]] = role
        for expr, role in self.points.roles.items():
            for node in self.reading.nodes_of(expr):
                found.setdefault(node, role)
        return found

    def _annotate(self, node: Node) -> None:
        annotation = self._annotations.setdefault(node, QuantizationAnnotation())
        for below in node.all_input_nodes:
            spec = self._of_input(node, below)
            if spec is not None:
                annotation.input_qspec_map[below] = spec
        if node in self._by_node:
            annotation.output_qspec = self._shared(node, node)

    def _of_input(self, node: Node, below: Node) -> Any:
        if below in self._by_node:
            return self._shared(below, (below, node))
        config = self.configs[node]
        if config is None or below.op != "get_attr":
            return None
        role, call = self._roles[node], self.reading(node)
        if role is Role.PRODUCT:
            assert isinstance(call, Call)
            if call["weight"] is not self.reading(below):
                return None
            return _weight_spec(config.weight, self.reading.output_channels(call))
        # A constant operand of a sum or product of values is quantized as these are.
        if role is not Role.RULE or below.meta["val"].numel() == 1:
            return None
        of_softmax = self.points.softmax_axis(self.reading(node)) is not None
        is_mask = of_softmax and has_mask(self.points.view.constant(self.reading(below)))
        return _fixed(config.input_activation, MASK) if is_mask else config.input_activation

    def _shared(self, value: Node, place: Edge | Node) -> Any:
        """The grid of a value: one for all places that hold it, and for values that share it."""
        grid = self._by_node[value].grid
        if grid in self._roots:
            return SharedQuantizationSpec(self._roots[grid])
        self._roots[grid] = place
        config = self.configs[value] or self._config_of_reader(value)
        spec, fixed = config.output_activation, self.points.fixed.get(grid)
        axis = self.points.softmax_axis(self._by_node[value].expr)
        if axis is not None:
            telling = _Telling(spec.observer_or_fake_quant_ctr, axis)
            return replace(spec, observer_or_fake_quant_ctr=telling)
        if fixed is None or spec.qscheme is torch.per_tensor_symmetric:
            return spec
        return _fixed(spec, fixed)

    def _config_of_reader(self, value: Node) -> QuantizationConfig:
        """An input has no module: the first operator that reads it as integers says how."""
        readers = (self.configs[user] for user in value.users if user in self._roles)
        return next(config for config in readers if config is not None)


def _fixed(spec: QuantizationSpec, at: Grid) -> FixedQParamsQuantizationSpec:
    return FixedQParamsQuantizationSpec(
        dtype=spec.dtype,
        scale=at.scale,
        zero_point=at.zero_point,
        quant_min=spec.quant_min,
        quant_max=spec.quant_max,
        qscheme=spec.qscheme,
    )


@dataclass(frozen=True)
class _Telling:
    """What makes an observer, of a softmax's input as far as it tells values apart; torchao asks
    ``with_args`` for another maker, and for its name whether scales are those of channels."""

    maker: Any
    axis: int

    @property
    def __name__(self) -> str:
        return type(self).__qualname__

    def with_args(self, **args: Any) -> _Telling:
        return replace(self, maker=self.maker.with_args(**args))

    def __call__(self, **args: Any) -> torch.nn.Module:
        observer: torch.nn.Module = self.maker(**args)
        observer.register_forward_pre_hook(functools.partial(_raised, self.axis))
        return observer


def _raised(axis: int, _: torch.nn.Module, args: tuple[torch.Tensor, ...]) -> Any:
    value, *others = args
    least = least_telling(value.detach().cpu().numpy(), axis)
    return torch.maximum(value, torch.from_numpy(least).to(value.device)), *others


def _weight_spec(spec: QuantizationSpec, axis: int | None) -> QuantizationSpec:
    """Along the axis of the output channels, where there is one."""
    if spec.qscheme is not torch.per_channel_symmetric:
        return spec
    if axis is not None:
        return replace(spec, ch_axis=axis)
    return replace(
        spec,
        qscheme=torch.per_tensor_symmetric,
        observer_or_fake_quant_ctr=_weight_observer(per_channel=False, is_qat=False),
        ch_axis=None,
    )
