"""Train until all four answers are right, and draw the answers. Needs the wheel of this folder and nothing else."""

import argparse
import sys
from pathlib import Path

from xor import nn

sys.path.append(str(Path(__file__).resolve().parent.parent))
from chart import plane

INPUTS = [[0, 0], [0, 1], [1, 0], [1, 1]]
TARGETS = [0, 1, 1, 0]


def main() -> None:
    """Print one line every 20 steps, then the four answers; draw where the answer is 1."""
    parser = argparse.ArgumentParser(description="Train a network of five neurons on xor.")
    parser.add_argument(
        "--picture", type=Path, default=Path("xor.svg"), help="file for the picture (default: %(default)s)"
    )
    options = parser.parse_args()
    for step in range(1000):
        loss = nn.train_step(INPUTS, TARGETS, lr=0.1)
        answers = nn.forward(INPUTS).tolist()
        done = all(abs(answer - target) < 0.1 for answer, target in zip(answers, TARGETS, strict=True))
        if step % 20 == 0 or done:
            print(f"step {step:3}   loss {loss:.4f}   answers {' '.join(f'{answer:5.2f}' for answer in answers)}")
        if done:
            break
    names = ("answer up to 0.5", "answer above 0.5", "target 0", "target 1")
    data = [[*x, target] for x, target in zip(INPUTS, TARGETS, strict=True)]
    axes = ("first input", "second input")
    options.picture.write_text(
        plane(
            "xor: the answers of five neurons", axes, lambda at: [y > 0.5 for y in nn.forward(at).tolist()], names, data
        )
    )
    print(f"decision boundary: {options.picture}")
    for (a, b), answer in zip(INPUTS, answers, strict=True):
        print(f"{a} xor {b} = {answer > 0.5:d}")


if __name__ == "__main__":
    main()
