"""Tables of the pages that list what the project has: scripts and extras."""

import re

from launch import __main__ as launch_scripts

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10, where the tests' packages bring tomli.
    import tomli as tomllib


def first_column(page, header):
    """The names in the first column of the table with this header."""
    table = page.read_text().split(f"| {header} |", 1)[1].split("\n\n", 1)[0]
    return re.findall(r"^\| `([\w.]+)` \|", table, re.MULTILINE)


def test_the_table_of_scripts_is_that_of_the_command(project_root):
    listed = first_column(project_root / "docs" / "running.md", "script")
    assert sorted(listed) == sorted(launch_scripts.scripts())


def test_the_table_of_extras_is_pyprojects(project_root):
    listed = first_column(project_root / "docs" / "install.md", "extra or group")
    project = tomllib.loads((project_root / "pyproject.toml").read_text())
    groups = project["dependency-groups"].keys() - {"dev"}  # uv always installs `dev`.
    assert sorted(listed) == sorted([*project["project"]["optional-dependencies"], *groups])
