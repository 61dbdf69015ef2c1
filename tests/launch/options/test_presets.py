"""Presets: default presets of algorithms, and flags that presets set."""

import dataclasses

import pytest

from launch.options import model, presets
from launch.options.image_config import ModelConfig
from tff_ssl.algorithms import registry
from tff_ssl.algorithms.fedavg import FedAvgHyperparameters
from tff_ssl.algorithms.fedbn import FedBNHyperparameters
from tff_ssl.errors import ConfigurationError
from tff_ssl.models.dual_encoder import DualEncoder

KINDS = presets.FOLDER / "digits" / "kinds"


@pytest.mark.parametrize("name", registry.ALGORITHMS)
def test_every_algorithm_has_a_default_preset(name):
    path = presets.of_algorithm(name)
    assert path.is_file()
    own = presets.FOLDER / "digits" / f"{name}.flags"
    assert path == own if own.exists() else path.parent == KINDS


@pytest.mark.parametrize("objective", ["byol", "simsiam"])
def test_objectives_that_collapse_with_group_norm_have_a_preset_with_batch_norm(objective):
    path = presets.of_objective(objective)
    assert path == presets.FOLDER / "digits" / f"centralized_{objective}.flags"
    flags = set(presets.set_by([f"--flagfile={path}"]))
    assert flags >= {"norm", "projector", "predictor"}
    text = (presets.FOLDER / "digits" / "centralized_byol.flags").read_text()
    assert "--norm=batch" in text.splitlines()


@pytest.mark.parametrize("objective", ["cco", "nosuch"])
def test_other_objectives_have_the_preset_of_the_centralized_baseline(objective):
    assert presets.of_objective(objective) == presets.FOLDER / "digits" / "centralized.flags"


@pytest.mark.parametrize(
    ("objective", "norm", "on_output", "warns"),
    [("byol", "group", False, True), ("simsiam", "group", False, True),
     ("byol", "batch", False, False), ("byol", "group", True, False),
     ("cco", "group", False, False)],
)  # fmt: skip
def test_group_norm_warns_with_byol_and_simsiam(objective, norm, on_output, warns):
    config = ModelConfig(norm=norm, projector_output_batch_norm=on_output)
    warning = model.norm_warning(objective, config)
    assert warning.count("\n") == warns
    assert (f"warning: {objective} with group norm" in warning) == warns


@pytest.mark.parametrize(
    ("norm", "algorithm", "values", "warns"),
    [("group", "fedbn", FedBNHyperparameters(), True),
     ("batch", "fedbn", FedBNHyperparameters(), False),
     ("group", "fedbn", FedBNHyperparameters(batch_norm="averaged"), False),
     ("group", "fedbn", FedBNHyperparameters(averaging="none"), False),
     ("group", "fedavg", FedAvgHyperparameters(), False)],
)  # fmt: skip
def test_fedbn_without_batch_norm_warns(norm, algorithm, values, warns):
    network = DualEncoder("tiny", (16, 16, 3), norm=norm)
    warning = model.local_norm_warning(algorithm, values, network)
    assert warning.count("\n") == warns
    assert ("add --norm=batch" in warning) == warns


@pytest.mark.parametrize(
    ("precision", "cpu_flags", "start"),
    [
        ("float32", {"avx2", "avx512_bf16"}, "note: this CPU supports bfloat16"),
        ("float32", {"avx2"}, ""),
        ("bfloat16", {"bf16"}, ""),
        ("bfloat16", {"avx2"}, "warning: this CPU has no instructions for bfloat16"),
        ("bfloat16", set(), ""),  # Another system than Linux: nothing is known.
    ],
)
def test_the_precision_that_would_be_faster_is_named(precision, cpu_flags, start):
    note = model.precision_note(precision, cpu_flags)
    assert note.startswith(start)
    assert note.count("\n") == bool(start)


def test_an_unknown_algorithm_has_no_preset():
    assert presets.of_algorithm("nosuch") is None


def test_the_presets_of_the_kinds_set_no_hyperparameters():
    paths = sorted(KINDS.glob("*.flags"))
    assert {path.stem for path in paths} >= {
        entry.kind.kind for entry in registry.ALGORITHMS.values()
    }
    for path in paths:
        assert not [line for line in path.read_text().splitlines() if "hparam" in line], path


@pytest.mark.parametrize(
    ("like", "objectives", "expected"),
    [
        ("fedavg", ("nt_xent",), "stateless_clients"),
        ("fedbn", ("nt_xent", "byol"), "stateful_clients"),
        ("fedbn", ("byol", "nt_xent"), "stateful_clients_byol"),
        ("gossip", ("mae",), "decentralized_mae"),
        ("gossip", ("nt_xent",), "decentralized"),
        ("hetero_ssfl", ("simsiam",), "heterogeneous_clients"),
    ],
)
def test_a_new_algorithm_gets_the_preset_of_its_kind_and_objective(
    monkeypatch, like, objectives, expected
):
    entry = dataclasses.replace(registry.ALGORITHMS[like], objectives=objectives)
    monkeypatch.setitem(registry.ALGORITHMS, "new_algorithm", entry)
    assert presets.of_algorithm("new_algorithm") == KINDS / f"{expected}.flags"


@pytest.fixture
def preset(tmp_path):
    """A preset that includes another one."""
    included, path = tmp_path / "included.flags", tmp_path / "preset.flags"
    included.write_text("# The clients.\n--alpha=-1\n--hparam=mu=-1\n--rounds=5\n")
    path.write_text(f"--flagfile={included}\n--beta=2\n--rounds=0\n")
    return path


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"\xef\xbb\xbf--rounds=2", "byte order mark"),
        (b"--rounds=2\xff", "no text file in UTF-8"),
        (b"--rounds=2\0", "zero byte"),
        (b"--rounds=2\n--flagfile=itself.flags\n", "includes itself"),
        (b"--flagfile=nowhere.flags\n", "nowhere.flags cannot be read: No such file"),
        (b"--flagfile=.\n", "cannot be read: Is a directory"),
    ],
)
def test_a_file_that_is_no_preset_is_named(tmp_path, monkeypatch, content, named):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "itself.flags").write_bytes(content)
    with pytest.raises(ConfigurationError, match=f"--flagfile=.*{named}"):
        presets.check(["pretrain", "--flagfile=itself.flags"])


def test_two_presets_may_include_the_same_one(tmp_path):
    paths = [tmp_path / name for name in ("shared", "first", "second")]
    for path in paths:
        path.write_text("--rounds=2\n" if path == paths[0] else f"--flagfile={paths[0]}\n")
    presets.check(["pretrain", *(f"--flagfile={path}" for path in paths)])


def test_a_preset_may_lie_in_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a.flags").write_text("--flagfile=~/b.flags\n")
    (tmp_path / "b.flags").write_text("--rounds=3\n")
    assert presets.set_by(["x", "--flagfile=~/a.flags"]) == {"rounds": tmp_path / "b.flags"}


def test_an_error_names_the_preset_that_sets_the_flag(preset):
    argv = ["pretrain", f"--flagfile={preset}"]
    assert presets.explain("--beta is too large", argv) == (
        f"--beta is too large (--beta is set in {preset})"
    )
    included = preset.with_name("included.flags")
    for message, flag in (
        ("--alpha must not be negative", "alpha"),
        ("flag 'alpha': must not be negative", "alpha"),
        ("--hparam=mu=-1: must not be negative", "hparam=mu"),
    ):
        expected = f"{message} (--{flag} is set in {included})"
        assert presets.explain(message, argv) == expected
    # The value that holds is the last one.
    assert f"--rounds is set in {preset}" in presets.explain("--rounds", argv)
    both = presets.explain("--alpha with --beta", argv)
    assert both.endswith(f"(--alpha is set in {included}; --beta is set in {preset})")


@pytest.mark.parametrize("given", [["--alpha=-2"], ["--alpha", "-2"], ["-alpha=-2"]])
def test_an_error_names_no_preset_for_a_flag_of_the_command_line(preset, given):
    message = "--alpha must not be negative"
    assert presets.explain(message, ["pretrain", f"--flagfile={preset}", *given]) == message


def test_an_error_names_no_preset_for_a_hyperparameter_of_the_command_line(preset):
    message = "--hparam=mu=-2: must not be negative"
    argv = ["pretrain", f"--flagfile={preset}"]
    assert presets.explain(message, [*argv, "--hparam=mu=-2"]) == message
    assert presets.explain(message, [*argv, "--hparam", "mu=-2"]) == message
    assert presets.explain(message, [*argv, "--hparam=lambda=2"]) != message


def test_an_error_names_no_preset_for_flags_that_no_preset_sets(preset):
    message = "--dataset=nosuch is unknown"
    assert presets.explain(message, ["pretrain", f"--flagfile={preset}"]) == message
    assert presets.explain(message, ["pretrain"]) == message
