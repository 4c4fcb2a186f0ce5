"""Regions that passes of TVM's cannot take apart.

What stands between a partition and ``RunCodegen`` sees a region as any function: FoldConstant and
LegalizeOps leave nothing that a back end could read, and a build without ``RunCodegen`` computes in
floats, slowly, without a word. A sealed region has a body that only says what is missing; the
function that it stands for is kept in this process until ``RunCodegen`` asks for it.
"""

from __future__ import annotations

import secrets

from tvm import relax

from tinyai.errors import OptionError
from tinyai.frontends.relax.versions import name_of, typed
from tinyai.frontends.relax.writer import function_of, typed_tuple
from tinyai.target import COMPILER

SEALED = f"{COMPILER}.sealed"
# By keys that no other process has.
_KEPT: dict[str, relax.Function] = {}


def seal(function: relax.Function) -> relax.Function:
    """A region with the types and attributes of another, which is kept; a sealed one as it is."""
    if is_sealed(function):
        return function
    key = secrets.token_hex(16)
    _KEPT[key] = function
    of = function.ret_ty
    results = list(of.fields) if isinstance(of, relax.TupleType) else of
    params = [relax.Var(name_of(each), each.ty) for each in function.params]
    told = f"{function.attrs['global_symbol']}: relax.transform.RunCodegen() is missing"
    value = typed(relax.call_dps_packed(told, typed_tuple(params), results), of)
    result = relax.Var("results", of)
    made = function_of(params, [relax.VarBinding(result, value)], result)
    return made.with_attrs({**dict(function.attrs.items()), SEALED: key})


def unsealed(function: relax.Function, *, last: bool = False) -> relax.Function:
    """The region that a sealed one stands for; any other as it is. ``last``: it is not kept any
    longer. Raises ``OptionError`` where it is not kept in this process."""
    if not is_sealed(function):
        return function
    key = str(function.attrs[SEALED])
    kept = _KEPT.pop(key, None) if last else _KEPT.get(key)
    if kept is None:
        raise OptionError(
            f"region {function.attrs['global_symbol']}",
            found="sealed in another process, or its code was generated before",
            allowed="RunCodegen once, in the process that partitioned the module",
            hint="partition again, or partition_for_tinyai(mod, sealed=False)",
        )
    return kept


def is_sealed(function: relax.Function) -> bool:
    return function.attrs is not None and SEALED in function.attrs
