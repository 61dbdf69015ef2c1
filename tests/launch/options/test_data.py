"""Flags of data sets: where results may not go, and choices that hold for a whole run."""

import os

import pytest

from launch.options import command_line, data, resuming, settings
from launch.options.run_config import RunConfig
from launch.options.script_configs import DetectConfig, EmbedConfig, EvaluateConfig
from launch.outputs import run_folder
from launch.partition_report import PartitionReportConfig
from launch.reproduce import ReproduceConfig
from launch.runs import embedding
from tff_ssl.errors import ConfigurationError


def parse(cls, script, *flags):
    return command_line.parse(cls, script, [script, *map(str, flags)])[0]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of images, to which a link leads."""
    folder = tmp_path / "data"
    (folder / "cat").mkdir(parents=True)
    (tmp_path / "link").symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.mark.parametrize(
    ("cls", "script"),
    [
        (RunConfig, "pretrain"), (RunConfig, "centralized"), (RunConfig, "lower"),
        (EvaluateConfig, "evaluate"), (EmbedConfig, "embed"), (DetectConfig, "detect"),
        (PartitionReportConfig, "partition_report"),
    ],
)  # fmt: skip
def test_results_among_the_images_are_refused(folder, cls, script):
    dataset = [] if script in ("embed", "detect") else ["--dataset=case_folder"]
    for data_dir in (folder, "data", "link"):
        for output in (folder, folder / "run", "data/cat/deep/run", "link/run"):
            with pytest.raises(ConfigurationError, match=r"--output_dir=.* lies in --data_dir=.*:"):
                parse(cls, script, *dataset, f"--data_dir={data_dir}", f"--output_dir={output}")
        parse(cls, script, *dataset, f"--data_dir={data_dir}", "--output_dir=data_run")


def test_the_default_folder_of_results_may_lie_among_the_images(folder, monkeypatch):
    monkeypatch.chdir(folder)
    with pytest.raises(ConfigurationError, match=r"--output_dir is not given, and results/ lies"):
        parse(RunConfig, "pretrain", "--dataset=case_folder", "--data_dir=.")
    # Its default is the folder of the run.
    parse(EvaluateConfig, "evaluate", "--dataset=case_folder", "--data_dir=.")
    # Prepared sets have folders of their own beside which results are no images.
    parse(RunConfig, "pretrain", "--dataset=cifar10", "--data_dir=.")


def test_reproductions_may_write_beside_prepared_sets(folder):
    folders = ["--data_dir=data", "--output_dir=data/out"]
    parse(ReproduceConfig, "reproduce", *folders)
    with pytest.raises(ConfigurationError, match="lies in --data_dir"):
        parse(ReproduceConfig, "reproduce", *folders, "--dataset=case_folder")


def test_the_images_of_a_run_count_as_given_ones(folder):
    run = {"dataset": "case_folder", "data_dir": str(folder)}
    config = parse(EvaluateConfig, "evaluate", "--output_dir=data/evaluated")
    with pytest.raises(ConfigurationError, match="lies in --data_dir"):
        resuming.take_over(config, run, data.IMAGE_FLAGS)


def test_a_run_among_its_images_can_be_resumed(folder):
    content = {"data": {"dataset": "case_folder", "data_dir": str(folder)}, "given": []}
    run_folder.write_json(folder / "config.json", content)
    before = run_folder.read_config(folder)
    arguments = ["pretrain", "--resume", f"--output_dir={folder}"]
    config, _ = command_line.parse(RunConfig, "pretrain", arguments, before)
    assert config.data.data_dir == str(folder)


def test_choices_belong_to_the_images_of_a_run(folder):
    flags = ["--dataset=case_folder", f"--data_dir={folder}", "--follow_links", "--skip_broken"]
    config = parse(RunConfig, "pretrain", *flags)
    assert (config.data.follow_links, config.data.skip_broken) == (True, True)
    run = settings.flat(config)
    taken = resuming.take_over(parse(EvaluateConfig, "evaluate"), run, data.IMAGE_FLAGS)
    assert (taken.data.follow_links, taken.data.skip_broken) == (True, True)
    other = parse(EvaluateConfig, "evaluate", "--dataset=cifar10")
    assert not resuming.take_over(other, run, data.IMAGE_FLAGS).data.follow_links
    # launch.embed reads the folder as the run has read it, unless it is another one.
    folder.with_name("run").mkdir()
    run_folder.write_json(folder.with_name("run") / "config.json", settings.to_json(config))
    for data_dir, is_same in ((os.path.relpath(folder), True), (folder.parent, False)):
        own = parse(EmbedConfig, "embed", "--run=run", f"--data_dir={data_dir}", "--output_dir=/x")
        own = embedding.as_run(own)
        assert (own.follow_links, own.skip_broken) == (is_same, is_same)


def test_notes_are_printed_whatever_names_of_files_are(capsys):
    data.print_notes(["1 link: K\udce4fer", "warning: all images are equal"])
    assert capsys.readouterr().out == ("note: 1 link: K\\udce4fer\nwarning: all images are equal\n")


@pytest.mark.parametrize("choice", ["follow_links", "skip_broken"])
def test_choices_are_refused_where_they_do_nothing(choice):
    for dataset in ("digits", "cifar10", "npz"):
        with pytest.raises(ConfigurationError, match=f"--{choice} is for --dataset=case_folder"):
            parse(RunConfig, "pretrain", f"--dataset={dataset}", f"--{choice}", "--data_dir=x")


def test_a_run_without_the_choices_can_be_resumed(tmp_path):
    content = settings.to_json(parse(RunConfig, "pretrain", f"--output_dir={tmp_path / 'run'}"))
    before = {**content, "data": {k: v for k, v in content["data"].items() if "link" not in k}}
    run_folder.open_run(tmp_path, before, [], resume=False)
    run_folder.open_run(tmp_path, content, [], resume=True)
    content["data"]["follow_links"] = True
    with pytest.raises(ConfigurationError, match="follow_links=True"):
        run_folder.open_run(tmp_path, content, [], resume=True)
