"""Sparse rows, such as the terms of texts beside other features, for computation without their zeros."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.numpy import astype, scatter, zeros
from mlaot.ir.types import f64
from mlaot.onnx.ops.ml import take


@dataclass(frozen=True)
class Words:
    """The ``values`` [batch, words] of the features at some ``places``, of ``size``; all others are 0.

    A row with fewer features has values of 0 at arbitrary places.
    """

    places: Any
    values: Any
    size: int
    ndim = 2
    dtype = f64

    @property
    def shape(self) -> tuple[Any, int]:
        """The rows and the features."""
        return (self.values.shape[0], self.size)

    def toarray(self) -> Any:
        """Return rows with all features."""
        return scatter(zeros(self.shape, f64), self.places, self.values, lead=1, mode="add")

    todense = toarray

    def map(self, function: Callable[[Any], Any]) -> Words:
        """Apply to each value a function that is 0 at 0."""
        return replace(self, values=function(self.values))

    def __matmul__(self, matrix: Any) -> Any:
        self._check(matrix)
        if matrix.ndim == 1:
            return np.sum(self.values * take(matrix, self.places), axis=-1)
        if matrix.shape[1] == 1:
            return np.expand_dims(self @ matrix[:, 0], -1)
        return np.sum(np.expand_dims(self.values, -1) * take(matrix, self.places, axis=0), axis=1)

    def __mul__(self, other: Any) -> Words:
        return replace(self, values=self.values * self._at_places(other))

    def __truediv__(self, other: Any) -> Words:
        return replace(self, values=self.values / self._at_places(other))

    def _at_places(self, other: Any) -> Any:
        if np.ndim(other) != 1:
            return other
        self._check(other)
        return take(other, self.places)

    def _check(self, other: Any) -> None:
        """Raise an error for arrays with another number of features, in which places could be looked up nonetheless."""
        if other.shape[0] != self.size:
            raise MlaotError(f"expected {self.size} features of texts, got {other.shape[0]}")

    def __getitem__(self, key: tuple[slice, Any]) -> Any:
        """Return some columns, ``[:, places]``."""
        chosen = np.arange(self.size)[key[1]]
        if len(np.unique(chosen)) < len(chosen):
            return self.toarray()[:, chosen]
        new = np.full(self.size, -1)
        new[chosen] = np.arange(len(chosen))
        places = take(new, self.places)
        return Words(np.maximum(places, 0), np.where(places >= 0, self.values, 0.0), len(chosen))


@dataclass(frozen=True)
class Beside:
    """Concatenated features: words, and rows of floats."""

    parts: Sequence[Any]
    ndim = 2
    dtype = f64

    @property
    def shape(self) -> tuple[Any, int]:
        """The rows and the features."""
        return (self.parts[0].shape[0], sum(part.shape[1] for part in self.parts))

    @property
    def values(self) -> Any:
        """All values that may not be 0."""
        return np.concatenate([part.values if is_sparse(part) else part for part in self.parts], axis=-1)

    def toarray(self) -> Any:
        """Return rows with all features."""
        return np.concatenate([part.toarray() if is_sparse(part) else part for part in self.parts], axis=-1)

    todense = toarray

    def map(self, function: Callable[[Any], Any]) -> Beside:
        """Apply to each value a function that is 0 at 0."""
        return Beside([part.map(function) if is_sparse(part) else function(part) for part in self.parts])

    def __matmul__(self, matrix: Any) -> Any:
        first, *rest = (part @ matrix[begin:end] for part, begin, end in self._spans())
        return sum(rest, start=first)

    def __mul__(self, other: Any) -> Beside:
        return Beside([part * _between(other, begin, end) for part, begin, end in self._spans()])

    def __truediv__(self, other: Any) -> Beside:
        return Beside([part / _between(other, begin, end) for part, begin, end in self._spans()])

    def __getitem__(self, key: tuple[slice, Any]) -> Any:
        chosen = np.arange(self.shape[1])[key[1]]
        if (np.diff(chosen) <= 0).any():
            return self.toarray()[:, chosen]
        inside = [(part, chosen[(chosen >= begin) & (chosen < end)] - begin) for part, begin, end in self._spans()]
        return beside([part[:, places] for part, places in inside if len(places)])

    def _spans(self) -> Iterator[tuple[Any, int, int]]:
        """Yield each part with the start and end of its features."""
        end = 0
        for part in self.parts:
            begin, end = end, end + part.shape[1]
            yield part, begin, end


def _between(values: Any, begin: int, end: int) -> Any:
    return values[begin:end] if np.ndim(values) == 1 else values


def is_sparse(x: Any) -> bool:
    """Tell whether rows are words, or have words among them."""
    return isinstance(x, Words | Beside)


def values_of(x: Any) -> Any:
    """Return all values that may not be 0, which determine the norms of rows."""
    return x.values if is_sparse(x) else x


def mapped(function: Callable[[Any], Any], x: Any) -> Any:
    """Apply a function that is 0 at 0."""
    return x.map(function) if is_sparse(x) else function(x)


def beside(parts: Sequence[Any]) -> Any:
    """Join columns of floats, integers and booleans, and words."""
    if any(map(is_sparse, parts)):
        return parts[0] if len(parts) == 1 else Beside([p if is_sparse(p) else astype(p, f64) for p in parts])
    is_single = all(part.dtype == parts[0].dtype for part in parts)
    return np.concatenate([part if is_single else astype(part, np.float64) for part in parts], axis=-1)


def squared_distances(x: Any, points: Any) -> Any:
    """Return the squares of Euclidean distances of sparse rows, computed by products as in scikit-learn."""
    lengths = np.sum(points * points, axis=-1) + np.sum(x.values * x.values, axis=-1, keepdims=True)
    return np.maximum(lengths - 2 * (x @ points.T), 0.0)
