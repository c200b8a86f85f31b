"""The GPT of letters: it learns, goes on where it stopped, and speaks by letters what it computes for whole texts."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .. import projects

GPT = projects.EXAMPLES / "gpt"
TEXT = "the quick brown fox jumps over the lazy dog, and the dog sleeps on.\n" * 40


class Place:
    """A folder with a text, its settings, and the wheels' contents in ``site``."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.site = folder, folder / "site"
        self.text, self.settings = folder / "text.txt", folder / "settings.json"
        self.text.write_text(TEXT)
        projects.run(GPT / "settings.py", "--data", self.text, "--recipe", "tiny", "--out", self.settings, alone=True)

    def build(self, name: str, weights: Path | None = None) -> None:
        project = self.folder / name
        shutil.copytree(GPT / name, project)
        for file in (GPT / "network.py", self.settings):
            shutil.copy(file, project)
        if weights is not None:
            shutil.copy(weights, project / "weights.safetensors")
            shutil.copytree(project / "gpt", self.site / "gpt")
        projects.build(project, self.site)

    def train(self, out: str, *more: str, status: int = 0) -> str:
        told = (*(more or ("train",)), "--data", self.text, "--settings", self.settings, "--out", self.folder / out)
        return projects.run(GPT / "train.py", *told, cwd=self.folder, site=self.site, alone=True, status=status)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = Place(tmp_path_factory.mktemp("gpt"))
    place.build("train")
    place.train("weights.safetensors")
    place.build("serve", place.folder / "weights.safetensors")
    return place


@pytest.fixture
def ask(place: Place) -> Callable[[str], str]:
    """``ask(program)``: what a program prints where both packages are installed."""
    return lambda program: projects.run("-c", program, site=place.site, alone=True)


def losses(printed: str) -> list[float]:
    return [float(found) for found in re.findall(r"held back (\d+\.\d+)", printed)]


def test_it_learns(place: Place) -> None:
    printed = place.train("again.safetensors")
    assert losses(printed)[-1] < 2.6 and "letters/s" in printed  # 3.3 is what equal shares give
    assert "text held back" in (place.folder / "gpt.svg").read_text()
    assert (place.folder / "again.safetensors").read_bytes() == (place.folder / "weights.safetensors").read_bytes()


def test_it_goes_on_where_it_stopped(place: Place) -> None:
    """What was saved after 30 steps, and the 10 that are left, give the bits of 40 steps without a stop."""
    settings = json.loads(place.settings.read_text())
    whole = (place.folder / "weights.safetensors").read_bytes()
    place.settings.write_text(json.dumps(settings | {"steps": 30}))
    try:
        place.train("half.safetensors")
        assert (place.folder / "half.safetensors").read_bytes() != whole
    finally:
        place.settings.write_text(json.dumps(settings))
    assert "going on from step 30" in place.train("half.safetensors", "train", "--resume")
    assert (place.folder / "half.safetensors").read_bytes() == whole


def test_gradients_of_several_batches(place: Place) -> None:
    assert losses(place.train("sum.safetensors", "train", "--accumulate", "2"))[-1] < 2.6


def test_gradients_are_those_of_differences(place: Place) -> None:
    assert float(re.findall(r"largest error: (\S+)", place.train("x.safetensors", "check"))[0]) < 1e-2


def test_letters_one_by_one_have_the_scores_of_the_whole_text(ask: Callable[[str], str], place: Place) -> None:
    """Of the module that trains, with the weights that the other has inside."""
    printed = ask(f"""
import gpt, gpt_train.nn as whole
whole.load({str(place.folder / "weights.safetensors")!r})
tokens = gpt.encode("the lazy quick d")
one, other = gpt.Model(), gpt.Model()
rows = [one.forward([token]).tolist() for token in tokens]
print(max(abs(a - b) for row, other in zip(rows, whole.forward([tokens])[0].tolist()) for a, b in zip(row, other)))
other.forward(tokens[:7])
print(max(abs(a - b) for a, b in zip(rows[-1], other.forward(tokens[7:]))))
""")
    error, parts = map(float, printed.split())
    assert error < 1e-5 and parts < 1e-5


def test_it_speaks(ask: Callable[[str], str], place: Place) -> None:
    printed = ask("""
import gpt
one, two = ("".join(gpt.generate("the ", max_tokens=100, seed=seed)) for seed in (1, 1))
print(one == two, len(one), one == "".join(gpt.generate("the ", max_tokens=100, seed=2)))
sure = "".join(gpt.generate("the ", max_tokens=5, temperature=0))
print(sure == "".join(gpt.generate("the ", max_tokens=5, temperature=1e-3, seed=5)))
for wrong in ({"prompt": "THE"}, {"prompt": "the", "temperature": -1.0}):
    try:
        gpt.generate(**wrong)
    except ValueError as error:
        print(error)
""").splitlines()
    assert printed[:2] == ["True 100 False", "True"]
    assert printed[2] == "generate: prompt: the tokenizer has no 'T'"
    assert printed[3].startswith("generate: temperature: expected 0 or more")
    said = projects.run("-m", "gpt", "--prompt", "the dog", "--count", "20", site=place.site, alone=True)
    assert said.startswith("the dog") and len(said) >= 28
    assert "the tokenizer has no 'T'" in projects.run(
        "-m", "gpt", "--prompt", "T", site=place.site, alone=True, status=2
    )


def test_what_is_wrong_is_said(place: Place, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("THE END\n" * 50)
    dropping = tmp_path / "settings.json"
    dropping.write_text(json.dumps(json.loads(place.settings.read_text()) | {"dropout": 0.1}))
    told: tuple[Any, ...] = ("check", "--settings", dropping, "--data", place.text)
    assert "expected a dropout of 0" in projects.run(GPT / "train.py", *told, site=place.site, alone=True, status=1)
    told = ("train", "--settings", place.settings, "--data")
    said = projects.run(GPT / "train.py", *told, other, site=place.site, alone=True, status=1)
    assert "the letter 'T' is not among those of the settings" in said
    other.write_text("the end\n")
    said = projects.run(GPT / "train.py", *told, other, site=place.site, alone=True, status=1)
    assert "expected at least 180 letters, got 8" in said
    said = projects.run(projects.EXAMPLES / "run.py", "gpt", "--data", tmp_path / "none.txt", status=2)
    assert "there is no file" in said and "building" not in said
