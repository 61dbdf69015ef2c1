"""The page of a run: what it says, and that it fits screens."""

import dataclasses
import json
import re
import types

import numpy as np
import pytest

from launch.outputs import partition_record
from launch.outputs.commands import module
from launch.pages import model_card, run_files, run_page, run_text
from launch.runs import training
from tests import browser
from tests.launch.pages import run_folders
from tests.launch.pages.run_folders import CLASSES, entry, write_run
from tff_ssl.errors import ConfigurationError
from tff_ssl.reporting.page import Picture


@pytest.fixture(scope="module")
def shown():
    return run_folders.shown(run_folders.images())


def sections(html):
    return re.findall(r"<h2>(.*?)</h2>", html)


def card_of(run):
    stored = types.SimpleNamespace(image_shape=(8, 8, 1), model=types.SimpleNamespace(features=64))
    return model_card.text(run_files.read(run), stored, "MIT", "Tests.")


def test_the_page_of_a_run_has_all_its_parts(tmp_path, shown):
    run = write_run(tmp_path / "my run", [entry(1), entry(5, 0.9, 0.6, 0.8)])
    page = run_page.write(run, run, shown)
    assert page == run / "run.html"
    html = page.read_text()
    assert sections(html) == [
        "Test accuracy", "Learning curves", "Clients and their images", "Augmented views",
        "2-D map of encodings", "Nearest neighbours", "Continue from here", "Flags of the run",
    ]  # fmt: skip
    # A probe; loss, rank and kNN; clients; two maps.
    assert html.count('class="chart"') == 1 + 3 + 1 + 2
    # Three photos a view, six a neighbour.
    assert html.count("data:image/png") == 8 * 3 + 12 * 6
    assert "--resume &#39;--output_dir=" in html  # The folder has a blank.
    assert "&lt;b&gt;=1" in html
    assert not re.search(r'(src|href)="https?:', html)
    assert not list(run.glob(".run.html*"))


def test_the_summary_says_what_was_trained_and_what_came_out(tmp_path):
    run = run_files.read(write_run(tmp_path / "run", [entry(1), entry(5, 0.9, 0.6, 0.8)]))
    assert run_text.title(run) == "dcco (cco) on digits: run"
    training, one, five, rank = run_text.summary(run)
    assert training == (
        "This run trained the encoder tiny with dcco (cco) for 4 rounds on 60 training images of "
        "digits. They are on 6 clients of 10 images, of which about 2.5 take part in a round. In a "
        "round, a client receives 1.28 MB and sends 0.64 MB. The rounds took 2 minutes together."
    )
    assert one == (
        "A linear classifier on the frozen encoder with 1 label a class gets 80.0 % of the test "
        "images right (against 40.0 % on the untrained encoder and 60.0 % on raw pixels)."
    )
    assert "5 labels a class gets 90.0 %" in five
    assert rank.endswith("encodings is 9.5; that of the untrained encoder is 20.2.")
    assert run_text.notes(run) == []


def test_the_summary_says_on_how_many_cases_or_images_a_score_is(tmp_path):
    fields = {"test_examples": 1494}
    results = [entry(1) | fields | {"per_case": True}, entry(5) | fields | {"per_case": False}]
    run = run_files.read(write_run(tmp_path / "run", results))
    _, cases, images, _ = run_text.summary(run)
    assert " gets 80.0 % of the 1,494 test cases right (" in cases
    assert " gets 80.0 % of the 1,494 test images right (" in images


def test_a_reader_is_warned(tmp_path):
    results = [entry(1, accuracy=0.5), entry(5, 0.3, effective_rank=2.0)]
    run = run_files.read(write_run(tmp_path / "run", results))
    run = run._replace(results=[r | {"effective_rank": 2.0} for r in results])
    collapsed, untrained, raw = run_text.notes(run)
    assert "collapsed" in collapsed
    assert untrained == "The encoder is below the untrained encoder with 5 labels a class."
    assert raw == "The encoder is below raw pixels with 1 label a class and 5 labels a class."


def test_commands_continue_the_run(tmp_path):
    folder = write_run(tmp_path / "run", [entry()])
    shown = dict(run_text.commands(run_files.read(folder)))
    resume = module("launch.pretrain", "--resume", f"--output_dir={folder}", "--rounds=8")
    assert shown["Continue training, e.g. to 8 rounds."] == resume
    assert module("launch.evaluate", f"--run={folder}", "--protocol=knn") in shown.values()
    stopped = run_files.read(write_run(tmp_path / "stopped", [], rounds=9, script="centralized"))
    resume = module("launch.centralized", "--resume", f"--output_dir={tmp_path}/stopped")
    assert run_text.commands(stopped)[0] == ("Continue the run where it stopped.", resume)
    (tmp_path / "stopped" / "checkpoints").mkdir()
    (tmp_path / "stopped" / "checkpoints" / "round_4.npz").touch()
    assert not any("launch.evaluate" in command for _, command in run_text.commands(stopped))


def test_commands_continue_what_the_run_allows(tmp_path):
    def first(name, **flags):
        return run_text.commands(run_files.read(write_run(tmp_path / name, [entry()], **flags)))[0]

    assert first("private", dp_epsilon=8.0)[0].startswith("Evaluate")  # More rounds are refused.
    evaluating = run_files.read(write_run(tmp_path / "evaluating", [], dp_epsilon=8.0))
    assert run_text.commands(evaluating)[0][0] == "Continue the run where it stopped."
    again = {"encoder": "mymod:net", "algorithm": "pkg:ENTRY", "ray": "10.0.0.1:6379"}
    for name, value in again.items():
        _, command = first(f"ended_{name}", **{name: value, "dp_epsilon": "inf"})
        assert command.endswith(f" --rounds=8 --{name}={value}")
        _, command = first(f"stopped_{name}", rounds=9, **{name: value})
        assert command.endswith(f"/stopped_{name} --{name}={value}")


def test_the_card_of_a_run_that_was_stopped_has_its_rounds(tmp_path):
    card = card_of(write_run(tmp_path / "run", [], rounds=9))
    assert "- rounds: 4 of 9, where the run was stopped\n" in card
    assert "The encoder has not been evaluated." in card
    assert "The figures are" not in card


def test_the_card_of_centralized_supervised_training_says_nothing_of_clients(tmp_path):
    run = write_run(tmp_path / "run", [])
    written = json.loads((run / "config.json").read_text())

    def card(**changes):
        config = written | {"partition": "dirichlet"} | changes
        (run / "config.json").write_text(json.dumps(config))
        return card_of(run)

    federated = card()
    assert "\ntags: [self-supervised, federated]\n" in federated
    assert "Clients were simulated: no devices took part." in federated
    assert "- partition: dirichlet\n" in federated
    assert "; commit 0123" in federated
    del written["algorithm"]  # The script has no such flag.
    flags = {"script": "centralized", "objective": "supervised"}
    centralized = card(**flags, batches="shuffled", git_commit=None)
    assert "\ntags: [supervised]\n" in centralized
    words = ("federated", "lients", "dirichlet", "commit", "None")
    assert not any(word in centralized for word in words)
    assert "\npython 3.\n" in centralized
    assert "- partition: dirichlet\n" in card(**flags, batches="cohorts")


def test_the_card_has_each_figure_once_and_none_of_other_images(tmp_path):
    other = {"dataset": "npz", "pretrained_on": "npz", "data_dir": "/images/b.npz"}
    results = [entry(1, 0.8), entry(1, 0.7), entry(1, 0.75, method="lars"), entry(1, 0.1, **other)]
    card = card_of(write_run(tmp_path / "run", results))
    rows = re.findall(r"^\| (linear.*?) \| (\S+)", card, re.MULTILINE)
    assert rows == [("linear, 1 per class", "0.800"), ("linear (lars), 1 per class", "0.750")]
    assert "warning" not in card


def test_notes_name_other_images(tmp_path):
    other = {"dataset": "npz", "pretrained_on": "npz", "data_dir": "/images/b.npz"}
    run = run_files.read(write_run(tmp_path / "run", [entry(1), entry(1, 0.5, **other)]))
    assert run_text.notes(run) == [
        "The encoder is below raw pixels with 1 label a class on npz b.npz."
    ]


def test_a_repeated_evaluation_is_stated_once(tmp_path):
    run = run_files.read(write_run(tmp_path / "run", [entry(1, 0.8), entry(1, 0.8)]))
    assert " ".join(run_text.summary(run)).count("1 label a class") == 1


@pytest.mark.parametrize(
    ("objective", "uses_first"), [("mae", True), ("supervised", True), ("cco", False)]
)
@pytest.mark.parametrize("results", [[], [entry()]])
def test_the_views_of_a_run_are_described_by_its_objective(
    tmp_path, shown, objective, uses_first, results
):
    results = [one | {"objective": objective} for one in results]
    run = write_run(tmp_path / "run", results, rounds=9, objective=objective)
    html = run_page.write(run, run, shown).read_text()
    assert ("This objective uses the first view only." in html) == uses_first
    assert ("learns to encode both views alike" in html) != uses_first


def test_sentences_on_accuracies_are_of_their_protocols():
    def text(*protocols):
        return " ".join(run_text.measurements([{"protocol": name} for name in protocols]))

    frozen, tuned = "features of the frozen encoder", "trains the whole network with the labels"
    draws, clients = "over draws of the labels", "over clients"
    expected = {
        ("linear",): {frozen, draws},
        ("knn",): {frozen},
        ("supervised",): set(),
        ("finetune",): {tuned, draws},
        ("scratch", "transfer"): {frozen, tuned, draws},
        ("linear_personalized",): {frozen, clients},
        ("linear", "linear_personalized_tiny"): {frozen, draws, clients},
        ("supervised", "supervised_personalized"): {clients},
    }
    for protocols, sentences in expected.items():
        found = {one for one in (frozen, tuned, draws, clients) if one in text(*protocols)}
        assert found == sentences, protocols
    assert text("supervised") == "The model's own classifier was trained together with the encoder."


def test_a_run_that_was_stopped_has_a_page(tmp_path):
    run = write_run(tmp_path / "run", [], rounds=9, partition=False)
    html = run_page.write(run, tmp_path, None).read_text()
    assert "The run has no result yet: it was stopped after round 4 of 9." in html
    assert "for 4 of 9 rounds" in html
    assert sections(html) == ["Learning curves", "Continue from here", "Flags of the run"]
    run = write_run(tmp_path / "evaluating", [], rounds=4, script="centralized")
    (note,) = run_text.notes(run_files.read(run))
    assert note.endswith("it was stopped after its last step, before its end.")


def test_a_run_with_labels_and_no_test_images_is_not_called_stopped(tmp_path, shown):
    run = write_run(tmp_path / "run", training.with_fields([], {"effective_rank": 9.5}))
    html = run_page.write(run, run, shown).read_text()
    assert "no result, because its data have no test images with labels" in html
    assert "stopped" not in html
    assert not (run / "embed.html").exists()


@pytest.mark.parametrize("class_names", [CLASSES, ()])
def test_a_run_without_labels_has_a_page_of_its_images(tmp_path, class_names):
    dataset = run_folders.images(channels=3, labelled=False)
    names = tuple(f"photo <{k}>.png" for k in range(90))
    dataset = dataclasses.replace(dataset, class_names=class_names, file_names=names)
    ranks = {"effective_rank": 9.5, "effective_rank_untrained": 20.2}
    entries = training.with_fields([], ranks)
    run = write_run(tmp_path / "run", entries, dataset="case_folder", data_dir="/a/folder")
    clients = np.split(np.arange(60), 6)
    record = partition_record.describe_clients(dataset.train, clients, class_names)
    (run / "partition.json").write_text(json.dumps(record))
    shown = run_folders.shown(dataset, encoders=(run_page.TRAINED,))
    html = run_page.write(run, run, shown).read_text()
    assert "The training images have no labels" in html
    assert "effective rank of the encodings is 9.5; that of the untrained encoder is 20.2" in html
    assert "Test accuracy" not in html
    assert '<a href="embed.html">' in html
    assert "stopped" not in html
    assert sections(html) == [
        "Learning curves", "Clients and their images", "Augmented views", "Continue from here",
        "Flags of the run",
    ]  # fmt: skip
    assert "by class" not in html  # No chart of grey bars.
    page = (run / "embed.html").read_text()
    assert "60 training images of /a/folder, without labels" in page
    assert "photo &lt;7&gt;.png" in page
    assert module("launch.embed", f"--run={run}", "--data_dir=/a/folder") in page


def test_the_same_run_has_the_same_page(tmp_path, shown):
    run = write_run(tmp_path / "run", [entry()])
    once = run_page.write(run, run, shown).read_bytes()
    assert run_page.write(run, run, shown).read_bytes() == once


def test_pictures_of_clients_can_be_added(tmp_path):
    run = write_run(tmp_path / "run", [entry()])
    pictures = [Picture(b"\x89PNG", "features of global, client 0")]
    html = run_page.write(run, run, None, more_pictures=pictures).read_text()
    assert "Clients&#39; own encoders" in sections(html)


def test_a_folder_without_a_run_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match=f"{tmp_path} holds no run"):
        run_files.read(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigurationError, match=r"config\.json cannot be read"):
        run_files.read(tmp_path)
    run = write_run(tmp_path / "run", [entry()])
    (run / "result.json").write_text(json.dumps([{"labels": 1}]))
    with pytest.raises(ConfigurationError, match=r"result\.json"):
        run_files.read(run)


@pytest.mark.slow
def test_nothing_overflows_in_a_browser(tmp_path, shown):
    results = [
        entry(1), entry(5, 0.9), entry(5, 0.9, protocol="semi_supervised"),
        entry(5, protocol="linear_personalized", balanced_accuracy=0.3),
    ]  # fmt: skip
    run = write_run(tmp_path / ("a_long_name_of_a_run_" * 6), results)
    browser.check_layout(run_page.write(run, run, shown))
