"""What the `config.json` of a run, which may be a stranger's, does not choose."""

import os
import pathlib
import shutil
import sys

import pytest

from launch.options import command_line, encoders, resuming, settings
from launch.options.run_config import RunConfig
from launch.options.script_configs import EvaluateConfig
from launch.outputs import run_folder
from tests.launch import configs
from tff_ssl.algorithms import registry
from tff_ssl.errors import ConfigurationError


def begin(folder, *arguments):
    """Begins a run with these flags, and returns the content of its `config.json`."""
    config = configs.run(*arguments)
    run_folder.open_run(folder, settings.to_json(config), config.given, resume=False)
    return run_folder.read_config(folder)


def resume(folder, content, *arguments):
    line = ["x", "--resume", f"--output_dir={folder}", *arguments]
    return command_line.parse(RunConfig, "pretrain", line, content)[0]


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The name of a module that says whether it was imported."""
    name = f"stranger_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text("def build(): return 1 / 0\nENTRY = None\n")
    monkeypatch.syspath_prepend(tmp_path)
    return name


@pytest.mark.parametrize(
    ("flag", "find"),
    [
        ("algorithm", lambda config: registry.find(config.algorithm.algorithm, None)),
        ("encoder", lambda config: encoders.find(config.model.encoder, "group")),
        ("encoders", lambda config: encoders.find(config.model.encoders[-1], "group")),
    ],
)
def test_code_of_a_file_is_imported_only_if_the_user_names_it(tmp_path, module, flag, find):
    attribute = "ENTRY" if flag == "algorithm" else "build"
    value = f"{'tiny,' * (flag == 'encoders')}{module}:{attribute}"
    content = {"flags": {flag: value.split(",") if flag == "encoders" else value}, "given": []}
    run_folder.write_json(tmp_path / "config.json", {"script": "pretrain", flag: value})
    for read in (
        lambda: resume(tmp_path, content),
        lambda: settings.build(RunConfig, content["flags"]),
    ):
        config = read()
        with pytest.raises(ConfigurationError, match=rf"add --\w+={module}:{attribute} if you"):
            find(config)
    assert module not in sys.modules
    config = resume(tmp_path, content, f"--{flag}={value}")
    with pytest.raises((ConfigurationError, ZeroDivisionError)):
        find(config)
    assert module in sys.modules


def test_an_evaluation_does_not_import_what_the_run_names(tmp_path, module):
    content = {"script": "pretrain", "algorithm": f"{module}:ENTRY", "encoder": f"{module}:build"}
    run_folder.write_json(tmp_path / "config.json", content | {"given": ["encoder"]})
    config = resuming.read_run(tmp_path)
    with pytest.raises(ConfigurationError, match=f"add --encoder={module}:build if you trust"):
        encoders.find(config.model.encoder, "group")
    with pytest.raises(ConfigurationError, match=f"add --algorithm={module}:ENTRY if you trust"):
        registry.find(config.algorithm.algorithm, None)
    assert module not in sys.modules


def test_names_of_keras_and_of_this_package_are_no_code_of_files(tmp_path):
    content = begin(tmp_path, "--encoder=keras:NoSuchNet", "--encoders=tiny,resnet18")
    config = resume(tmp_path, content)
    assert [encoders.find(name, "group") for name in config.model.encoders] == ["tiny", "resnet18"]
    with pytest.raises(ConfigurationError, match=r"Keras Applications has"):
        encoders.find(config.model.encoder, "group")


def test_a_run_connects_only_to_a_cluster_that_the_user_names(tmp_path):
    content = begin(tmp_path / "far", "--ray=10.1.2.3:6379")
    with pytest.raises(ConfigurationError, match=r"add --ray=10\.1\.2\.3:6379 if you trust it, or"):
        resume(tmp_path / "far", content)
    again = resume(tmp_path / "far", content, "--ray=10.1.2.3:6379")
    assert again.runtime.ray == "10.1.2.3:6379"
    content = begin(tmp_path / "here", "--ray=local:2")
    assert resume(tmp_path / "here", content).runtime.ray == "local:2"


def test_the_command_to_resume_names_what_has_to_be_given_again(tmp_path):
    own = ["--algorithm=my_decorr:ENTRY", "--encoders=tiny,a.b:c", "--ray=ray://host:10001"]
    begin(tmp_path, "--encoder=keras:A", *own)
    command = run_folder.resume_command(tmp_path)
    assert command.endswith(f" --output_dir={tmp_path} {' '.join(own)}")


def take_over(folder, *arguments):
    line = ["x", f"--run={folder}", *arguments]
    own, _ = command_line.parse(EvaluateConfig, "evaluate", line)
    values = settings.flat(resuming.read_run(folder))
    return resuming.take_over(own, values, ("dataset", "data_dir"), folder)


def test_a_run_from_elsewhere_does_not_choose_what_is_read(tmp_path, monkeypatch):
    made, moved = tmp_path / "made", tmp_path / "moved"
    begin(made, "--dataset=mnist", "--data_dir=/far/sets")
    assert take_over(made).data.data_dir == "/far/sets"
    (tmp_path / "link").symlink_to(made)
    assert take_over(tmp_path / "link").data.data_dir == "/far/sets"
    shutil.copytree(made, moved)
    for read in (take_over, lambda run: resume(run, run_folder.read_config(run))):
        with pytest.raises(ConfigurationError, match=r"made elsewhere.*add --data_dir=/far/sets"):
            read(moved)
    assert take_over(moved, "--data_dir=/near").data.data_dir == "/near"
    # Resuming it there makes it this folder's run.
    config = resume(moved, run_folder.read_config(moved), "--data_dir=/near")
    run_folder.open_run(moved, settings.to_json(config), config.given, resume=True)
    assert take_over(moved).data.data_dir == "/near"
    monkeypatch.setattr(os, "getuid", lambda: pathlib.Path(moved).stat().st_uid + 1)
    with pytest.raises(ConfigurationError, match=r"made elsewhere, by another user"):
        take_over(moved)


def test_a_run_of_an_earlier_release_counts_as_made_where_it_is(tmp_path):
    run_folder.write_json(
        tmp_path / "config.json", {"script": "pretrain", "data_dir": "/sets", "dataset": "mnist"}
    )
    assert take_over(tmp_path).data.data_dir == "/sets"
