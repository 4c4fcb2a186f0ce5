"""Which values of a float model are quantized, and which of them share a grid.

The rows that write such models with integers (``tinyai/qdq/rules.py``) decide: an operator is taken
where it has one, and a value gets a quantize and a dequantize unless its row takes it together with
the operator after it, as sums with their bias and their bounds, or a chain that becomes one table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from tinyai.errors import OptionError
from tinyai.qdq import FloatOperator
from tinyai.qdq.operands import NARROW, QUANTIZED, Fold, Grid, is_call, operator_name
from tinyai.qdq.rules import (
    AVERAGES,
    ELEMENTWISE,
    LIMITS,
    MOVES,
    PRODUCTS,
    RULES,
    SOFTMAX,
    STEPS,
    has_16_bits,
    is_accumulator,
)
from tinyai.quantizer.config import QuantConfig
from tinyai.quantizer.folding import Constants, users_of
from tinyai.source import Call, Expr, Field, Refusal, Tuple, children


class Role(StrEnum):
    """How a quantized operator takes part."""

    PRODUCT = "product"  # sums of products by weights
    STEP = "step"  # on such sums, before they are requantized
    RULE = "rule"  # any other with a rule of its own
    MOVE = "move"  # its values are some of its input's
    LIMIT = "limit"  # bounds, which are part of the operator before where they can be
    FUNCTION = "function"  # of one value: a table
    SOURCE = "source"  # a quantized value of the model's own


@dataclass(frozen=True, eq=False)
class Point:
    """A float value that becomes quantized. Those with one ``grid`` share scale and zero point;
    ``observed`` is False where its values are seen elsewhere on that grid."""

    expr: Expr
    name: str
    operator: str
    grid: int
    observed: bool


class Points:
    """``points`` in order of computation; ``dtypes`` are those of their grids, ``fixed`` grids that
    the model has already; ``left`` says what stays float, and why. ``floats`` are operators that
    stay float, ``wide`` values whose layers have 16 bits, beside those of the configuration."""

    def __init__(
        self,
        root: Expr,
        config: QuantConfig,
        fold: Fold | None = None,
        floats: Mapping[Expr, Refusal] = MappingProxyType({}),
        wide: Collection[Expr] = (),
    ) -> None:
        self.config, self._chosen_floats, self._chosen_wide = config, floats, wide
        self.view = Constants(root, fold)
        self.order, self.users = self.view.order, users_of(self.view.order)
        self.roots = self._function_roots()
        self.products = [e for e in self.order if is_call(e, *PRODUCTS) and self._floats(e)]
        # Operators without 16 bits that would read or make such.
        self._narrow: set[Expr] = set()
        self._decide()
        while more := self._narrow_beside_wide() - self._narrow:
            self._narrow |= more
            self._decide()
        self._require_names()

    def _decide(self) -> None:
        self.left: list[FloatOperator] = []
        self._pending: dict[Expr, Role] = {}
        self._refused: set[Expr] = set()
        self.roles: dict[Expr, Role] = {}
        for expr in self.order:
            self._give_role(expr)
        self._wanted = self._settle()
        self.fixed: dict[int, Grid] = {}
        self.points = self._points()
        self.dtypes = self._dtypes()

    def grid_of(self, expr: Expr) -> int | None:
        """The number of the grid that a value is on, None where it has none here."""
        return next((point.grid for point in self.points if point.expr is expr), None)

    # --- roles ---

    def _floats(self, expr: Expr) -> bool:
        return (
            not self.view.is_constant(expr)
            and not isinstance(expr, Tuple)
            and all(each.dtype == "float32" for each in expr.types)
        )

    def operands(self, expr: Expr) -> Iterator[Expr]:
        """The float tensors of run time that an operator reads."""
        for child in children(expr):
            if isinstance(child, Tuple):
                yield from (field for field in child.fields if self._floats(field))
            elif self._floats(child):
                yield child

    def _alone(self, expr: Expr) -> bool:
        """Whether one operator, and nothing else, reads a value."""
        return len(self.users[expr]) == 1

    def _give_role(self, expr: Expr) -> None:
        if not self._floats(expr):
            return
        if is_call(expr, "dequantize"):
            self.roles[expr] = Role.SOURCE
        elif isinstance(expr, Field):
            if is_call(expr.call, "split") and self.config_allows(expr.call) is None:
                self._pending_or(expr, Role.MOVE)
        elif is_call(expr):
            try:
                self._give_role_to_call(expr)
            except Refusal as refusal:
                self._refused.add(expr)
                self.left.append(FloatOperator(expr.name, expr.spelled, str(refusal)))

    def _give_role_to_call(self, call: Call) -> None:
        (below, *others) = [*self.operands(call)] or [call]
        behind = self._alone(below) and not others
        if behind and self._is_step(call, below):
            self.roles[call] = Role.STEP
            return
        if (reason := self.config_allows(call)) is not None:
            raise reason
        if behind and below in self._refused and is_call(call, *STEPS, *LIMITS):
            raise Refusal("operator before", operator_name(below), "one that is quantized")
        if is_call(call, *PRODUCTS):
            known = self.view.is_constant(call["weight"]) or is_call(call, "dense", "batch_matmul")
            if not known:
                raise Refusal("weights", "computed at run time", "constants")
            self.roles[call] = Role.PRODUCT
        elif is_call(call, *LIMITS) and not others and self._bounded(call):
            self._pending_or(call, Role.LIMIT)
        elif is_call(call, *MOVES):
            self._pending_or(call, Role.MOVE)
        elif len(self.roots.get(call, ())) == 1 or is_call(call, *SOFTMAX):
            self._pending_or(call, Role.FUNCTION)
        elif is_call(call, *RULES) and not is_call(call, "divide", "bias_add"):
            self.roles[call] = Role.RULE
        elif not is_call(call, "split"):
            raise Refusal("operator", call.spelled, "one with a row in tinyai/qdq/rules.py")

    def _pending_or(self, expr: Expr, role: Role) -> None:
        """What only hands quantized values on is taken where there are some."""
        if any(below in self.roles for below in self.operands(self._reader(expr))):
            self.roles[expr] = role
        else:
            self._pending[expr] = role

    @staticmethod
    def _reader(expr: Expr) -> Expr:
        return expr.call if isinstance(expr, Field) else expr

    def _is_step(self, call: Call, below: Expr) -> bool:
        if self.roles.get(below) not in (Role.PRODUCT, Role.STEP):
            return False
        if is_call(call, "reshape"):  # between a product of matrices and its bias
            (user,) = self.users[call] if self._alone(call) else (None,)
            if user is None or not is_call(user, "add", "bias_add"):
                return False
            last = call.type.shape[-1:] == below.type.shape[-1:]
            return last and len([*self.operands(user)]) == 1
        if is_call(call, "multiply", "divide"):
            number = self.view.uniform(call.args[1]) or self.view.uniform(call.args[0])
            constant_last = self.view.is_constant(call.args[-1]) or call.op == "multiply"
            return number is not None and number > 0 and constant_last
        return is_call(call, "add", "bias_add") and is_accumulator(self.view, call)

    def _bounded(self, call: Call) -> bool:
        if is_call(call, "relu", "clip"):
            return True
        return any(self.view.uniform(arg) is not None for arg in call.args)

    def config_allows(self, call: Call) -> Refusal | None:
        """Why the configuration leaves an operator in float, if it does."""
        if call in self._narrow:
            return Refusal("dtype of its values", "int16", " or ".join(NARROW))
        if call in self._chosen_floats:
            return self._chosen_floats[call]
        config = self.config
        chosen = not config.operators or call.op in config.operators or not _chosen(call)
        for held, clause in (
            (not chosen, "QuantConfig.operators"),
            (call.op in config.float_operators, "QuantConfig.float_operators"),
            (call.name != "" and call.name in config.float_layers, "QuantConfig.float_layers"),
            (config.float_first and self.products[:1] == [call], "QuantConfig.float_first"),
            (config.float_last and self.products[-1:] == [call], "QuantConfig.float_last"),
        ):
            if held:
                return Refusal(clause, call.name or call.spelled, "others: it stays float")
        return None

    def kept(self) -> list[FloatOperator]:
        """What the model has in integers already, which stays as it is."""
        found = []
        for expr in self.order:
            if self.roles.get(expr) is Role.SOURCE and isinstance(expr, Call):
                dtype = expr["data"].type.dtype
                reason = f"a value that is quantized already: it keeps its {dtype} and its scale"
                found.append(FloatOperator(expr.name, expr.spelled, reason))
            elif (
                self.roles.get(expr) is Role.PRODUCT
                and isinstance(expr, Call)
                and is_call(expr["weight"], "dequantize")
            ):
                reason = "weights that are quantized already: they keep their integers"
                found.append(FloatOperator(expr.name, expr.spelled, reason))
        return found

    def _function_roots(self) -> dict[Expr, frozenset[Expr]]:
        """Of each elementwise operator the values that it is a function of, where operators in
        between read nothing else and are read by nothing else."""
        sealed = self._sealed()
        elementwise = [
            e
            for e in self.order
            if is_call(e, *ELEMENTWISE) and self._floats(e) and e not in sealed
        ]
        roots: dict[Expr, frozenset[Expr]] = {}
        observed: set[Expr] = set()
        settled = False
        while not settled:
            for expr in elementwise:
                found: set[Expr] = set()
                for arg in self._varying(expr):
                    found |= roots[arg] if arg in roots and arg not in observed else {arg}
                roots[expr] = frozenset(found)
            settled = True
            for expr in elementwise:
                own = roots[expr]
                together = len(own) == 1 and all(roots.get(u) == own for u in self.users[expr] if u)
                if expr not in observed and not (together and None not in self.users[expr]):
                    observed.add(expr)
                    settled = False
                    break
        return roots

    def _sealed(self) -> set[Expr]:
        """Steps and bounds that end other operators, and are no functions of their own."""
        sealed: set[Expr] = set()
        for expr in self.order:
            below = [*self.operands(expr)]
            if not is_call(expr, *STEPS, *LIMITS) or len(below) != 1 or not self._alone(below[0]):
                continue
            (base,) = below
            ends = base in sealed or (is_call(base, *RULES, *MOVES) and self._floats(base))
            if is_call(base, *ELEMENTWISE) and base not in sealed:
                ends = len({*self.operands(base)}) > 1
            if ends and (is_call(expr, *LIMITS) or is_accumulator(self.view, expr)):
                sealed.add(expr)
        return sealed

    def _varying(self, expr: Expr) -> Iterator[Expr]:
        """Operands of an elementwise operator but for constants of one number."""
        return (arg for arg in children(expr) if self.view.uniform(arg) is None)

    def _settle(self) -> set[Expr]:
        """Take what is pending where its result is wanted and comes from the model's inputs."""
        wanted: set[Expr] = set()
        for expr in reversed(self.order):
            if expr in self._pending and expr in wanted and self._from_inputs(expr):
                self.roles[expr] = self._pending.pop(expr)
            if expr in self.roles and self.roles[expr] is not Role.SOURCE:
                wanted.update(self.operands(self._reader(expr)))
        for expr in self.order:
            if expr in self._pending and is_call(expr) and not is_call(expr, *MOVES):
                found = Refusal("its input", "float", "a quantized value")
                self.left.append(FloatOperator(expr.name, expr.spelled, str(found)))
        return wanted

    def _from_inputs(self, expr: Expr) -> bool:
        below = [*self.operands(self._reader(expr))]
        return all(
            type(each) is Expr or (each in self._pending and self._from_inputs(each))
            for each in below
        )

    # --- points ---

    def _goes_on(self, expr: Expr) -> bool:
        """Whether a value is taken together with the operator after it."""
        role = self.roles[expr]
        if role is Role.SOURCE or isinstance(expr, Field):  # all parts of a split are rounded
            return False
        if self._in_function(expr):
            return True
        (user, *others) = self.users[expr]
        behind = self.roles.get(user) if user is not None and not others else None
        return behind is Role.STEP or (behind is Role.LIMIT and role is not Role.FUNCTION)

    def _in_function(self, expr: Expr) -> bool:
        """Whether an elementwise result is part of a longer function of the same value."""
        own = self.roots.get(expr)
        return (
            own is not None
            and len(own) == 1
            and all(u in self.roles and self.roots.get(u) == own for u in self.users[expr] if u)
            and None not in self.users[expr]
        )

    def _points(self) -> list[Point]:
        found = [expr for expr in self.order if self._is_point(expr)]
        groups = _Groups(found)
        for expr in found:
            self._share(expr, groups)
        numbers = {root: i for i, root in enumerate(dict.fromkeys(map(groups.root, found)))}
        names: dict[str, int] = {}
        for root, grid in groups.fixed.items():
            self.fixed[numbers[groups.root(root)]] = grid
        points = []
        for expr in found:
            name, operator = self._name(expr)
            names[name] = names.get(name, 0) + 1
            name = name if names[name] == 1 else f"{name}#{names[name]}"
            number = numbers[groups.root(expr)]
            observed = expr not in groups.derived and number not in self.fixed
            points.append(Point(expr, name, operator, number, observed))
        return points

    def _is_point(self, expr: Expr) -> bool:
        if expr in self.roles:
            if self.roles[expr] is Role.SOURCE or self._goes_on(expr):
                return False
            users = self.users[expr]
            return not (users and all(u is not None and is_call(u, "quantize") for u in users))
        return expr in self._wanted and self._floats(expr)

    # --- 16 bits ---

    def _dtypes(self) -> dict[int, str]:
        wide = self._wide()
        return {
            point.grid: "int16" if point.grid in wide else self.config.dtype
            for point in self.points
        } | {number: at.dtype for number, at in self.fixed.items()}

    def _wide(self) -> set[int]:
        """Grids of the operands and results of layers that are to have 16 bits."""
        named = {*self.config.int16_layers}
        at = {point.expr: point for point in self.points}
        wide: set[int] = set()
        for point in self.points if named or self._chosen_wide else ():
            chain = [self._reader(each) for each in self.opening(point.expr)]
            names = {point.name, *(each.name for each in chain if isinstance(each, Call))}
            if named & names or point.expr in self._chosen_wide:
                read = {below for each in chain for below in self.operands(each)}
                wide |= {at[each].grid for each in (point.expr, *read) if each in at}
        return wide

    def _narrow_beside_wide(self) -> set[Expr]:
        wide = {point.expr for point in self.points if self.dtypes[point.grid] == "int16"}
        found: set[Expr] = set()
        for point in self.points if wide else ():
            chain = self.opening(point.expr)
            read = {below for each in chain for below in self.operands(self._reader(each))}
            if wide & {point.expr, *read}:
                found.update(*(self._without_16_bits(each) for each in chain))
        return found

    def _without_16_bits(self, expr: Expr) -> set[Expr]:
        """The operators, among them ``expr``, that are taken together and have no 16 bits."""
        if is_call(expr, "conv2d_transpose", "batch_matmul", *SOFTMAX):
            return {expr}
        if is_call(expr, "dense"):
            return set() if self.view.is_constant(expr["weight"]) else {expr}
        if not is_call(expr) or self.roles.get(expr) is not Role.FUNCTION:
            return set()
        function = [each for each, own in self.roots.items() if own == self.roots[expr]]
        calls = [each for each in function if isinstance(each, Call)]
        return set() if has_16_bits(self.view, calls) else {*calls}

    def dtype_beside(self, call: Call) -> str:
        """Of a constant operand."""
        grids = (point.grid for point in self.points if point.expr in {*self.operands(call)})
        return "int16" if "int16" in map(self.dtypes.get, grids) else self.config.dtype

    def _require_names(self) -> None:
        known = {each.name for each in self.order if is_call(each)}
        known |= {point.name for point in self.points}
        for option in ("float_layers", "int16_layers"):
            for name in getattr(self.config, option):
                if name not in known:
                    names = ", ".join(each.name for each in self.points)
                    raise OptionError(f"QuantConfig.{option}", found=name, allowed=names)

    def _share(self, expr: Expr, groups: _Groups) -> None:
        role, below = self.roles.get(expr), [*self.operands(self._reader(expr))]
        if role is Role.MOVE:
            self._join(expr, below[0], groups)
            groups.derived.add(expr)
        elif is_call(expr, "concatenate") and role is Role.RULE:
            if all(each in groups for each in below):
                for each in below:
                    groups.join(expr, each)
                groups.derived.add(expr)
        else:
            for each in self._with_common_scale(expr):
                groups.join(expr, each)

    def _with_common_scale(self, expr: Expr) -> Iterator[Expr]:
        """Points that share the grid of ``expr`` because the configuration says so."""
        base = self.opening(expr)[0]
        common = self.config.residual == "common" and is_call(base, "add")
        averages = self.config.shared_averages and is_call(base, *SHARING)
        if self.roles.get(base) is Role.RULE and (common or averages):
            yield from (each for each in self.operands(base) if self._is_point(each))

    def opening(self, expr: Expr) -> list[Expr]:
        """The operators that are taken together and end in ``expr``, in order."""
        chain = [expr]
        while self.roles.get(chain[0]) in (Role.STEP, Role.LIMIT, Role.FUNCTION):
            below = next(self.operands(chain[0]), None)
            if below not in self.roles or not self._goes_on(below):
                break
            chain.insert(0, below)
        return chain

    def _join(self, expr: Expr, below: Expr, groups: _Groups) -> None:
        if below in groups:
            groups.join(expr, below)
        elif is_call(below, "dequantize"):
            scale, zero = (
                self.view.constant(below[each]).reshape(-1)
                for each in ("input_scale", "input_zero_point")
            )
            if scale.size == zero.size == 1 and below["data"].type.dtype in QUANTIZED:
                at = Grid(below["data"].type.dtype, float(scale[0]), int(zero[0]))
                groups.fixed[expr] = at

    def _name(self, expr: Expr) -> tuple[str, str]:
        """Of the layer that a value is the result of, and its operator."""
        calls = [self._reader(each) for each in self.opening(expr)]
        names = (each.name for each in calls if isinstance(each, Call) and each.name)
        operator = operator_name(calls[0]) if isinstance(calls[0], Call) else "input"
        return next(names, operator), operator


SHARING = (*AVERAGES, "global_avg_pool2d", "adaptive_avg_pool1d", "mean")


def _chosen(call: Call) -> bool:
    """Whether ``QuantConfig.operators`` chooses an operator: what belongs to others follows."""
    return not is_call(call, *MOVES, *LIMITS, "bias_add", "dequantize")


class _Groups:
    """Points that share a grid, as a union of sets."""

    def __init__(self, exprs: list[Expr]) -> None:
        self._parent = {expr: expr for expr in exprs}
        self.derived: set[Expr] = set()
        self.fixed: dict[Expr, Grid] = {}

    def __contains__(self, expr: Expr) -> bool:
        return expr in self._parent

    def root(self, expr: Expr) -> Expr:
        while self._parent[expr] is not expr:
            expr = self._parent[expr]
        return expr

    def join(self, one: Expr, other: Expr) -> None:
        self._parent[self.root(one)] = self.root(other)
