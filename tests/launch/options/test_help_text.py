"""Help texts with the defaults that hold, the list of scripts, and lists of hyperparameters."""

import dataclasses
import pathlib
import re
import sys

import pytest

from launch import __main__ as launch_main
from launch.options import (
    command_line,
    defaults,
    help_text,
    hyperparameters,
    presets,
    settings,
)
from launch.options.run_config import RunConfig
from launch.outputs import commands
from launch.reproduce import ReproduceConfig
from tests import programs
from tff_ssl.algorithms import registry
from tff_ssl.simulation.centralized import CentralizedHyperparameters


def text_of(*arguments):
    """The help text of `pretrain` with some arguments."""
    argv = ["pretrain", *arguments]
    return help_text.text(argv, command_line.parse(RunConfig, "pretrain", argv)[0])


def headings(text):
    """The lines with a flag and its value, without their indentation."""
    return [line.strip() for line in text.splitlines() if re.match(r"  --", line)]


def explanation(text, heading):
    """The help below a flag as one line."""
    below = text.split(f"  {heading}\n")[1]
    return " ".join(re.match(r"(?:      .*\n)+", below)[0].split())


def test_each_flag_of_pretrain_has_one_place_below_a_topic():
    text, ours = text_of(), settings.settings(RunConfig, "pretrain")
    names = [re.match(r"--(\w+)", heading)[1] for heading in headings(text)]
    assert sorted(names) == sorted(ours)
    assert "This script" not in text.splitlines()  # Every flag of `pretrain` has a topic.
    topics = help_text.topics(RunConfig(script="pretrain"))
    assert [line for line in text.splitlines() if line in topics] == list(topics)


def test_a_script_without_data_and_presets_says_nothing_of_its_defaults():
    assert help_text._which_defaults(["reproduce"], ReproduceConfig(script="reproduce")) == ""


def test_the_values_are_those_of_the_preset_the_data_set_and_the_command_line():
    preset = f"--flagfile={presets.FOLDER / 'digits' / 'dcco.flags'}"
    text = text_of(preset, "--clients_per_round=8")
    shown = headings(text)
    for heading in ("--rounds=250", "--views=affine", "--view_size=8", "--clients_per_round=8",
                    "--partition=dirichlet", "--random_sizes=false",
                    "--hparam=lambda=2 --hparam=server_learning_rate=0.002"):  # fmt: skip
        assert heading in shown
    assert explanation(text, "--rounds=250").endswith(
        "[set in launch/presets/digits/dcco.flags; 400 otherwise]"
    )
    assert explanation(text, "--clients_per_round=8").endswith("[given; 32 otherwise]")
    assert "otherwise" not in explanation(text, "--seed=0")


def test_other_data_sets_and_encoders_have_other_defaults():
    shown = headings(text_of("--dataset=cifar10", "--algorithm=denav", "--encoder=vit_micro"))
    for heading in ("--views=crop_flip", "--objective=mae", "--per_case=false"):
        assert heading in shown
    shown = headings(text_of("--dataset=cifar10", "--algorithm=denav"))
    for heading in ("--rounds=400", "--views=byol_no_blur", "--objective=nt_xent"):
        assert heading in shown
    shown = headings(text_of("--dataset=case_folder"))
    assert "--partition=per_case" in shown
    assert "--per_case=true" in shown


@pytest.mark.parametrize("objective", ["cco", "supervised", "mae"])
@pytest.mark.parametrize("dataset", ["digits", "cifar10", "case_folder"])
def test_the_default_views_exist(dataset, objective):
    from tff_ssl.views.policies import POLICIES

    assert defaults.views(dataset, objective) in POLICIES


def test_written_characters_are_not_mirrored():
    from tff_ssl.views.policies import POLICIES

    for dataset in ("digits", "leaf", "mnist", "emnist/letters"):
        assert POLICIES[defaults.views(dataset, "cco")].flip == 0, dataset


@pytest.mark.parametrize("wanted", ["--help", "-help", "-h", "--helpfull", "--help=true", "-?"])
def test_help_is_wanted(wanted):
    assert help_text.is_wanted(["pretrain", "--rounds=3", wanted])
    assert help_text.without_request(["pretrain", wanted, "--rounds=3"]) == [
        "pretrain", "--rounds=3",
    ]  # fmt: skip
    assert not help_text.is_wanted(["pretrain", "--rounds=3", "--nohelp"])


@pytest.mark.slow
def test_help_ends_with_success_and_a_mistake_beside_it_does_not(project_root):
    def run(*arguments):
        return programs.run(
            [sys.executable, "-m", "launch.reproduce", *arguments],
            cwd=project_root, capture_output=True, text=True, check=False,
        )  # fmt: skip

    helped = run("--help")
    assert (helped.returncode, helped.stderr) == (0, "")
    script = commands.module("launch.reproduce")
    assert helped.stdout.startswith(f"{script} [--flag=value ...]\n\nReproduces")
    assert f"\n    {script} --experiment=NAME --data_dir=...\n" in helped.stdout
    assert "--scale=cpu" in helped.stdout
    wrong = run("--help", "--scale=nosuch")
    assert wrong.returncode == 2
    assert "scale" in wrong.stderr


def test_launch_lists_every_script_with_a_line(project_root):
    listed = programs.run(
        [sys.executable, "-m", "launch"], cwd=project_root, capture_output=True, text=True
    )
    assert (listed.returncode, listed.stderr) == (0, "")
    lines = listed.stdout.splitlines()[2:]
    folder = pathlib.Path(launch_main.__file__).parent
    scripts = {
        f"{prefix}{path.stem}"
        for prefix, pattern in (("", "*.py"), ("studies.", "studies/*.py"))
        for path in folder.glob(pattern)
        if 'if __name__ == "__main__"' in path.read_text()
    }
    scripts |= {f"stacks.{path.parent.name}" for path in folder.glob("stacks/*/__main__.py")}
    assert sorted(line.split()[0] for line in lines) == sorted(scripts - {"__main__"})
    assert "studies.drift" in scripts
    assert all(re.fullmatch(r"[\w.]+  +[A-Z].*\.", line) for line in lines)


@pytest.mark.parametrize(
    "cls",
    [*(entry.hyperparameters for entry in registry.ALGORITHMS.values()),
     CentralizedHyperparameters],
)  # fmt: skip
def test_every_hyperparameter_is_described(cls):
    texts = hyperparameters.descriptions(cls)
    assert list(texts) == [field.name for field in dataclasses.fields(cls)]
    for text in texts.values():
        assert re.fullmatch(r"[A-Z].*\.", text), text


def test_descriptions_are_inherited_and_the_nearest_one_counts():
    @dataclasses.dataclass(frozen=True)
    class Base:
        """Some hyperparameters.

        Attributes:
          rate: Learning rate
            eta.
          decay: Weight decay.

        More on them.
        """

        rate: float = 1.0
        decay: float = 0.0

    @dataclasses.dataclass(frozen=True)
    class Own(Base):
        """More hyperparameters.

        Attributes:
          decay: Another decay.
          lambda_: Tradeoff lambda.
        """

        lambda_: float = 2.0

    assert hyperparameters.descriptions(Own) == {
        "rate": "Learning rate eta.",
        "decay": "Another decay.",
        "lambda_": "Tradeoff lambda.",
    }
    assert hyperparameters.listed(Own(rate=0.5), ["decay"]) == [
        "rate=0.5 [default 1.0]  Learning rate eta.",
        "lambda=2.0  Tradeoff lambda.",
    ]


@pytest.mark.slow
def test_the_list_of_an_algorithm_has_only_its_hyperparameters(project_root):
    listed = programs.run(
        [sys.executable, "-m", "launch.pretrain", "--list", "--algorithm=fedema"],
        cwd=project_root, capture_output=True, text=True,
    )  # fmt: skip
    assert listed.returncode == 0, listed.stderr
    first, objective, *lines = listed.stdout.splitlines()
    assert first.startswith("algorithm fedema  ")
    assert objective == "objective byol  of byol"
    assert all(line.startswith("hparam fedema ") for line in lines)
    assert "hparam fedema tau=0.3 [default 0.7]  Value tau that mu_k has when" in listed.stdout
    assert "lambda=" not in listed.stdout  # A hyperparameter of another objective.
