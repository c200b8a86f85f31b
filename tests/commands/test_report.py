"""``mlaot report``: one page that needs no network, whatever parts of the model are called."""

from __future__ import annotations

import json
import re
from collections import Counter
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from mlaot.commands.report import page

from ..page.walk import CHROMIUM, walk
from .conftest import Cli, complaint, start

MODEL = """\
import numpy as np
import mlaot
import mlaot.nn

batch = mlaot.dim("batch")
nn, rng = mlaot.nn, np.random.default_rng(1)

class Net(nn.Module):
    def __init__(self):
        self.hidden, self.last = nn.Linear(8, 6, rng=rng), nn.Linear(6, 3, rng=rng)

    def __call__(self, x):
        return np.tanh(self.last(np.maximum(self.hidden(x), 0))).sum(axis=1)

net = Net()

@mlaot.model(parameters=net)
def model(x: mlaot.f32[batch, 8]):
    return net(x)
"""
VOID = ("meta", "input", "br")


class Page(HTMLParser):
    """What a page has: its elements, which must be closed, and the texts of cells, scripts and code."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.rows: list[list[str]] = []
        self.links: list[str] = []
        self.count: Counter[str] = Counter()
        self.feed(text)
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[tag] += 1
        named = {key: value or "" for key, value in attrs}
        self.ids += [named["id"]] if "id" in named else []
        self.links += [named[key] for key in ("href", "src") if key in named]
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        if self.rows and "td" in self.open:
            self.rows[-1][-1] += data


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("report")
    (folder / "pictured.py").write_text(MODEL)
    out, err = start("report", "pictured:model", "-o", "out.html", cwd=folder).communicate()
    assert re.fullmatch(r"out\.html  [\d.]+ KB\n", out), out + err
    return folder / "out.html", (folder / "out.html").read_text()


def test_the_page_stands_alone(made: tuple[Path, str]) -> None:
    _, text = made
    page = Page(text)
    assert len(text) < 400_000
    assert len(page.ids) == len({*page.ids})
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.links), page.links
    assert not re.search(r"https?://(?!www\.w3\.org/)", text.partition('id="data"')[0]), "it needs no network"
    assert page.count["script"] == 3


def test_kernels_have_code_and_times(made: tuple[Path, str]) -> None:
    _, text = made
    page = Page(text)
    kernels = [row for row in page.rows if row and re.fullmatch(r"\d+", row[0].strip()) and len(row) > 6]
    assert len(kernels) >= 2
    first = next(row for row in kernels if "contract" in row[2])
    assert first[1] == f"hiddenpictured.py:{1 + MODEL[: MODEL.index('self.hidden(x)')].count(chr(10))}"
    assert "Loop nest" in first[2] and "for " in first[2] and "void " in first[2]
    assert any(re.search(r"\d (ns|us)", cell) for cell in first)
    shares = [float(match[1]) for row in kernels for cell in row if (match := re.match(r" (\d+) %", cell))]
    assert abs(sum(shares) - 100) <= len(shares)


def test_the_passes_lead_from_the_model_to_the_last_graph(made: tuple[Path, str]) -> None:
    _, text = made
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    data = json.loads(found[1])
    assert data["passes"][0]["name"] == "trace" and data["passes"][0]["graphs"].keys() == {"model"}
    texts: dict[str, str] = {}
    for step in data["passes"]:
        for name in step["gone"]:
            del texts[name]
        texts |= {name: "\n".join(data["lines"][n] for n in lines) for name, lines in step["graphs"].items()}
    assert texts.keys() == {"forward"} and texts["forward"].count("contract(") == 2
    kernels = data["entries"][0]["kernels"]
    assert any({*a["writes"]} & {*b["reads"]} for a, b in pairwise(kernels))


def test_names_are_text() -> None:
    name = "</script><b>&"
    kernel = {"origin": name, "computes": [f"v0 = neg({name}) : f32[2]"], "nest": name, "c": name, "loop": [name]}
    kernel |= {
        "kind": "rows",
        "title": name,
        "operations": 0,
        "width": 0,
        "bytes": 8,
        "reads": [name],
        "writes": [name],
    }
    kernel |= {"line": name, "seconds": {"v3": 1e-6}, "rounds": 1, "function": "neg_v3"}
    entry = {"name": name, "dims": {name: 1}, "seconds": {"v3": 1e-6}, "marked": {"v3": 1e-6}, "kernels": [kernel]}
    step = {"name": name, "says": name, "graphs": {name: {"nodes": 1, "lines": [name]}}, "gone": []}
    data = {
        "module": name,
        "model": name,
        "inputs": name,
        "remarks": [name],
        "sizes": {name: 1},
        "passes": [step],
        "golden": [],
    }
    data |= {"machines": [{"isa": "v3", "operations": 1e11, "near": 1e11, "far": 1e10}]}
    data |= {
        "entries": [{**entry, "memory": [{"name": name, "what": name, "start": 0, "bytes": 8, "first": 0, "last": 0}]}]
    }
    found = Page(page(data))
    assert found.count["b"] == 0 and found.count["script"] == 3 and found.count["svg"] == 1


def test_a_trace_and_changes(made: tuple[Path, str]) -> None:
    path, text = made
    folder = path.parent
    (folder / "pictured.py").write_text(MODEL.replace("nn.Linear(6, 3", "nn.Linear(6, 4"))
    command = ("report", "pictured:model", "-o", "new.html", "--against", "out.html", "--trace", "trace.json")
    out, err = start(*command, cwd=folder).communicate()
    assert re.fullmatch(r"new\.html  .*\ntrace\.json  .*\n", out), out + err
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    calls = [event for event in events if event["ph"] == "X"]
    assert len(calls) == text.count('<tr id="forward-') and {"name", "ts", "dur", "pid", "tid"} <= calls[0].keys()
    assert all(abs(a["ts"] + a["dur"] - b["ts"]) < 1e-9 for a, b in pairwise(calls))
    changes = Page((folder / "new.html").read_text().partition('<h2 id="calls">')[0] + "</body></html>").rows
    assert [row[0] for row in changes[1:2]] == ["forward"]
    computed = {row[1]: row[4] for row in changes if len(row) == 5}
    assert any("[batch,3]" in what and how == "gone" for what, how in computed.items())
    assert any("[batch,4]" in what and how == "new" for what, how in computed.items())


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_every_control_works(made: tuple[Path, str], width: int, dark: bool) -> None:
    found = walk(made[0], width=width, dark=dark)
    assert found["errors"] == found["unused"] == found["links"] == []
    assert found["overflow"] == 0 and found["width"] == width
    assert (found["ground"] == "rgb(255, 255, 255)") is not dark
    (graph,) = found["entries"]
    kernels = made[1].count('<tr id="forward-')
    assert graph["open"] == kernels >= graph["closed"] and graph["edges"] >= 1
    assert found["rows"] == kernels and found["dots"] == 2
    assert all(re.fullmatch(r"\d+ of \d+: \w+", name) for name in found["passes"])
    assert len(found["passes"]) >= 4 and found["changed"] >= 1


def test_a_wheel(cli: Cli, wheel: Path, tmp_path: Path) -> None:
    out = tmp_path / "wheel.html"
    assert cli("report", wheel, "-o", out).status == 0
    text = out.read_text()
    rows = Page(text).rows
    assert {"forward", "small/nn.abi3.so"} <= {row[0] for row in rows if row}
    assert "profile = true" in text and 'id="passes"' not in text
    if CHROMIUM is not None:
        assert walk(out)["errors"] == []


def test_mistakes(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "nowhere" in complaint(cli("report", "nowhere"))
    (tmp_path / "pictured.py").write_text(MODEL)
    assert "no/folder" in complaint(cli("report", "pictured:model", "-o", "no/folder/out.html"))
    assert "cannot read gone.html" in complaint(cli("report", "pictured:model", "--against", "gone.html"))
    assert "is no report" in complaint(cli("report", "pictured:model", "--against", "pictured.py"))
