"""Pipelines that take texts: as modules, beside other columns, and what of them is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlaot.errors import MlaotError

pytestmark = pytest.mark.filterwarnings("ignore")
pytest.importorskip("sklearn")

# ruff: noqa: E402
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import mlaot.sklearn
from mlaot.ops import indexing as ix
from tests import projects
from tests.sklearn import estimators, text_cases

TEXTS, TOPICS = text_cases.texts(120, 0)
CASES = text_cases.cases()


@pytest.fixture(scope="module")
def asked() -> list[str]:
    return list(text_cases.asked()[:200])


@pytest.mark.parametrize("name", [*CASES][::5])
def test_pipelines(name: str) -> None:
    """Some of the list, interpreted."""
    row = estimators.examined(name, estimators.table()[name], compiles=False)
    assert row.verdict == "equal", row
    assert name in estimators.passing()


def test_modules(asked: list[str], tmp_path: Path) -> None:
    """A str is one text, and gives a row without the axis of the batch; lone halves of surrogates are no letters."""
    words = TfidfVectorizer(sublinear_tf=True, strip_accents="unicode", stop_words="english")
    union = make_union(words, TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 3)), HashingVectorizer(n_features=64))
    fitted = make_pipeline(union, LogisticRegression()).fit(TEXTS, TOPICS)
    declared = mlaot.sklearn.load(fitted)
    compiled = projects.load(projects.build_module(declared, "texts", tmp_path, golden=True))
    plain = projects.plain_module(declared, "plain", tmp_path, golden=True)
    expected = fitted.predict_proba(asked)
    np.testing.assert_allclose(np.asarray(compiled.predict_proba(asked)), expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(plain.predict_proba(asked[:40]).tolist(), expected[:40], rtol=0, atol=1e-12)
    np.testing.assert_array_equal(compiled.predict(asked), fitted.predict(asked))
    for module in (compiled, plain):
        assert module.selftest()
        one = module.predict_proba("the moon")
        np.testing.assert_allclose(one.tolist(), fitted.predict_proba(["the moon"])[0], rtol=0, atol=1e-12)
        halves, spaces = (module.predict_proba(f"moon{between}orbit").tolist() for between in ("\ud800", " "))
        assert len(halves) == len(spaces) == 3
        assert module.info()["entries"]["predict"] == {
            "inputs": {"X": "str[batch]"},
            "outputs": {"out": "int64[batch]"},
        }
        with pytest.raises(TypeError, match="predict: X: expected str, got int"):
            module.predict([1])
    long = " ".join(TEXTS) * 100
    np.testing.assert_allclose(
        np.asarray(compiled.predict_proba([long, ""])), fitted.predict_proba([long, ""]), atol=1e-9
    )
    session = compiled.Model()
    assert [(each.name, each.shape, each.type) for each in session.get_inputs()] == [("X", ["batch"], "tensor(string)")]
    label, *_ = session.run(None, {"X": np.array(asked[:3], object)})
    np.testing.assert_array_equal(label, fitted.predict(asked[:3]))


def test_rows_stay_sparse() -> None:
    fitted = make_pipeline(CountVectorizer(), MultinomialNB()).fit(TEXTS, TOPICS)
    traced = mlaot.sklearn.load(fitted).trace()
    assert not any(node.op is ix.scatter for node in traced.graph.nodes())
    size = len(fitted[0].vocabulary_)
    assert not any(size in node.type.shape for node in traced.graph.nodes() if "batch" in map(str, node.type.shape))


def test_columns(asked: list[str], tmp_path: Path) -> None:
    """Each column of texts is an input, whatever takes it; one that nothing takes is none."""
    pandas = pytest.importorskip("pandas")

    def frame(texts: list[str]) -> Any:
        rng = np.random.default_rng(len(texts))
        columns = {"text": texts, "age": rng.uniform(size=len(texts)), "the title": [text[:9] for text in texts]}
        return pandas.DataFrame({**columns, "unused": texts})

    known, rows = frame(TEXTS), frame(asked)
    columns = make_column_transformer(
        (TfidfVectorizer(), "text"),
        (StandardScaler(), ["age"]),
        (CountVectorizer(analyzer="char"), "the title"),
        (TfidfVectorizer(ngram_range=(2, 2)), "text"),
    )
    for number, last in enumerate((LogisticRegression(), RandomForestClassifier(4, random_state=0))):
        fitted = make_pipeline(columns, last).fit(known, TOPICS)
        declared = mlaot.sklearn.load(fitted, known)
        assert declared.trace().arguments == ("text", "age", "the_title")
        nn = projects.load(projects.build_module(declared, f"columns{number}", tmp_path, ("base",)))
        found = nn.predict_proba(text=rows["text"], age=rows["age"].to_numpy(), the_title=rows["the title"])
        np.testing.assert_allclose(np.asarray(found), fitted.predict_proba(rows), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("vectorizer", "message"),
    [
        (CountVectorizer(tokenizer=str.split), "has a function of your own, tokenizer=, which cannot be converted"),
        (TfidfVectorizer(preprocessor=str.upper), "has a function of your own, preprocessor="),
        (CountVectorizer(analyzer=list), "has a function of your own, analyzer="),
        (CountVectorizer(token_pattern=r"(?<=a)\w+"), r"the token_pattern .* cannot be matched without going back"),
        (CountVectorizer(token_pattern=r"a*"), "matches nothing at all"),
        (CountVectorizer(ngram_range=(1, 65)), r"the ngram_range \(1, 65\); expected numbers from 1 to 64"),
        (CountVectorizer(encoding="latin-1"), "bytes that are no UTF-8; a module takes texts"),
    ],
    ids=lambda value: "",
)
def test_what_is_refused(vectorizer: Any, message: str) -> None:
    fitted = make_pipeline(vectorizer, MultinomialNB()).fit(["a b aa", "c aa"], [0, 1])
    with pytest.raises(MlaotError, match=message):
        mlaot.sklearn.load(fitted).trace()


def test_texts_for_what_takes_numbers() -> None:
    lengths = FunctionTransformer(lambda texts: np.array([[len(text)] for text in texts]))
    fitted = make_pipeline(make_union(CountVectorizer(), lengths), MultinomialNB()).fit(TEXTS, TOPICS)
    with pytest.raises(MlaotError, match="texts go into an estimator that takes numbers"):
        mlaot.sklearn.load(fitted).trace()


def test_features_of_another_vectorizer() -> None:
    fitted = make_pipeline(CountVectorizer(), MultinomialNB()).fit(TEXTS, TOPICS)
    fitted.steps[0] = ("other", CountVectorizer().fit(["moon team"]))
    with pytest.raises(MlaotError, match="expected 2 features of texts, got "):
        mlaot.sklearn.load(fitted).trace()


def test_files(tmp_path: Path) -> None:
    io = pytest.importorskip("skops.io")
    fitted = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(TEXTS, TOPICS)
    io.dump(fitted, tmp_path / "model.skops")
    traced = mlaot.sklearn.load(tmp_path / "model.skops").trace()
    assert list(traced.entries) == ["predict", "predict_proba", "predict_log_proba", "decision_function"]
