"""The page that puts runs side by side."""

import re

import numpy as np
import pytest

from launch.outputs import plots
from launch.pages import charts, comparison_page, run_files, run_page, seed_groups
from tests import browser
from tests.launch.pages import run_folders
from tests.launch.pages.run_folders import entry, write_run
from tff_ssl.reporting import over_seeds


@pytest.fixture(scope="module")
def shown():
    return run_folders.shown(run_folders.images(), encoders=(run_page.TRAINED,))


def write(folder, runs, shown):
    names = comparison_page.run_names(runs)
    files = dict(zip(names, map(run_files.read, runs), strict=True))
    return comparison_page.write(files, folder, dict.fromkeys(names, shown))


def test_two_runs_stand_side_by_side(tmp_path, shown):
    first = write_run(tmp_path / "first", [entry(1), entry(5, 0.9)])
    second = write_run(tmp_path / "second", [entry(1, 0.7)], algorithm="fedavg", rounds=4)
    html = write(tmp_path, [first, second], shown).read_text()
    assert "<th>first</th><th>second</th>" in html
    # The probe with one label that both have; loss, rank and kNN; two partitions; two maps.
    assert html.count('class="chart"') == 1 + 3 + 2 + 2
    assert "linear, 1 label a class. first: 80.0 % ± 1.0; second: 70.0 % ± 1.0" in html
    flags = html.split("Flags that differ</h2>")[1]
    assert re.findall(r"<td>--(\w+)</td><td>(\w+)</td><td>(\w+)</td>", flags) == [
        ("algorithm", "dcco", "fedavg")
    ]


def test_all_marks_and_deviations_are_explained(tmp_path):
    results = [entry(1), entry(1, protocol="linear_personalized")]
    runs = [write_run(tmp_path / name, results) for name in ("a", "b")]
    html = write(tmp_path, runs, None).read_text()
    assert "grey the untrained encoder, brown raw pixels, purple the pretrained encoder" in html
    assert "gold an encoder trained on ImageNet." in html
    assert "over draws of the labels and over clients for their personalized models." in html


def test_equal_runs_have_no_flags_that_differ(tmp_path, shown):
    runs = [write_run(tmp_path / name, [entry()]) for name in ("a", "b", "c")]
    html = write(tmp_path, runs, shown).read_text()
    assert "The runs have the same flags." in html
    assert "<h1>a, b and c</h1>" in html
    assert "<td>effective rank, untrained</td><td>20.25</td>" in html


def test_rounds_of_compared_curves_are_whole_numbers(monkeypatch):
    figures = []
    monkeypatch.setattr(charts, "_picture", lambda figure, *_: figures.append(figure))
    points = np.array([[1.0, 9.0], [2.0, 7.0]])
    panels = [plots.Panel("loss", "round", {"": points})]
    charts.compared_curves({"a": panels, "b": panels})
    (axes,) = figures[0].axes
    assert all(tick == int(tick) for tick in axes.get_xticks())


def test_runs_without_encoders_are_compared_by_their_files(tmp_path):
    runs = [write_run(tmp_path / name, [], rounds=9, partition=False) for name in ("a", "b")]
    html = write(tmp_path, runs, None).read_text()
    assert re.findall(r"<h2>(.*?)</h2>", html) == ["Learning curves", "Flags that differ"]


def test_names_are_as_short_as_they_can_be(tmp_path):
    folders = [tmp_path / "dcco" / "seed0", tmp_path / "fedavg" / "seed0"]
    assert comparison_page.run_names(folders) == ["dcco/seed0", "fedavg/seed0"]
    assert comparison_page.run_names([tmp_path / "a", tmp_path / "b"]) == ["a", "b"]
    assert len(set(comparison_page.run_names([tmp_path, tmp_path]))) == 2


def test_runs_that_differ_in_their_seed_have_mean_and_deviation_and_pairs(tmp_path):
    accuracies = {"a": (0.8, 0.9, 0.7), "b": (0.7, 0.75, 0.71)}
    runs = [
        write_run(tmp_path / name / f"seed_{seed}", [entry(1, value)], seed=seed, rounds=rounds)
        for (name, values), rounds in zip(accuracies.items(), (8, 9), strict=True)
        for seed, value in enumerate(values)
    ]
    html = write(tmp_path, runs, None).read_text()
    section = html.split("Mean and deviation over seeds</h2>")[1].split("<h2>")[0]
    assert "<th>a</th><th>b</th>" in section
    assert "<td>seeds</td><td>0, 1, 2</td><td>0, 1, 2</td>" in section
    for values in accuracies.values():
        assert f"{100 * np.mean(values):.1f} ± {100 * np.std(values, ddof=1):.1f}" in section
    differences = np.subtract(*(accuracies[name] for name in "ba"))
    paired = f"{100 * np.mean(differences):+.1f} ± {100 * np.std(differences, ddof=1):.1f}"
    assert "<th>b minus a</th>" in section
    assert f"<td>linear, 1 label a class</td><td>{paired}</td>" in section


def test_means_over_seeds_are_of_the_same_measurements_as_their_runs(tmp_path):
    other = {"dataset": "case_folder", "pretrained_on": "digits", "data_dir": "/images/b"}
    entries = [entry(1, 0.8), entry(1, 0.7, method="lars"), entry(5, 0.6, **other)]
    runs = {
        f"seed_{seed}": run_files.read(write_run(tmp_path / f"seed_{seed}", entries, seed=seed))
        for seed in (0, 1)
    }
    (means,) = seed_groups.mean_results(seed_groups.group(runs)).values()
    assert [over_seeds.measured(mean) for mean in means] == [*map(over_seeds.measured, entries)]
    assert [mean["accuracy"] for mean in means] == pytest.approx([0.8, 0.7, 0.6])


def test_runs_with_the_same_seed_or_other_flags_are_not_one_group(tmp_path):
    runs = {
        name: run_files.read(write_run(tmp_path / name, [], seed=seed, rounds=rounds))
        for name, seed, rounds in (("a", 0, 8), ("b", 0, 8), ("c", 1, 8), ("d", 1, 9))
    }
    assert [list(of_seed) for of_seed in seed_groups.group(runs).values()] == [[0, 1], [0], [1]]
    assert list(seed_groups.group(runs)) == ["a, c", "b", "d"]


@pytest.mark.slow
def test_nothing_overflows_in_a_browser(tmp_path, shown):
    runs = [write_run(tmp_path / f"a_long_name_of_run_{k}", [entry(1)], seed=k) for k in range(4)]
    browser.check_layout(write(tmp_path, runs, shown))
