"""The table of docs/doors.md has all doors and all ways, each of them tried."""

from ..build.doors import DOORS
from .make_doors import NO_WAY, UV_WAYS, WAYS, read_table


def test_every_door_was_built_in_every_way() -> None:
    table = read_table()
    ways = table.pop("door")
    assert ways == [*WAYS, *UV_WAYS]
    assert [*table] == ["---", *DOORS]
    for door in DOORS:
        for way, cell in zip(ways, table[door], strict=True):
            assert cell == "-" if (door, way) in NO_WAY else float(cell) > 0
