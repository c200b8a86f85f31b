"""Node counts of the seed's network, 784-50-10 of scalars, before and after each pass.

    python benchmarks/counts.py

Two graphs go through mlaot's own passes: the summed outputs of "Vectorizing ML models for fun", and the training loss
of "Compiling ML models to C for fun". The first also goes through the vectorizer of that post.
"""

from __future__ import annotations

import random

from mlaot.micrograd import MLP, Value, count, cross_entropy, declare, fma_chances, optimize
from mlaot.report.passes import report


def main() -> None:
    random.seed(1337)
    net = MLP(784, [50, 10])
    x = [Value(0.0, (), "input") for _ in range(784)]
    label = [Value(0.0, (), "input") for _ in range(10)]
    outputs = net(x)
    loss = cross_entropy(outputs, label)
    print("sum(model), mlaot")
    print("\n".join(report(declare(sum(outputs), inputs={"x": x}, parameters=net), "counts.nn")))
    print(f"loss = -log(p + 0.0001) of a stable softmax, mlaot; {fma_chances(loss):,} chances of a multiply-add")
    training = declare(outputs, inputs={"x": x, "label": label}, parameters=net, loss=loss)
    print("\n".join(report(training, "counts.nn")))
    summed = sum(outputs)
    print("sum(model), optimize, the greedy vectorizer of the post")
    print(f"  before  {count(summed).total():,} nodes: {dict(count(summed))}")
    print(f"  after   {count(optimize(summed)).total():,} nodes: {dict(count(summed))}")


if __name__ == "__main__":
    main()
