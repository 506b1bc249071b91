"""A spiking net as a LightningModule. Batches are `[T, N, ...]`, so Lightning has to be told the batch size."""

import logging
import warnings

import lightning.pytorch as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Subset

import snnlib
from snnlib.data import EventDigits, FrameCache, ToFrames, stack_time_first


class SpikingModule(pl.LightningModule):
    """Any net that gives output potentials `[T, N, classes]`, trained with TET."""

    def __init__(self, net: torch.nn.Module, lr: float = 3e-3) -> None:
        super().__init__()
        self.net, self.lr = net, lr
        self.losses: list[tuple[float, int]] = []

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        frames, labels = batch
        loss = snnlib.losses.tet_loss(self.net(frames), labels)
        # Left to itself, Lightning takes the first dimension for the batch, which here is time, and then weighs a
        # smaller last batch like the others in the mean over the epoch.
        self.log("train_loss", loss, on_epoch=True, on_step=False, batch_size=len(labels))
        self.losses.append((float(loss.detach()), len(labels)))
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], _: int) -> None:
        frames, labels = batch
        right = (self.net(frames).mean(0).argmax(1) == labels).float().mean()
        self.log("val_accuracy", right, batch_size=len(labels))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.net.parameters(), self.lr)


logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
# Frames come from memory, so worker processes would only cost.
warnings.filterwarnings("ignore", ".*does not have many workers.*")
pl.seed_everything(0, verbose=False)
to_frames = ToFrames(time_steps=15, step_us=20_000)
data = EventDigits(train=True, transform=to_frames)
# A third of the samples is enough here, and a sixth to validate.
train, validation = (
    FrameCache(Subset(data, range(start, len(data), step))) for start, step in ((0, 3), (1, 6))
)
train_loader = DataLoader(train, batch_size=40, shuffle=True, collate_fn=stack_time_first)
val_loader = DataLoader(validation, batch_size=50, collate_fn=stack_time_first)

net = torch.nn.Sequential(
    snnlib.SpikeAvgPool2d(2),
    snnlib.SRMConv2d(2, 8, 5, stride=2, tau_m=5.0, tau_s=3.0),
    snnlib.SRMReadout(8 * 7 * 7, 10, tau_m=5.0, tau_s=3.0),
)
snnlib.prepare_(net, next(iter(train_loader))[0])
module = SpikingModule(net)
trainer = pl.Trainer(
    max_epochs=3,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(module, train_loader, val_loader)
print(f"training loss {trainer.callback_metrics['train_loss']:.3f}")
print(f"validation accuracy {trainer.callback_metrics['val_accuracy']:.1%}")

# Lightning's mean over the epoch is the mean over samples.
last_epoch = module.losses[-len(train_loader) :]
mean = sum(loss * size for loss, size in last_epoch) / sum(size for _, size in last_epoch)
assert abs(float(trainer.callback_metrics["train_loss"]) - mean) < 1e-4
assert trainer.callback_metrics["val_accuracy"] > 0.75, "the net did not learn"
