"""A fitted estimator as a declared model: its inputs, and the results of its methods."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectorMixin
from sklearn.svm import SVC, NuSVC
from sklearn.utils.validation import check_is_fitted

from mlaot.attributes import load_attribute
from mlaot.errors import MlaotError
from mlaot.frontend.numpy import astype
from mlaot.frontend.trace.context import Trace, tracing
from mlaot.frontend.trace.declaration import Arrays, Declaration, Traced
from mlaot.frontend.trace.promotion import as_node
from mlaot.frontend.trace.tensor import Held, Tensor
from mlaot.ir import DType, Graph, Type
from mlaot.ir.dims import dim
from mlaot.ir.subgraph import inline
from mlaot.ir.types import BY_NUMPY, f32, f64, i64
from mlaot.onnx.declare import check_refused, pinned_by, port_name, prepare_importer
from mlaot.onnx.ops.ml import take
from mlaot.onnx.values import Maps, Strings
from mlaot.settings import ModelSettings, Settings
from mlaot.sklearn import decomposition, encoders, imputing, iterated, linear, preprocessing, texts, wrappers
from mlaot.sklearn.files import read, undamaged
from mlaot.sklearn.rules import (
    METHODS,
    Dates,
    Frame,
    Texts,
    Unknown,
    compute,
    join,
    knows,
    methods_of,
    numbers_of,
    second_method,
)
from mlaot.sklearn.texts import vectorizers_in

FAMILIES = (
    decomposition,
    encoders,
    imputing,
    iterated,
    linear,
    preprocessing,
    texts,
    wrappers,
)  # importing them fills ``RULES``
LABELS = ("LabelBinarizer", "LabelEncoder")
DOCS = {
    "predict": "What scikit-learn's predict gives; of classes that are no numbers or strings, the place in info().",
    "predict_proba": "What scikit-learn's predict_proba gives: a column for each of info()['classes'].",
}


def load(estimator: Any, sample: Any = None) -> Declaration:
    """Declare a fitted estimator or pipeline, or that of a ``.skops`` file.

    A relative path is looked for beside the calling module first.

    ``sample`` says the dtypes of what goes in: an array, or a DataFrame or a dict of columns, each of which becomes an
    input. Without it there is one input ``X`` of float32.
    """
    if isinstance(estimator, str | Path):
        beside = Path(sys._getframe(1).f_code.co_filename).parent / estimator
        path = beside if beside.exists() else Path(estimator)
        return declare_file(path, sample, {}, f"{path.name}: ")
    return declare(estimator, sample, {}, "")


def declare_from_settings(settings: Settings, model: ModelSettings, sample: Any = None) -> Declaration:
    """Declare the model that the key ``sklearn`` of a project names."""
    place, dims = f"{model.sklearn}: ", model.sizes
    if ":" not in model.sklearn:
        return declare_file(settings.project / model.sklearn, sample, dims, place)
    return declare(load_attribute(settings, model, "sklearn"), sample, dims, place)


def declare_file(path: Path, sample: Any, dims: Mapping[str, int], place: str) -> Declaration:
    """Declare the estimator of a skops file, which may hold anything."""
    estimator, compares = read(path)
    with undamaged(path.name):
        declaration = declare(estimator, sample, dims, place)

    def trace() -> Traced:
        with undamaged(path.name):
            return declaration.trace()

    return replace(declaration, trace=trace, references=declaration.references if compares else {})


def declare(estimator: Any, sample: Any, dims: Mapping[str, int], place: str) -> Declaration:
    """Declare a fitted estimator."""
    try:
        columns = columns_of(estimator, sample)
    except MlaotError as error:
        error.place = error.place or place
        raise

    def numbers(name: str, column: Column) -> Any:
        is_whole = column.features or type(estimator).__name__ in LABELS
        return column.numbers(sample if is_whole else sample[name])

    has_texts = any(column.counts for column in columns.values())
    return Declaration(
        lambda: trace_estimator(estimator, columns, dims),
        place,
        {} if has_texts else {"scikit-learn": lambda arrays: call_methods(estimator, columns, arrays)},
        None
        if sample is None or has_texts
        else {port_name(name): numbers(name, column) for name, column in columns.items()},
    )


# Products with coefficients that are of the dtype of the rows they were fitted on.
PRODUCTS = (
    *("LinearRegression", "Ridge", "Lasso", "ElasticNet", "SGDRegressor", "MLPRegressor"),
    *("LogisticRegression", "RidgeClassifier", "SGDClassifier", "MLPClassifier"),
)


@dataclass(frozen=True)
class Column:
    """An input: its dtype, the features of a row (0 if a row is one number), and the texts that its numbers index.

    With ``counts`` its numbers are those of the terms of texts, which vectorizers count. With ``dates`` they are dates,
    in the unit of this NumPy dtype.
    """

    dtype: DType
    features: int = 0
    texts: tuple[str, ...] = ()
    counts: bool = False
    dates: str = ""

    def type(self, wide: bool) -> Any:
        """Return the column's type for skl2onnx, with floats in float64 or in float32."""
        from skl2onnx.common import data_types

        floats = data_types.DoubleTensorType if wide else data_types.FloatTensorType
        types = {"f": floats, "b": data_types.BooleanTensorType}
        kind = data_types.StringTensorType if self.texts else types.get(self.dtype.kind, data_types.Int64TensorType)
        return kind([None, self.features or 1])

    def numbers(self, values: Any) -> Any:
        """Return a column in the form that the module gets."""
        places = {text: i for i, text in enumerate(self.texts)}
        return np.array([places.get(value, -1) for value in values]) if places else numbers_of(values)

    def values(self, numbers: Any) -> Any:
        """Convert numbers to the texts or the dates that they represent."""
        if self.dates:
            return numbers.view(self.dates)
        return np.array([*self.texts, None], object)[numbers.clip(-1, len(self.texts))] if self.texts else numbers

    def prepare(self, x: Any, wide: bool) -> Any:
        """Convert rows to the dtype of computation. Numbers that are no index of a text become no text."""
        if self.counts:
            return Texts(x)
        x = x if self.features else np.expand_dims(x, -1)
        if self.dates:
            return Dates(x, self.dates)
        if self.texts:
            count = len(self.texts)
            return Strings(np.where((x >= 0) & (x < count), x, count), np.array([*self.texts, "\0"], np.str_))
        return astype(x, {"f": f64 if wide else f32, "b": self.dtype}.get(self.dtype.kind, i64))


def columns_of(estimator: Any, sample: Any) -> dict[str, Column]:
    """Return the inputs of an estimator, which must be fitted, by scikit-learn's names."""
    name = type(estimator).__name__
    if not hasattr(estimator, "fit") or isinstance(estimator, type):
        raise MlaotError(f"expected a fitted estimator of scikit-learn, got {estimator!r:.60}")
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        raise MlaotError(f"this {name} is not fitted; call its fit where it is made") from None
    if name in LABELS:
        return {"y": _column("y", estimator.classes_ if sample is None else sample, {"y": estimator.classes_})}
    if hasattr(sample, "columns") or isinstance(sample, Mapping):
        categories = dict(_categories(estimator, list(sample)))
        takes_texts = any(vectorizers_in(estimator))
        return {str(column): _column(column, sample[column], categories, takes_texts) for column in sample}
    if not hasattr(estimator, "n_features_in_") and any(vectorizers_in(estimator)):
        return {"X": Column(i64, counts=True)}
    if _picks_by_name(estimator):
        names = ", ".join(estimator.feature_names_in_)
        raise MlaotError(
            f"this {name} takes columns by their names, {names:.80}; give a sample that has them:"
            " sample = 'model:sample', with sample = frame[:1] in model.py, of a DataFrame"
        )
    if sample is not None:
        shape = np.shape(sample)
        if len(shape) != 2:
            raise MlaotError(f"the sample must be rows of features, got the shape {list(shape)}")
        fitted = getattr(estimator, "n_features_in_", shape[1])
        if shape[1] != fitted:
            raise MlaotError(f"this {name} was fitted on {fitted} features, the sample has {shape[1]}")
        return {"X": replace(_column("the sample", sample, {}), features=shape[1])}
    if name == "IsotonicRegression":
        return {"X": Column(f32, 1)}
    if not hasattr(estimator, "n_features_in_"):
        raise MlaotError(f"this {name} does not say how many features it takes; give a sample")
    return {"X": Column(f32, int(estimator.n_features_in_))}


def is_single(estimator: Any, columns: Mapping[str, Column]) -> bool:
    """Tell whether scikit-learn computes in float32: products of float32 rows with weights fitted on float32."""
    if type(estimator).__name__ not in PRODUCTS or any(column.dtype is not f32 for column in columns.values()):
        return False
    fitted = estimator.coefs_ if hasattr(estimator, "coefs_") else [estimator.coef_]
    return all(np.asarray(array).dtype == np.float32 for array in fitted)


def _column(name: str, values: Any, categories: Mapping[str, Any], takes_texts: bool = False) -> Column:
    array = np.asarray(values)
    if str(array.dtype) in BY_NUMPY:
        return Column(BY_NUMPY[str(array.dtype)])
    if array.dtype.kind == "M" and np.datetime_data(array.dtype)[0] != "generic":
        return Column(i64, dates=str(array.dtype.newbyteorder("=")))
    texts = tuple(categories.get(name, ()))
    if takes_texts and not texts:
        return Column(i64, counts=True)
    if not texts or not all(isinstance(text, str) for text in texts):
        mend = "; dates are columns of datetime64, without a time zone" if array.dtype.kind in "OMm" else ""
        raise MlaotError(f"{name} is {array.dtype}, and no encoder of the pipeline tells all of its strings{mend}")
    return Column(i64, texts=texts)


def _categories(estimator: Any, names: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Return the categories that encoders have learnt of the columns ``names``."""
    if hasattr(estimator, "categories_"):
        yield from zip(names, estimator.categories_, strict=True)
    for _, step, picked in getattr(estimator, "transformers_", ()):
        if not isinstance(step, str):
            at = np.array(names, object)[picked] if not np.isin(picked, names).all() else picked
            yield from _categories(step, list(np.atleast_1d(at)))
    for _, step in getattr(estimator, "steps", ()):
        yield from _categories(step, names)
        if hasattr(step, "transformers_"):
            return  # columns have other names from here on


def _picks_by_name(estimator: Any) -> bool:
    """Tell whether a part of an estimator takes columns of a DataFrame by their names."""
    picks = [np.atleast_1d(picked) for _, _, picked in getattr(estimator, "transformers_", ())]
    steps = [step for _, step in getattr(estimator, "steps", ())]
    return any(pick.dtype.kind in "UO" and pick.size for pick in picks) or any(map(_picks_by_name, steps))


def trace_estimator(estimator: Any, columns: Mapping[str, Column], dims: Mapping[str, int]) -> Traced:
    """Trace an estimator. ``forward`` returns the results of all its methods, each of which is also an entry."""
    if not any(hasattr(estimator, name) for name in (*METHODS, "kneighbors")):
        raise MlaotError(f"this {type(estimator).__name__} has no method for new rows; expected one of {METHODS}")
    try:
        if knows(estimator):
            return _trace(estimator, columns, dims, by_rules)
    except Unknown:
        if any(column.counts or column.dates for column in columns.values()):
            raise
    return _trace(estimator, columns, dims, by_converters)


Results = dict[str, list[Any]]  # by method


def by_rules(estimator: Any, columns: Mapping[str, Column], inputs: Mapping[str, Any]) -> Results:
    """Compute the methods of an estimator by mlaot's own rules."""
    wide = not is_single(estimator, columns)
    rows = {name: column.prepare(inputs[name], wide) for name, column in columns.items()}
    if len(rows) == 1 and isinstance(rows.get("X"), Texts):
        x = rows["X"]
    elif len(rows) == 1 and isinstance(rows.get("X"), Dates):
        dates = rows["X"]
        x = Frame([Dates(dates.numbers[:, i : i + 1], dates.dtype) for i in range(columns["X"].features)])
    elif len(rows) == 1 and next(iter(columns.values())).features:
        x = astype(rows["X"], f64) if rows["X"].dtype not in (f32, f64) else rows["X"]
    else:
        x = Frame([rows.get(str(name)) for name in getattr(estimator, "feature_names_in_", rows)])
    found = {}
    for method in methods_of(estimator):
        try:
            found[method] = compute(estimator, method, x)
        except Unknown as error:  # of one method, or of texts
            unknown = error
    if not found:
        raise unknown
    for name, column in rows.items():
        if isinstance(column, Texts) and column.vectorizers:
            _, vectorizers = zip(*column.vectorizers.values(), strict=True)
            as_node(inputs[name]).attrs["vectorizers"] = vectorizers
    return {method: value if isinstance(value, list) else [join(value)] for method, value in found.items()}


def by_converters(estimator: Any, columns: Mapping[str, Column], inputs: Mapping[str, Any]) -> Results:
    """Compute the methods of an estimator by skl2onnx."""
    try:
        from mlaot.sklearn.convert import convert
    except ModuleNotFoundError as error:
        raise MlaotError(
            f"this {type(estimator).__name__} needs the package {error.name}: pip install skl2onnx"
        ) from None
    wide = not is_single(estimator, columns)
    model, calls = convert(estimator, {name: column.type(wide) for name, column in columns.items()})
    importer = prepare_importer(model, {}, calls)
    importer.wide = wide
    env = importer.initializers(model.graph)
    for name, column in columns.items():
        inner = re.sub(r"^(?=\d)|[^\w+]", "_", name)  # as skl2onnx calls it
        env[inner] = env[name] = column.prepare(inputs[name], wide)
    outputs = importer.run(model.graph, env)
    check_refused(importer)
    if importer.counts:
        raise MlaotError(
            f"how many elements {next(iter(importer.counts))} of this {type(estimator).__name__} has depends on data"
        )
    found = by_method(estimator, outputs)
    return {method: [_vector(estimator, method, value) for value in values] for method, values in found.items()}


def _trace(
    estimator: Any, columns: Mapping[str, Column], dims: Mapping[str, int], results_of: Callable[..., Results]
) -> Traced:
    graph = Graph("model")
    held: dict[str, Held] = {}
    batch = pinned_by(dims).get("batch", dim("batch"))
    outside = f64 if any(column.dtype is f64 or column.counts or column.dates for column in columns.values()) else f32
    with tracing(Trace(graph, held=held)):
        inputs = {}
        for name, column in columns.items():
            features = dim(f"{port_name(name)}_words") if column.counts else column.features
            shape = (batch, features) if features else (batch,)
            notes: dict[str, Any] = {"converts": True}  # as scikit-learn does
            if column.counts or column.texts:
                notes = {"vectorizers": ()} if column.counts else {"strings": column.texts}
            if column.dates:
                notes |= {"dates": column.dates}
            rows = graph.input(port_name(name), Type(column.dtype, shape), **notes)
            inputs[name] = Tensor(rows)
        results = results_of(estimator, columns, inputs)
        columns = {name: column for name, column in columns.items() if not _is_dropped(graph, name, column)}
        labels: dict[tuple[str, str], tuple[str, ...]] = {}
        for name, values in results.items():
            for i, value in enumerate(values):
                port, own = (name, "out") if len(values) == 1 else (f"{name}_{i}", f"out{i}")
                if isinstance(value, Strings):
                    value = _of_classes(estimator, value)
                    labels["forward", port] = labels[name, own] = tuple(map(str, value.table))
                graph.outputs[port] = as_node(_result(value, outside))
    ports, entries = iter(graph.outputs), {}
    for name, values in results.items():
        entries[name] = _entry(graph, name, [next(ports) for _ in values])
    info: dict[str, object] = {"classes": _as_list(estimator.classes_)} if hasattr(estimator, "classes_") else {}
    if texts := {name: column.texts for name, column in columns.items() if column.texts}:
        info["categories"] = texts
    if dates := {name: column.dates for name, column in columns.items() if column.dates} | _dates_of_classes(estimator):
        info["dates"] = dates
    return Traced(
        graph,
        {name: value.array for name, value in held.items()},
        per_example=False,
        arguments=tuple(map(port_name, columns)),
        entries=entries,
        docs={name: DOCS.get(name, f"What scikit-learn's {name} gives.") for name in results},
        file_names={port_name(name): name for name in columns} | {port: port for port in graph.outputs},
        info=info,
        labels=labels,
    )


def _is_dropped(graph: Graph, name: str, column: Column) -> bool:
    """Remove an input of texts that no vectorizer reads, and tell whether it was one."""
    is_dropped = column.counts and not graph.inputs[port_name(name)].attrs["vectorizers"]
    if is_dropped:
        del graph.inputs[port_name(name)]
    return is_dropped


def _as_list(classes: Any) -> Any:
    """Return classes as lists, with dates as strings; the classes of several outputs are several arrays."""
    if isinstance(classes, list):
        return list(map(_as_list, classes))
    array = np.asarray(classes)
    return (np.datetime_as_string(array) if array.dtype.kind == "M" else array).tolist()


def _dates_of_classes(estimator: Any) -> dict[str, str]:
    """Return the dtype of classes that are dates."""
    dtype = getattr(getattr(estimator, "classes_", None), "dtype", None)
    return {"predict": str(dtype.newbyteorder("="))} if dtype is not None and dtype.kind == "M" else {}


def _entry(graph: Graph, name: str, ports: Sequence[str]) -> Graph:
    """Make an entry that returns some outputs of a graph."""
    entry = Graph(name)
    arguments = []
    for key, node in graph.inputs.items():
        notes = {note: value for note, value in node.attrs.items() if note not in ("name", "type")}
        arguments.append(entry.input(key, node.type, **notes))
    outputs = dict(zip(graph.outputs, inline(graph, arguments, entry), strict=True))
    entry.outputs = {"out" if len(ports) == 1 else f"out{i}": outputs[port] for i, port in enumerate(ports)}
    return entry


def by_method(estimator: Any, outputs: Sequence[Any]) -> dict[str, list[Any]]:
    """Return the results of a converted estimator by the corresponding methods of scikit-learn."""
    plain = [value.values if isinstance(value, Maps) else value for value in outputs]
    values = [value if isinstance(value, list) else [value] for value in plain]
    if len(values) == 2 and len(values[1]) == 1 and values[0][0].ndim == 2 and values[0][0].shape[1] > 1:
        (scores,), count = values[1], values[0][0].shape[1]
        if isinstance(getattr(estimator, "classes_", None), list):
            values[1] = [scores[i] for i in range(count)]
        elif scores.shape[-1] == 2 * count:  # of no and of yes
            values[1] = [scores[:, count:]]
    if hasattr(estimator, "kneighbors_graph") and not hasattr(estimator, "predict") and len(values) == 2:
        return {"kneighbors": [*values[1], *values[0]]}  # distances first
    if len(values) == 1:
        is_selector = isinstance(last_step(estimator), SelectorMixin)
        return {"transform" if is_selector or not hasattr(estimator, "predict") else "predict": values[0]}
    second = second_method(estimator)
    if not second or (second == "transform" and is_classifier(estimator)):  # votes, which no method gives
        return {"predict": values[0]}
    return {"predict": values[0], second: values[1]}


def last_step(estimator: Any) -> Any:
    """Return the last step of a pipeline, or the best estimator of a search."""
    while (inner := getattr(estimator, "best_estimator_", None)) is not None or hasattr(estimator, "steps"):
        estimator = estimator.steps[-1][1] if inner is None else inner
    return estimator


def _vector(estimator: Any, method: str, value: Any) -> Any:
    """Convert a value of a converter to scikit-learn's shape."""
    if method not in ("predict", "decision_function") or isinstance(value, Strings) or value.ndim != 2:
        return value
    if value.shape[1] == 1:
        return value[:, 0]
    if method == "decision_function" and len(getattr(estimator, "classes_", ())) == 2:
        return value[:, 0 if isinstance(last_step(estimator), SVC | NuSVC) else 1]  # skl2onnx gives them reversed
    return value


def _of_classes(estimator: Any, value: Strings) -> Strings:
    """Return strings as those of ``classes_``, in the same order."""
    classes = estimator.classes_.tolist()
    if value.table.tolist() == classes:
        return value
    places = {label: i for i, label in enumerate(classes)}
    table = np.array([places.get(str(label), -1) for label in value.table], np.int64)
    return Strings(take(table, value.index), np.array(classes, np.str_))


def _result(value: Any, outside: DType) -> Any:
    """Convert a value to the dtype of the module's result; strings to their indices."""
    if isinstance(value, Strings):
        return astype(value.index, i64)
    return astype(value, outside) if value.dtype.kind == "f" else value


def call_methods(estimator: Any, columns: Mapping[str, Column], arrays: Arrays) -> Arrays:
    """Call scikit-learn itself; return its results by the names of ``forward``."""
    if type(estimator).__name__ in LABELS:
        rows = columns["y"].values(arrays["y"])
    elif "X" in arrays:
        rows = columns["X"].values(arrays["X"])
    else:
        pandas = importlib.import_module("pandas")
        rows = pandas.DataFrame({name: column.values(arrays[port_name(name)]) for name, column in columns.items()})
    results: Arrays = {}
    for name in methods_of(estimator) if knows(estimator) else ("predict", second_method(estimator)):
        if hasattr(estimator, name):
            given = getattr(estimator, name)(rows)
            values = given if isinstance(given, list | tuple) else [given]
            for i, value in enumerate(values):
                array = np.asarray(value.toarray() if hasattr(value, "toarray") else value)
                array = np.searchsorted(estimator.classes_, array) if array.dtype.kind in "OU" else numbers_of(array)
                results[name if len(values) == 1 else f"{name}_{i}"] = array
    return results
