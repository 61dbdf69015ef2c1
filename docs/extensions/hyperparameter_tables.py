"""Tables of hyperparameters, made from the dataclasses and their docstrings.

An algorithm's table has the fields that are its own, whose default it changes, or that its preset
on the digits sets.
"""

import dataclasses
import inspect
import os
import re

from markdown_tables import ROOT, table

# Symbols in the docstrings, in the notation of the equations.
_SYMBOLS = {
    **{name: rf"\{name}" for name in ("alpha", "beta", "beta_1", "eta", "eta_l", "eta_g", "lambda",
                                      "mu", "nu", "tau", "gamma", "epsilon", "sigma", "kappa")},
    **{name: name for name in ("B", "C", "E", "G", "H", "K", "L", "M", "N", "S", "T", "Z", "m", "p",
                               "w_j", "w_k", "lambda_k")},
    "lambda_k": r"\lambda_k",
}  # fmt: skip
_SYMBOL = re.compile(
    rf"(?<![\w`])(?<!that )({'|'.join(sorted(_SYMBOLS, key=len, reverse=True))})(?![\w`])"
)


def symbol(description: str) -> str:
    """The symbol that a description names before its first punctuation mark, as an equation."""
    match = _SYMBOL.search(re.split(r"[,;:]", description)[0])
    return f"${_SYMBOLS[match[1]]}$" if match else ""


def rows(cls: type, fields, preset: dict[str, str]) -> list[list[str]]:
    """A table of some `dataclasses.Field`s of `cls`, with the values of a preset by name."""
    from launch.options.hyperparameters import descriptions

    texts = descriptions(cls)
    grid = [["`--hparam`", "symbol", "default", "on the digits", "meaning"]]
    for field in fields:
        text = texts[field.name]
        name = field.name.rstrip("_")
        default = str(field.default).lower() if isinstance(field.default, bool) else field.default
        value = preset.get(name, "")
        shown = f"`{value}`" if value else ""
        grid.append([f"`{name}`", symbol(text), f"`{default}`", shown, text])
    if not any(row[3] for row in grid[1:]):
        grid = [row[:3] + row[4:] for row in grid]
    return grid


def own_fields(cls: type) -> list[dataclasses.Field]:
    """The fields that are not shared, or have another default than the shared ones."""
    shared = {field.name: field.default for base in shared_classes() for field in _fields(base)}
    return [
        field
        for field in _fields(cls)
        if field.name not in shared or shared[field.name] != field.default
    ]


def shared_classes() -> tuple[type, ...]:
    """The dataclasses from which those of the algorithms inherit."""
    from tff_ssl.objectives.hyperparameters import ObjectiveHyperparameters
    from tff_ssl.optimizers import ServerOptimizerHyperparameters
    from tff_ssl.templates.client_hyperparameters import ClientHyperparameters

    return ObjectiveHyperparameters, ClientHyperparameters, ServerOptimizerHyperparameters


def _fields(cls: type) -> tuple[dataclasses.Field, ...]:
    return dataclasses.fields(cls)  # type: ignore[arg-type]


def preset_values(name: str) -> dict[str, str]:
    """The hyperparameters that an algorithm's preset on the digits sets."""
    from launch.options import presets
    from launch.studies.engine.runner import effective_flags

    before = os.getcwd()
    os.chdir(ROOT)  # Presets name other presets by their paths from the root.
    try:
        values = effective_flags([f"--flagfile={presets.of_algorithm(name)}"])
    finally:
        os.chdir(before)
    return {k.removeprefix("hparam."): v for k, v in values.items() if k.startswith("hparam.")}


def _shared_markdown() -> list[str]:
    lines = []
    for cls in shared_classes():
        own = [field for field in _fields(cls) if field.name in cls.__annotations__]
        lines += [f"**{inspect.getdoc(cls).splitlines()[0]}**", *table(rows(cls, own, {}))]
    return lines


def markdown(name: str) -> list[str]:
    """The table of an algorithm of the registry, or the tables of the `shared` ones."""
    from tff_ssl.algorithms import registry

    if name == "shared":
        return _shared_markdown()
    algorithm = registry.ALGORITHMS[name]
    cls, preset = algorithm.hyperparameters, preset_values(name)
    own = own_fields(cls)
    shown = [f for f in _fields(cls) if f in own or f.name.rstrip("_") in preset]
    objectives = ", ".join(f"`{objective}`" for objective in algorithm.objectives)
    return [
        *(table(rows(cls, shown, preset)) if shown else ["It has none of its own.", ""]),
        "The others are [shared hyperparameters](hyperparameters.md). Objectives: "
        f"{objectives}; the first one is the default.",
    ]
