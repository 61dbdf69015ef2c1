"""Records of runs: a file has what the folders have, in lines that can be compared."""

import json
import math

import pytest

from tff_ssl.errors import ConfigurationError
from tff_ssl.reporting import records

IDENTITY = {"experiment": "e", "scale": "cpu", "dataset": None, "rounds": 3}
ENTRY = {"protocol": "linear", "labels": 10, "accuracy": 0.1 + 0.2}


def write(folder, cell, seed, summary, **results):
    run = folder / cell / f"seed{seed}"
    run.mkdir(parents=True)
    for name, content in results.items():
        (run / f"{name}.json").write_text(json.dumps(content))
    if summary:
        (run / "done.json").write_text(json.dumps(summary))
    return run


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "runs"
    summary = {"seconds": 3, "evaluations": [["--protocol=knn"]], "flags": {"alpha": "0"}}
    curve = {"training_minutes": math.pi, "knn": [[1, 2 / 3]]}
    for seed in (10, 9):
        both = {"result_knn": ENTRY, "result": [ENTRY, ENTRY]}
        write(folder, "b", seed, {**summary, **curve}, **both)
    write(folder, "a", 0, {**summary, "flags": {"alpha": "1"}, **curve}, result=[])
    write(folder, "a", 1, {**summary, **curve}, result=[])
    failed = write(folder, "b", 0, {})
    failed.joinpath("failed.json").write_text('{"reason": "nan", "flags": {"alpha": "0"}}')
    goes_on = write(folder, "a", 2, {}, result=[ENTRY])
    goes_on.joinpath("metrics.csv").write_text("round,seconds,knn_accuracy\n1,60,0.5\n")
    (folder / records.IDENTITY).write_text(json.dumps(IDENTITY))
    (folder / "partitions" / "p").mkdir(parents=True)
    (folder / "partitions" / "p" / "partition.json").write_text('{"picture": {"title": "t"}}')
    return folder


def test_names_of_classes_may_have_any_character(folder, tmp_path):
    path = folder / "a" / "seed0" / "result.json"
    path.write_text(json.dumps([{**ENTRY, "class_accuracies": {"a\u2028b\u0085": 0.5}}]))
    exported = tmp_path / "e-cpu.jsonl"
    exported.write_text(records.to_text(records.read_folder(folder)))
    (entry,) = records.read_file(exported).runs["a"][0].entries
    assert entry["class_accuracies"] == {"a\u2028b\u0085": 0.5}


def test_a_file_has_the_runs_of_a_folder_that_are_over_with_the_same_figures(folder, tmp_path):
    found = records.read_folder(folder)
    path = tmp_path / "e-cpu.jsonl"
    path.write_text(records.to_text(found))
    again = records.read_file(path)
    assert again.identity == IDENTITY
    assert again.partitions == {"p": {"title": "t"}}
    assert {cell: sorted(runs) for cell, runs in again.runs.items()} == {
        "a": [0, 1], "b": [0, 9, 10],
    }  # fmt: skip
    for cell in ("a", "b"):
        for seed, run in again.runs[cell].items():
            before = found.runs[cell][seed]
            assert run.entries == before.entries
            for name in ("summary", "failure", "training"):
                assert getattr(run, name) == getattr(before, name)
    assert [entry["accuracy"] for entry in again.of_cell("b")[1].entries] == [0.1 + 0.2] * 3
    assert again.of_cell("b")[2].summary["training_minutes"] == math.pi
    # The run that continues has its metrics, and no summary.
    going = found.of_cell("a")[2]
    assert (going.summary, going.training["knn"], going.is_over) == ({}, [[1, 0.5]], False)


def test_lines_are_sorted_and_flags_stand_once_for_runs_that_share_them(folder):
    lines = [json.loads(line) for line in records.to_text(records.read_folder(folder)).splitlines()]
    assert lines[0] == IDENTITY
    order = [(line.get("partition"), line.get("cell"), line.get("seed")) for line in lines[1:]]
    assert order == [
        ("p", None, None),
        (None, "a", None), (None, "a", 0), (None, "a", None), (None, "a", 1),
        # The run that failed has no evaluations.
        (None, "b", None), (None, "b", 0), (None, "b", None), (None, "b", 9), (None, "b", 10),
    ]  # fmt: skip
    assert lines[2] == {
        "cell": "a", "flags": {"alpha": "1"}, "evaluations": [["--protocol=knn"]]
    }  # fmt: skip


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("{", "line 2"),
        ('{"cell": "never named", "seed": 0}', "line 2"),
        ('{"seed": 0}', "line 2"),
        ("3", "line 2"),
        ('{"cell": "a"}\n{"cell": "a", "seed": 0, "results": {"result": {}}}', "line 3"),
        # Names of which paths are made.
        ('{"cell": "../../a"}', "line 2: '../../a' is no name"),
        ('{"cell": ".."}', "line 2"),
        ('{"cell": "a"}\n{"cell": "a", "seed": "/../../b"}', "line 3: '/../../b' is no seed"),
        ('{"cell": "a"}\n{"cell": "a", "seed": 0, "results": {"/etc/x": []}}', "line 3: '/etc/x'"),
        ('{"partition": "/etc/x"}', "line 2: '/etc/x' is no name"),
        ('{"partition": ["x"]}', "line 2"),
    ],
)
def test_a_damaged_line_is_named(tmp_path, line, place):
    path = tmp_path / "damaged.jsonl"
    path.write_text(f"{json.dumps(IDENTITY)}\n{line}\n")
    with pytest.raises(ConfigurationError, match=f"{path}, {place}"):
        records.read_file(path)
    path.write_text('{"cell": "a"}\n')
    with pytest.raises(ConfigurationError, match="does not name its experiment"):
        records.read_file(path)


def test_an_unfinished_run_takes_no_ones_place(folder):
    found = records.read_folder(folder)
    kept = records.merge(records.Records({}, {}), found, "x")
    assert sorted(kept.runs["a"]) == [0, 1]
    replaced = records.Run("new", {}, {"seconds": 1})
    merged = records.merge(kept, records.Records(IDENTITY, {"a": {0: replaced}, "c": {}}), "x")
    assert merged.runs["a"] == {0: replaced, 1: found.runs["a"][1]}
    assert sorted(merged.runs["b"]) == [0, 9, 10]
