"""Node counts of the seed's network, 784-50-10 of scalars, before and after each pass.

    python benchmarks/counts.py

First the summed outputs, with the vectorizer of "Vectorizing ML models for fun" and with mlaot's own passes; then the
training loss of "Compiling ML models to C for fun".
"""

from __future__ import annotations

import random
from collections import Counter

from mlaot.frontend.scalar import declare
from mlaot.micrograd import MLP, Value, cross_entropy
from mlaot.passes.raising.greedy_dots import greedy_dots
from mlaot.report.passes import report


def main() -> None:
    random.seed(1337)
    net = MLP(784, [50, 10])
    x = [Value(0.0) for _ in range(784)]
    label = [Value(0.0) for _ in range(10)]
    outputs = net(x)
    summed = declare(sum(outputs), inputs={"x": x}, parameters=net)
    print("sum(model), greedy vectorizer of the post")
    graph = summed.trace().graph
    greedy_dots(graph)
    counts = Counter(node.op.name for node in graph.nodes())
    print(f"  + {counts['add']}, dot {counts['contract']}, array {counts['stack']}, * {counts['mul']}")
    print("sum(model), mlaot")
    print("\n".join(report(summed, "counts.nn")))
    print("loss = -log(p + 0.0001) of a stable softmax, mlaot")
    training = declare(outputs, inputs={"x": x, "label": label}, parameters=net, loss=cross_entropy(outputs, label))
    print("\n".join(report(training, "counts.nn")))


if __name__ == "__main__":
    main()
