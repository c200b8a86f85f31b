"""The comparison with other runtimes: what it counts, and one small workload all the way."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import passes
from mlaot.errors import building
from mlaot.evaluate import evaluate
from mlaot.loading import trace
from tests import projects

FOLDER = projects.ROOT / "benchmarks"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Imports a script of the benchmarks by its name."""
    monkeypatch.syspath_prepend(str(FOLDER))
    before = set(sys.modules)

    def load(name: str) -> ModuleType:
        return __import__(name)

    yield load
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(FOLDER)):
            del sys.modules[name]


def test_cost_is_what_the_network_does(bench: Any) -> None:
    workloads, limits = bench("workloads"), bench("limits")
    first, second = 2 * 28 * 28 * 6 * 25, 2 * 10 * 10 * 16 * 6 * 25
    rest = 2 * (400 * 120 + 120 * 84 + 84 * 10)
    weights = 4 * (6 * 26 + 16 * 151 + 401 * 120 + 121 * 84 + 85 * 10)
    found = limits.cost(workloads.declare("w4_lenet_b1"), {"batch": 1})
    assert found == limits.Cost(first + second + rest, weights, weights)
    trained = limits.cost(workloads.declare("t2_lenet_b64"), {"batch": 64})  # images get no gradient
    assert trained == limits.Cost(64 * (2 * first + 3 * (second + rest)), weights, 2 * weights)


def test_cost_of_a_recurrence_is_that_of_all_steps(bench: Any) -> None:
    workloads, limits = bench("workloads"), bench("limits")
    found = limits.cost(workloads.declare("w8_lstm_b1"), {"batch": 1})
    assert found.flops == 50 * 2 * 512 * (64 + 128)
    assert found.traffic == found.weights + 49 * 4 * (512 * 128 + 512)


def test_seeded_weights_do_not_depend_on_each_other(bench: Any) -> None:
    seeded = bench("networks").seeded_weights
    alone, two = seeded({"a.weight": (3, 4)}), seeded({"b.bias": (3,), "a.weight": (3, 4)})
    np.testing.assert_array_equal(alone["a.weight"], two["a.weight"])


def test_a_network_takes_given_weights_by_name(bench: Any, tmp_path: Path) -> None:
    workloads = bench("workloads")
    given = {"layers.0.weight": np.ones((4, 2), np.float32), "layers.0.bias": np.zeros(4, np.float32)}
    given |= {"layers.1.weight": np.ones((1, 4), np.float32), "layers.1.bias": np.zeros(1, np.float32)}
    np.savez(tmp_path / "weights_xor.npz", **given)
    model = workloads.declare("w1_xor_b1", workloads.weights_of("w1_xor_b1", tmp_path))
    expected = 1 / (1 + np.exp(-4 * np.tanh(0.75)))
    np.testing.assert_allclose(model(np.array([[0.25, 0.5]], np.float32)), [[expected]], rtol=1e-6)


@pytest.mark.parametrize("name", ["w1_xor_b1", "w7_gbt_b1", "t1_mlp_b64"])
def test_a_workload_is_checked_and_timed(name: str, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    arguments = ("--work", name, "--peers", "", "--rounds", "1", "--ms", "1", "--json", figures, "--keep", tmp_path)
    printed = projects.run(FOLDER / "runtimes.py", *arguments)
    assert name in printed
    found = json.loads(figures.read_text())[name]
    assert found["seconds"]["mlaot"] > 0 and found["limit"] > 0 and found["by"] in ("flops", "bytes", "call")
    assert (tmp_path / name / "nn_base.c").exists()


def test_given_trees(bench: Any, tmp_path: Path) -> None:
    workloads = bench("workloads")
    given = {"feature": [1, 0], "threshold": [0.5, 0.1], "true": [1, -1], "false": [-3, -2], "roots": [0]}
    np.savez(tmp_path / "weights_gb.npz", leaves=[1.0, 2.0, 4.0], base=0.5, **given)
    model = workloads.declare("w7_gbt_b1", workloads.weights_of("w7_gbt_b1", tmp_path))
    x = np.zeros((3, 30), np.float32)
    x[:, :2] = [[0, 0.3], [0.2, 0.3], [0.2, 0.7]]
    np.testing.assert_array_equal(model(x), [1.5, 2.5, 4.5])


def test_seeded_trees_are_perfect(bench: Any) -> None:
    trees, nodes = bench("networks").seeded_trees(trees=3, depth=2, features=5), {}
    for i, links in enumerate(zip(trees["true"], trees["false"], strict=True)):
        nodes[i] = [int(link) for link in links]
    links = [*trees["roots"], *(link for pair in nodes.values() for link in pair)]
    assert sorted(links) == list(range(-12, 9))  # each leaf and each node once
    for root in trees["roots"]:
        below = [child for node in nodes[root] for child in nodes[node]]
        assert len(below) == 4 and max(below) < 0


def test_trees_that_a_runtime_does_not_know_are_left_out(bench: Any) -> None:
    runtimes, limits = bench("runtimes"), bench("limits")
    built = runtimes.Built("w7_gbt_b1", Path("none"), limits.Cost(0, 0, 0), 1, 124, 0.0, 0, 0, [])
    assert runtimes.start(built, "openvino", {}) is None
    assert runtimes.start(built, "torch", {}) is None


def test_a_gpt_of_scalars(bench: Any, tmp_path: Path) -> None:
    """It has the same nodes for any length, and trains as the scalar engine does, and as the model of arrays does."""
    script = bench("microgpt")
    with building(script.EXAMPLE):
        model = script.example("model")
        assert len({script.raised_nodes(model.build(positions, "float64").trace()) for positions in (4, 5)}) == 1
        nn, _, _ = script.compiled(model.build(4, "float64"), ("base",))
    worst, _ = script.beside_engine(model, 4, nn, 4)
    assert worst < 1e-12
    tokens, lengths = script.data(model, 4, 3)
    arrays = passes.run("arrays", script.arrays(model, 4, "float64").trace())
    found = evaluate(arrays.graphs["loss"], {**arrays.parameters, "tokens": tokens, "length": lengths})
    assert nn.Model().loss(tokens, lengths) == pytest.approx(found["loss"], rel=1e-12)


def test_other_outputs_are_an_error(bench: Any) -> None:
    largest_error = bench("runtimes").largest_error
    right = np.array([[1.0, 100.0]])
    assert largest_error([np.array([1.0, 100.0], np.float32)], [right]) == 0
    assert largest_error([np.array([2.0, 100.0], np.float32)], [right]) == pytest.approx(0.01)
    assert largest_error([np.array([np.nan, 100.0], np.float32)], [right]) == float("inf")


def test_only_named_peers_are_timed_also_where_another_makes_their_files(bench: Any) -> None:
    interpreters = bench("runtimes").interpreters
    peers, pythons = interpreters("ort", "ort=/a/python,torch=/b/python")
    assert peers == ["mlaot", "ort"]
    assert (pythons["ort"], pythons["torch"]) == ("/a/python", "/b/python")
    assert set(interpreters(None, "ort=/a/python,torch=/b/python")[0]) >= {"mlaot", "ort", "torch", "torch-compile"}
    with pytest.raises(SystemExit, match="no peer is called orr"):
        interpreters("orr", "")


def test_a_project_of_a_workload(bench: Any, tmp_path: Path) -> None:
    weights = bench("workloads").weights_of("t1_mlp_b64")
    place = bench("subject").write_project("t1_mlp_b64", weights, tmp_path / "project")
    assert place == {"module": "nn_t1_mlp_b64.training", "function": "run"}
    projects.run("-m", "mlaot", "emit", tmp_path / "project", "--out", tmp_path / "c")
    assert (tmp_path / "c" / "nn_t1_mlp_b64.nn" / "nn.c").exists()


def test_the_sweep_is_wide_and_each_op_of_it_a_model(bench: Any) -> None:
    sweep = bench("sweep")
    cases = list(sweep.cases())
    assert len({case.name for case in cases}) == len(cases) and 3 * len(cases) >= 1500
    smallest: dict[str, Any] = {}
    for case in cases:
        if case.op not in smallest or np.prod(case.shape) < np.prod(smallest[case.op].shape):
            smallest[case.op] = case
    assert len(smallest) >= 60
    for case in smallest.values():
        state = case.network(mlaot.nn).state_dict()
        assert "return" in str(trace(sweep.declared_in_nn(case, state)).graph), case.name


def test_the_sweep_judges_the_slowest_door_by_the_best_peer(
    bench: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = bench("sweep")
    row = sweep.Row("linear 8x8 b1", {"mlaot.nn": 2.0, "mlaot.onnx": 3.0, "ort": 6.0, "torch": 9.0}, 1.0)
    lost = sweep.Row("conv 3 b1", {"mlaot.nn": 4.0, "ort": 2.0})
    assert row.ratio == 0.5 and lost.ratio == 2
    sweep.show([row, lost], {row.name: sweep.Row(row.name, {"mlaot.nn": 6.0, "ort": 6.0})}, 5)
    shown = capsys.readouterr().out
    assert "2 cases: geometric mean 1.00 of the best peer, worst 2.00, 1 slower (50 %)" in shown
    assert shown.index("conv 3 b1") < shown.index("linear 8x8 b1")


def test_rows_are_made_and_timed_in_turns_and_kept(bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = bench("history")
    names = [name for name, *_ in history.rows()]
    assert len({*names}) == len(names) > 30 and {"w5_resnet18_b1", "t1_mlp_b1"} < {*names}
    first = next(history.rows())
    monkeypatch.setattr(history, "rows", lambda: iter([first]))
    monkeypatch.setenv("MLAOT_ISA", "base")
    history.make(tmp_path)
    place = tmp_path / "0"
    assert json.loads((place / "workload.json").read_text())["name"] == first[0] == "w1_xor_b1"
    monkeypatch.setattr(history, "build_all", lambda commit, folder: {first[0]: place})
    monkeypatch.setattr(bench("common"), "one_core", lambda: None)
    figures = history.measure(["a", "b"])
    assert len(figures) == history.PASSES and all(0 < us < 1e4 for us in figures[0][first[0]].values())
    monkeypatch.setattr(history, "KEPT", tmp_path / "history")
    monkeypatch.setattr(history, "git", lambda *words: "2026-11-25T12:00:00+00:00")
    kept = json.loads(history.keep("a", figures, history.circumstances()).read_text())
    assert kept["isa"] == "base" and kept["rows"][first[0]] == round(min(f[first[0]]["a"] for f in figures), 3)


def test_a_row_is_slower_where_most_passes_say_so(bench: Any) -> None:
    history, times = bench("history"), ((1.0, 1.1), (1.0, 1.3), (3.0, 1.3))
    passes = [{"once": {"a": 1.0, "b": us}, "twice": {"a": 1.0, "b": more}, "new": {"b": 9.0}} for us, more in times]
    assert history.slower(passes, "a", "b") == {"twice": 1.3}
    assert history.best(passes, "once", "b") == 1 and history.best(passes, "new", "a") is None


def test_a_picture_of_what_is_kept(bench: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    history = bench("history")
    kept = [json.loads(file.read_text()) for file in history.KEPT.glob("*.json")]
    assert len(kept) >= 3 and all({"commit", "date", "machine", "compiler", "isa"} < one.keys() for one in kept)
    history.draw(kept, tmp_path / "history.svg")
    picture = (tmp_path / "history.svg").read_text()
    words = ("w5_resnet18_b1", "Time of a call, by commit", "time of a call (µs)", "best time of a call")
    assert [word for word in words if word not in picture] == []


# ---------------------------------------------------------------------------------------------------- comparing


def test_every_tool_of_the_comparison_is_known(bench: Any) -> None:
    comparison, peers = bench("comparison"), bench("peers")
    names = {*peers.AHEAD, *peers.FOREST}
    assert names <= peers.PEERS.keys() and names <= comparison.INSTALLED.keys()
    assert {peers.PEERS[name][2] for name in names} - {"nn.abi3.so", "forest.joblib"} <= peers.MAKERS.keys()


def test_figures_of_the_comparison_have_their_places(bench: Any) -> None:
    comparison = bench("comparison")
    text = comparison.PAGE.read_text(encoding="utf-8")
    for name in (*comparison.NETWORKS, "forest", "machine"):
        assert "new\n<!-- end -->" in comparison.replaced(text, name, "new\n")
