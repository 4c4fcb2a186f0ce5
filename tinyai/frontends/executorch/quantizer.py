"""``TinyAIQuantizer``: which values of an exported graph torch's own flow quantizes.

The rows that write integers (``tinyai/qdq/rules.py``) decide, as they do for ``tinyai.quantize``:
``operators/`` reads the graph into the vocabulary, ``tinyai/quantizer/points.py`` says which values
get a pair and which of them share a grid, and here each becomes an annotation of torchao's.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e, prepare_qat_pt2e
from torchao.quantization.pt2e.quantizer import (
    QuantizationAnnotation,
    QuantizationConfig,
    Quantizer,
    SharedQuantizationSpec,
)
from torchao.quantization.pt2e.quantizer.quantizer import Q_ANNOTATION_KEY

from tinyai.errors import OptionError, UsageWarning
from tinyai.frontends.executorch.configuration import (
    checked,
    fixed,
    quant_config_of,
    quantization_config,
    weight_spec,
    with_scales,
)
from tinyai.frontends.executorch.exported import Exported, ModulePoints
from tinyai.frontends.quantize import require_runner_of_floats
from tinyai.qdq import FloatOperator
from tinyai.qdq.operands import Grid
from tinyai.quantizer.config import QuantConfig
from tinyai.quantizer.params import configured_grid, has_mask
from tinyai.quantizer.points import Points
from tinyai.quantizer.report import QuantReport
from tinyai.quantizer.roles import Role
from tinyai.quantizer.softmax_inputs import least_telling
from tinyai.source import Call, Expr, Refusal

if TYPE_CHECKING:
    from tinyai.frontends.executorch.fitted import Fitted

Edge: TypeAlias = "tuple[Node, Node]"
# The grid of a mask: far enough below all other values, which their sum's grid cuts off.
MASK = Grid("int8", 0.25, 127)
NOT_CONFIGURED = Refusal("configuration", "none", "one of set_global or of its module")


class TinyAIQuantizer(Quantizer):  # type: ignore[misc]  # torchao has no type hints
    """Quantizes what tinyai runs as integers, for ``prepare_pt2e`` and ``prepare_qat_pt2e``.

    A module's own configuration goes before that of its type, and both before the global one; None
    leaves a module in float. Where nothing was configured, ``quantization_config()`` is for all.
    ``left`` says after the annotation what stays float, and why.

    With ``samples``, tuples of tensors as the module is called with them, it chooses scales,
    weights and biases itself, as ``tinyai.quantize_file`` does. What ``prepare_pt2e`` gives needs
    no calibration then, and ``report`` says what was lost where, if anything is quantized. onnx and
    onnxruntime run the floats.
    With ``rank`` it says what damage each layer does alone: ``report.ranking`` has the worst first.
    Beside None there is one configuration. Raises ``CalibrationError`` for bad samples, and
    ``OptionError`` for several configurations, and in ``prepare_qat_pt2e``.
    """

    def __init__(
        self, *, samples: Iterable[Sequence[torch.Tensor]] | None = None, rank: bool = False
    ) -> None:
        super().__init__()
        self.left: tuple[FloatOperator, ...] = ()
        self.report: QuantReport | None = None
        self._samples, self._rank = samples, rank
        self._fitted: Fitted | None = None
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

    def transform_for_annotation(self, model: GraphModule) -> GraphModule:
        """Choose scales, weights and biases by the samples, where there are some."""
        if self._samples is None:
            return model
        configs = self._configs(model)
        if _is_in_training():
            raise OptionError(
                "samples of TinyAIQuantizer",
                found="prepare_qat_pt2e",
                allowed="prepare_pt2e: weights that are trained are not fitted",
            )
        config = quant_config_of(configs.values())
        require_runner_of_floats()
        from tinyai.frontends.executorch.fitted import fitted

        floats = {node.name: NOT_CONFIGURED for node, own in configs.items() if own is None}
        self._fitted = fitted(model, self._samples, config, floats, rank=self._rank)
        self.report = self._fitted.report if self._fitted else None
        return model

    def annotate(self, model: GraphModule) -> GraphModule:
        """Say of each value that is to be quantized how, in its node's annotation."""
        configs = self._configs(model)
        _tell_of_training(filter(None, configs.values()), _is_in_training())
        reading = Exported(model)
        floats = _left_float(reading, configs, self._fitted.floats if self._fitted else {})
        points = ModulePoints(reading.root, QuantConfig(), floats=floats)
        _Annotations(reading, points, configs, self._fitted).write()
        self.left = tuple(points.left)
        return model

    def validate(self, model: GraphModule) -> None:
        """Nothing to do: ``annotate`` asks for nothing that the partitioner refuses."""

    def _configs(self, model: GraphModule) -> dict[Node, QuantizationConfig | None]:
        """The configuration of each node."""
        self._require_known_names(model)
        if not self._configured:
            self._global = quantization_config(is_qat=bool(_is_in_training()))
        return {node: self._config_of(node) for node in model.graph.nodes}

    def _taken(self, config: QuantizationConfig | None) -> QuantizationConfig | None:
        self._configured = True
        return checked(config)

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


def _left_float(
    reading: Exported,
    configs: dict[Node, QuantizationConfig | None],
    chosen: Mapping[str, Refusal],
) -> dict[Expr, Refusal]:
    """What stays float: nobody reads it, its module has no configuration, or it is ``chosen``, by
    its node's name."""
    found = {reading(node): refusal for node, refusal in reading.refused.items()}
    for expr, node in reading.nodes.items():
        if isinstance(expr, Call) and node.name in chosen:
            found[expr] = chosen[node.name]
        if isinstance(expr, Call) and configs[node] is None:
            found[expr] = NOT_CONFIGURED
    return found


@dataclass
class _Annotations:
    """The points of a graph as annotations of its nodes."""

    reading: Exported
    points: Points
    configs: dict[Node, QuantizationConfig | None]
    fitted: Fitted | None

    def write(self) -> None:
        points = {self.reading.nodes[each.expr]: each for each in self.points.points}
        # Of a layer and the function behind it samples have told of the result alone.
        known = points if self.fitted is None else self.fitted.grids
        self._by_node = {node: point for node, point in points.items() if node in known}
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
            spec = weight_spec(config.weight, self.reading.output_channels(call))
            known = self.fitted.scales.get(below) if self.fitted else None
            return spec if known is None else with_scales(spec, known)
        # A constant operand of a sum or product of values is quantized as these are.
        if role is not Role.RULE or below.meta["val"].numel() == 1:
            return None
        of_softmax = self.points.softmax_axis(self.reading(node)) is not None
        values = self.points.view.constant(self.reading(below))
        if of_softmax and has_mask(values):
            return fixed(config.input_activation, MASK)
        if self.fitted is None:
            return config.input_activation
        at = configured_grid(float(values.min()), float(values.max()), self.fitted.config)
        return fixed(config.input_activation, at)

    def _shared(self, value: Node, place: Edge | Node) -> Any:
        """The grid of a value: one for all places that hold it, and for values that share it."""
        grid = self._by_node[value].grid
        if grid in self._roots:
            return SharedQuantizationSpec(self._roots[grid])
        config = self.configs[value] or self._config_of_reader(value)
        spec, at = config.output_activation, self.points.fixed.get(grid)
        if self.fitted is not None:
            return fixed(spec, self.fitted.grids[value])
        if grid in self.points.shares:  # of which no sample tells the largest
            at = self.points.shares[grid].grid()
        self._roots[grid] = place
        axis = self.points.softmax_axis(self._by_node[value].expr)
        if axis is not None:
            telling = _Telling(spec.observer_or_fake_quant_ctr, axis)
            return replace(spec, observer_or_fake_quant_ctr=telling)
        if at is None or spec.qscheme is torch.per_tensor_symmetric:
            return spec
        return fixed(spec, at)

    def _config_of_reader(self, value: Node) -> QuantizationConfig:
        """An input has no module: the first operator that reads it as integers says how."""
        readers = (self.configs[user] for user in value.users if user in self._roles)
        return next(config for config in readers if config is not None)


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
