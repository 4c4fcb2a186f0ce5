"""Several models as the methods of one bundle, which share what they have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tinyai.backend import CompileSpec, NamedDataStore, PreprocessResult, TinyAIBackend
from tinyai.backend.sharing import saved_bytes
from tinyai.backend.tinyai_backend import BackendOptions
from tinyai.errors import OptionError, UnsupportedError
from tinyai.frontends.model import network_of
from tinyai.network import Network, c_name
from tinyai.runtime.bundle import Bundle, Method
from tinyai.target import default_rounding

if TYPE_CHECKING:
    import os

    from tinyai.ir import Graph

Specs = Sequence[CompileSpec]
_PLAIN = CompileSpec("abi", b"plain")


def lower(
    methods: Mapping[str, str | os.PathLike[str] | Graph | Network | Any],
    compile_specs: Specs | Mapping[str, Specs] = (),
) -> Bundle:
    """The models as methods of one bundle, under these names: all of each, for there is no host.

    A model is the path of a file, a Relay module with its constants bound, a ``Graph`` or a
    ``Network``. ``compile_specs`` are those of ``TinyAIBackend`` for all methods, or for each by
    name; ``CompileSpec("binary", b"1")`` compiles them now. Equal weights are stored once, such as
    those of one network for several batches, and so are functions.

    Raises ``BoundaryError``, with the report of ``explain``, where an operator would stay on a
    host; ``UnsupportedError`` for a model with state; ``OptionError`` for specs that are wrong or
    missing, and for methods without a name that can be told apart.
    """
    if not methods:
        allowed = "a dict of models by the names of methods"
        raise OptionError("methods of a bundle", found="none", allowed=allowed)
    specs = _by_method(methods, compile_specs)
    specs = {name: _with_rounding(each, methods[name]) for name, each in specs.items()}
    options = {name: BackendOptions.of(each) for name, each in specs.items()}
    architectures = {each.target.architecture for each in options.values()}
    if len(architectures) != 1:
        raise OptionError(
            "architectures of a bundle's methods",
            found=", ".join(sorted(architectures)),
            allowed="one for all",
        )
    networks = {}
    for name, model in methods.items():
        networks[name] = _network(model, options[name], name)
    results = TinyAIBackend.preprocess_multimethod(
        {name: [network.graph] for name, network in networks.items()},
        {name: [specs[name]] for name in networks},
    )
    made = {name: each[0] for name, each in results.items()}
    stores = [each.data_store_output for each in made.values() if each.data_store_output]
    store = NamedDataStore()
    for each in stores:
        store.merge(each)
    data = store.output()
    return Bundle(
        {name: _method(name, networks[name], result) for name, result in made.items()},
        data,
        architectures.pop(),
        saved_bytes(stores, data),
    )


def _by_method(methods: Mapping[str, Any], given: Specs | Mapping[str, Specs]) -> dict[str, Specs]:
    """The specs of each method, with the entry that a bundle's loader calls."""
    symbols = Counter(map(c_name, methods))
    twice = [name for name in methods if symbols[c_name(name)] > 1]
    if twice:
        found = ", ".join(map(repr, twice))
        allowed = "names that are another identifier of C each"
        raise OptionError("names of methods", found=found, allowed=allowed)
    specs: dict[str, Specs] = {}
    for name in methods:
        if isinstance(given, Mapping) and name not in given:
            found = ", ".join(given) or "specs for no method"
            allowed = "a list of specs for each method, or one for all"
            raise OptionError(f"missing compile specs for {name}", found=found, allowed=allowed)
        own = list(given[name] if isinstance(given, Mapping) else given)
        if any(spec.key == "abi" and spec != _PLAIN for spec in own):
            raise OptionError("compile spec 'abi' of a bundle", found=own, allowed="plain, or none")
        specs[name] = own if _PLAIN in own else [*own, _PLAIN]
    return specs


def _with_rounding(specs: Specs, model: Any) -> Specs:
    if any(spec.key == "rounding" for spec in specs):
        return specs
    rounding = default_rounding(model)
    return [*specs, CompileSpec("rounding", rounding.encode())]


def _network(model: Any, options: BackendOptions, name: str) -> Network:
    network = model if isinstance(model, Network) else network_of(model, options.target)
    if network.states:
        raise UnsupportedError(
            f"state of method {name}",
            found=f"{len(network.states)} values that are kept from one call to the next",
            allowed="none: the methods of a bundle keep nothing",
            hint="tinyai.compile or tinyai.emit_c, whose libraries and packages keep state",
        )
    return replace(network, graph=replace(network.graph, name=f"tinyai_{c_name(name)}"))


def _method(name: str, network: Network, result: PreprocessResult) -> Method:
    return Method(
        name,
        network.graph.name,
        network.inputs,
        network.outputs,
        result.processed_bytes,
        dict(result.debug_handle_map or {}),  # type: ignore[arg-type]  # names of nodes, by number
    )
