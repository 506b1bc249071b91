"""`snnlib train` on images: MNIST's files, folders of pictures, every encoding, prediction of a picture."""

import numpy as np
import pytest
import torch
from command import done, metrics, run
from PIL import Image
from small_sets import squares, write_mnist

from snnlib import load
from snnlib.app.errors import ConfigError
from snnlib.app.recipes import RECIPES
from snnlib.app.training.classifier import SpikingClassifier
from snnlib.app.training.config import TrainConfig
from snnlib.app.training.data_module import EventData
from snnlib.app.training.run import _calibrate
from snnlib.data import ImageFolder

MNIST = {"data": "mnist", "root": "x"}
SMALL = ("--epochs", 6, "--batch-size", 10, "--threads", 1, "--lr", "2e-2", "--warmup-epochs", 0)


@pytest.fixture(scope="module")
def mnist(tmp_path_factory):
    return write_mnist(tmp_path_factory.mktemp("mnist"), 240, 40)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    root = tmp_path_factory.mktemp("pictures")
    for number in range(60):
        name = ("left", "right")[number % 2]
        pixels = np.random.default_rng(number).integers(0, 60, (20, 24, 3)).astype(np.uint8)
        pixels[6:14, (2 if name == "left" else 14) :][:, :8] = (250, 200, 250)
        path = root / name / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(pixels).resize((24 + number % 3, 20)).save(path)
    return root


@pytest.mark.usefixtures("undrawn")
def test_mnist_from_the_files_to_a_prediction(mnist, tmp_path, capsys):
    folder = tmp_path / "run"
    options = (*SMALL, "--net", "4C5-P2-10", "--val-split", 0.1, "--out", folder)
    code, out, err = run(capsys, "train", "--data", "mnist", "--root", mnist, *options)
    assert (code, err) == (0, "")
    assert "recipe mnist: the image as amplitudes at each of 5 steps;" in out
    # The validation set is MNIST's own: a twelfth, the last.
    assert "data: 220 training, 20 validation and 40 test samples" in out
    rows = metrics(folder)
    assert float(rows[-1]["test_accuracy"]) > 0.8
    assert (folder / "report.html").is_file()
    out = done(capsys, "eval", folder)
    assert f"{float(rows[-1]['test_accuracy']):.2%} (" in out
    out = done(capsys, "profile", folder, "--samples", 4)
    # A picture, larger and in colour; what `load` gives reads it in the same way.
    image = squares(10)[0][7]
    Image.fromarray(image).resize((56, 56)).convert("RGB").save(tmp_path / "seven.png")
    (tmp_path / "broken.png").write_bytes(b"\x89PNG")
    code, out, err = run(capsys, "predict", folder, tmp_path / "seven.png", tmp_path / "broken.png")
    assert code == 2 and "broken.png: expected a PNG, JPEG or BMP image" in err
    assert out.splitlines()[1].split("\t")[1] == "7"
    assert "inverted" not in out and "(resized from 56x56 to 28x28)" in out
    Image.fromarray(255 - image).resize((56, 56)).save(tmp_path / "dark.png")
    code, out, _ = run(capsys, "predict", folder, tmp_path / "dark.png")
    assert (code, out.splitlines()[1].split("\t")[1]) == (0, "7")
    assert out.endswith("(resized from 56x56 to 28x28, inverted, as its border is light)\n")
    net, transform, classes = load(folder)
    with torch.no_grad():
        counts = net(transform(torch.from_numpy(image.copy())[None]).unsqueeze(1)).sum(0)
    assert classes[int(counts.argmax())] == "7"


def test_recipes_of_images_begin_with_standardised_weights(mnist):
    """Mean 0, no offset, stored at the scale of plain weights: learned 5 to 45 times as fast as gain and bias."""
    recipe = RECIPES["mnist"].config(root=str(mnist), net="4C5-P2-10")
    for config, fast in ((recipe, True), (recipe.changed(weight_scheme="calibrated"), False)):
        module, data = (
            SpikingClassifier(config, config.data.kind.facts(config)),
            EventData(config, progress=False),
        )
        data.setup("fit")
        _calibrate(module, data)
        for layer in (module.net.conv1, module.net.fc1):
            weight, step = layer.parametrizations.weight.original.detach(), layer.parametrizations.weight[0]
            third = 1 / (27 * weight[0].numel()) ** 0.5
            assert weight.flatten(1).std(1).mean().item() == pytest.approx(third if fast else 1, rel=1e-3)
            assert (step.bias.detach().abs().max().item() < 1e-5) == fast
            assert layer.input_grad_scale == 0.85


def test_pictures_are_held_out_as_the_folder_does(pictures):
    config = RECIPES["mnist"].config(
        data="images", root=str(pictures), net="4C5-P2-2", size="20x20", val_split=0.1
    )
    data = EventData(config, progress=False)
    data.setup("fit")
    for split, own in (("train", data.train_set), ("val", data.val_set), ("test", data.test_set)):
        assert own.dataset.files == ImageFolder(pictures, split, size=(20, 20)).files


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("colour", [False, True])
def test_a_folder_of_pictures(colour, pictures, tmp_path, capsys):
    folder = tmp_path / "run"
    options = (*SMALL, "--net", "4C5-P2-2", "--shift", 1, "--out", folder, *["--colour"] * colour)
    code, out, err = run(capsys, "train", "--data", "images", "--root", pictures, *options)
    assert (code, err) == (0, "")
    for text in (
        "48 images to train on, 2 classes: left, right",
        "size 25x20:",
        "of the pixels of 48 images",
    ):
        assert text in out
    config = TrainConfig.load(folder / "config.json")
    assert (config.data.size, config.data.classes, config.data.colour) == ("25x20", ["left", "right"], colour)
    assert float(metrics(folder)[-1]["test_accuracy"]) > 0.8
    # Without the pictures that it was trained on.
    out = done(capsys, "predict", folder, pictures / "right" / "1.png")
    assert out.splitlines()[1].split("\t")[1] == "right"


@pytest.mark.parametrize(
    ("encoding", "steps", "shape"),
    [
        ("current", 5, (1, 28, 28)),
        ("rate", 5, (1, 28, 28)),
        ("latency", 5, (1, 28, 28)),
        ("rows", 28, (28,)),
        ("pixels", 784, (1,)),
        ("permuted-pixels", 784, (1,)),
    ],
)
def test_encodings(encoding, steps, shape, mnist):
    config = TrainConfig(data="mnist", root=str(mnist), encoding=encoding, time_steps=steps, shift=2)
    data = EventData(config, progress=False)
    data.setup("fit")
    frames, labels = next(iter(data.train_dataloader()))
    assert frames.shape == (steps, 25, *shape)
    assert data.facts.input_shape == (shape if len(shape) == 3 else (*shape, 1, 1))
    assert len(data.train_set) == 240 and data.val_set is None
    again = EventData(config, progress=False)
    again.setup("fit")
    if encoding != "rate":
        assert torch.equal(next(iter(again.train_dataloader()))[0], frames)
    assert labels.shape == (25,)


@pytest.mark.usefixtures("undrawn")
def test_rows_train_a_recurrent_net(mnist, tmp_path, capsys):
    options = (*SMALL, "--encoding", "rows", "--time-steps", 28, "--net", "16R-10", "--neuron", "lif")
    code, out, err = run(
        capsys, "train", "--data", "mnist", "--root", mnist, *options, "--out", tmp_path / "run"
    )
    assert (code, err) == (0, "")
    assert "28 steps of 28 x 1 x 1 values (rows)" in out


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("recipe", "options"),
    [
        ("smnist", ("--net", "8S-8S-10")),
        ("psmnist", ("--net", "8S-8S-10", "--neuron", "lru")),
        ("smnist", ("--net", "16R-10", "--neuron", "brf")),
        ("smnist", ("--net", "16R-10", "--neuron", "adlif", "--surrogate", "triangle")),
        ("smnist", ("--net", "8D40-10", "--neuron", "lif")),
    ],
)
def test_pixels_train_nets_over_time(recipe, options, mnist, tmp_path, capsys):
    folder = tmp_path / "run"
    train = ("train", "--recipe", recipe, "--root", mnist, "--epochs", 1, "--threads", 1, *options)
    code, out, err = run(capsys, *train, "--out", folder)
    assert (code, err) == (0, "")
    assert "784 steps of 1 x 1 x 1 values" in out
    # A net without spikes has no firing to tell of.
    assert ("spikes/step" in out) == ("lru" not in options)
    tested = run(capsys, "eval", folder)
    assert (tested[0], tested[2]) == (0, "")


def test_settings_that_do_not_fit(mnist, pictures):
    for options, message in (
        ({"data": "mnist"}, "root: expected the folder of the data set for data mnist, got none"),
        (
            {"data": "digits", "encoding": "rows"},
            "encoding: expected current for digits, which has no images, got 'rows'",
        ),
        ({**MNIST, "size": "9x9"}, "size: expected none for mnist, which has no image files, got '9x9'"),
        ({"data": "images", "root": "x", "size": "9"}, "size: expected WIDTHxHEIGHT in pixels, got '9'"),
        ({**MNIST, "pool": 2}, "pool: expected 1 for mnist, which has no sensor, got 2"),
        ({**MNIST, "encoding": "rate", "mean": 0.1}, "encoding: expected mean 0 and std 1 with rate"),
        ({**MNIST, "std": 0}, "std: expected a number > 0, got 0"),
        ({"net": "8S-10"}, "neuron: expected one of lru, spiking-lru for the blocks of '8S-10', got 'srm'"),
        (
            {"net": "8S-20-10", "neuron": "lru"},
            "net: expected blocks like 64S before the last layer for lru, got '8S-20-10'",
        ),
        (
            {"net": "8S-10", "neuron": "spiking-lru", "loss": "count"},
            "loss: expected tet or mean-potential for spiking-lru, got 'count'",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            TrainConfig(**options)
    rows = TrainConfig(data="mnist", root=str(mnist), encoding="rows", time_steps=30)
    with pytest.raises(ConfigError, match="time_steps: expected 28 for the rows of images of 28x28, got 30"):
        EventData(rows, progress=False)
    with pytest.raises(ConfigError, match=r"root: .*expected the file t10k-images-idx3-ubyte"):
        EventData(TrainConfig(data="mnist", root=str(pictures)), progress=False).setup("fit")
