"""Lists the scripts: `python -m launch`."""

import ast
import pathlib

from launch.outputs import commands

_FOLDER = pathlib.Path(__file__).parent
_FIRST = ("pretrain", "evaluate", "embed", "detect", "export", "visualize", "centralized",
          "sweep", "partition_report", "reproduce")  # fmt: skip


def scripts() -> dict[str, str]:
    """The scripts with the first paragraphs of their docstrings; those used most come first."""
    summaries = {}
    folders = ("[!_]*.py", "studies/[!_]*.py", "stacks/*/__main__.py")
    for path in [path for pattern in folders for path in sorted(_FOLDER.glob(pattern))]:
        source = path.read_text()
        if '__name__ == "__main__"' in source:
            name = ".".join(path.relative_to(_FOLDER).with_suffix("").parts)
            name = name.removesuffix(".__main__")
            summary = (ast.get_docstring(ast.parse(source)) or "").split("\n\n")[0]
            summaries[name] = " ".join(summary.split())
    first = {name: summaries[name] for name in _FIRST if name in summaries}
    return first | summaries


def main() -> None:
    lines = scripts()
    width = max(map(len, lines))
    usage = f"{commands.module('launch.NAME')} [--flag=value ...]"
    print(f"{usage}; --help explains a script's flags\n")
    for name, summary in lines.items():
        print(f"{name:{width}}  {summary}")


if __name__ == "__main__":
    main()
