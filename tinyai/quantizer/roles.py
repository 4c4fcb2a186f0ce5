"""How each operator of a float model takes part in the quantized one.

The tables of ``tinyai/qdq/``, whose rows write such models with integers, decide: an operator is
quantized where it has a row, by itself or together with others, as sums with their bias and bounds,
or as a chain of functions that becomes one table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from tinyai.qdq import FloatOperator
from tinyai.qdq.accumulators import PRODUCTS, STEPS, is_accumulator
from tinyai.qdq.functions import ALONG_AXIS, ELEMENTWISE, SOFTMAX
from tinyai.qdq.limits import LIMITS, is_bounded
from tinyai.qdq.moves import MOVES
from tinyai.qdq.operands import NARROW, Fold, is_call, operator_name
from tinyai.qdq.rules import RULES
from tinyai.quantizer.config import QuantConfig
from tinyai.quantizer.folding import Constants, output_channels, users_of
from tinyai.quantizer.nodes import parts_of_several
from tinyai.quantizer.params import has_mask
from tinyai.source import UNKNOWN, Call, Expr, Field, Refusal, Tuple, Unread, children

_REORDERED = ("reshape", "transpose")


class Role(StrEnum):
    """How a quantized operator takes part."""

    PRODUCT = "product"  # sums of products by weights
    STEP = "step"  # on such sums, before they are requantized
    RULE = "rule"  # any other with a rule of its own
    MOVE = "move"  # its values are some of its input's
    LIMIT = "limit"  # bounds, which are part of the operator before where they can be
    FUNCTION = "function"  # of one value: a table
    SOURCE = "source"  # a quantized value of the model's own


class Roles:
    """``roles`` of what is quantized, and why the operators that are ``refused`` stay float.
    ``floats`` are operators that stay float beside those of the configuration."""

    def __init__(
        self, root: Expr, config: QuantConfig, fold: Fold | None, floats: Mapping[Expr, Refusal]
    ) -> None:
        self.config, self.chosen_floats = config, floats
        self.view = Constants(root, fold)
        self.order, self.users = self.view.order, users_of(self.view.order)
        self.parts = parts_of_several(self.view, self.users)
        self.roots = self._function_roots()
        self.products = [e for e in self.order if is_call(e, *PRODUCTS) and self._floats(e)]
        # Operators without 16 bits that would read or make such.
        self._narrow: set[Expr] = set()
        self._decide()

    def _decide(self) -> None:
        self._pending: dict[Expr, Role] = {}
        self.refused: dict[Expr, Refusal] = {}
        self.roles: dict[Expr, Role] = {}
        for expr in self.order:
            self._give_role(expr)
        self._wanted = self._settle()

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
            floats = any(of == UNKNOWN or of.dtype == "float32" for of in expr.types)
            if floats and is_call(expr) and isinstance(expr.origin, Unread):
                self.refused[expr] = expr.origin.refusal
            return
        if is_call(expr, "dequantize"):
            self.roles[expr] = Role.SOURCE
        elif isinstance(expr, Field):
            some = 0 not in expr.type.shape
            if some and is_call(expr.call, "split") and self.config_allows(expr.call) is None:
                self._pending_or(expr, Role.MOVE)
        elif is_call(expr):
            try:
                self._give_role_to_call(expr)
            except Refusal as refusal:
                self.refused[expr] = refusal

    def _give_role_to_call(self, call: Call) -> None:
        (below, *others) = [*self.operands(call)] or [call]
        behind = self._alone(below) and not others
        if behind and self._is_step(call, below):
            self.roles[call] = Role.STEP
            return
        if is_call(call, "cast") and call.args[0].type.dtype != "float32":
            return  # floats begin here, as at an input
        if (reason := self.config_allows(call)) is not None:
            raise reason
        if any(0 in of.shape for of in call.types):
            raise Refusal("elements", "none", "some")
        if (of := next((each for each in call.types if None in each.shape), None)) is not None:
            raise Refusal("shape", of, "fixed dimensions")
        if is_call(call, "avg_pool1d", "avg_pool2d") and {*call.attrs["dilation"]} != {1}:
            raise Refusal("dilation of an average", call.attrs["dilation"], 1)
        follows = is_call(call, *STEPS, *LIMITS) and not is_call(call, *MOVES)
        follows &= not self._is_of_several(call)
        if behind and below in self.refused and follows:
            raise Refusal("operator before", operator_name(below), "one that is quantized")
        if is_call(call, *PRODUCTS):
            known = self.view.is_constant(call["weight"]) or is_call(call, "dense", "batch_matmul")
            if not known:
                raise Refusal("weights", "computed at run time", "constants")
            self.roles[call] = Role.PRODUCT
        elif self._is_of_several(call):
            self.roles[call] = Role.RULE
        elif is_bounded(self.view, call) and not others:
            self._pending_or(call, Role.LIMIT)
        elif self.is_lookup(call):
            self.roles[call] = Role.MOVE
        elif is_call(call, *MOVES):
            self._pending_or(call, Role.MOVE)
        elif self._is_function(call):
            if is_call(call, *SOFTMAX) and call.type.shape[call.attrs["axis"]] == 1:
                # Of which ONNX Runtime's integers are infinite.
                raise Refusal("length of softmax", 1, "more than one value")
            self._pending_or(call, Role.FUNCTION)
        elif is_call(call, "where", "divide"):
            self.roles[call] = Role.RULE  # in floats, between pairs
        elif is_call(call, *RULES) and not is_call(call, "divide", "bias_add"):
            self.roles[call] = Role.RULE
        elif isinstance(call.origin, Unread):
            raise call.origin.refusal
        elif not is_call(call, "split"):
            raise Refusal("operator", call.spelled, "one with a row in a table of tinyai/qdq")

    def is_lookup(self, expr: Expr) -> bool:
        """Whether rows of a constant table, such as an embedding's, are picked at run time."""
        return is_call(expr, "take") and self.view.is_constant(expr["data"])

    def _is_function(self, call: Call) -> bool:
        """Whether a call is a function between quantized values: a softmax or a layer norm, one
        of one value, or a prelu, whose slopes are those of channels."""
        if is_call(call, "prelu"):
            return self.view.is_constant(call["slope"])
        return is_call(call, *ALONG_AXIS) or len(self.roots.get(call, ())) == 1

    def _pending_or(self, expr: Expr, role: Role) -> None:
        """Gives an operator that only passes values on its role where one of its operands is
        quantized; else it is pending."""
        if any(below in self.roles for below in self.operands(self._reader(expr))):
            self.roles[expr] = role
        else:
            self._pending[expr] = role

    def _is_of_several(self, expr: Expr) -> bool:
        """Whether an operator is one of a node of several values."""
        return expr in self.parts or (is_call(expr) and not self.parts.isdisjoint(expr.args[:1]))

    @staticmethod
    def _reader(expr: Expr) -> Expr:
        return expr.call if isinstance(expr, Field) else expr

    def _is_step(self, call: Call, below: Expr) -> bool:
        is_sums = self.roles.get(below) in (Role.PRODUCT, Role.STEP)
        return is_sums and not self._is_of_several(call) and self._adds_up(call, below)

    def _adds_up(self, call: Call, below: Expr) -> bool:
        """Whether a step on the sums ``below`` makes sums again."""
        if is_call(call, "reshape"):  # between a product and its bounds, or one of matrices' bias
            (user,) = self.users[call] if self._alone(call) else (None,)
            if is_call(user, *LIMITS):
                return is_bounded(self.view, user)
            if not is_call(user, "add", "bias_add"):
                return False
            last = call.type.shape[-1:] == below.type.shape[-1:]
            return last and self._of_matrices(below) and len([*self.operands(user)]) == 1
        if is_call(call, "multiply", "divide"):
            number = self.view.uniform(call.args[1]) or self.view.uniform(call.args[0])
            constant_last = self.view.is_constant(call.args[-1]) or call.op == "multiply"
            return number is not None and number > 0 and constant_last
        return is_call(call, "add", "bias_add") and self._adds_bias(call, below)

    def _adds_bias(self, call: Call, below: Expr) -> bool:
        """Whether a constant joins the sums ``below`` as their bias. A node of its own adds the
        same to each row: layers of files have no other bias."""
        if not is_accumulator(self.view, call):
            return False
        product = self._product(below)
        if is_call(call, "bias_add") or call.name == product.name != "":
            return True
        channels = len(below.type.shape) - 1
        if not self._of_matrices(below):
            channels = output_channels(product)
        (number,) = (arg for arg in call.args if arg is not below)
        if has_mask(self.view.constant(number)):
            return False
        shape, rank = number.type.shape, len(call.type.shape)
        along = [rank - len(shape) + axis for axis, size in enumerate(shape) if size != 1]
        return along in ([], [channels]) and call.type.shape == below.type.shape

    def _of_matrices(self, sums: Expr) -> bool:
        """Whether sums have their channels last."""
        return is_call(self._product(sums), "dense", "batch_matmul")

    def _product(self, sums: Expr) -> Call:
        """What makes the sums that a chain of steps begins with."""
        while is_call(sums, *STEPS):
            sums = next(self.operands(sums))
        assert isinstance(sums, Call)
        return sums

    def config_allows(self, call: Call) -> Refusal | None:
        """The reason why the configuration leaves an operator in float; None where it does not."""
        if call in self._narrow:
            return Refusal("dtype of its values", "int16", " or ".join(NARROW))
        if call in self.chosen_floats:
            return self.chosen_floats[call]
        config = self.config
        # What belongs to other operators follows them.
        follows = is_call(call, *MOVES, *LIMITS, "bias_add", "dequantize")
        chosen = not config.operators or call.op in config.operators or follows
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

    @property
    def left(self) -> list[FloatOperator]:
        """What stays float, and why."""
        found: dict[object, FloatOperator] = {}
        for call, why in self.refused.items():
            if isinstance(call, Call):  # of which a node may be several
                node = (call.name, call.spelled) if call.name else call
                found.setdefault(node, FloatOperator(call.name, call.spelled, str(why)))
        return [*found.values()]

    @property
    def has_float_weights(self) -> bool:
        """Whether a layer between quantized values has weights that become integers."""
        return any(
            role is Role.PRODUCT
            and is_call(call)
            and self.view.is_constant(call["weight"])
            and not is_call(call["weight"], "dequantize")
            for call, role in self.roles.items()
        )

    def kept(self) -> list[FloatOperator]:
        """The operators and weights that the model has in integers already, which are kept."""
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

    # --- functions of one value ---

    def _function_roots(self) -> dict[Expr, frozenset[Expr]]:
        """The values that each elementwise operator is a function of, by way of the operators that
        are part of the same function.

        An operator that is not inside of a longer function is the last of its own, and its result
        is a root of what follows. These are found one at a time, for each changes those roots.
        """
        belonging = self._belonging()
        elementwise = [
            expr
            for expr in self.order
            if is_call(expr, *ELEMENTWISE)
            and self._floats(expr)
            and expr not in belonging
            and not self._is_of_several(expr)
        ]
        lines = self._lines(elementwise)
        values = {
            expr: [arg for arg in children(expr) if not self._is_parameter(arg, expr in lines)]
            for expr in elementwise
        }
        last: set[Expr] = set()
        roots: dict[Expr, frozenset[Expr]] = {}
        changed: set[Expr] = {*elementwise}
        while True:
            for expr in elementwise:
                if expr in changed or not changed.isdisjoint(values[expr]):
                    own: set[Expr] = set()
                    for arg in values[expr]:
                        # A table has no channels: a line is a function of its own.
                        of_it = arg in roots and (arg in lines) == (expr in lines)
                        own |= roots[arg] if of_it and arg not in last else {arg}
                    roots[expr] = frozenset(own)
                    changed.add(expr)
            others = (expr for expr in elementwise if expr not in last)
            found = next((expr for expr in others if not self._is_inside(expr, roots)), None)
            if found is None:
                return roots
            last.add(found)
            changed = {found}

    def _is_parameter(self, arg: Expr, of_channels: bool) -> bool:
        """Whether an operand is a number of a function, or numbers of channels."""
        known = self.view.uniform(arg) is not None
        return known or (of_channels and self.view.is_constant(arg))

    def _lines(self, elementwise: Sequence[Call]) -> set[Expr]:
        """The product and the sum with constants that one node of a file is, a batch norm that was
        not folded: as a function it is rounded once."""
        lines: set[Expr] = set()
        for total in elementwise:
            product = next(self.operands(total), None)
            if not is_call(total, "add") or not is_call(product, "multiply"):
                continue
            of_one_node = total.name == product.name != "" and self._alone(product)
            numbers = [
                a for call in (total, product) for a in call.args if self.view.is_constant(a)
            ]
            if of_one_node and len(numbers) == 2 and self.view.uniform(numbers[1]) is None:
                lines |= {product, total}
        return lines

    def _is_inside(self, expr: Expr, roots: Mapping[Expr, frozenset[Expr]]) -> bool:
        """Whether all readers of an elementwise result are functions of the same one value."""
        own, users = roots.get(expr, frozenset()), self.users[expr]
        return len(own) == 1 and all(u is not None and roots.get(u) == own for u in users)

    def _belonging(self) -> set[Expr]:
        """Steps and bounds that belong to the operator before them: they begin no function."""
        belonging: set[Expr] = set()
        for expr in self.order:
            below = [*self.operands(expr)]
            if not is_call(expr, *STEPS, *LIMITS) or len(below) != 1 or not self._alone(below[0]):
                continue
            (before,) = below
            if before in belonging:
                takes = True
            elif is_call(before, *ELEMENTWISE):  # a sum of tensors does, a function does not
                takes = len({*self.operands(before)}) > 1
            else:
                takes = is_call(before, *RULES, *MOVES) and self._floats(before)
            is_sum = is_accumulator(self.view, before) and (
                before in belonging or is_call(before, *PRODUCTS)
            )
            if takes and (is_call(expr, *LIMITS) or (is_sum and self._adds_up(expr, before))):
                belonging.add(expr)
        return belonging

    # --- what only hands values on ---

    def _settle(self) -> set[Expr]:
        """The float values that quantized operators read. Operators that are pending are taken
        where such a one reads their result and all that they read comes from the model's inputs, or
        where they give all values of a float another shape or order; functions and bounds that are
        not stay in float."""
        wanted: set[Expr] = set()
        for expr in reversed(self.order):
            taken = expr in self._pending and expr in wanted
            if taken and (is_call(expr, *_REORDERED) or self._from_inputs(expr)):
                self.roles[expr] = self._pending.pop(expr)
            if expr in self.roles and self.roles[expr] is not Role.SOURCE:
                wanted.update(self.operands(self._reader(expr)))
        for expr in self.order:
            if expr in self._pending and is_call(expr) and not is_call(expr, *MOVES):
                self.refused[expr] = Refusal("its input", "float", "a quantized value")
        return wanted

    def _from_inputs(self, expr: Expr) -> bool:
        below = [*self.operands(self._reader(expr))]
        return all(
            type(each) is Expr or (each in self._pending and self._from_inputs(each))
            for each in below
        )

    # --- what is taken together ---

    def _goes_on(self, expr: Expr) -> bool:
        """Whether a value is taken together with the operator after it."""
        role = self.roles[expr]
        if role is Role.SOURCE or isinstance(expr, Field):  # all parts of a split are rounded
            return False
        users = self.users[expr]
        together = expr in self.parts or self._is_inside(expr, self.roots)
        if together and all(user in self.roles for user in users):
            return True
        (user, *others) = users
        behind = self.roles.get(user) if user is not None and not others else None
        return behind is Role.STEP or (behind is Role.LIMIT and role is not Role.FUNCTION)

    def opening(self, expr: Expr) -> list[Expr]:
        """The operators that are taken together and end in ``expr``, in order."""
        chain = [expr]
        behind = (Role.STEP, Role.LIMIT, Role.FUNCTION)
        while self.roles.get(chain[0]) in behind or self._is_of_several(chain[0]):
            below = next(self.operands(chain[0]), None)
            if below not in self.roles or not self._goes_on(below):
                break
            chain.insert(0, below)
        return chain
