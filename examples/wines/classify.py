"""Which cultivars are these wines of? ``python classify.py wines.csv`` needs the wheel and nothing else."""

import sys
from pathlib import Path

from wines import nn

lines = Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
rows = [[float(number) for number in line.split(",")] for line in lines]
for cultivar, shares in zip(nn.predict(rows), nn.predict_proba(rows), strict=True):
    print(f"{cultivar}  {max(shares):.3f}")
