"""Train until all four answers are right. Needs the wheel of this folder and nothing else."""

from xor import nn

INPUTS = [[0, 0], [0, 1], [1, 0], [1, 1]]
TARGETS = [0, 1, 1, 0]


def main() -> None:
    """One line every 20 steps, then the four answers."""
    for step in range(1000):
        loss = nn.train_step(INPUTS, TARGETS, lr=0.1)
        answers = nn.forward(INPUTS).tolist()
        done = all(abs(answer - target) < 0.1 for answer, target in zip(answers, TARGETS, strict=True))
        if step % 20 == 0 or done:
            print(f"step {step:3}   loss {loss:.4f}   answers {' '.join(f'{answer:5.2f}' for answer in answers)}")
        if done:
            break
    for (a, b), answer in zip(INPUTS, answers, strict=True):
        print(f"{a} xor {b} = {answer > 0.5:d}")


if __name__ == "__main__":
    main()
