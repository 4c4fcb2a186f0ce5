"""Cores of 256 bits, one text for two instruction sets: AVX2, and AVX-VNNI, which multiplies and
adds bytes in one instruction. ``either`` holds both, and the CPU says which runs."""

from __future__ import annotations

from tinyai.codegen.steps import Epilogue
from tinyai.codegen.templates import render_core

ISAS = ("avxvnni", "avx2", "either")


def add_core(
    epilogue: Epilogue, isa: str, name: str, template: str, parameters: str, /, **values: object
) -> None:
    """The file then holds a core: the function ``name`` that the template makes of the values, and
    of whether it is for AVX-VNNI (``vnni``). ``parameters`` are its parameters in C, whose last
    words are their names."""
    epilogue.cores["simd_256"] = render_core("simd_256.c.j2")
    if isa != "either":
        epilogue.cores[name] = render_core(template, name=name, vnni=isa == "avxvnni", **values)
        return
    old, new = f"{name}_avx2", f"{name}_avxvnni"
    epilogue.cores[old] = render_core(template, name=old, vnni=False, **values)
    text = render_core(template, name=new, vnni=True, **values)
    epilogue.cores["ask_avxvnni"] = render_core("ask_avxvnni.c.j2")
    epilogue.cores[new] = render_core("avxvnni.c.j2", text=text)
    arguments = ", ".join(parameter.split()[-1] for parameter in parameters.split(","))
    epilogue.cores[name] = render_core(
        "either.c.j2", name=name, parameters=parameters, arguments=arguments, old=old, new=new
    )
