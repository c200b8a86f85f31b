"""Models of unusual form, in one wheel."""

import numpy as np

import mlaot

rng = np.random.default_rng(0)
double = mlaot.parameters({"w": rng.normal(size=(8, 5)), "b": rng.normal(size=5)})
single = mlaot.parameters({"w": np.float32(rng.normal(size=(8, 5))), "b": np.float32(rng.normal(size=5))})
wide = mlaot.parameters({"w": np.float32(rng.normal(size=(300, 100)))})  # 120 KB: embedded by the assembler
both = mlaot.parameters({"w": np.float32(rng.normal(size=8)), "b": rng.normal(size=8), "idle": np.ones(3)})
rows, columns = mlaot.dim("rows"), mlaot.dim("columns")


@mlaot.model
def mixed(x: mlaot.f32[8]):
    return np.tanh(x @ double["w"] + double["b"])


@mlaot.model
def pair(x: mlaot.f32[8]):
    scores = x @ single["w"] + single["b"]
    return scores, mlaot.softmax(scores)


@mlaot.model
def named(x: mlaot.f32[8]):
    scores = x @ single["w"] + single["b"]
    return {"scores": scores, "chances": mlaot.softmax(scores)}


@mlaot.model
def bare(x: mlaot.f64[3], y: mlaot.f64[3]):
    return np.exp(x) * y - 1


@mlaot.model
def counted(x: mlaot.f32[rows, 8]):
    return np.maximum(x @ single["w"], 0)


@mlaot.model
def grid(x: mlaot.f64[rows, 8], y: mlaot.f64[8, columns]):
    return x @ y


def distance(out, y: mlaot.f32[8], unread: mlaot.f32):
    return ((out - y) ** 2).sum()


@mlaot.model(loss=distance)
def spare(x: mlaot.f32[8], unread_too: mlaot.i32[3]):
    return x * single["w"].sum(1)


@mlaot.model(loss=lambda out: (out * out).sum(), parameters=both)
def kinds(x: mlaot.f32[8]):
    return x * both["w"] + both["b"]


@mlaot.model
def large(x: mlaot.f32[300]):
    return x @ wide["w"]
