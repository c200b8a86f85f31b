"""Say of which cultivar each wine is, and draw the right and the wrong answers. Needs the wheel and nothing else.

    python classify.py wines.csv

wines.csv holds the wines that model.py keeps back: 13 measurements each, and the cultivar. Source: S. Aeberhard and
M. Forina, "Wine", UCI Machine Learning Repository, 1992, https://doi.org/10.24432/C5PC7J (CC BY 4.0).
"""

import argparse
import csv
import sys
from pathlib import Path

from wines import nn

sys.path.append(str(Path(__file__).resolve().parent.parent))
from chart import confusion


def main() -> None:
    """Print the cultivar of each wine and its probability; draw the answers."""
    parser = argparse.ArgumentParser(description="Say of which cultivar each wine is.")
    parser.add_argument("wines", type=Path, help="file with 13 measurements and the cultivar in each line")
    parser.add_argument(
        "--picture", type=Path, default=Path("wines.svg"), help="file for the table (default: %(default)s)"
    )
    options = parser.parse_args()
    with open(options.wines, newline="", encoding="utf-8") as file:
        lines = list(csv.reader(file))
    rows, known = [list(map(float, line[:-1])) for line in lines], [line[-1] for line in lines]
    answers = list(nn.predict(rows))
    for answer, shares in zip(answers, nn.predict_proba(rows), strict=True):
        print(f"{answer}  {max(shares):.3f}")
    right = sum(map(str.__eq__, answers, known))
    print(f"{right} of {len(known)} right; table: {options.picture}")
    pairs = list(zip(known, answers, strict=True))
    options.picture.write_text(confusion("Wines by cultivar", sorted(set(known)), pairs, "wines"))


if __name__ == "__main__":
    main()
