"""Printed commands start this interpreter when they are pasted; nothing else writes commands."""

import ast
import importlib.machinery
import os
import re
import subprocess
import sys

import pytest

from launch.options import app
from launch.outputs import commands
from tff_ssl.errors import MissingExtraError

_PASTEABLE = re.compile(r"(^|\s)-m [a-z_]+\.|python3? -m |uv (run|sync)|pip install|tensorboard --")
# Where commands are written, and a peer's own environment, which has another interpreter.
_WRITERS = (
    "launch/benchmarks/peer_process.py",
    "launch/outputs/commands.py",
    # The page of claims names the commands of proofs.
    "launch/studies/dec_ssl.py",
    "launch/studies/denav.py",
    "launch/studies/fedu.py",
    "launch/studies/hetero_ssfl.py",
)


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """A function that pastes a command into a shell, in a folder with a module `probe`."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    (folder / "probe.py").write_text("import sys; print(sys.executable, sys.argv[1:])")
    monkeypatch.chdir(folder)
    for name in ("UV", "VIRTUAL_ENV"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")

    def paste(command: str) -> str:
        return subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, check=True
        ).stdout.strip()

    return paste


def _make_uv(folder, monkeypatch):
    """A stand-in for uv, which starts this interpreter in place of the environment's."""
    folder.mkdir(parents=True)
    uv = folder / "uv"
    uv.write_text(f'#!/bin/sh\necho "uv $1 $2 $3" >&2\nwhile [ "$1" != python ]; do shift; done\n'
                  f'shift; exec "{sys.executable}" "$@"\n')  # fmt: skip
    uv.chmod(0o755)
    monkeypatch.setenv("UV", str(uv))
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    return uv


def _probe(arguments):
    return f"{sys.executable} {arguments}"


def test_without_uv_the_interpreter_has_its_path_or_its_name(shell, monkeypatch):
    command = commands.module("probe", "--folder=a b")
    assert command == f"{sys.executable} -m probe '--folder=a b'"
    assert shell(command) == _probe(["--folder=a b"])
    monkeypatch.setenv("PATH", f"{os.path.dirname(sys.executable)}:/usr/bin:/bin")
    command = commands.module("probe")
    assert command in ("python -m probe", "python3 -m probe")
    assert shell(command) == _probe([])


def test_under_uv_the_command_begins_with_it(shell, tmp_path, monkeypatch):
    uv = _make_uv(tmp_path / "a folder" / ".uv" / "bin", monkeypatch)
    command = commands.module("probe", "1")
    assert command == ".uv/bin/uv run python -m probe 1"
    assert shell(command) == _probe(["1"])
    monkeypatch.setenv("PATH", f"{uv.parent}:/usr/bin:/bin")
    assert commands.module("probe", "1") == "uv run python -m probe 1"
    assert shell("uv run python -m probe 1") == _probe(["1"])
    assert commands.in_text("  python -m launch.lower --seed=1") == (
        "  uv run python -m launch.lower --seed=1"
    )


def test_a_uv_outside_of_the_folder_has_its_path(shell, tmp_path, monkeypatch):
    uv = _make_uv(tmp_path / "other folder", monkeypatch)
    command = commands.module("probe")
    assert command == f"'{uv}' run python -m probe"
    assert shell(command) == _probe([])


def test_a_uv_that_started_another_environment_is_not_used(shell, tmp_path, monkeypatch):
    _make_uv(tmp_path / "bin", monkeypatch)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path))
    assert commands.module("probe") == f"{sys.executable} -m probe"
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    monkeypatch.setenv("UV", str(tmp_path / "gone"))
    assert commands.module("probe") == f"{sys.executable} -m probe"


def test_an_extra_is_added_to_those_that_are_installed(shell, tmp_path, monkeypatch):
    error = MissingExtraError("--format=onnx", "onnx", ImportError("No module named 'onnx'"))
    assert str(error) == "--format=onnx needs the extra `onnx` (No module named 'onnx')"
    assert app._remedy(ValueError()) == ""
    assert app._remedy(error).endswith(
        f"add it with: {sys.executable} -m pip install --no-deps -r requirements_extras.txt"
    )
    _make_uv(tmp_path / "a folder" / ".uv" / "bin", monkeypatch)
    spec = importlib.machinery.ModuleSpec("probe", None)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", spec)
    monkeypatch.setattr(sys, "argv", ["probe", "--run=a b"])
    command = app._remedy(error).removeprefix("; add it with: ")
    assert command == ".uv/bin/uv run --extra onnx python -m probe '--run=a b'"
    assert shell(command) == _probe(["--run=a b"])


def test_nothing_else_writes_a_command(project_root):
    found = []
    for package in ("launch", "tff_ssl", "datasets"):
        for path in (project_root / package).rglob("*.py"):
            name = str(path.relative_to(project_root))
            if name not in _WRITERS:
                found += [f"{name}: {text}" for text in _texts(path) if _PASTEABLE.search(text)]
    # The path of the interpreter stands before this one, because `datasets` stands alone.
    assert found == ["datasets/tfds_images.py:  -m tensorflow_datasets.scripts.cli.main build "]


def _texts(path):
    """The strings of a module that are no docstrings; those of scripts' help are adapted."""
    tree = ast.parse(path.read_text())
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and ast.get_docstring(node, clean=False) is not None
    }
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and id(node) not in docstrings:
            yield node.value
