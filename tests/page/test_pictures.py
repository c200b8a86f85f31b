"""Pictures of a page: plots with axes and ticks, as SVG that is XML."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

from mlaot.page.pictures import HEIGHT, TOP, WIDTH, memory, roofline, short

LIMITS = {"isa": "v3", "operations": 1e11, "near": 1e11, "far": 1e10}


def kernel(operations: int | None, bytes_: int, seconds: float, title: str = "contract") -> dict[str, Any]:
    return {"operations": operations, "bytes": bytes_, "rounds": 1, "seconds": {"v3": seconds}, "title": title}


def test_roofline_has_a_point_for_each_kernel_with_operations() -> None:
    kernels = [kernel(10**6, 10**5, 1e-4, "<b> & relu"), kernel(None, 10**5, 1e-4), kernel(10**6, 10**6, 1e-3)]
    picture = ElementTree.fromstring(roofline({"name": "forward", "kernels": kernels}, LIMITS))
    points = picture.findall("circle")
    assert [point.get("data-kernel") for point in points] == ["0", "2"]
    title = points[0].findtext("title") or ""
    assert title == "0: <b> & relu, 10 Gop/s, 10 % of the peak"
    (x0, y0), (x1, y1) = [(float(p.get("cx", 0)), float(p.get("cy", 0))) for p in points]
    assert x0 > x1 and y0 < y1, "more operations for a byte lie right, more a second lie above"
    assert all(0 < float(p.get("cx", 0)) < WIDTH and TOP <= float(p.get("cy", 0)) < HEIGHT for p in points)
    text = [each.text for each in picture.findall("text")]
    assert "forward: operations a second on v3, one thread" in text
    assert {"1", "10", "1 Gop/s", "10 Gop/s", "operations for each byte"} <= {*text}
    for line in picture.findall("polyline"):
        heights = [float(pair.partition(",")[2]) for pair in line.get("points", "").split()]
        assert heights[1] == heights[2] <= heights[0], "a roof rises to the peak and stays there"


def test_memory_has_a_box_for_each_buffer() -> None:
    buffers = [
        {"name": "t0", "what": "f32[64]", "start": 0, "bytes": 256, "first": 0, "last": 1},
        {"name": "t1", "what": "f32[128]", "start": 256, "bytes": 512, "first": 1, "last": 3},
        {"name": "none", "what": "f32[0]", "start": 0, "bytes": 0, "first": 1, "last": 1},
    ]
    entry = {"name": "forward", "kernels": [None] * 4, "memory": buffers}
    picture = ElementTree.fromstring(memory(entry))
    boxes = picture.findall("rect")
    assert [box.findtext("title") for box in boxes] == [
        "t0: f32[64], 256 bytes, kernels 0 to 1",
        "t1: f32[128], 512 bytes, kernels 1 to 3",
    ]
    sizes = [(float(box.get("width", 0)), float(box.get("height", 0))) for box in boxes]
    assert abs(sizes[1][0] / sizes[0][0] - 1.5) < 0.01 and abs(sizes[1][1] / sizes[0][1] - 2) < 0.01
    assert float(boxes[1].get("y", 0)) == TOP
    assert "forward: buffers in the workspace of 768 B" in [each.text for each in picture.findall("text")]


def test_nothing_to_draw() -> None:
    assert roofline({"name": "f", "kernels": [kernel(None, 10, 1.0), kernel(10, 10, 0.0)]}, LIMITS) == ""
    assert memory({"name": "f", "kernels": [], "memory": []}) == ""


def test_numbers_are_short() -> None:
    numbers = (0, 0.5, 1, 999, 1000, 1234567, 2.5e12, 1e18, 1e21)
    assert [short(n) for n in numbers] == [
        *("0 ", "0.5 ", "1 ", "999 ", "1 k", "1.23 M", "2.5 T", "1e+03 P", "1e+06 P"),
    ]
    assert all(re.fullmatch(r"[\d.e+]+ [kMGTP]?", short(n)) for n in numbers)
