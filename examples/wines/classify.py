"""Which cultivar is a wine of? Needs the wheel and nothing else: ``python classify.py < wines.csv``."""

import sys

from wines import nn

rows = [[float(number) for number in line.split(",")] for line in sys.stdin if line.strip()]
cultivars = nn.info()["classes"]
for index, shares in zip(nn.predict(rows), nn.predict_proba(rows), strict=True):
    print(f"{cultivars[int(index)]}  {shares[int(index)]:.3f}")
