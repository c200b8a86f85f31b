"""``python apart.py <library>``, before it is linked anew: wait until the one in its place is a second old.

``cmake --install`` takes two files for the same when their times differ by less, and would leave the old one there.
"""

import os
import sys
import time


def wait(library: str) -> None:
    """Until a second after ``library`` was made; not for long if that is in the future, by another clock."""
    if os.path.exists(library):
        time.sleep(min(max(0, os.path.getmtime(library) + 1 - time.time()), 2))


if __name__ == "__main__":
    wait(sys.argv[1])
