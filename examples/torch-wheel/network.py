"""A small convolutional network for images of 8x8 pixels from 0 to 16."""

from torch import Tensor, nn


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
        )
        self.head = nn.Linear(64, 10)

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        """Probabilities of the digits, and the likeliest one."""
        scores = self.head(self.body(image / 16).flatten(1))
        return {"probabilities": scores.softmax(-1), "digit": scores.argmax(-1)}
