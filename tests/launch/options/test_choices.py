"""`--list`: all names in under a screen, and a topic with a line for each name."""

import sys

import pytest
from absl import flags

from datasets.partition import PARTITIONS
from launch import centralized, pretrain
from launch.options import choices
from launch.options.run_config import TOPICS
from tests.launch import configs
from tff_ssl.algorithms.registry import ALGORITHMS
from tff_ssl.models.dual_encoder import ENCODERS
from tff_ssl.objectives.registry import OBJECTIVES
from tff_ssl.views.policies import POLICIES


def test_all_names_fit_on_a_screen(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    pretrain.main(configs.run("--list"))
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert len(lines) < 24
    assert max(map(len, lines)) <= 100
    assert [line.split()[0] for line in lines if line[:1].isalpha()] == list(TOPICS)
    names = set(printed.replace(",", " ").split())
    assert {*ALGORITHMS, *OBJECTIVES, *ENCODERS, *POLICIES, *PARTITIONS} <= names


def test_other_programs_read_a_line_for_each_name(capsys):
    pretrain.main(configs.run("--list"))
    lines = [line.split(maxsplit=2) for line in capsys.readouterr().out.splitlines()]
    names = {kind: [name for of, name, _ in lines if of == kind] for kind, _, _ in lines}
    assert [kind[:4] for kind in names] == [topic[:4] for topic in TOPICS]
    assert names["algorithm"] == list(ALGORITHMS)
    assert {"erdos_renyi", "tree"} <= set(names["topology"])


@pytest.mark.parametrize(
    ("topic", "registry"),
    [("algorithms", ALGORITHMS), ("encoders", ENCODERS), ("views", POLICIES),
     ("partitions", PARTITIONS)],
)  # fmt: skip
def test_a_topic_has_a_line_for_each_name(capsys, topic, registry):
    pretrain.main(configs.run(f"--list={topic}"))
    lines = capsys.readouterr().out.splitlines()
    others = ["keras:NAME", "MODULE:FUNCTION"] if topic == "encoders" else []
    assert [line.split()[0] for line in lines] == [*registry, *others]
    assert all(len(line.split(maxsplit=1)[1]) > 3 for line in lines)
    centralized.main(configs.run(f"--list={topic}", script="centralized"))
    assert capsys.readouterr().out.splitlines() == lines


def test_every_topic_is_known(capsys):
    for topic in TOPICS:
        choices.print_topic(topic)
    assert "erdos_renyi" in capsys.readouterr().out


def test_the_flag_takes_nothing_else():
    assert configs.run("--nolist").output.list is False
    assert configs.run("--list").output.list is True
    with pytest.raises(flags.IllegalFlagValueError, match="value should be one of algorithms, "):
        configs.run("--list=nosuch")
