"""Reports of recordings of different lengths: padding counts for nothing."""

import pytest
import torch
from torch import nn

import snnlib
from snnlib.app.report.evaluation import evaluate
from snnlib.data import collate_ragged

LENGTHS = torch.tensor([12, 5, 1, 9])


def _x() -> torch.Tensor:
    return (torch.rand(12, 4, 6, generator=torch.Generator().manual_seed(1)) < 0.4).float()


@pytest.mark.usefixtures("undrawn")
def test_labels_at_every_step_in_a_report(tmp_path) -> None:
    """Counts of the evaluation are those of the samples alone, of labelled steps only."""
    net, x = nn.Sequential(snnlib.SRMLinear(6, 8), snnlib.SRMReadout(8, 3)), _x()
    generator = torch.Generator().manual_seed(2)
    samples = [
        (x[:steps, n], torch.randint(-1, 3, (steps,), generator=generator))
        for n, steps in enumerate(LENGTHS.tolist())
    ]
    batch = collate_ragged(samples)
    found = evaluate(net, [batch], classes=3, scores=None, batch_first=False)
    confusion, spikes, steps = torch.zeros(3, 3, dtype=torch.long), torch.zeros(8), 0
    for x, labels in samples:
        answers = net(x.unsqueeze(1)).argmax(2).squeeze(1)
        for label, answer in zip(labels.tolist(), answers.tolist(), strict=True):
            if label >= 0:
                confusion[label, answer] += 1
        spikes += net[0](x.unsqueeze(1)).detach().sum((0, 1))
        steps += len(x)
    assert torch.equal(found.confusion, confusion)
    assert torch.equal(found.counts["0"].float(), spikes)
    assert (found.unit, found.steps, found.seen) == ("labelled steps", steps, 4)
    assert found.running.tolist() == [4] + [3] * 4 + [2] * 4 + [1] * 3
    page = snnlib.report(net, [batch], classes=["P", "QRS", "T"], out=tmp_path)
    assert repr(page).endswith(f"of {int(confusion.sum())} labelled steps)")
    assert "labels_over_time.png" in page.images
    text = page.path.read_text()
    assert "<th>labelled steps</th>" in text
    with pytest.raises(ValueError, match=r"lengths: expected shape \(4,\)"):
        snnlib.report(net, [(*batch[:2], LENGTHS[:2])], out=tmp_path)


def test_one_label_per_recording_in_a_report() -> None:
    net, x = nn.Sequential(snnlib.SRMLinear(6, 8), snnlib.SRMReadout(8, 3)), _x()
    samples = [(x[:steps, n], n % 3) for n, steps in enumerate(LENGTHS.tolist())]
    found = evaluate(net, [collate_ragged(samples)], classes=3, scores=None, batch_first=False)
    right = sum(int(net(x.unsqueeze(1)).mean(0).argmax()) == label for x, label in samples)
    assert (found.unit, int(found.confusion.diagonal().sum())) == ("samples", right)
