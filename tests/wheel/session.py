"""What a host does with the wheels of xor and the digits, with the standard library only; prints the numbers as JSON.

python -I session.py <digits.csv.gz> [site ...]
"""

import gzip
import json
import sys
from array import array

sys.path[:0] = sys.argv[2:]

from digits import nn as serving  # noqa: E402
from digits_train import nn as training  # noqa: E402
from xor import nn as xor  # noqa: E402

with gzip.open(sys.argv[1], "rt") as file:
    rows = [bytes(map(int, line.split(","))) for _, line in zip(range(40), file, strict=False)]
pixels = memoryview(b"".join(row[:64] for row in rows)).cast("B", (40, 64))
labels = array("q", [row[64] for row in rows])
images = memoryview(array("f", list(pixels.tobytes()))).cast("B").cast("f", (40, 64))

x, y = [[0, 0], [0, 1], [1, 0], [1, 1]], [0, 1, 1, 0]
xor_losses = [xor.train_step(x, y, lr=0.1) for _ in range(30)]
xor_weights = xor.Model().flat_parameters.tolist()
learner = xor.Model()
for _ in range(300):
    learner.train_step(x, y)
model = training.Model()
model.set_input(pixels, labels)
model.forward()
model.backward()

print(
    json.dumps(
        {
            "isa": [nn.info()["isa"] for nn in (xor, training, serving)],
            "numpy": "numpy" in sys.modules,
            "learned": [round(answer) for answer in learner.forward(x)],
            "float64": {"losses": xor_losses, "outputs": xor.forward(x).tolist(), "start": xor_weights},
            "float32": {
                "losses": [training.train_step(pixels, labels, lr=0.1) for _ in range(5)],
                "scores": training.forward(pixels).tolist(),
                "gradient": model.gradients["layers.0.neurons.b"].tolist(),
                "chances": serving.forward(images).tolist(),
            },
            "digits": [row.index(max(row)) for row in serving.forward(images).tolist()],
            "labels": labels.tolist(),
        }
    )
)
