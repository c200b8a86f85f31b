"""Columns of dates, and classes that are dates: numbers of their unit, as arrays of NumPy's hold them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import LabelEncoder, OneHotEncoder, OrdinalEncoder, StandardScaler, TargetEncoder

import mlaot.sklearn
from mlaot.errors import MlaotError

from .. import projects
from .test_sklearn import called

RNG = np.random.default_rng(3)
DAYS = np.array(["2020-02-29", "2021-05-03", "2022-07-09", "1969-12-31"], "datetime64[s]")
ROWS = np.stack(
    [RNG.choice(DAYS, 60), RNG.choice(DAYS + 3600, 60), RNG.choice(DAYS[:2], 60) + RNG.integers(9**6, size=60)], 1
)
CLASSES = np.where(ROWS[:, 0] > DAYS[1], DAYS[0], DAYS[3]).astype("datetime64[D]")
UNKNOWN = np.concatenate([ROWS[:3], ROWS[:3] + 1])
UNKNOWN[3, 0] = np.datetime64("NaT")


@pytest.fixture(scope="module")
def fitted() -> Any:
    """A pipeline that takes dates as categories and as numbers, and predicts dates."""
    parts = [
        ("names", OneHotEncoder(handle_unknown="ignore"), [0]),
        ("places", OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1), [1]),
        ("numbers", StandardScaler(), [2]),
    ]
    return make_pipeline(ColumnTransformer(parts), LogisticRegression()).fit(ROWS, CLASSES)


@pytest.fixture(scope="module")
def modules(fitted: Any, tmp_path_factory: pytest.TempPathFactory) -> list[ModuleType]:
    """The pipeline compiled, and in plain Python, with an input for each column."""
    declared = mlaot.sklearn.load(fitted, dict(zip(("born", "seen", "left"), ROWS.T, strict=True)))
    folder = tmp_path_factory.mktemp("dates")
    compiled = projects.load(projects.build_module(declared, "dates", folder / "c", ("base",), golden=True))
    return [compiled, projects.plain_module(declared, "dates_python", folder / "python", golden=True)]


class Series:
    """A column that is no array, as pandas and Arrow have."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def to_numpy(self) -> Any:
        return self.array


class Timestamp(datetime):
    """A date with nanoseconds, as pandas has."""

    nanosecond = 0


def as_dates(answer: Any) -> Any:
    return np.array(answer.tolist(), np.int64).view("datetime64[D]")


def test_forms_of_dates(fitted: Any, modules: list[ModuleType]) -> None:
    """Arrays, columns, numbers, and lists of Python's dates; what an encoder does not know is none of its dates."""
    for nn in modules:
        assert nn.info()["dates"] == {
            **dict.fromkeys(("born", "seen", "left"), "datetime64[s]"),
            "predict": "datetime64[D]",
        }
        assert nn.info()["classes"] == ["1969-12-31", "2020-02-29"]
        assert nn.info()["entries"]["predict"]["inputs"]["born"] == "int64[batch]"
        for rows in (ROWS, UNKNOWN):
            np.testing.assert_array_equal(as_dates(nn.predict(*rows.T)), fitted.predict(rows))
            found = np.array(nn.predict_proba(*rows.T).tolist())
            np.testing.assert_allclose(found, fitted.predict_proba(rows), rtol=1e-9)
            numbers = rows.view(np.int64)
            forms = [[Series(column) for column in rows.T], numbers.T, numbers.T.tolist(), [list(c) for c in rows.T]]
            for form in forms:
                np.testing.assert_array_equal(np.array(nn.predict_proba(*form).tolist()), found)
        dates = [column.tolist() for column in ROWS.T]
        stamps = [[Timestamp(*d.timetuple()[:6]) for d in column] for column in dates]
        for form in (dates, stamps):
            assert nn.predict(*form).tolist() == nn.predict(*ROWS.T).tolist()
        one = nn.predict_proba(date(2020, 2, 29), DAYS[1] + 3600, datetime(2021, 5, 3, 1, 2, 3))
        row = np.array([["2020-02-29", "2021-05-03T01", "2021-05-03T01:02:03"]], "datetime64[s]")
        np.testing.assert_allclose(np.ravel(one.tolist()), fitted.predict_proba(row)[0], rtol=1e-9)


class Finer(Timestamp):
    nanosecond = 1


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (
            ROWS[:, 0].astype("M8[ns]"),
            TypeError,
            "expected datetime64[s] or int64, got datetime64[ns]; pass born.astype('",
        ),
        (ROWS[:, 0].astype(">M8[s]"), TypeError, "expected datetime64[s] or int64, got >M8[s]"),
        (Series(ROWS[:, 0].astype("M8[D]")), TypeError, "expected datetime64[s] or int64, got datetime64[D]"),
        ([np.datetime64("2020-01-01")], TypeError, "expected datetime64[s] or int64, got datetime64[D]"),
        (ROWS[:, 0].astype(float), TypeError, "expected int64[batch], got float64[60]"),
        (Series(DAYS.astype(object)), TypeError, "expected int64[batch], got buffer format 'O'"),
        (["2020-01-01"], TypeError, "expected int64, got str"),
        ([None], TypeError, "expected int64, got NoneType"),
        (
            [datetime(2020, 1, 1, microsecond=1)],
            ValueError,
            "expected dates that datetime64[s] holds, got datetime.dat",
        ),
        ([Finer(2020, 1, 1)], ValueError, "expected dates that datetime64[s] holds, got Finer(2020"),
        (
            [datetime(2020, 1, 1, tzinfo=UTC)],
            ValueError,
            "expected dates without a time zone, got datetime.datetime(2020",
        ),
    ],
)
def test_what_is_refused(modules: list[ModuleType], wrong: Any, error: type[Exception], message: str) -> None:
    for nn in modules:
        with pytest.raises(error) as caught:
            nn.predict(wrong, ROWS[:1, 1], ROWS[:1, 2])
        assert f"predict: born: {message}" in str(caught.value)


def test_categories_of_another_unit() -> None:
    """Equal dates are equal in any unit, to the nanosecond; what is no date, or no date of a unit, equals none."""
    learnt = np.array(["2020-01-01", "2020-01-01T00:00:00.000000001", "NaT"], "M8[ns]").reshape(-1, 1)
    for encoder in (OneHotEncoder(handle_unknown="ignore"), TargetEncoder(cv=2, target_type="continuous")):
        fitted = encoder.fit(learnt, [1.0, 2.0, 3.0])
        for unit in ("ns", "us", "D", "25s"):
            rows = np.concatenate([learnt, learnt + 1000]).astype(f"M8[{unit}]")
            wanted = fitted.transform(rows)
            wanted = wanted.toarray() if hasattr(wanted, "toarray") else wanted
            declared = mlaot.sklearn.load(make_pipeline(FeatureUnion([("one", fitted)])), rows)
            found = called(declared, "transform", X=rows.view(np.int64))
            np.testing.assert_array_equal(found, wanted, unit)
            (reference,) = declared.references.values()
            np.testing.assert_array_equal(reference({"X": rows.view(np.int64)})["transform"], wanted)
    nothing = OneHotEncoder(handle_unknown="ignore").fit(learnt[2:])
    assert called(mlaot.sklearn.load(nothing, learnt), "transform", X=learnt.view(np.int64)).tolist() == [[0.0]] * 3


def test_labels() -> None:
    encoder = LabelEncoder().fit(CLASSES)
    declared = mlaot.sklearn.load(encoder)
    assert declared.trace().info["dates"] == {"y": "datetime64[D]", "predict": "datetime64[D]"}
    np.testing.assert_array_equal(called(declared, "transform", y=CLASSES.view(np.int64)), encoder.transform(CLASSES))


def test_what_is_not_converted() -> None:
    encoder = OneHotEncoder().fit(np.array([[date(2020, 1, 1)]], object))
    ages = OneHotEncoder().fit(np.array([[1], [2]]))
    for fitted, sample, message in (
        (
            encoder,
            {"day": [date(2020, 1, 1)]},
            "no encoder of the pipeline tells all of its strings; dates are columns of",
        ),
        (ages, {"day": DAYS - DAYS[0]}, "is timedelta64[s], and no encoder"),
        (ages, {"day": DAYS}, "dates where categories are something else"),
        (OneHotEncoder().fit(DAYS[:, None]), {"day": np.arange(3)}, "or the other way round"),
    ):
        with pytest.raises(MlaotError) as caught:
            mlaot.sklearn.load(fitted, sample).trace()
        assert message in str(caught.value)
