# SPDX-License-Identifier: Apache-2.0
"""Data that needs no download: handwritten digits, and a novel's first chapters by character.

Batch number k is the same on every rank and in every run of a seed, so that ways of training can be
compared; a way takes from it the part that its rank computes.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from kolo_train.config import Config

TEXT = Path(__file__).parent / "text" / "pride_and_prejudice.txt"
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Digits:
    """1797 digits of 8 x 8 pixels (scikit-learn's load_digits), in an order shuffled each epoch.

    A batch: images [batch, 1, 8, 8] of 0 to 1 in the run's type, classes [batch] of 0 to 9.
    """

    classes = 10

    def __init__(self, config: Config) -> None:
        from sklearn.datasets import load_digits

        digits = load_digits()
        images = torch.tensor(digits.images / 16.0, dtype=DTYPES[config.precision])
        self.images = images.unsqueeze(1).to(config.device)
        self.labels = torch.tensor(digits.target, device=config.device)
        self.config = config

    @property
    def samples(self) -> int:
        """How many there are in an epoch."""
        return len(self.labels)

    def picked(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """The samples with these numbers."""
        return self.images[numbers], self.labels[numbers]

    def batch(self, number: int) -> tuple[Tensor, Tensor]:
        """The global batch of step `number`."""
        size = self.config.batch
        per_epoch = max(1, len(self.labels) // size)
        epoch, place = divmod(number, per_epoch)
        generator = torch.Generator().manual_seed(self.config.seed + epoch)
        order = torch.randperm(len(self.labels), generator=generator)
        picked = order[place * size : (place + 1) * size].to(self.labels.device)
        return self.images[picked], self.labels[picked]


class Characters:
    """Windows of the text at random places; the target of each character is the next one.

    A batch: two int64 tensors [batch, context]. The number of classes is that of the characters in
    the text, rounded up to a multiple of 16 so that it can be split over ranks.
    """

    def __init__(self, config: Config) -> None:
        text = TEXT.read_text(encoding="utf-8")
        alphabet = sorted(set(text))
        numbers = {character: number for number, character in enumerate(alphabet)}
        self.text = torch.tensor([numbers[character] for character in text])
        self.classes = -(-len(alphabet) // 16) * 16
        self.config = config

    @property
    def samples(self) -> int:
        """How many windows there are in the text side by side."""
        return (len(self.text) - 1) // self.config.context

    def picked(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """The windows with these numbers, side by side in the text."""
        return self._windows(numbers.unsqueeze(1) * self.config.context)

    def batch(self, number: int) -> tuple[Tensor, Tensor]:
        """The global batch of step `number`."""
        config = self.config
        generator = torch.Generator().manual_seed(config.seed * 1_000_003 + number)
        starts = torch.randint(len(self.text) - config.context - 1, (config.batch, 1), generator=generator)
        return self._windows(starts)

    def _windows(self, starts: Tensor) -> tuple[Tensor, Tensor]:
        window = self.text[starts + torch.arange(self.config.context + 1)].to(self.config.device)
        return window[:, :-1].contiguous(), window[:, 1:].contiguous()


def make_data(config: Config) -> Digits | Characters:
    """The data that the model of this run learns from."""
    return Characters(config) if config.reads else Digits(config)
