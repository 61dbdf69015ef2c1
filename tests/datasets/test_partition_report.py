"""The script `launch.partition_report` as a process: files, numbers, and errors of one line."""

import json
import pathlib
import sys

import pytest
from PIL import Image

from tests import programs
from tests.launch.mistakes import messages

ROOT = pathlib.Path(__file__).parents[2]


def run(output_dir, *flags):
    return programs.run(
        [sys.executable, "-m", "launch.partition_report", f"--output_dir={output_dir}", *flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_default_report(tmp_path):
    result = run(tmp_path / "report")
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    report = json.loads((tmp_path / "report" / "partition.json").read_text())
    assert report["examples"] == 1438
    assert report["client_sizes"]["max"] == 4
    assert report["classes_per_client"]["max"] == 1
    assert report["examples_left_out"] == 0
    with Image.open(tmp_path / "report" / "partition.png") as image:
        image.verify()
    last = result.stdout.splitlines()[-2:]
    assert last == [
        f"wrote {tmp_path / 'report' / name}" for name in ("partition.json", "partition.png")
    ]


@pytest.mark.long
@pytest.mark.slow
def test_report_of_clusters_and_shifts(tmp_path):
    flags = ["--partition=feature_clusters", "--cluster_encoder=pixels", "--clusters=3"]
    flags += ["--num_clients=5", "--alpha=0.5", "--shift=rotation", "--data_fraction=0.5"]
    result = run(tmp_path / "report", *flags)
    assert result.returncode == 0, result.stderr
    report = json.loads((tmp_path / "report" / "partition.json").read_text())
    assert sum(report["cluster_sizes"]) == 1438 == report["examples"] + report["examples_left_out"]
    assert 713 <= report["examples_left_out"] <= 725
    assert 0 < report["cluster_emd"] < 2
    expected = {"cluster_encoder", "clusters", "cluster_partition", "num_clients", "alpha"}
    assert set(report["flags"]) - {"balance_sizes", "data_fraction", "shift", "shifts"} == expected
    for name in ("partition.png", "images.png"):
        with Image.open(tmp_path / "report" / name) as image:
            image.verify()


@pytest.mark.long
@pytest.mark.slow
def test_report_of_clients_that_are_filled_up(tmp_path):
    flags = ["--partition=dirichlet_per_class", "--num_clients=30", "--alpha=0.05"]
    result = run(tmp_path / "report", *flags, "--min_client_size=8")
    assert result.returncode == 0, result.stderr
    report = json.loads((tmp_path / "report" / "partition.json").read_text())
    assert report["flags"]["min_client_size"] == report["client_sizes"]["min"] == 8
    assert report["clients_filled_up"] > 0
    printed = [line.split() for line in result.stdout.splitlines()]
    assert ["filled", "up", "to", "8", str(report["clients_filled_up"]), "clients"] in printed


@pytest.mark.slow
def test_mistakes_are_one_line(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "metadata.csv").write_text("file_name,case_id,label,split\nmissing.jpg,c1,a,train\n")
    mistakes = (
        ("alpha", ["--alpha=-1"]),
        ("beta", ["--partition=skew", "--num_clients=5"]),
        ("data_dir", ["--dataset=cifar10", "--data_dir=/nonexistent/folder"]),
        (
            "metadata.csv row 2: missing.jpg: no such file: correct its name, or remove the row",
            ["--dataset=case_folder", f"--data_dir={data}"],
        ),
        (
            f"report lies in --data_dir={tmp_path}, where its pictures would be taken for images",
            ["--dataset=case_folder", f"--data_dir={tmp_path}"],
        ),
    )
    flags = [[f"--output_dir={tmp_path / 'report'}", *more] for _, more in mistakes]
    lines = messages(ROOT, "partition_report", flags)
    for (named, _), line in zip(mistakes, lines, strict=True):
        assert line.startswith("error: ")
        assert named in line
    assert not (tmp_path / "report").exists()
