"""Presets: flag files that set what the command line does not."""

import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

FOLDER = pathlib.Path(__file__).parent.parent / "presets"
_DIGITS = FOLDER / "digits"
_CASE_FOLDER = FOLDER / "case_folder"
_ROOT = FOLDER.parent.parent
_SCALES = ("cpu", "paper")
# Earlier name of a preset -> its name now. `{}` stands for a scale.
_RENAMED_BY_SCALE = {
    **{
        f"{table}_{{}}_{method}": f"{table}/{{}}/{method}"
        for table in ("dcco_table1", "dcco_table2")
        for method in ("cco_fedavg", "centralized", "contrastive_fedavg", "dcco")
    },
    "dcco_table1_{}_supervised": "dcco_table1/{}/supervised",
    "dcco_appendix_c_{}": "dcco_appendix_c/{}/centralized",
    "dec_ssl_{}": "dec_ssl/{}/server",
    "dec_ssl_networks_{}": "dec_ssl/{}/networks",
    "denav_{}": "denav/{}/denav",
    "fedu_{}": "fedu/{}/fedu",
    "hetero_{}": "hetero_ssfl/{}/clients",
    "hetero_central_{}": "hetero_ssfl/{}/centralized",
    "hetero_ssfl_{}": "hetero_ssfl/{}/hetero_ssfl",
}
RENAMED = {
    **{
        old.format(scale): new.format(scale)
        for old, new in _RENAMED_BY_SCALE.items()
        for scale in _SCALES
    },
    "cifar10_centralized": "cifar10/centralized",
    "cifar10_dcco": "cifar10/dcco",
    "dcco_extensions": "dcco_extensions/cpu/dcco",
    "dec_ssl_features_paper": "dec_ssl/paper/features",
    "dec_ssl_paper_byol": "dec_ssl/paper/byol",
    "dec_ssl_paper_mae": "dec_ssl/paper/mae",
    "digits_byol": "digits/fedema",
    "digits_centralized": "digits/centralized",
    "digits_dcco": "digits/dcco",
    "digits_denav": "digits/denav",
    "digits_dfedavg": "digits/dfedavg",
    "digits_fedu": "digits/fedu",
    "digits_gossip": "digits/gossip",
    "digits_hetero": "digits/hetero_ssfl",
    "digits_nt_xent": "digits/fedbn",
    "digits_private_dcco": "digits/private_dcco",
    "fedu_central_paper": "fedu/paper/centralized",
    "serverless": "digits/kinds/decentralized",
    "serverless_mae": "digits/kinds/decentralized_mae",
    "unlike_clients": "digits/kinds/heterogeneous_clients",
}


class PresetFlag(NamedTuple):
    """A line of a preset.

    Attributes:
      name: Name of the flag; `hparam=NAME` for a hyperparameter.
      path: Path of the file, relative to the project's root if it is inside.
    """

    name: str
    path: pathlib.Path


def of_algorithm(name: str, dataset: str = "digits") -> pathlib.Path | None:
    """The default preset of an algorithm on a data set.

    On the digits it is `digits/NAME.flags` where there is one. Otherwise it is chosen by the
    algorithm's kind and default objective: `digits/kinds/KIND_OBJECTIVE.flags`, or else
    `digits/kinds/KIND.flags`. These set no hyperparameters, so that the algorithm's own defaults
    hold. On a folder of images it is `case_folder/NAME.flags` where there is one.

    Args:
      name: Value of `--algorithm`.
      dataset: Value of `--dataset`.

    Returns:
      Path of the preset; None for other data sets, and for an unknown algorithm or kind.
    """
    if dataset != "digits":
        path = _CASE_FOLDER / f"{name}.flags"
        return path if dataset == "case_folder" and path.exists() else None
    path = _DIGITS / f"{name}.flags"
    if path.exists():
        return path
    # Imported here, because it takes seconds and most algorithms have a preset of their own.
    from tff_ssl.algorithms import registry

    if name not in registry.ALGORITHMS:
        return None
    algorithm = registry.ALGORITHMS[name]
    kind = algorithm.kind.kind
    for candidate in (f"{kind}_{algorithm.objectives[0]}", kind):
        path = _DIGITS / "kinds" / f"{candidate}.flags"
        if path.exists():
            return path
    return None


def of_objective(name: str, dataset: str = "digits") -> pathlib.Path | None:
    """The default preset of the centralized baseline on a data set.

    On the digits it is `digits/centralized_NAME.flags` where there is one, and else
    `digits/centralized.flags`. On a folder of images, cco has `case_folder/centralized.flags`.

    Args:
      name: Value of `--objective`; "" if it is not given.
      dataset: Value of `--dataset`.

    Returns:
      Path of the preset; None for other data sets, and other objectives on a folder of images.
    """
    if dataset != "digits":
        is_known = dataset == "case_folder" and name in ("", "cco")
        return _CASE_FOLDER / "centralized.flags" if is_known else None
    path = _DIGITS / f"centralized_{name}.flags"
    return path if path.exists() else _DIGITS / "centralized.flags"


def shown(path: pathlib.Path) -> pathlib.Path:
    """The path for messages: relative to the project's root if it is inside."""
    resolved = path.resolve()
    return resolved.relative_to(_ROOT) if resolved.is_relative_to(_ROOT) else path


def missing(argv: Sequence[str]) -> str | None:
    """An error message if a preset of the command line has another name now; else None."""
    for text in given(argv, "flagfile"):
        path = pathlib.Path(text)
        if not path.exists() and path.suffix == ".flags" and path.stem in RENAMED:
            return (
                f"--flagfile={text}: this preset is now {shown(FOLDER)}/{RENAMED[path.stem]}.flags"
            )
    return None


def given(argv: Sequence[str], flag: str) -> list[str]:
    """The values that a command line gives to a flag, before flags are parsed."""
    return re.findall(rf"^--?{flag}[=\n](.*)$", "\n".join(argv), re.MULTILINE)


def files(argv: Sequence[str]) -> list[pathlib.Path]:
    """The presets that a command line names, in order."""
    return [pathlib.Path(text) for text in given(argv, "flagfile")]


def set_by(argv: Sequence[str]) -> list[PresetFlag]:
    """The flags that the presets of a command line set, in order."""
    return [flag for path in files(argv) for flag in _read(path)]


def explain(message: str, argv: Sequence[str]) -> str:
    """Adds to an error message the presets in which the flags that it names are set.

    Args:
      message: The error message.
      argv: The command line; flags that it gives itself come from no preset.
    """
    lines = {flag.name: flag.path for flag in set_by(argv)}
    names = re.findall(r"--(hparam=\w+|\w+)|flag '(\w+)'", message)
    sources = []
    for name in dict.fromkeys(first or second for first, second in names):
        on_command_line = given(argv, name.replace("hparam=", "hparam[=\n]"))
        if name in lines and not on_command_line:
            sources.append(f"--{name} is set in {lines[name]}")
    return f"{message} ({'; '.join(sources)})" if sources else message


def _read(path: pathlib.Path) -> Iterator[PresetFlag]:
    """The flags of a preset and of the presets that it includes, in order."""
    if not path.is_file():
        return
    for line in path.read_text().splitlines():
        name, _, value = line.strip().lstrip("-").partition("=")
        if not line.lstrip().startswith("-"):
            continue
        if name == "flagfile":
            yield from _read(pathlib.Path(value))
        elif name == "hparam":
            yield PresetFlag(f"hparam={value.partition('=')[0]}", shown(path))
        else:
            yield PresetFlag(name, shown(path))
