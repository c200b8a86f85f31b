"""Models of scikit-learn: ``mlaot.sklearn.load(pipeline)`` is a model like any other. Needs the package ``skl2onnx``.

skl2onnx turns a fitted estimator into an ONNX graph, which is computed in float64, as scikit-learn computes. Trees,
also those of LightGBM and XGBoost, are nodes of mlaot's own in it: what skl2onnx makes of them loses thresholds and the
sides that nan goes to.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mlaot.errors import MlaotError

try:
    import onnx
    import skl2onnx
    from skl2onnx._supported_operators import sklearn_operator_name_map as ALIASES
    from skl2onnx.common import data_types
    from skl2onnx.common._registration import get_converter
    from sklearn.base import is_classifier
    from sklearn.exceptions import NotFittedError
    from sklearn.feature_selection import SelectorMixin
    from sklearn.svm import SVC, NuSVC
    from sklearn.utils.validation import check_is_fitted
except ModuleNotFoundError as error:
    raise MlaotError(f"mlaot.sklearn needs the package {error.name}: pip install skl2onnx") from None

from mlaot.attributes import attribute
from mlaot.frontend.declaration import Arrays, Declaration, Traced
from mlaot.frontend.functions import astype, sigmoid, softmax, top_k
from mlaot.frontend.promotion import as_node
from mlaot.frontend.tensor import Held, Tensor
from mlaot.frontend.trace import Trace, tracing
from mlaot.ir import DType, Graph, Type
from mlaot.ir.dims import dim
from mlaot.ir.subgraph import inline
from mlaot.ir.types import BY_NUMPY, f32, f64, i64
from mlaot.nn.trees import TreeEnsemble
from mlaot.onnx.declare import begun, check_refused, pinned_by, port_name
from mlaot.onnx.importer import OWN
from mlaot.onnx.ops.ml import chosen, take
from mlaot.onnx.values import Maps, Strings
from mlaot.settings import Model, Settings

OPSET = 18  # what all converters know
PICKLES = (".pkl", ".pickle", ".joblib", ".dill", ".cloudpickle")
FORESTS = ("DecisionTree", "ExtraTree", "RandomForest", "ExtraTrees", "GradientBoosting", "HistGradientBoosting")
TREES = ("IsolationForest", *(f"{name}{kind}" for name in FORESTS for kind in ("Classifier", "Regressor")))
LIBRARIES = ("lightgbm", "xgboost")
BOOSTERS = tuple(f"{name}{kind}" for name in ("LGBM", "XGB", "XGBRF") for kind in ("Classifier", "Regressor", "Ranker"))
LINEAR = (
    "LinearDiscriminantAnalysis",
    "LinearSVC",
    "OneVsRestClassifier",
    "Perceptron",
    "RidgeClassifier",
    "RidgeClassifierCV",
    "SGDClassifier",
)
OTHERS = ("CalibratedClassifierCV", "TunedThresholdClassifierCV", "VotingClassifier")
MARGINS = ("hinge", "squared_hinge", "perceptron", "squared_error", "huber")  # losses without probabilities
SECOND = ("predict_proba", "decision_function", "transform")  # what a converter gives besides what is predicted
DOCS = {
    "predict": "What scikit-learn's predict gives; of classes that are strings, the place in info()['classes'].",
    "predict_proba": "What scikit-learn's predict_proba gives: a column for each of info()['classes'].",
}


def load(estimator: Any, sample: Any = None) -> Declaration:
    """The model of a fitted estimator or pipeline, or of a ``.skops`` file; a relative path is looked for beside the
    calling module first.

    ``sample`` says the dtypes of what goes in: an array, or a DataFrame or a dict of columns, each of which becomes an
    input. Without it there is one input ``X`` of float32.
    """
    if isinstance(estimator, str | Path):
        beside = Path(inspect.stack()[1].filename).parent / estimator
        path = beside if beside.exists() else Path(estimator)
        return declare(read(path), sample, {}, f"{path.name}: ")
    return declare(estimator, sample, {}, "")


def declared(settings: Settings, model: Model, sample: Any = None) -> Declaration:
    """The model that the key ``sklearn`` of a project names."""
    is_file = ":" not in model.sklearn
    found = read(settings.project / model.sklearn) if is_file else attribute(settings, model, "sklearn")
    return declare(found, sample, dict(model.dims), f"{model.sklearn}: ")


def read(path: Path) -> Any:
    """The estimator of a skops file, which must be of types that skops knows."""
    if path.suffix in PICKLES:
        raise MlaotError(f"{path.name}: a pickle runs code where it is read; store the estimator by skops.io.dump")
    if not path.is_file():
        raise MlaotError(f"no file {path.name} in {path.resolve().parent}; expected one that skops.io.dump wrote")
    try:
        from skops import io
    except ModuleNotFoundError:
        raise MlaotError(f"{path.name}: reading it needs the package skops: pip install skops") from None
    try:
        unknown = io.get_untrusted_types(file=path)
        if not unknown:
            return io.load(path, trusted=[])
    except Exception as error:  # of zip, JSON, NumPy, or what a type makes of its state
        raise MlaotError(f"{path.name} is no skops file, or it is damaged: {' '.join(str(error).split())}") from None
    raise MlaotError(
        f"{path.name} holds {', '.join(unknown)}, which skops does not trust; name the estimator in a module instead"
    )


def declare(estimator: Any, sample: Any, dims: Mapping[str, int], place: str) -> Declaration:
    """A fitted estimator, declared."""
    try:
        columns = columns_of(estimator, sample)
    except MlaotError as error:
        error.place = error.place or place
        raise

    def trace() -> Traced:
        return traced(estimator, columns, dims)

    def reference(given: Arrays) -> Arrays:
        return computed(estimator, columns, given)

    def numbers(name: str, column: Column) -> Any:
        return np.asarray(sample) if column.features else column.numbers(sample[name])

    known = None if sample is None else {port_name(name): numbers(name, column) for name, column in columns.items()}
    return Declaration(trace, place, {"scikit-learn": reference}, known)


@dataclass(frozen=True)
class Column:
    """An input: its dtype, the features of a row (0: a row is one number), the texts that its numbers stand for."""

    dtype: DType
    features: int = 0
    texts: tuple[str, ...] = ()

    @property
    def kind(self) -> Any:
        """How skl2onnx calls what is computed of it."""
        if self.texts:
            return data_types.StringTensorType
        kinds = {"f": data_types.DoubleTensorType, "b": data_types.BooleanTensorType}
        return kinds.get(self.dtype.kind, data_types.Int64TensorType)

    def numbers(self, values: Any) -> Any:
        """A column as the module is given it."""
        places = {text: i for i, text in enumerate(self.texts)}
        return np.array([places.get(value, -1) for value in values]) if places else np.asarray(values)

    def taken(self, x: Any) -> Any:
        """Rows of features in the dtype that they are computed in; other numbers than those of texts are no text."""
        x = x if self.features else np.expand_dims(x, -1)
        if self.texts:
            count = len(self.texts)
            return Strings(np.where((x >= 0) & (x < count), x, count), np.array([*self.texts, "\0"], np.str_))
        return astype(x, {"f": f64, "b": self.dtype}.get(self.dtype.kind, i64))


def columns_of(estimator: Any, sample: Any) -> dict[str, Column]:
    """The inputs of an estimator, which must be fitted, by scikit-learn's names."""
    name = type(estimator).__name__
    if not hasattr(estimator, "fit") or isinstance(estimator, type):
        raise MlaotError(f"expected a fitted estimator of scikit-learn, got {estimator!r:.60}")
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        raise MlaotError(f"this {name} is not fitted; call its fit where it is made") from None
    if hasattr(sample, "columns") or isinstance(sample, Mapping):
        known = dict(_categories(estimator, list(sample)))
        return {str(column): _column(column, sample[column], known) for column in sample}
    if sample is not None:
        shape = np.shape(sample)
        if len(shape) != 2:
            raise MlaotError(f"the sample must be rows of features, got the shape {list(shape)}")
        return {"X": replace(_column("the sample", sample, {}), features=shape[1])}
    if not hasattr(estimator, "n_features_in_"):
        raise MlaotError(f"this {name} does not say how many features it takes; give a sample")
    return {"X": Column(f32, int(estimator.n_features_in_))}


def _column(name: str, values: Any, categories: Mapping[str, Any]) -> Column:
    array = np.asarray(values)
    if str(array.dtype) in BY_NUMPY:
        return Column(BY_NUMPY[str(array.dtype)])
    texts = tuple(categories.get(name, ()))
    if not texts or not all(isinstance(text, str) for text in texts):
        raise MlaotError(f"{name} is {array.dtype}, and no encoder of the pipeline tells all of its strings")
    return Column(i64, texts=texts)


def _categories(estimator: Any, names: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """The categories of those of the columns ``names`` that encoders have learnt."""
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


def traced(estimator: Any, columns: Mapping[str, Column], dims: Mapping[str, int]) -> Traced:
    """The graphs of an estimator: ``forward`` gives what all its methods give, each of which is an entry, too."""
    model, calls = converted(estimator, columns)
    importer, graph = begun(model, {}, calls), Graph("model")
    batch = pinned_by(dims).get("batch", dim("batch"))
    outside = f64 if any(column.dtype is f64 for column in columns.values()) else f32
    importer.wide = True
    held: dict[str, Held] = {}
    with tracing(Trace(graph, held=held)):
        env = importer.initializers(model.graph)
        for name, column in columns.items():
            shape = (batch, column.features) if column.features else (batch,)
            inner = re.sub(r"^(?=\d)|[^\w+]", "_", name)  # as skl2onnx calls it
            rows = graph.input(port_name(name), Type(column.dtype, shape), converts=True)  # as scikit-learn does
            env[inner] = env[name] = column.taken(Tensor(rows))
        found = importer.run(model.graph, env)
        check_refused(importer)
        results = by_method(estimator, found)
        for name, values in results.items():
            for i, value in enumerate(values):
                port = name if len(values) == 1 else f"{name}_{i}"
                graph.outputs[port] = as_node(_served(estimator, name, value, outside))
    outputs, entries = iter(graph.outputs), {}
    for name, values in results.items():
        entries[name] = _alone(graph, name, [next(outputs) for _ in values])
    info: dict[str, object] = {"classes": _listed(estimator.classes_)} if hasattr(estimator, "classes_") else {}
    if texts := {name: column.texts for name, column in columns.items() if column.texts}:
        info["categories"] = texts
    return Traced(
        graph,
        {name: value.array for name, value in held.items()},
        per_example=False,
        arguments=tuple(map(port_name, columns)),
        entries=entries,
        docs={name: DOCS.get(name, f"What scikit-learn's {name} gives.") for name in results},
        file_names={port_name(name): name for name in columns} | {port: port for port in graph.outputs},
        info=info,
    )


def _listed(classes: Any) -> Any:
    """Classes as lists; those of several outputs are several arrays."""
    return [_listed(each) for each in classes] if isinstance(classes, list) else np.asarray(classes).tolist()


def _alone(graph: Graph, name: str, ports: Sequence[str]) -> Graph:
    """An entry that gives some outputs of a graph."""
    entry = Graph(name)
    arguments = []
    for key, node in graph.inputs.items():
        notes = {note: value for note, value in node.attrs.items() if note not in ("name", "type")}
        arguments.append(entry.input(key, node.type, **notes))
    found = dict(zip(graph.outputs, inline(graph, arguments, entry), strict=True))
    entry.outputs = {"out" if len(ports) == 1 else f"out{i}": found[port] for i, port in enumerate(ports)}
    return entry


def _named(column: Column, values: Any) -> Any:
    """Numbers as the texts that they stand for."""
    return np.array([*column.texts, None], object)[values.clip(-1, len(column.texts))] if column.texts else values


def by_method(estimator: Any, found: Sequence[Any]) -> dict[str, list[Any]]:
    """What a converted estimator gives, by the methods of scikit-learn that give it."""
    plain = [value.values if isinstance(value, Maps) else value for value in found]
    values = [value if isinstance(value, list) else [value] for value in plain]
    if len(values) == 2 and len(values[1]) == 1 and values[0][0].ndim == 2 and values[0][0].shape[1] > 1:
        (scores,), outputs = values[1], values[0][0].shape[1]
        if isinstance(getattr(estimator, "classes_", None), list):
            values[1] = [scores[i] for i in range(outputs)]
        elif scores.shape[-1] == 2 * outputs:  # of no and of yes
            values[1] = [scores[:, outputs:]]
    if hasattr(estimator, "kneighbors_graph") and not hasattr(estimator, "predict") and len(values) == 2:
        return {"kneighbors": [*values[1], *values[0]]}  # distances first
    if len(values) == 1:
        is_selector = isinstance(last(estimator), SelectorMixin)
        return {"transform" if is_selector or not hasattr(estimator, "predict") else "predict": values[0]}
    second = next((name for name in SECOND if hasattr(estimator, name)), "")
    if not second or (second == "transform" and is_classifier(estimator)):  # votes, which no method gives
        return {"predict": values[0]}
    return {"predict": values[0], second: values[1]}


def last(estimator: Any) -> Any:
    """The last step of a pipeline, or what a search has found."""
    while (inner := getattr(estimator, "best_estimator_", None)) is not None or hasattr(estimator, "steps"):
        estimator = estimator.steps[-1][1] if inner is None else inner
    return estimator


def _served(estimator: Any, method: str, value: Any, outside: DType) -> Any:
    """A value in scikit-learn's shape; strings as places in ``classes_``."""
    if isinstance(value, Strings):
        places = {label: i for i, label in enumerate(estimator.classes_.tolist())}
        value = take(np.array([places.get(str(label), -1) for label in value.table], np.int64), value.index)
    if value.dtype.kind == "f":
        value = astype(value, outside)
    if method in ("predict", "decision_function") and value.ndim == 2 and value.shape[1] == 1:
        return value[:, 0]
    if method == "decision_function" and value.ndim == 2 and len(getattr(estimator, "classes_", ())) == 2:
        return value[:, 0 if isinstance(last(estimator), SVC | NuSVC) else 1]  # skl2onnx gives them reversed
    return value


def computed(estimator: Any, columns: Mapping[str, Column], given: Arrays) -> Arrays:
    """What scikit-learn itself gives, as ``forward`` names it."""
    if "X" in given:
        rows = given["X"]
    else:
        import pandas

        rows = pandas.DataFrame({name: _named(column, given[port_name(name)]) for name, column in columns.items()})
    second = next((name for name in SECOND if hasattr(estimator, name)), "")
    found: Arrays = {}
    for name in ("predict", second):
        if hasattr(estimator, name):
            value = getattr(estimator, name)(rows)
            value = np.asarray(value.toarray() if hasattr(value, "toarray") else value)
            is_text = value.dtype.kind in "OU"
            found[name] = np.searchsorted(estimator.classes_, value) if is_text else value
    return found


# ---------------------------------------------------------------------------------------------------------- conversion


def converted(estimator: Any, columns: Mapping[str, Column]) -> tuple[onnx.ModelProto, dict[str, Callable[..., Any]]]:
    """An estimator as ONNX, and the functions that nodes of mlaot's own compute."""
    calls: dict[str, Callable[..., Any]] = {}

    def convert(scope: Any, operator: Any, container: Any) -> None:
        raw = operator.raw_operator
        name = scope.get_unique_operator_name(type(raw).__name__)
        is_tuned, asks_more = hasattr(raw, "best_threshold_"), len(operator.outputs) > 1 + hasattr(raw, "predict_proba")
        call = _tuned(scope, operator) if is_tuned else function_of(raw)
        if asks_more and type(raw).__name__ in TREES[1:]:
            call = None  # of the leaves that rows reach
        if call is not None:
            calls[name] = call
            inputs, outputs = operator.input_full_names, operator.output_full_names
            container.add_node(name, inputs, outputs, op_domain=OWN, op_version=1, name=name)
            return
        if hasattr(raw, "flatten_transform"):  # of what nobody asks for here
            operator.raw_operator = copy(raw)
            operator.raw_operator.flatten_transform = False
        get_converter(operator.type)(scope, operator, container)

    def shaped(operator: Any) -> None:
        operator.outputs[0].type = data_types.DoubleTensorType([None, None])

    types = [(name, column.kind([None, column.features or 1])) for name, column in columns.items()]
    own = dict.fromkeys(kinds_converted_here(), convert)
    shapes = {kind: shaped for kind in own if kind.__name__ == "KNNImputer"}  # of float32 only there
    try:
        model = skl2onnx.convert_sklearn(
            estimator,
            initial_types=types,
            target_opset=OPSET,
            custom_conversion_functions=own,
            custom_shape_calculators=shapes,
        )
    except MlaotError:
        raise
    except Exception as error:  # every converter has its own
        text = " ".join(str(error).split())
        raise MlaotError(f"skl2onnx cannot convert this {type(estimator).__name__}: {text:.300}") from None
    return model, calls


def kinds_converted_here() -> list[type]:
    """The types of estimators that skl2onnx must not convert alone."""
    for library in LIBRARIES:
        for name in BOOSTERS:
            kind = getattr(sys.modules.get(library), name, None)
            if kind is not None:  # skl2onnx then converts it as a step of others, too
                suffix = "Classifier" if name.endswith("Classifier") else "Regressor"
                ALIASES.setdefault(kind, f"SklearnHistGradientBoosting{suffix}")
    return [kind for kind in ALIASES if kind.__name__ in (*TREES, *BOOSTERS, *LINEAR, *SIMPLE, *OTHERS)]


def function_of(estimator: Any) -> Callable[..., list[Any]] | None:
    """What an estimator gives of the inputs of its node, where skl2onnx is not to convert it."""
    name = type(estimator).__name__
    if name == "CalibratedClassifierCV" and estimator.method == "isotonic":
        raise MlaotError("the isotonic calibration of a CalibratedClassifierCV cannot be converted; use 'sigmoid'")
    if name in SIMPLE:
        return SIMPLE[name](estimator)
    if name in LINEAR:
        parts = getattr(estimator, "estimators_", [estimator])
        is_known = not getattr(estimator, "multilabel_", False) and all(map(_is_linear, parts))
        return _linear(estimator, parts) if is_known else None
    if name not in (*TREES, *BOOSTERS) or isinstance(getattr(estimator, "classes_", None), list):
        return None  # where classes are a list there are several outputs
    outputs = ("class_index", "predict_proba") if hasattr(estimator, "classes_") else ("predict",)
    outputs = ("predict", "decision_function") if name == "IsolationForest" else outputs
    layers = [TreeEnsemble.from_sklearn(estimator, output) for output in outputs]

    def run(*inputs: Any) -> list[Any]:
        x = _joined(inputs)
        first, *others = [layer(x) for layer in layers]
        if not others:
            return [first if first.ndim > 1 else np.expand_dims(first, -1)]
        return [_label(estimator, first) if hasattr(estimator, "classes_") else first, *others]

    return run


def _is_linear(estimator: Any) -> bool:
    loss = getattr(estimator, "loss", "log_loss")
    return hasattr(estimator, "coef_") and isinstance(loss, str) and loss in ("log_loss", *MARGINS)


def _linear(estimator: Any, parts: Sequence[Any]) -> Callable[..., list[Any]]:
    """Linear classifiers, or one against the rest: the largest score, of two classes the sign of one."""
    weight = np.concatenate([np.atleast_2d(part.coef_) for part in parts]).T
    bias = np.concatenate([np.broadcast_to(part.intercept_, (len(np.atleast_2d(part.coef_)),)) for part in parts])

    def run(*inputs: Any) -> list[Any]:
        scores = _joined(inputs) @ weight + bias
        is_pair = scores.shape[1] == 1
        index = astype(scores[:, 0] > 0, np.int64) if is_pair else np.argmax(scores, axis=-1)
        if type(estimator).__name__ == "LinearDiscriminantAnalysis" and not is_pair:
            scores = softmax(scores)
        elif hasattr(estimator, "predict_proba"):
            scores = sigmoid(scores)
            scores = (
                np.concatenate([1 - scores, scores], axis=-1) if is_pair else scores / np.sum(scores, -1, keepdims=True)
            )
        return [_label(estimator, index), scores]

    return run


def _tuned(scope: Any, operator: Any) -> Callable[..., list[Any]]:
    """A threshold that was tuned decides on the label; skl2onnx leaves that to the classifier inside."""
    estimator, inner = operator.raw_operator, operator.raw_operator.estimator_
    if estimator.response_method == "decision_function" or not hasattr(inner, "predict_proba"):
        raise MlaotError("a TunedThresholdClassifierCV without probabilities cannot be converted")
    inside = scope.declare_local_operator(ALIASES[type(inner)], inner)
    inside.inputs = operator.inputs
    for name, kind in (("label", data_types.Int64TensorType), ("scores", data_types.DoubleTensorType)):
        inside.outputs.append(scope.declare_local_variable(name, kind()))
    operator.inputs = inside.outputs[1:]
    chosen_class = estimator._curve_scorer._get_pos_label()
    positive = 1 if chosen_class is None else list(estimator.classes_).index(chosen_class)

    def run(scores: Any) -> list[Any]:
        is_positive = scores[:, positive] >= estimator.best_threshold_
        return [_label(estimator, np.where(is_positive, positive, 1 - positive)), scores]

    return run


def _quadratic(estimator: Any) -> Callable[..., list[Any]]:
    """``QuadraticDiscriminantAnalysis``."""
    turns = [r / np.sqrt(s) for r, s in zip(estimator.rotations_, estimator.scalings_, strict=True)]
    shift = np.log(estimator.priors_) - 0.5 * np.array([np.sum(np.log(s)) for s in estimator.scalings_])

    def run(*inputs: Any) -> list[Any]:
        x = _joined(inputs)
        apart = [(x - mean) @ turn for mean, turn in zip(estimator.means_, turns, strict=True)]
        scores = np.stack([-0.5 * np.sum(each * each, axis=-1) for each in apart], axis=-1) + shift
        return [_label(estimator, np.argmax(scores, axis=-1)), softmax(scores)]

    return run


def _imputed(estimator: Any) -> Callable[..., list[Any]]:
    """Means of the nearest rows that have the feature; of all rows where none is at a distance."""
    fit, absent = np.asarray(estimator._fit_X, np.float64), estimator._mask_fit_X
    if estimator.missing_values == estimator.missing_values or callable(estimator.weights) or estimator.add_indicator:
        raise MlaotError("a KNNImputer is converted for nan, with the weights 'uniform' or 'distance', no indicator")
    kept = np.flatnonzero(estimator._valid_mask | estimator.keep_empty_features)

    def run(*inputs: Any) -> list[Any]:
        x = _joined(inputs)
        missing = np.isnan(x)
        both = ~np.expand_dims(missing, 1) & ~absent
        apart = np.where(both, np.expand_dims(x, 1) - np.where(absent, 0, fit), 0)
        square, count = np.sum(apart * apart, axis=-1), np.sum(astype(both, f64), axis=-1)
        distance = np.sqrt(np.where(count > 0, square * (fit.shape[1] / np.maximum(count, 1)), np.inf))
        return [np.stack([np.where(missing[:, i], imputed(int(i), distance), x[:, i]) for i in kept], axis=-1)]

    def imputed(i: int, distance: Any) -> Any:
        donors = np.flatnonzero(~absent[:, i])
        if not len(donors):
            return np.zeros(())
        values = fit[donors, i]
        count = min(estimator.n_neighbors, len(donors))
        near, index = top_k(distance[:, donors], count, largest=False)
        weight = astype(np.isfinite(near), f64)
        if estimator.weights == "distance":
            same = astype(near == 0, f64)
            closeness = weight / np.where(near == 0, 1, near)
            weight = np.where(np.sum(same, axis=-1, keepdims=True) > 0, same, closeness)
        total = np.sum(weight, axis=-1)
        mean = np.sum(weight * take(values, index), axis=-1) / np.where(total > 0, total, 1)
        return np.where(total > 0, mean, values.mean())

    return run


def _binarized(estimator: Any) -> Callable[..., list[Any]]:
    """``Binarizer``."""
    return lambda *inputs: [astype(_joined(inputs) > estimator.threshold, f64)]


NORMS: dict[str, Callable[[Any], Any]] = {
    "l1": lambda x: np.sum(np.abs(x), axis=-1, keepdims=True),
    "l2": lambda x: np.sqrt(np.sum(x * x, axis=-1, keepdims=True)),
    "max": lambda x: np.max(np.abs(x), axis=-1, keepdims=True),
}


def _normalized(estimator: Any) -> Callable[..., list[Any]]:
    """``Normalizer``; rows of next to nothing stay."""

    def run(*inputs: Any) -> list[Any]:
        x = _joined(inputs)
        length = NORMS[estimator.norm](x)
        return [x / np.where(length < 10 * np.finfo(np.float64).eps, 1.0, length)]

    return run


def _embedded(estimator: Any) -> Callable[..., list[Any]]:
    """``RandomTreesEmbedding``."""
    trees = TreeEnsemble.from_sklearn(estimator, "transform")
    return lambda *inputs: [trees(_joined(inputs))]


def _powered(estimator: Any) -> Callable[..., list[Any]]:
    """``PowerTransformer``: Yeo and Johnson 2000, or Box and Cox 1964."""
    lambdas = np.asarray(estimator.lambdas_)

    def power(logarithm: Any, exponent: Any) -> Any:
        """(exp(logarithm) ** exponent - 1) / exponent, and its limit where the exponent is 0"""
        is_zero = np.abs(exponent) < np.finfo(np.float64).eps
        safe = np.where(is_zero, 1.0, exponent)
        return np.where(is_zero, logarithm, np.expm1(logarithm * safe) / safe)

    def run(*inputs: Any) -> list[Any]:
        x = _joined(inputs)
        if estimator.method == "box-cox":
            y = power(np.log(x), lambdas)
        else:
            above, below = np.log1p(np.where(x < 0, 0.0, x)), np.log1p(np.where(x < 0, -x, 0.0))
            y = np.where(x < 0, -power(below, 2 - lambdas), power(above, lambdas))
        if not estimator.standardize:
            return [y]
        return [(y - estimator._scaler.mean_) / estimator._scaler.scale_]

    return run


def _weighted(estimator: Any) -> Callable[..., list[Any]]:
    """``TfidfTransformer``; rows of zeros stay."""

    def run(*inputs: Any) -> list[Any]:
        x = _joined(inputs)
        if estimator.sublinear_tf:
            x = np.where(x == 0, 0.0, np.log(np.where(x == 0, 1.0, x)) + 1)
        x = x * estimator.idf_ if estimator.use_idf else x
        if estimator.norm is None:
            return [x]
        length = NORMS[estimator.norm](x)
        return [x / np.where(length == 0, 1.0, length)]

    return run


SIMPLE: dict[str, Callable[[Any], Callable[..., list[Any]]]] = {
    "Binarizer": _binarized,
    "KNNImputer": _imputed,
    "Normalizer": _normalized,
    "QuadraticDiscriminantAnalysis": _quadratic,
    "PowerTransformer": _powered,
    "RandomTreesEmbedding": _embedded,
    "TfidfTransformer": _weighted,
}


def _joined(inputs: Sequence[Any]) -> Any:
    """The features of all inputs."""
    return np.concatenate([astype(value, f64) for value in inputs], axis=-1)


def _label(estimator: Any, index: Any) -> Any:
    return chosen(np.asarray(estimator.classes_).tolist(), index)
