"""Rounds of client packages against those of the TFF processes, and packages that are refused."""

import collections
import functools
import pathlib
import shutil
import subprocess
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from keras.src import backend
from tensorflow.core.protobuf import saved_model_pb2

import tff_ssl
from tests.by_algorithm import by_algorithm
from tff_ssl import client
from tff_ssl.aggregation.differential_privacy import GaussianMean
from tff_ssl.algorithms import registry
from tff_ssl.deployment import client_package
from tff_ssl.errors import ConfigurationError
from tff_ssl.simulation.metrics_log import flatten_metrics
from tff_ssl.templates.stages import Stage, SumRule, Upload

SEED, SHAPE = 3, (8, 8, 1)
IMAGES = [
    np.random.default_rng(k).integers(0, 256, (n, *SHAPE), np.uint8)
    for k, n in enumerate((4, 6, 9))
]
IDS = [np.arange(len(images)) + 100 * k for k, images in enumerate(IMAGES)]
CLIENTS = [
    tf.data.Dataset.from_tensor_slices(collections.OrderedDict(example_id=ids, image=images))
    for ids, images in zip(IDS, IMAGES, strict=True)
]
# Algorithm -> hyperparameters with more than one local step, where it takes them.
STEPS = {"local_epochs": 2, "batch_size": 3, "client_learning_rate": 0.05}
PACKAGED = {
    "dcco": {},
    "dcco_one_stage": {},
    "fedsc": STEPS,
    "fedavg": STEPS,
    "fedprox": STEPS,
    "l_dawa": STEPS | {"fedavg_rounds": 1},
    "fedbn": STEPS | {"client_optimizer": "sgd"},
    "scaffold": STEPS,
    "feddecorr": STEPS,
    "fedx": STEPS,
    "fedu": STEPS,
    "fedema": STEPS,
}

of_dcco = pytest.mark.xdist_group("dcco")


def build(name, seed=SEED, **settings):
    entry = registry.find(name, None)
    objective = entry.objectives[0]
    predictor = (16,) if objective == "byol" or name == "fedx" else ()
    norm = "batch" if name == "fedbn" else "group"
    model = tff_ssl.DualEncoder("tiny", SHAPE, norm=norm, projector=(16,), predictor=predictor)

    def two_views(images, ids, round_number):
        return tff_ssl.two_views("affine", images, ids, seed=seed, round_number=round_number)

    element_type = tff.types.tensorflow_to_type(CLIENTS[0].element_spec)
    task = tff_ssl.Task(model, two_views, element_type, 10, objective, seed)
    return entry.build(task, entry.hyperparameters(**settings.pop("values", {})), **settings)


class Written(NamedTuple):
    """A package, the algorithm that it is of, and the states with which both start."""

    folder: pathlib.Path
    package: client.Package
    algorithm: Any
    server: Any
    of_client: Any


def write(folder, algorithm, rules=(), encode=None):
    with tff_ssl.runtime.start("in_process"):
        states = algorithm.initial_states(SEED)
    client_package.write(folder, algorithm.plain_stages, *states, SHAPE, {}, dict(rules), encode)
    return Written(folder, client.load(folder), algorithm, *states)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The package of an algorithm by its name, written once."""

    @functools.cache
    def of(name):
        return write(tmp_path_factory.mktemp(name), build(name, values=PACKAGED[name]))

    return of


def run_stage(package, stage, state, memories, clients=(0, 1, 2), seed=SEED):
    """A stage of some clients: the server's new state, and metrics; keeps the clients' states."""
    down, total = package.broadcast(stage, state), None
    for k in clients:
        sent, memories[k] = package.work(stage, down, memories[k], IMAGES[k], IDS[k], seed)
        total = sent if total is None else {name: total[name] + sent[name] for name in sent}
    return package.finish(stage, state, total)


def assert_equal(actual, expected, prefix="", tolerance=1e-5):
    named = client_package.name_values(tf.nest.map_structure(np.asarray, expected), prefix).values
    assert actual.keys() == named.keys()
    for name, value in named.items():
        scale = np.abs(value).max() if value.size else 1.0
        np.testing.assert_allclose(
            actual[name], value, rtol=0, atol=tolerance * max(scale, 1e-3), err_msg=name
        )


@pytest.mark.parametrize("name", by_algorithm(PACKAGED, ("dcco", "fedu")))
def test_rounds_equal_those_of_tff(written, name):
    _, package, algorithm, server, of_client = written(name)
    state, memories = package.initial_state(), [package.initial_memory() for _ in CLIENTS]
    states = [of_client] * len(CLIENTS)
    with tff_ssl.runtime.start("in_process"):
        for _ in range(3):
            arguments = [server, states, CLIENTS] if memories[0] else [server, CLIENTS]
            output = algorithm.process.next(*arguments)
            server, states = output.state, getattr(output, "client_states", states)
            for stage in package.stages:
                state, metrics = run_stage(package, stage, state, memories)
            assert_equal(state, server)
            for expected, actual in zip(states, memories, strict=True):
                assert_equal(actual, expected, "state")
            expected = flatten_metrics(output.metrics)
            for key, value in metrics.items():
                np.testing.assert_allclose(value, expected[key], rtol=1e-4, atol=1e-5, err_msg=key)


@pytest.mark.parametrize("name", by_algorithm(PACKAGED, ("dcco", "fedu")))
def test_a_client_without_images_is_left_out(written, name):
    package = written(name).package
    state, memory = package.initial_state(), package.initial_memory()
    for stage in package.stages:
        down = package.broadcast(stage, state)
        sent, _ = package.work(stage, down, memory, IMAGES[0], IDS[0], SEED)
        nothing, kept = package.work(stage, down, memory, IMAGES[0][:0], IDS[0][:0], SEED)
        for key, value in memory.items():
            np.testing.assert_array_equal(kept[key], value)
        alone, _ = package.finish(stage, state, sent)
        both, _ = package.finish(stage, state, {key: sent[key] + nothing[key] for key in sent})
        for key, value in alone.items():
            np.testing.assert_array_equal(both[key], value)
        state = alone


@of_dcco
@pytest.mark.parametrize(
    ("images", "ids", "seed", "message"),
    [
        (IMAGES[0] / 255, IDS[0], 0, r"images must be uint8 \[n, 8, 8, 1\].*they are float64"),
        (IMAGES[0][:, :4], IDS[0], 0, r"images must be .*they are uint8 \[4, 4, 8, 1\]"),
        (IMAGES[0][0], IDS[0], 0, r"images must be .*they are uint8 \[8, 8, 1\]"),
        (IMAGES[0], IDS[0][:2], 0, r"for each of the 4 images; they are int64 \[2\]"),
        (IMAGES[0], IDS[0] / 2, 0, "example_ids must be an integer"),
        (IMAGES[0], IDS[0], -1, "seed must be from 0"),
        (IMAGES[0], IDS[0], 2**31, "seed must be from 0"),
    ],
)
def test_wrong_arrays_are_refused(written, images, ids, seed, message):
    package = written("dcco").package
    down = package.broadcast("statistics", package.initial_state())
    with pytest.raises(ValueError, match=message):
        package.work("statistics", down, {}, images, ids, seed)


@of_dcco
def test_images_are_encoded_by_the_model_in_the_state(tmp_path):
    algorithm = build("dcco")

    def encode(state, images):
        first = algorithm.encoder_weights(state).trainable[0]
        return tf.cast(images[:, 0, 0], tf.float32) * tf.reduce_max(first)

    package = write(tmp_path, algorithm, encode=encode).package
    state = package.initial_state()
    state["global_model_weights_trainable_0"] = 2 * state["global_model_weights_trainable_0"]
    largest = state["global_model_weights_trainable_0"].max()
    np.testing.assert_allclose(
        package.encode(state, IMAGES[0]), IMAGES[0][:, 0, 0] * largest, rtol=1e-6
    )


@of_dcco
def test_a_package_without_a_global_encoder_says_so(written):
    package = written("dcco").package
    with pytest.raises(ValueError, match="no signature encode"):
        package.encode(package.initial_state(), IMAGES[0])


def largest_error(actual, expected):
    """The largest difference of two clients' results, in each array relative to its largest value.

    The results are what a client sends and its memory.
    """
    errors = [0.0]
    for a, e in zip(actual, expected, strict=True):
        assert a.keys() == e.keys()
        for key, value in e.items():
            if value.size:
                scale = max(np.abs(value).max(), 1e-2)
                errors.append(np.abs(a[key].astype(float) - value).max() / scale)
    return np.max(errors)


@pytest.mark.parametrize("name", by_algorithm(PACKAGED, ("dcco",)))
def test_litert_trains_like_the_saved_model(written, tmp_path, name):
    folder, package, *_ = written(name)
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    path = client_package.to_tflite(tmp_path, package.manifest)
    client_package.write_manifest(tmp_path, package.manifest)
    assert "ImageProjectiveTransformV3" in client_package.select_operations(path.read_bytes())
    on_phone = client.load(tmp_path, lite=True)
    state, memory = package.initial_state(), package.initial_memory()
    for stage in package.stages:
        down, errors = package.broadcast(stage, state), []
        for images, ids in zip(IMAGES, IDS, strict=True):
            expected, actual = (
                of.work(stage, down, memory, images, ids, SEED) for of in (package, on_phone)
            )
            errors.append(largest_error(actual, expected))
        # Where an input of a ReLU is zero but for rounding, its gradient jumps, and the client's
        # update with it: weights that differ by 1e-7 change some of FedX's SavedModel by 2e-3.
        assert np.median(errors) <= 1e-4, errors
        assert np.max(errors) <= 2e-2, errors
        state, _ = package.finish(stage, state, expected[0])


@of_dcco
def test_the_seed_is_an_input(written):
    """A package of one seed, called with another, computes what the other seed's algorithm does."""
    package, server = written("dcco").package, written("dcco").server
    down = package.broadcast("statistics", package.initial_state())
    sent = {
        seed: package.work("statistics", down, {}, IMAGES[2], IDS[2], seed)[0]["statistics_f"]
        for seed in (SEED, 17)
    }
    stage = build("dcco", seed=17).plain_stages[0]
    examples = {"example_id": IDS[2], "image": tf.constant(IMAGES[2])}
    statistics, weight = stage.work(stage.received(server), (), examples).means["statistics"]
    np.testing.assert_allclose(sent[17], weight * statistics.f, rtol=1e-5, atol=1e-4)
    assert np.abs(sent[SEED] - sent[17]).max() > 0.01


@of_dcco
def test_a_client_that_is_missing_in_the_second_stage(written):
    """Its statistics count, and the others' updates stand for its own, as in the simulation."""
    _, package, algorithm, server, _ = written("dcco")
    state = package.initial_state()
    with tff_ssl.runtime.start("in_process"):
        state, _ = run_stage(package, "statistics", state, [{}] * 3)
        state, metrics = run_stage(package, "update", state, [{}] * 3, clients=(0, 2))
        output = algorithm.stages["statistics"].next(server, CLIENTS)
        output = algorithm.stages["update"].next(output.state, [CLIENTS[0], CLIENTS[2]])
    assert_equal(state, output.state)
    assert metrics["samples"] == 13


@of_dcco
@pytest.mark.parametrize("stage", ["statistics", "update"])
def test_a_client_without_finite_values_sends_zeros(written, stage):
    package = written("dcco").package
    state = package.initial_state()
    if stage == "update":
        state, _ = run_stage(package, "statistics", state, [{}] * 3)
    down = package.broadcast(stage, state)
    down["weights_trainable_0"] = np.full_like(down["weights_trainable_0"], np.nan)
    sent, _ = package.work(stage, down, {}, IMAGES[0], IDS[0], SEED)
    counts = {"samples"} if stage == "update" else set()
    assert all(np.all(v == (1 if name == "dropped" else 0)) for name, v in sent.items()
               if name not in counts)  # fmt: skip


@pytest.mark.long
def test_private_means(tmp_path):
    """Clipped as in TFF, without noise; and noise of the announced deviation."""
    means = {"statistics": GaussianMean(0.0, 0.5), "delta": GaussianMean(0.0, 0.02)}
    factories = {"statistics": means["statistics"], "update": means["delta"]}
    algorithm = build(
        "dcco", values={"client_weighting": "uniform"},
        **{f"{name}_aggregator": mean.factory(3.0) for name, mean in factories.items()},
    )  # fmt: skip
    rules = {name: SumRule(*mean.functions(3.0)) for name, mean in means.items()}
    package = write(tmp_path, build("dcco", values={"client_weighting": "uniform"}), rules).package
    state = package.initial_state()
    down = package.broadcast("statistics", state)
    sent, _ = package.work("statistics", down, {}, IMAGES[0], IDS[0], SEED)
    values = [v for name, v in sent.items() if name != "statistics_weight" and v.ndim]
    norm = np.sqrt(sum(np.square(v).sum() for v in values))
    assert norm <= 0.5001
    for stage in package.stages:
        state, _ = run_stage(package, stage, state, [{}] * 3)
    with tff_ssl.runtime.start("in_process"):
        initial = algorithm.initial_states(SEED)[0]
        output = algorithm.process.next(initial, CLIENTS)
    expected = output.state.global_model_weights.trainable
    for k, weight in enumerate(expected):
        np.testing.assert_allclose(
            state[f"global_model_weights_trainable_{k}"], weight, rtol=0, atol=1e-6
        )
    prepare, mean = GaussianMean(2.0, 0.5).functions(4.0)
    noise = [mean(tf.zeros([20000])).numpy() for _ in range(2)]
    np.testing.assert_allclose(np.std(noise), 2.0 * 0.5 / 4.0, rtol=0.02)
    assert np.any(noise[0] != noise[1])
    assert float(tf.norm(prepare(tf.fill([4], 5.0), tf.constant(1.0)))) == pytest.approx(0.5)


@pytest.fixture
def known_seeds():
    """Seeds that everyone knows, as in a program whose runs are repeated."""
    tf.keras.utils.set_random_seed(0)
    yield
    tf.random.set_seed(None)
    backend._SEED_GENERATOR.generator = None


def noise_seeds(folder):
    """The fixed seeds of the operations that draw normal noise in a package."""
    seeds = set()
    for part in (folder, folder / "server"):
        saved = saved_model_pb2.SavedModel.FromString((part / "saved_model.pb").read_bytes())
        for function in saved.meta_graphs[0].graph_def.library.function:
            found = [node for node in function.node_def if node.op == "RandomStandardNormal"]
            seeds |= {(node.attr["seed"].i, node.attr["seed2"].i) for node in found}
    return seeds


@of_dcco
def test_nobody_can_compute_the_noise_of_a_package(tmp_path, known_seeds):
    rules = {"statistics": SumRule(*GaussianMean(1.0, 0.5).functions(3.0))}
    package = write(tmp_path, build("dcco", values={"client_weighting": "uniform"}), rules).package
    assert noise_seeds(tmp_path) == {(0, 0)}
    nothing = {
        value["name"]: np.zeros(value["shape"], value["dtype"])
        for value in package.manifest["stages"][0]["up"]
    }
    first, second = (
        of.finish("statistics", of.initial_state(), nothing)[0]
        for of in (package, client.load(tmp_path))
    )
    assert any(np.any(first[name] != second[name]) for name in first)


@pytest.mark.slow
def test_nobody_can_compute_the_noise_of_a_client(tmp_path, known_seeds):
    values = STEPS | {"statistics_noise": 0.1}
    write(tmp_path, build("fedsc", values=values))
    assert noise_seeds(tmp_path) == {(0, 0)}


@pytest.mark.parametrize("nested", [False, True])
def test_random_numbers_of_a_fixed_seed_are_refused(tmp_path, nested):
    def work(received, state, examples):
        def draw(x):
            return tf.random.normal([], seed=1)

        return Upload({}, {"x": tf.map_fn(draw, tf.zeros([2])) if nested else draw(0.0)})

    stage = Stage("update", lambda state: {}, work, lambda state, means, sums: (state, {}))
    with pytest.raises(ConfigurationError, match="cannot hold RandomStandardNormal"):
        client_package.write(tmp_path, [stage], {"w": np.zeros(2, np.float32)}, (), SHAPE, {})


@of_dcco
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("manifest", "no client package"),
        ("version", "no client package of version"),
        ("saved_model.pb", "saved_model.pb has changed"),
        ("server/saved_model.pb", "saved_model.pb has changed"),
        ("missing", "damaged one"),
    ],
)
def test_a_damaged_package_is_refused_in_a_line(written, tmp_path, damage, message):
    shutil.copytree(written("dcco").folder, tmp_path, dirs_exist_ok=True)
    manifest = tmp_path / "manifest.json"
    if damage == "manifest":
        manifest.write_text("{")
    elif damage == "version":
        manifest.write_text(manifest.read_text().replace('"version": 1', '"version": 9'))
    elif damage == "missing":
        (tmp_path / "arrays.npz").unlink()
    else:
        content = bytearray((tmp_path / damage).read_bytes())
        content[len(content) // 2] ^= 1
        (tmp_path / damage).write_bytes(content)
    with pytest.raises(ValueError, match=message) as raised:
        client.load(tmp_path)
    assert "\n" not in str(raised.value)


@of_dcco
def test_the_loader_needs_no_tff(written):
    program = (
        f"import sys; from tff_ssl import client; p = client.load({str(written('dcco').folder)!r})"
        "; d = p.broadcast('update', p.initial_state()); "
        "assert 'tensorflow_federated' not in sys.modules; print(len(d))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 5


@of_dcco
def test_what_a_package_says_of_itself(written):
    manifest = written("dcco").package.manifest
    statistics, update = manifest["stages"]
    model = written("dcco").algorithm.model
    down = 4 * model.parameter_count + 8 + 2 * 4 * 16
    assert statistics["bytes_down"] == down
    assert update["bytes_up"] == 4 * model.parameter_count + 4 + 8 + 8
    assert {"reference_f", "round", "weights_trainable_0"} <= {
        v["name"] for v in statistics["down"]
    }
    assert {"aggregated_f", "mean_weight"} <= {v["name"] for v in update["down"]}
    weights = {value["name"]: value["weight"] for value in update["up"]}
    assert weights["delta_0"] == "delta_weight"
    assert weights["samples"] is None
