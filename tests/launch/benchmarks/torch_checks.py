"""Checks of `peer_side`'s PyTorch, which `test_peers` runs with the peer's interpreter.

Arguments: the module's folder, and a file with settings, inputs and the results of tff_ssl.
"""

import json
import sys

import numpy as np
import torch

sys.path.insert(0, sys.argv[1])
import torch_cnn
import torch_program
import torch_simclr as simclr

STORED = np.load(sys.argv[2])
SETTINGS = json.loads(str(STORED["settings"]))
FLOAT32 = {"device": "cpu", "threads": 1, "tf32": False, "precision": "float32"}
STILL = {"crop_area": (1, 1), "crop_aspect": (1, 1), "flip": 0, "jitter": 0}


def stored_images(name):
    return torch.from_numpy(STORED[name]).permute(0, 3, 1, 2)


def build():
    model = simclr.SimCLR(**SETTINGS["model"])
    weights = [STORED[f"weight{i}"] for i in range(len(list(model.parameters())))]
    torch_program.load_weights(model, weights)
    return model


def assert_stored(images, name, atol):
    np.testing.assert_allclose(images.permute(0, 2, 3, 1).numpy(), STORED[name], atol=atol)


def check_loss_and_gradient():
    """The measured difference is 1e-6, because sums have another order."""
    for objective in ("nt_xent", "cco"):
        settings = SETTINGS | FLOAT32 | {"objective": objective}
        facts = simclr.load_reference(build(), settings, ("torch",))
        loss, norm = (float(STORED[f"{objective}_{name}"]) for name in ("loss", "gradient_norm"))
        assert abs(facts["loss"] / loss - 1) < 1e-4, facts
        assert abs(facts["gradient_norm"] / norm - 1) < 1e-3, facts
        assert facts["parameters"] == STORED["parameters"]


def check_geometry_and_colour():
    policy, x = simclr.Views(**SETTINGS["views"]), stored_images("x")
    assert_stored(simclr.cropped(x, policy, torch.from_numpy(STORED["draws"])), "cropped", 2e-5)
    amount = torch.from_numpy(STORED["amount"])
    assert_stored(simclr._contrast(x, amount), "contrast", 1e-5)
    assert_stored(simclr._saturation(x, amount), "saturation", 1e-5)
    assert_stored(simclr._hue(x, amount), "hue", 1e-4)


def check_how_often_views_are_gray_and_inverted():
    policy = simclr.Views(**(SETTINGS["views"] | STILL))
    images = torch.full((2000, 2, 2, 3), 230, dtype=torch.uint8)
    images[..., 0] = 250
    x = simclr.two_views(images, policy, torch.Generator().manual_seed(0))
    assert x.shape == (4000, 3, 2, 2)
    gray = (x[:, 0] == x[:, 1]).all(2).all(1)
    inverted = (x < 0).flatten(1).all(1)
    assert abs(gray.float().mean() - 0.2) < 0.03
    assert not inverted[:2000].any()  # The first views never are.
    assert abs(inverted[2000:].float().mean() - 0.2) < 0.03
    kept = x[~gray & ~inverted, 0].numpy()
    np.testing.assert_allclose(kept, 250 / 127.5 - 1, atol=1e-5)


def check_jitter_is_drawn_for_each_image():
    """Eight of ten images change, each differently; the mean brightness does not."""
    views = SETTINGS["views"] | STILL | {"jitter": 0.8, "grayscale": 0, "solarize": (0, 0)}
    images = torch.full((2000, 2, 2, 3), 120, dtype=torch.uint8)
    x = simclr.two_views(images, simclr.Views(**views), torch.Generator().manual_seed(0))
    changed = (x[:, 0, 0, 0] - (120 / 127.5 - 1)).abs() > 1e-5
    assert abs(changed.float().mean() - 0.8) < 0.03
    assert len(x[changed, 0, 0, 0].unique()) > 3000
    assert abs(x.mean() - (120 / 127.5 - 1)) < 0.02


def check_local_steps():
    """Local steps equal gradient descent written out, on views that are the images themselves."""
    views = SETTINGS["views"] | STILL | {"grayscale": 0, "solarize": (0, 0)}
    policy = simclr.Views(**views)
    images = torch.from_numpy(STORED["images"])
    settings = SETTINGS | FLOAT32 | {"objective": "nt_xent", "learning_rate": 0.05}
    model, other = build(), build()

    def train(model, steps, batch_size):
        values = settings | {"steps": steps, "batch_size": batch_size}
        return simclr.local_steps(model, images, policy, values, seed=0)

    loss = train(model, 2, 0)
    x = images.permute(0, 3, 1, 2).float() / 127.5 - 1
    losses = []
    for _ in range(2):
        value = simclr.nt_xent(other(torch.cat([x, x])), 0.1)
        gradients = torch.autograd.grad(value, list(other.parameters()))
        with torch.no_grad():
            for weight, gradient in zip(other.parameters(), gradients, strict=True):
                weight -= 0.05 * gradient
        losses.append(value.item())
    assert abs(loss - np.mean(losses)) < 1e-4
    for actual, expected in zip(model.parameters(), other.parameters(), strict=True):
        np.testing.assert_allclose(actual.detach(), expected.detach(), atol=1e-4)
    # With one negative image, in a batch of two, the loss is lower than with all.
    assert train(build(), 4, 2) < losses[0]


def check_products():
    """TF32 is allowed after the reference if the settings say so, never before."""
    for tf32 in (True, False):
        torch_program.prepare(FLOAT32)
        assert torch.get_float32_matmul_precision() == "highest"
        torch_program.use_products({"tf32": tf32})
        assert torch.get_float32_matmul_precision() == ("high" if tf32 else "highest")
        assert torch.backends.cudnn.allow_tf32 == tf32


def check_pixels():
    """The CNN's inputs are those of `cifar`."""
    images = torch.from_numpy(STORED["images"])
    x = torch_cnn.pixels(images)
    np.testing.assert_allclose(x.numpy(), STORED["images"] / 127.5 - 1, atol=1e-6)
    assert torch_cnn.CNN()(x).shape == (len(images), 10)


for name, check in list(globals().items()):
    if name.startswith("check_"):
        check()
        print(name)
