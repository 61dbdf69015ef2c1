"""A mistake gives one line that names the flag, an exit code that is not 0, and no files.

The scripts run in the process of pytest, because importing TFF takes seconds; `test_scripts` runs
two mistakes in processes of their own.
"""

import signal
import sys
import time

import numpy as np
import pytest

from launch import lower, pretrain
from launch.options import app
from launch.options import clients as client_options
from tests.launch import configs
from tests.launch.mistakes import message_of, preset
from tff_ssl.errors import ConfigurationError

FEDAVG = ["--algorithm=fedavg", "--objective=nt_xent", "--skip_small_clients"]
FEDU = [*preset("digits/fedu"), "--algorithm=fedu"]
PRIVATE = [
    "--dp_epsilon=8",
    "--sampling=poisson",
    "--hparam=client_weighting=uniform",
    "--dp_clip=1",
    "--dp_statistics_clip=1",
]
FEATARC = [*preset("digits/featarc"), "--algorithm=featarc"]
ORCHESTRA = [*preset("digits/orchestra"), "--algorithm=orchestra"]
FEDCA = [*preset("digits/fedca"), "--algorithm=fedca"]
HETERO = [*preset("digits/hetero_ssfl"), "--algorithm=hetero_ssfl"]


def late(named, flags):
    """A mistake that is found after the algorithm has been traced, which takes seconds."""
    return pytest.param(named, flags, marks=pytest.mark.long)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("named", "flags"),
    [
        ("alpha", ["--partition=dirichlet", "--alpha=-1"]),
        ("cluster_encoder", ["--partition=feature_clusters", "--num_clients=5"]),
        ("data_fraction", ["--data_fraction=0"]),
        ("data_fraction", ["--data_fraction=1.1"]),
        ("shift", ["--shift=nosuch"]),
        ("shifts", ["--shift=style", "--shifts=6"]),
        ("algorithm", ["--algorithm=nosuch"]),
        ("objective", ["--objective=nosuch"]),
        ("dataset", ["--dataset=nosuch"]),
        ("data_dir", ["--dataset=cifar10", "--data_dir=/nonexistent/folder"]),
        ("--data_dir=/tmp is not read by --dataset=digits", ["--data_dir=/tmp"]),
        ("add --dataset=npz for its images", ["--data_dir=a.npz"]),
        ("flag --xla=maybe: must be true or false (", ["--xla=maybe"]),
        ("--data_dir= is empty", ["--dataset=case_folder", "--data_dir="]),
        ("--init_from= is empty", ["--init_from="]),
        ("--data_dir=/ is the root of all files", ["--dataset=case_folder", "--data_dir=/"]),
        ("--algorithm=fedAvg: did you mean fedavg?", ["--algorithm=fedAvg"]),
        (
            "--resume: --output_dir=/nonexistent/run does not exist",
            ["--resume", "--output_dir=/nonexistent/run"],
        ),
        ("clients_per_round", ["--clients_per_round=1000000"]),
        ("hparam", ["--hparam=nosuch=1"]),
        ("hparam", ["--hparam=server_optimizer=nosuch"]),
        ("rounds", ["--rounds=-3"]),
        ("samples_per_client", ["--samples_per_client=0"]),
        ("views", ["--views=nosuch"]),
        ("projector", ["--projector=12,x"]),
        ("norm", ["--norm=batch"]),
        ("projector_output_batch_norm", ["--projector_output_batch_norm"]),
        ("fold", ["--fold=99"]),
        ("encoder", ["--encoder=vgg"]),
        ("labels_per_class", ["--labels_per_class=0"]),
        late("labels_per_class", ["--labels_per_class=1000"]),
        late("--eval_every", ["--encoder_round=best", "--eval_every=0"]),
        ("nosuchflag", ["--nosuchflag=1"]),
        ("argument", ["surplus"]),
        ("skip_small_clients", ["--algorithm=fedavg", "--objective=nt_xent"]),
        ("at least 8", ["--algorithm=fedavg", "--objective=cco", "--skip_small_clients"]),
        ("objective", ["--algorithm=dcco", "--objective=nt_xent"]),
        ("min_samples", ["--algorithm=fedavg", "--objective=cco", "--hparam=min_samples=-1"]),
        ("at least 2 examples, and", [*FEDAVG[:2], "--hparam=min_samples=1"]),
        ("batch_size=1", [*FEDAVG, "--hparam=batch_size=1"]),
        late("hparam=clusters", [*FEATARC, "--hparam=clusters=9"]),
        (
            "the server of orchestra reads the centroids of each client by itself",
            [*ORCHESTRA, "--aggregator=secure"],
        ),
        (
            "--dp_*: the server of fedca reads the features of each client",
            [*FEDCA, "--dp_epsilon=8", "--sampling=poisson"],
        ),
        ("--objective", [*ORCHESTRA, "--objective=byol"]),
        ("--objective of fedbn", ["--algorithm=fedbn", "--objective=orchestra"]),
        ("needs --alignment_encoder=FOLDER", [*FEDCA, "--hparam=alignment_weight=0.1"]),
        ("--hparam=alignment_weight=BETA", [*FEDCA, "--alignment_encoder=/nonexistent"]),
        (
            "--alignment_encoder=/nonexistent",
            [*FEDCA, "--hparam=alignment_weight=0.1", "--alignment_encoder=/nonexistent"],
        ),
        ("--alignment_encoder: dcco", ["--alignment_encoder=/nonexistent"]),
        (
            "--deterministic with --hparam=statistics_noise",
            ["--algorithm=fedsc", "--hparam=statistics_noise=0.1", "--deterministic"],
        ),
        ("towers", ["--towers=colour_planes"]),
        ("predictor", ["--algorithm=fedavg", "--objective=byol", "--predictor=7x"]),
        ("vit_tiny", ["--algorithm=fedavg", "--objective=mae"]),
        ("view_size", ["--algorithm=dcco", "--encoder=vit_tiny", "--view_size=15"]),
        ("encoders", ["--encoders=tiny,small"]),
        ("rad_size", [*FEDU, "--rad_size=100"]),
        ("rad_size", [*HETERO, "--rad_size=1438"]),
        ("rad_size", [*HETERO, "--rad_size=1"]),
        ("vgg", [*HETERO, "--encoders=tiny,vgg"]),
        (
            "--encoders names 3",
            [
                *HETERO,
                "--encoders=tiny,small,vit_micro",
                "--num_clients=2",
                "--clients_per_round=2",
            ],
        ),
        ("--towers", [*HETERO, "--towers=views"]),
        ("mu", [*HETERO, "--hparam=mu=-1"]),
        late("ray", [*preset("digits/gossip"), "--algorithm=gossip", "--ray=local"]),
        late("ray", ["--dropout=0.1", "--ray=local:0"]),
        ("dropout", ["--dropout=1"]),
        ("dropout", ["--dropout=0.99"]),
        ("max_dropped", ["--max_dropped=2"]),
        ("round_timeout", ["--round_timeout=0"]),
        ("aggregator", ["--aggregator=nosuch"]),
        ("aggregator", [*FEDU, "--aggregator=robust"]),
        ("symmetric_statistics", ["--symmetric_statistics", "--objective=vicreg"]),
        ("symmetric_statistics", ["--symmetric_statistics", "--towers=views"]),
        ("symmetric_statistics", ["--symmetric_statistics", *FEDAVG]),
        ("dp_*", [*FEDU, "--dp_epsilon=1"]),
        ("dp_noise_multiplier must be positive", ["--dp_noise_multiplier=0"]),
        ("either --dp_epsilon or", ["--dp_clip=1"]),
        ("either --dp_epsilon or", [*PRIVATE, "--dp_noise_multiplier=1"]),
        ("client_weighting=uniform", [*PRIVATE, "--hparam=client_weighting=examples"]),
        ("sampling=poisson", [*PRIVATE, "--sampling=uniform"]),
        ("aggregator=robust", [*PRIVATE, "--aggregator=robust"]),
        ("dp_clip", [*PRIVATE, "--dp_clip=0"]),
        ("dp_clip", [*PRIVATE, "--dp_clip=nan"]),
        ("dp_clip", [*PRIVATE, "--dp_clip=1e38"]),
        ("dp_statistics_clip", [*PRIVATE, "--dp_statistics_clip=inf"]),
        ("dp_statistics_clip", [*PRIVATE, "--dp_statistics_clip=0"]),
        ("dp_epsilon must be at most", [*PRIVATE, "--dp_epsilon=1e38"]),
        ("dp_epsilon must be positive", [*PRIVATE, "--dp_epsilon=0"]),
        ("dp_noise_multiplier", [*PRIVATE[1:], "--dp_noise_multiplier=inf"]),
        ("dp_delta must be positive", [*PRIVATE, "--dp_delta=0"]),
        ("max_dropped", ["--max_dropped=nan"]),
        ("micro_batch_size", ["--hparam=micro_batch_size=99999999999999999999"]),
        ("dp_delta", [*PRIVATE, "--dp_delta=0.01"]),
        ("dp_statistics_clip", [*PRIVATE[:-1]]),
        ("dp_statistics_clip", [*PRIVATE, *FEDAVG]),
        ("goes with --dp_noise_multiplier", [*PRIVATE, "--dp_statistics_noise_multiplier=1"]),
        ("at least", [*PRIVATE, "--dp_epsilon=0.1", "--dp_adaptive_clipping"]),
        ("mask_ratio", ["--algorithm=fedavg", "--objective=mae", "--hparam=mask_ratio=1"]),
    ],
)
def test_bad_input_gives_one_line_that_names_it(tmp_path, named, flags):
    folder = tmp_path / "run"
    message = message_of(pretrain, [f"--output_dir={folder}", "--rounds=2", *flags])
    assert message.startswith("error: ")
    assert named in message
    assert not folder.exists()


def test_the_error_for_a_missing_image_names_row_and_file(tmp_path):
    (tmp_path / "metadata.csv").write_text(
        "file_name,case_id,label,split\nmissing.jpg,c1,a,train\n"
    )
    message = message_of(pretrain, ["--dataset=case_folder", f"--data_dir={tmp_path}"])
    assert "row 2" in message
    assert "missing.jpg" in message


@pytest.mark.long
@pytest.mark.slow
def test_the_error_for_an_output_dir_that_is_a_file_names_it(tmp_path):
    path = tmp_path / "file"
    path.write_text("")
    message = message_of(pretrain, [f"--output_dir={path}", "--rounds=2"])
    assert str(path) in message
    assert path.read_text() == ""


@pytest.mark.parametrize(
    ("named", "flags"),
    [
        ("hparam", ["--hparam=nosuch=1"]),
        ("norm", ["--norm=batch"]),
        ("algorithm", ["--algorithm=x"]),
        ("resume", ["--resume"]),
        # The clients are those of `pretrain`, on whose number the noise depends.
        (
            "clients of at least 2 examples",
            ["--algorithm=fedavg", "--objective=nt_xent", "--alpha=1", "--samples_per_client=1"],
        ),
        (
            "clients_per_round",
            [
                "--sampling=poisson",
                "--clients_per_round=5000",
                "--dp_epsilon=2",
                "--dp_clip=1",
                "--dp_statistics_clip=1",
                "--hparam=client_weighting=uniform",
            ],
        ),
    ],
)
def test_lower_writes_nothing_if_a_flag_is_wrong(tmp_path, named, flags):
    message = message_of(lower, [f"--output_dir={tmp_path}/new", *flags])
    assert named in message
    assert not list(tmp_path.iterdir())


def test_lower_does_not_write_to_a_folder_that_is_not_empty(tmp_path):
    (tmp_path / "file").write_text("")
    message = message_of(lower, [f"--output_dir={tmp_path}"])
    assert f"--output_dir={tmp_path} is not empty" in message
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_interrupt_is_repeated_if_python_ignores_it(monkeypatch):
    class Collected:
        def __del__(self):
            raise KeyboardInterrupt

    monkeypatch.setattr(sys, "unraisablehook", app._on_lost_exception)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _ = Collected() and None
        with pytest.raises(KeyboardInterrupt):  # It does not wait for the end of the call.
            time.sleep(600)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_small_clients_are_left_out_and_counted():
    clients = [np.arange(n) for n in (3, 1, 2, 1, 5)]
    flags = ("--algorithm=fedavg", "--objective=nt_xent", "--skip_small_clients")
    config = configs.run(*flags, "--partition=iid")
    kept, skipped = client_options.large_enough(clients, 2, config)
    assert [len(client) for client in kept] == [3, 2, 5]
    assert skipped == 2
    with pytest.raises(ConfigurationError, match="take larger ones") as error:
        client_options.large_enough(clients[1:2], 2, config)
    assert "min_samples" not in str(error.value)  # NT-Xent has no loss for one image.
    # Clients that are cases are made larger by no flag.
    config = configs.run(*flags, "--partition=per_case")
    with pytest.raises(ConfigurationError, match="take another --partition than per_case"):
        client_options.large_enough(clients[1:2], 2, config)
