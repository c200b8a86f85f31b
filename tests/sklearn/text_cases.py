"""Pipelines that take texts, as further estimators of the table, and the texts that they are fitted on and asked."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
COMMON = "the of and to in it is that for on with as was at by this Which They're not, be from or have an we don't"
TOPICS = (
    "orbit launch NASA moon rocket satellite shuttle space lunar Mars telescope mission astronaut gravity",
    "team game hockey season player goal league coach win score playoff defense ice Toronto naïve",
    "image file graphics program window color driver JPEG format screen card software code café bits",
)
MARKS = (" ", " ", " ", ", ", ". ", "\n", "  ", "! ", " - ", "\t")


def texts(count: int, seed: int) -> tuple[list[str], Array]:
    """Texts, as in a newsgroup, and what each is about."""
    rng = np.random.default_rng(seed)
    topics, found = rng.integers(0, 3, count), []
    for topic in topics:
        words = (COMMON * 2 + " " + TOPICS[topic] + " " + rng.choice(TOPICS)).split(" ")
        chosen = rng.choice(words, rng.integers(4, 40))
        found.append("".join(f"{word}{rng.choice(MARKS)}" for word in chosen))
    return found, topics


def data(kind: str) -> tuple[Array, Array]:
    """What a pipeline is fitted on: classes, two of them, names of them, or numbers."""
    found, topics = texts(150, 0)
    targets = {"two": topics > 0, "names": np.array(["hockey", "graphics", "space"])[topics]}
    numbers = topics + np.array([len(text) for text in found]) / 100
    return np.array(found), np.asarray(targets.get(kind, numbers if kind == "reg" else topics))


def asked() -> Array:
    """1,000 texts to compare, some of which hold characters of every category, or nothing known."""
    found, _ = texts(1000, 1)
    categories = dict[str, list[str]]()
    for code in range(sys.maxunicode + 1):
        categories.setdefault(unicodedata.category(chr(code)), []).append(chr(code))
    rest = ["", " ", "zzz", "ΟΔΟΣ ΣΑΣ. cafe\u0301 NAÏVE ﬁle", "space " * 1000, "\0 a\0b space"]
    rest += ["the moon".join(characters[:: len(characters) // 5 + 1]) for characters in categories.values()]
    found[: len(rest)] = [text.encode(errors="replace").decode() for text in rest]
    return np.array(found, object)


def cases() -> dict[str, tuple[Callable[[], Any], str]]:
    """Pipelines by what they are, each with the kind of its targets."""
    import sklearn.ensemble as ensemble
    import sklearn.feature_selection as selection
    import sklearn.linear_model as linear
    import sklearn.naive_bayes as bayes
    import sklearn.neighbors as neighbors
    import sklearn.svm as svm
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.cluster import KMeans
    from sklearn.decomposition import NMF, LatentDirichletAllocation, TruncatedSVD
    from sklearn.feature_extraction.text import (
        CountVectorizer,
        HashingVectorizer,
        TfidfTransformer,
        TfidfVectorizer,
    )
    from sklearn.model_selection import GridSearchCV
    from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import FeatureUnion, make_pipeline, make_union
    from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler, Normalizer, StandardScaler
    from sklearn.tree import DecisionTreeClassifier

    tfidf, counts, logistic, seed = TfidfVectorizer, CountVectorizer, linear.LogisticRegression, {"random_state": 0}
    found = dict[str, tuple[Callable[[], Any], str]]()

    def add(kind: str, *steps: Any) -> None:
        name = " + ".join(type(step).__name__ for step in steps)
        name = f"{name}, texts{f'-{kind}' if kind else ''}"
        same = sum(key == name or key.startswith(f"{name} #") for key in found)
        made = steps[0] if len(steps) == 1 else make_pipeline(*steps)
        found[f"{name} #{same + 1}" if same else name] = (lambda: made), kind

    def hashes(**options: Any) -> Any:
        return HashingVectorizer(n_features=512, **options)

    add("", counts())
    add("", counts(ngram_range=(1, 3), max_features=100, binary=True))
    add("", counts(analyzer="char", ngram_range=(2, 3), max_features=100, strip_accents="ascii"))
    add("", tfidf())
    add("", tfidf(analyzer="char_wb", ngram_range=(2, 4), max_features=100, sublinear_tf=True))
    add("", tfidf(norm="l1", use_idf=False, token_pattern=r"[^\s,.]+", lowercase=False))
    add("", hashes())
    add("", hashes(norm="l1", alternate_sign=False, ngram_range=(2, 2)))
    for kind in ("", "two", "names"):
        add(kind, tfidf(sublinear_tf=True, ngram_range=(1, 2)), logistic())
        add(kind, tfidf(stop_words="english", strip_accents="unicode"), svm.LinearSVC(**seed))
        add(kind, hashes(), linear.SGDClassifier(loss="log_loss", **seed))
        add(kind, counts(), TfidfTransformer(), bayes.MultinomialNB())
        add(kind, tfidf(), svm.SVC(kernel="linear"))
    add("", counts(binary=True), bayes.BernoulliNB())
    add("", tfidf(), bayes.BernoulliNB(binarize=0.2))
    add("", tfidf(), bayes.ComplementNB())
    add("", tfidf(norm=None), linear.Perceptron(**seed))
    add("", counts(), linear.RidgeClassifier())
    add("", tfidf(), TruncatedSVD(5, **seed), Normalizer(), logistic())
    add("", tfidf(), svm.SVC())
    add("", tfidf(), svm.SVC(kernel="poly", degree=2))
    add("", tfidf(), neighbors.NearestCentroid())
    add("", tfidf(), KMeans(3, **seed))
    add("", counts(), DecisionTreeClassifier(**seed))
    add("", tfidf(), ensemble.RandomForestClassifier(5, **seed))
    add("", counts(), ensemble.GradientBoostingClassifier(n_estimators=3, **seed))
    add("", tfidf(), ensemble.BaggingClassifier(logistic(), n_estimators=3, **seed))
    add("", tfidf(), MLPClassifier((6,), max_iter=20, **seed))
    add("", tfidf(), selection.SelectKBest(selection.chi2, k=40), logistic())
    add("", counts(), MaxAbsScaler(), logistic())
    add("", counts(), StandardScaler(with_mean=False), logistic())
    add("", counts(), FunctionTransformer(lambda x: x.toarray()), bayes.GaussianNB())
    add("", tfidf(), CalibratedClassifierCV(svm.LinearSVC(**seed), cv=2))
    add("", tfidf(), OneVsRestClassifier(logistic()))
    add("", tfidf(), OneVsOneClassifier(svm.LinearSVC(**seed)))
    add("", tfidf(), ensemble.VotingClassifier([("a", logistic()), ("b", bayes.MultinomialNB())], voting="soft"))
    add("", GridSearchCV(make_pipeline(tfidf(), logistic()), {"logisticregression__C": [1, 2]}, cv=2))
    add("", make_union(tfidf(), tfidf(analyzer="char", ngram_range=(2, 2))), logistic())
    inner = [("a", tfidf()), ("b", make_pipeline(counts(), TruncatedSVD(3, **seed)))]
    add("", FeatureUnion(inner, transformer_weights={"a": 0.5}), svm.LinearSVC(**seed))
    parts = make_union(tfidf(), counts(ngram_range=(2, 2)))
    add("", parts, selection.SelectKBest(k=60), Normalizer(), logistic())
    add("", counts(max_features=60), LatentDirichletAllocation(3, **seed))
    add("", tfidf(max_features=60), NMF(3, **seed))
    add("reg", tfidf(), linear.Ridge())
    add("reg", counts(), linear.Lasso(0.01))
    add("reg", tfidf(), svm.SVR())
    add("reg", tfidf(), linear.PoissonRegressor())
    add("reg", tfidf(), linear.SGDRegressor(**seed))
    add("", tfidf(), svm.OneClassSVM())
    return found
