"""Every code block of README and docs is run, parsed, or compared with what is printed."""

import collections
import csv
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from datasets import case_folder
from launch.options import hyperparameters, settings
from launch.studies import catalog
from launch.studies.engine import runner
from tests import programs
from tests.documentation.pages import ROOT, blocks, commands, pages
from tff_ssl.algorithms import registry

# Commands that no test runs: they install packages, need two machines, or are the tests themselves.
NOT_PARSED = (
    "python3 -m pip install --target .uv uv",
    "python3 -m venv .venv",
    ".venv/bin/pip install --no-deps -r requirements.txt",
    ".venv_flower/bin/pip install -r launch/benchmarks/peer_side/flower_requirements.txt",
    ".venv_pfl/bin/pip install -r launch/benchmarks/peer_side/pfl_requirements.txt",
    ".venv_torch/bin/pip install -r launch/benchmarks/peer_side/torch_requirements.txt",
    "python3 -m pip wheel --no-deps -w dist .",
    ".venv/bin/pip install --no-deps dist/tff_ssl-*.whl",
    "uv run --extra ray ray --version",
    "uv run ray start",
    "export RAY_",
    'export PATH="$PWD/.uv/bin:$PATH"',
    "scp /srv/run/clients.sqlite",
    "uv run pytest",
    ".uv/bin/uv run pytest",
    "uv run --group docs python -m sphinx -W docs build/site",
    "uv run .ci/",
    "bash .ci/",
    "tar -czf ",
    "uv venv --python 3.11 flower_env",
    "uv pip install --python flower_env --no-deps --require-hashes",
)
# Pages whose blocks have tests of their own, beside this module's.
OWN_TESTS = (
    "docs/your_own_algorithm.md", "docs/production.md", "docs/tff_programs.md", "docs/encoder.md",
)  # fmt: skip
WITH_PROGRAMS = {"README.md", "docs/own_models.md", "docs/reference/index.md", *OWN_TESTS}
_PYTHON = r"(?:(?:\.uv/bin/)?uv run (?:--extra \w+ )?|\.venv/bin/)?python"
SCRIPT = re.compile(rf"(?:[A-Z_]+=\S+ )?{_PYTHON} -m launch\.([\w.]+)(.*)")
LISTS_SCRIPTS = "uv run python -m launch"  # Another test runs it.


def test_every_block_is_of_a_kind_that_is_tested():
    kinds = {(block.page, block.language) for block in blocks()}
    assert {language for _, language in kinds} <= {"bash", "python", "text", "kotlin"}
    assert {page for page, language in kinds if language == "python"} <= WITH_PROGRAMS
    assert {page for page, language in kinds if language == "text"} == {
        "docs/data.md", "docs/flower.md", "docs/tff_programs.md",
    }  # fmt: skip


def test_every_command_is_a_script_or_one_of_the_listed_ones():
    for page, command in commands():
        if command == LISTS_SCRIPTS:
            continue
        assert SCRIPT.fullmatch(command) or command.startswith(NOT_PARSED) or (
            page in OWN_TESTS and command.startswith("uv run python -m launch.pretrain --list |")
        ), (page, command)  # fmt: skip


def test_commands_of_noted_figures_name_modules_and_tests_that_exist(project_root):
    lines = (project_root / "measured" / "noted.jsonl").read_text().splitlines()
    text = "\n".join(json.loads(line)["command"] or "" for line in lines)
    modules = set(re.findall(r"\b(launch\.[\w.]+)", text))
    tests = set(re.findall(r"\btests/[\w./]*\w", text))
    assert len(modules) > 8
    assert len(tests) > 5
    assert {name for name in modules if importlib.util.find_spec(name) is None} == set()
    assert {path for path in tests if not (project_root / path).exists()} == set()


def test_the_flags_of_all_commands_are_accepted(project_root, monkeypatch):
    monkeypatch.chdir(project_root)
    by_script = collections.defaultdict(list)
    for page, command in commands():
        if match := SCRIPT.fullmatch(command.partition(" | ")[0]):
            by_script[match[1]].append((page, match[2].strip()))
    assert {"pretrain", "evaluate", "reproduce", "lower", "benchmark"} <= by_script.keys()
    for script, found in by_script.items():
        done = programs.run(
            [sys.executable, "-m", "tests.documentation.check_flags", script],
            input="".join(f"{flags}\n" for _, flags in found),
            capture_output=True, text=True, timeout=1200, check=False,
        )  # fmt: skip
        errors = done.stdout.splitlines()
        assert len(errors) == len(found), done.stderr
        assert not any(errors), [pair for pair in zip(found, errors, strict=True) if pair[1]]
        if script in ("pretrain", "lower"):
            for page, flags in found:
                if page not in OWN_TESTS:
                    check_hyperparameters(shlex.split(flags))
        if script == "reproduce":
            for _, flags in found:
                check_experiment(runner.effective_flags(shlex.split(flags)))


def check_hyperparameters(arguments):
    values = runner.effective_flags(arguments)
    algorithm = registry.find(values.get("algorithm", "dcco"), values.get("objective"))
    assignments = [
        f"{name.removeprefix('hparam.')}={value}"
        for name, value in values.items()
        if name.startswith("hparam.")
    ]
    hyperparameters.parse(algorithm.hyperparameters, assignments)


def check_experiment(values):
    if "experiment" in values:
        build, _ = catalog.EXPERIMENTS[values["experiment"]]
        experiment = build(values.get("scale", "cpu"), values.get("dataset"), None)
        patterns = [p.removesuffix("*") for p in values.get("only", "").split(",") if p]
        for pattern in patterns:
            assert any(cell.name.startswith(pattern) for cell in experiment.cells), pattern


def test_flags_and_files_that_texts_name_exist(project_root):
    """Inline code such as `--label_draws` and `launch/presets/digits/fedu.flags`."""
    known = set()
    scripts = (project_root / "launch").glob("**/*.py")
    for path in scripts:
        if "\nSCRIPT = " in path.read_text():
            name = ".".join(path.relative_to(project_root).with_suffix("").parts)
            known |= set(settings.settings(importlib.import_module(name).SCRIPT.config))
    others = {"everything", "extra", "flagfile", "group", "help", "inexact", "logdir", "no-deps"}
    others |= {"database", "target", "trusted-entities"}
    for page in pages():
        for code in re.findall(r"`([^`\n]+)`", page.read_text()):
            for flag in re.findall(r"(?<![\w-])--([a-z][\w-]*)", code):
                assert flag in known | others or flag.removeprefix("no") in known, (page, code)
            is_path = re.fullmatch(r"(launch|tff_ssl|datasets|tests|docs|measured)/[\w/.]+", code)
            if is_path and str(page.relative_to(ROOT)) not in OWN_TESTS:
                pattern = re.sub(r"[A-Z]{4,}", "*", code.rstrip("/"))
                assert list(project_root.glob(pattern)), (page, code)


def test_links_between_pages_lead_somewhere():
    for page in pages():
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            path, _, _ = target.partition("#")
            built = path.startswith(("learn/", "../learn/", "generated/"))
            if path and not built and not re.match(r"https?:", path):
                assert (page.parent / path).exists(), (page, target)


def test_the_table_of_own_images_is_read(tmp_path):
    (block,) = [block for block in blocks("text") if block.page == "docs/data.md"]
    rows = list(csv.DictReader(block.text.splitlines()))
    (tmp_path / "images").mkdir()
    for i, row in enumerate(rows):
        Image.fromarray(np.full((8, 8, 3), i, np.uint8)).save(tmp_path / row["file_name"])
    (tmp_path / "metadata.csv").write_text(block.text)
    train = case_folder.load(tmp_path).train
    assert len(train.images) == 4
    assert list(train.labels) == [1, 1, -1, 0]  # By the order of the names.
    assert len(set(train.case_ids)) == 3


@pytest.mark.long
@pytest.mark.slow
def test_the_program_with_an_own_model_prints_what_it_says(tmp_path):
    texts = [block.text for block in blocks("python") if block.page == "docs/own_models.md"]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", "\n".join(texts)],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=1200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == ["(4, 16)", "16"]


def test_pages_have_no_line_that_a_reader_cannot_use():
    for page in pages():
        text = page.read_text()
        assert "\t" not in text, page
        assert not re.search(r"TODO|FIXME|XXX", text), page


@pytest.mark.slow
@pytest.mark.xdist_group("finished run")
def test_the_encoder_of_a_run_is_used_as_printed(finished_run, tmp_path):
    """Both Python blocks of the page on encoders, in a folder with a run called RUN."""
    (tmp_path / "RUN").symlink_to(finished_run[0])
    texts = [block.text for block in blocks("python") if block.page == "docs/encoder.md"]
    assert len(texts) == 2
    for text in texts:
        done = programs.run(
            [sys.executable, "-c", text],
            cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert re.match(r"\(\d, \d+\)", done.stdout), done.stdout
