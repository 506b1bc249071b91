"""Settings: every bad one is refused by name; files round trip."""

import json
from pathlib import Path
from typing import Any

import pytest

from snnlib.app.setting import settings_of
from snnlib.app.training import ConfigError, TrainConfig


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("data", "cifar", "one of digits, nmnist"),
        ("frames", "rgb", "one of binary, count"),
        ("overflow", "keep", "one of clamp, drop"),
        ("neuron", "hodgkin-huxley", "one of srm, cuba-event, cuba-once, if"),
        ("surrogate", "step", "one of triangle, rectangle, atan"),
        ("surrogate_width", 0.0, "a number > 0"),
        ("tau", 0.5, "a number >= 1"),
        ("levels", 0, "an integer >= 1"),
        ("levels", 2**24 + 1, "an integer <= 16777216"),
        ("levels", 4, "1 with srm"),
        ("threshold", 0.5, "1 with srm"),
        ("batch_norm", "yes", "true or false"),
        ("loss", "hinge", "one of count, count+, cross-entropy"),
        ("device", "tpu", "one of auto, cpu, cuda"),
        ("precision", "8", "one of 32-true, 64-true, bf16-true"),
        ("epochs", 0, "an integer >= 1"),
        ("epochs", 1.5, "an integer >= 1"),
        ("epochs", True, "an integer >= 1"),
        ("batch_size", -3, "an integer >= 1"),
        ("copies", 0, "an integer >= 1"),
        ("time_steps", 0, "an integer >= 1"),
        ("devices", 0, "an integer >= 1"),
        ("threads", 0, "an integer >= 1"),
        ("workers", -1, "an integer >= 0"),
        ("seed", -1, "an integer >= 0"),
        ("seed", 2**64, "an integer <= 9223372036854775807"),
        ("seed", 10**400, "an integer <= 9223372036854775807"),
        ("threads", 2**40, "an integer <= 2147483647"),
        ("lr", 10**400, "a number > 0"),
        ("tau_m", 0.5, "a number >= 1"),
        ("tau_s", 0.9, "a number >= 1"),
        ("tau_grad", 1, "a number > 1"),
        ("lr", 0.0, "a number > 0"),
        ("lr", float("nan"), "a number > 0"),
        ("lr", "fast", "a number > 0"),
        ("step_ms", 0.0001, "at least 0.001"),
        ("weight_decay", -0.1, "a number >= 0"),
        ("warmup_epochs", -1, "a number >= 0"),
        ("shift", -1, "an integer >= 0"),
        ("rotate", -5.0, "a number >= 0"),
        ("rotate", 200.0, "degrees in 0..180"),
        ("warp", float("inf"), "a number >= 0"),
        ("target_rate", 1.0, "a rate in spikes per step, below 1"),
        ("undesired", 99.0, "fewer spikes than desired"),
    ],
)
def test_bad_setting_is_named(field: str, value: Any, expected: str) -> None:
    with pytest.raises(ConfigError) as error:
        TrainConfig(**{field: value})
    assert error.value.field == field
    assert str(error.value).startswith(f"{field}: expected {expected}")
    assert str(error.value).endswith(f"got {value!r}")


@pytest.mark.parametrize("name", [setting.name for setting in settings_of(TrainConfig)])
@pytest.mark.parametrize("value", [float("nan"), float("-inf"), {"a": 1}, b"text"])
def test_every_setting_refuses_values_that_no_setting_takes(name: str, value: Any) -> None:
    with pytest.raises(ConfigError) as error:
        TrainConfig(**{name: value})
    assert error.value.field == name
    assert str(error.value).endswith(f"got {value!r}")


def test_batch_norm_needs_a_surrogate_gradient() -> None:
    assert TrainConfig(neuron="lif", batch_norm=True).net.batch_norm
    with pytest.raises(
        ConfigError, match=r"batch_norm: expected a neuron with a surrogate gradient .* got srm"
    ):
        TrainConfig(batch_norm=True)


def test_levels_need_layers_that_have_them() -> None:
    assert TrainConfig(neuron="plif", levels=4, threshold=0.5).net.levels == 4
    with pytest.raises(ConfigError, match=r"^levels: expected 1 with recurrent layers, got 4"):
        TrainConfig(neuron="lif", net="16R-10", levels=4)
    with pytest.raises(ConfigError, match=r"^threshold: expected 1 with loihi, got 2\.0"):
        TrainConfig(neuron="lif", dialect="loihi", threshold=2.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "neuron: expected cubalif or lif with dialect loihi, got 'srm'"),
        (
            {"neuron": "lif", "batch_norm": True},
            "batch_norm: expected false with dialect loihi, .* got True",
        ),
        ({"neuron": "lif", "net": "16R-10"}, "net: expected layers without recurrence with dialect loihi"),
        (
            {"neuron": "lif", "precision": "bf16-mixed"},
            "precision: expected 32-true or 64-true with dialect",
        ),
    ],
)
def test_what_a_chip_does_not_have(settings: dict[str, Any], message: str) -> None:
    assert TrainConfig(neuron="lif", dialect="loihi").net.dialect == "loihi"
    with pytest.raises(ConfigError, match=rf"^{message}"):
        TrainConfig(dialect="loihi", **settings)


def test_nmnist_needs_a_root() -> None:
    with pytest.raises(
        ConfigError, match="root: expected the folder of the N-MNIST copy for data nmnist, got none"
    ):
        TrainConfig(data="nmnist")


def test_round_trip(tmp_path: Path) -> None:
    config = TrainConfig(data="nmnist", root="somewhere", lr=0.1, tau_grad=3.0, threads=2)
    config.save(tmp_path / "config.json")
    assert TrainConfig.load(tmp_path / "config.json") == config


def test_settings_of_an_older_version_get_defaults(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"snnlib_version": "0.3.0", "epochs": 3}')
    with pytest.warns(UserWarning, match="settings missing from the file: data=digits"):
        assert TrainConfig.load(tmp_path / "config.json") == TrainConfig(epochs=3)


@pytest.mark.parametrize("version", ["0.2.0", "0.2.0.dev0", None])
def test_a_run_of_an_older_version_is_refused(version: str | None, tmp_path: Path) -> None:
    named = {} if version is None else {"snnlib_version": version}
    (tmp_path / "config.json").write_text(json.dumps({"epochs": 3, **named}))
    message = rf"config\.json: expected a run of snnlib 0\.3 or newer, got one of {version or '0.1.0'}; train it anew$"
    with pytest.raises(ConfigError, match=message):
        TrainConfig.load(tmp_path / "config.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"epochs": 3', r"config\.json: expected JSON, got invalid text"),
        ("[1]", r"config\.json: expected a JSON object of settings, got list"),
        ('{"snnlib_version": "0.3.0", "epoch": 3}', r"config\.json: expected known settings only, got epoch"),
        (
            '{"snnlib_version": "0.3.0", "epochs": "3"}',
            r"config\.json: epochs: expected an integer >= 1, got '3'",
        ),
        ("[" * 100_000, r"config\.json: expected JSON"),
        ('{"snnlib_version": "0.3.0", "net": 5}', r"config\.json: net: expected text, got 5"),
        ('{"snnlib_version": "0.3.0", "root": 5}', r"config\.json: root: expected text, got 5"),
    ],
)
def test_damaged_file_is_named(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ConfigError, match=message):
        TrainConfig.load(tmp_path / "config.json")
