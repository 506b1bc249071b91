"""Takes screenshots of the built site and of a report: `make docs-look`, into build/look.

Every page at three widths, light and dark, by Debian's Chromium (`apt-get install chromium`). Somebody has to look at
the pictures: nothing may be cut and no picture missing. Without a browser the script says so and ends.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch

import snnlib

ROOT = Path(__file__).resolve().parents[2]
SITE, LOOK = ROOT / "build" / "site", ROOT / "build" / "look"
PAGES = ("index", "first-net", "recurrence", "cuda", "neurons/lif", "api/layers")
WIDTHS, HEIGHT = (390, 820, 1440), 3000
# Values of Blink's setting.
SCHEMES = {"dark": 0, "light": 1}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def write_report(file: Path) -> None:
    """Writes the report of the trained net of digits on samples of the embedded data, with a history."""
    net = snnlib.models.load("digits")
    digits = snnlib.data.EventDigits(train=False, transform=net.transform)
    some = torch.utils.data.Subset(digits, range(0, len(digits), 6))
    loader = torch.utils.data.DataLoader(some, batch_size=20, collate_fn=snnlib.data.stack_time_first)
    history = [
        {"train_loss": 2 / epoch, "test_accuracy": 1 - 0.5 / epoch, "lr": 1e-3, "rate_conv1": 0.03}
        for epoch in range(1, 9)
    ]
    snnlib.report(net.net, loader, classes=net.classes, out=file, history=history, step_ms=10.0)


def screenshot(browser: str, page: Path, file: Path, width: int, scheme: int) -> None:
    """Writes a picture of a page; an error of the browser ends the program."""
    with tempfile.TemporaryDirectory() as profile:
        options = [
            *("--headless", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}"),
            # Chromium refuses its sandbox to root.
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
            f"--window-size={width},{HEIGHT}",
            f"--blink-settings=preferredColorScheme={scheme}",
            f"--screenshot={file}",
        ]
        subprocess.run([browser, *options, page.as_uri()], check=True, timeout=120, capture_output=True)


def main() -> None:
    """Takes all screenshots."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print(f"skipped: none of {', '.join(BROWSERS)} is on the PATH, so nobody looks at the site")
        return
    shutil.rmtree(LOOK, ignore_errors=True)
    LOOK.mkdir(parents=True)
    write_report(LOOK / "report.html")
    pages = {name: SITE / f"{name}.html" for name in PAGES} | {"report": LOOK / "report.html"}
    for name, page in pages.items():
        for width in WIDTHS:
            for scheme, number in SCHEMES.items():
                file = LOOK / f"{name.replace('/', '-')}-{width}-{scheme}.png"
                screenshot(browser, page, file, width, number)
    print(f"{len(list(LOOK.glob('*.png')))} screenshots in {LOOK}")


if __name__ == "__main__":
    main()
