"""Kernels of one node in plain loops: moves, gathers, scatters, scans along an axis, sorts, reductions of any dtype."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mlaot.ir import Dim, Node
from mlaot.ir.dims import product
from mlaot.lower.emit import C_TYPES, Emitter, combine, neutral
from mlaot.lower.fuse import Group
from mlaot.lower.layout import Access, atom, linear, times
from mlaot.lower.program import Buffer, Plain
from mlaot.ops.indexing import scatter
from mlaot.ops.kinds import is_side_by_side, regrouped

SEVERAL_TIMES = ("scatter", "fold", "put_add")  # rounds of their loops may write to the same element
Table = tuple[str, tuple[int, ...]]
Lines = list[str]


def single_kernel(group: Group, accesses: Mapping[Node, Access], stores: Mapping[Node, Sequence[Buffer]]) -> Plain:
    """The kernel of a group of kind "single"."""
    emit = Emitter(group, accesses, stores)
    (node,) = group.nodes
    tables: list[Table] = []
    body: Lines = []
    old = accesses.get(node.arg(0)) if node.op is scatter else None
    for buffer in sorted(stores[node], key=lambda b: old is not None and b is old.buffer):  # overwritten last
        lines = KERNELS[node.op.name](_Writer(emit, node, buffer, tables, group.placed))
        body += lines if len(stores[node]) == 1 else ["{", *[f"    {line}" for line in lines], "}"]  # names of its own
    loops, body = outer_loops(body) if node.op.name not in SEVERAL_TIMES else ((), body)
    before = tuple(emit.once)
    return Plain(group.dtype, emit.params, tuple(dict.fromkeys(tables)), before, loops, tuple(body), emit.doc())


def outer_loops(body: Lines) -> tuple[tuple[tuple[str, str], ...], Lines]:
    """The loops around all of ``body``, and what they hold: each round writes elements of its own."""
    loops: list[tuple[str, str]] = []
    while head := re.fullmatch(r"for \(ptrdiff_t (\w+) = 0; \1 < (.+); \1\+\+\) \{", body[0] if body else ""):
        if any(line[0] != " " for line in body[1:-1]):
            break
        loops.append((head[1], head[2]))
        body = [line[4:] for line in body[1:-1]]
    return tuple(loops), body


def loop(variable: str, extent: Dim | str, body: Sequence[str], *, down: bool = False) -> Lines:
    """``body`` for each value of ``variable`` below ``extent``."""
    head = f"for (ptrdiff_t {variable} = 0; {variable} < {extent}; {variable}++) {{"
    if down:
        head = f"for (ptrdiff_t {variable} = {extent} - 1; {variable} >= 0; {variable}--) {{"
    return [head, *[f"    {line}" for line in body], "}"]


def indices(shape: Sequence[Dim]) -> list[str]:
    """A loop variable for each axis; an axis of one element needs none."""
    return ["0" if extent == 1 else f"i{i}" for i, extent in enumerate(shape)]


def nest(variables: Sequence[str], extents: Sequence[Dim], body: Sequence[str]) -> Lines:
    """``body`` inside a loop for each axis that has a variable."""
    lines = list(body)
    for variable, extent in reversed([*zip(variables, extents, strict=True)]):
        lines = lines if variable == "0" else loop(variable, extent, lines)
    return lines


class _Writer:
    """What the kernels below have in common: the node, its buffer, and C text of elements."""

    def __init__(self, emit: Emitter, node: Node, out: Buffer, tables: list[Table], placed: set[int]) -> None:
        self.emit = emit
        self.placed = placed  # arguments that lie where they would be copied to
        self.node = node
        self.out = out
        self.tables = tables
        self.attrs = node.attrs
        self.name = emit.buffer(out, written=True)
        self.ctype = C_TYPES[out.dtype]
        self.at = indices(node.type.shape)

    def arg(self, i: int) -> Node:
        return self.node.arg(i)

    def read(self, i: int, at: Sequence[str]) -> str:
        """The element of argument ``i`` at some indices."""
        return self.emit.value(self.arg(i), at)

    def element(self, at: Sequence[str], offset: Dim = 0) -> str:
        """The element of the result at some indices, ``offset`` elements further on."""
        return f"{self.name}[{linear([*zip(at, self.out.strides, strict=True)], offset)}]"

    def fill(self, value: str) -> Lines:
        return nest(self.at, self.node.type.shape, [f"{self.element(self.at)} = {value};"])


def _take(w: _Writer) -> Lines:
    lead = w.attrs.get("lead", 0)
    at, access = w.at[:lead], w.emit.access(w.arg(0))
    shape, flat = w.arg(0).type.shape[lead:], w.attrs["indices"].array.reshape(-1)
    target = _offsets(w.out.shape[lead:], w.out.strides[lead:])
    if all(isinstance(stride, int) for stride in access.strides[lead:]):
        source = _offsets(shape, access.strides[lead:])[flat]
        name = w.emit.buffer(access.buffer)
        read = f"{name}[{_base(at, access.strides, access.offset)}{_table(w.tables, source)}]"
    else:  # a view whose rows are as far apart as a named dim says
        read = w.read(0, [*at, *_unravel(f"({_table(w.tables, flat)})", shape)])
    write = f"{w.name}[{_base(at, w.out.strides)}{_table(w.tables, target)}]"
    return nest(at, w.node.type.shape[:lead], loop("e", flat.size, [f"{write} = {read};"]))


def _put_add(w: _Writer) -> Lines:
    lead = w.attrs["lead"]
    at, access = w.at[:lead], w.emit.access(w.arg(0))
    every = _offsets(w.out.shape[lead:], w.out.strides[lead:])
    target = every[w.attrs["indices"].array.reshape(-1)]
    shape, base = w.arg(0).type.shape[lead:], _base(at, w.out.strides)
    if all(isinstance(stride, int) for stride in access.strides[lead:]):
        source, name = _offsets(shape, access.strides[lead:]), w.emit.buffer(access.buffer)
        read = f"{name}[{_base(at, access.strides, access.offset)}{_table(w.tables, source)}]"
    else:
        read = w.read(0, [*at, *_unravel("e", shape)])
    clear = loop("e", every.size, [f"{w.name}[{base}{_table(w.tables, every)}] = 0;"])
    added = loop("e", target.size, [f"{w.name}[{base}{_table(w.tables, target)}] += {read};"])
    return nest(at, w.node.type.shape[:lead], clear + added)


def _offsets(shape: Sequence[Dim], strides: Sequence[Dim]) -> np.ndarray[Any, Any]:
    """The element offset of each element of the static axes of a buffer, in row-major order."""
    total = np.zeros(1, np.int64)
    for extent, stride in zip(shape, strides, strict=True):
        assert isinstance(extent, int) and isinstance(stride, int), "bug in mlaot: a table along a named dim"
        total = (total[:, None] + np.arange(extent) * stride).reshape(-1)
    return total


def _table(tables: list[Table], values: np.ndarray[Any, Any]) -> str:
    """C text of the n-th entry of a table; an arithmetic progression needs none."""
    steps = np.unique(np.diff(values)) if values.size > 1 else np.array([1])
    if len(steps) == 1:
        return linear([("e", int(steps[0]))], int(values[0])) if values.size else "0"
    entries = tuple(int(v) for v in values)
    name = next((name for name, known in tables if known == entries), f"table{len({n for n, _ in tables})}")
    tables.append((name, entries))
    return f"{name}[e]"


def _base(at: Sequence[str], strides: Sequence[Dim], offset: Dim = 0) -> str:
    text = linear([*zip(at, strides, strict=False)], offset)
    return "" if text == "0" else f"{text} + "


def _stack(w: _Writer) -> Lines:
    axis = w.attrs.get("axis", 0)
    at, shape = [a for i, a in enumerate(w.at) if i != axis], w.arg(0).type.shape if w.node.args else ()
    place = [*at[:axis], "0", *at[axis:]]
    copied = [i for i in range(len(w.node.args)) if i not in w.placed]
    lines = [f"{w.element(place, times(w.out.strides[axis], i))} = {w.read(i, at)};" for i in copied]
    return nest(at, shape, lines)


def _concat(w: _Writer) -> Lines:
    axis, start, lines = w.attrs.get("axis", 0), 0, []
    offset: Dim = start
    for i in range(len(w.node.args)):
        shape = w.arg(i).type.shape
        at = indices(shape)
        if i not in w.placed:
            copied = f"{w.element(at, times(w.out.strides[axis], offset))} = {w.read(i, at)};"
            lines += nest(at, shape, [copied])
        offset = shape[axis] + offset
    return lines


def _reshape(w: _Writer) -> Lines:
    """Both sides are walked along the shape with more axes; the other side's indices are made of these.

    They are where axes hold the same elements together, and in the worst case quotients of a flat index.
    """
    source, target = w.arg(0).type.shape, w.node.type.shape
    if 0 in target:
        return []
    is_spread = len(target) >= len(source)
    walked, other = (target, source) if is_spread else (source, target)
    at, split, lines = indices(walked), ["0"] * len(other), []
    for group in regrouped(source, target) or [([*range(len(source))], [*range(len(target))])]:
        mine, theirs = reversed(group) if is_spread else group
        flat = linear([(at[i], s) for i, s in zip(mine, _dense([walked[i] for i in mine]), strict=True)])
        if len(theirs) == 1:
            split[theirs[0]] = flat
            continue
        if not flat.isidentifier():
            lines.append(f"const ptrdiff_t e{mine[0]} = {flat};")
            flat = f"e{mine[0]}"
        for i, text in zip(theirs, _unravel(flat, [other[i] for i in theirs]), strict=True):
            split[i] = text
    read, write = (split, at) if is_spread else (at, split)
    return nest(at, walked, [*lines, f"{w.element(write)} = {w.read(0, read)};"])


def _dense(shape: Sequence[Dim]) -> list[Dim]:
    """Strides of a dense array."""
    return [product(tuple(shape[i + 1 :])) for i in range(len(shape))]


def _unravel(flat: str, shape: Sequence[Dim]) -> list[str]:
    """C text of the indices of the element number ``flat`` of a dense array."""
    found: list[str] = []
    for i, (extent, stride) in enumerate(zip(shape, _dense(shape), strict=True)):
        text = flat if stride == 1 else f"{flat} / ({stride})"
        whole = extent == 1 or all(d == 1 for d in shape[:i])
        found.append("0" if extent == 1 else text if whole else f"{text} % ({extent})")
    return [f"({text})" if " " in text else text for text in found]


def _slice_of(at: Sequence[str], low: Sequence[Dim], steps: Sequence[int], strides: Sequence[Dim]) -> str:
    """The element index of ``low + at * step``."""
    offset: Dim = 0
    for start, stride in zip(low, strides, strict=True):
        offset = times(stride, start) + offset
    return linear([(a, times(s, step)) for a, s, step in zip(at, strides, steps, strict=True)], offset)


def _pad(w: _Writer) -> Lines:
    """The value around the elements; these too, unless the kernel that computes them puts them there."""
    shape, low, value = w.arg(0).type.shape, w.attrs["low"], w.emit.value(w.arg(1), ())
    steps, at = [n + 1 for n in w.attrs["interior"]], indices(shape)
    around = w.fill(value) if any(w.attrs["interior"]) else _border(w, shape, low, w.attrs["high"], value)
    if 0 in w.placed:
        return around
    place = f"{w.name}[{_slice_of(at, low, steps, w.out.strides)}]"
    return around + nest(at, shape, [f"{place} = {w.read(0, at)};"])


def _border(w: _Writer, shape: Sequence[Dim], low: Sequence[Dim], high: Sequence[Dim], value: str) -> Lines:
    """Along each axis what is before and behind, as far as earlier axes have not covered it."""
    lines: Lines = []
    for i, (first, extent) in enumerate(zip(low, shape, strict=True)):
        for start, size in ((0, first), (first + extent, high[i])):
            if size != 0:
                starts = (*low[:i], start, *[0] * (len(shape) - i - 1))
                sizes = (*shape[:i], size, *w.node.type.shape[i + 1 :])
                at = indices(sizes)
                place = _slice_of(at, starts, (1,) * len(shape), w.out.strides)
                lines += nest(at, sizes, [f"{w.name}[{place}] = {value};"])
    return lines


def _fold(w: _Writer) -> Lines:
    shape, axes = w.arg(0).type.shape, w.attrs["axes"]
    at = indices(shape)
    terms = [*zip(at, w.out.strides, strict=False)]
    inside = at[w.node.type.rank :]
    for axis, k, stride, dilation in zip(axes, inside, w.attrs["strides"], w.attrs["dilations"], strict=True):
        terms[axis] = (at[axis], times(w.out.strides[axis], stride))
        terms.append((k, times(w.out.strides[axis], dilation)))
    if is_side_by_side(w.node):
        return nest(at, shape, [f"{w.name}[{linear(terms)}] = {w.read(0, at)};"])
    return w.fill("0") + nest(at, shape, [f"{w.name}[{linear(terms)}] += {w.read(0, at)};"])


def _index(w: _Writer, at: Sequence[str], size: Dim) -> Lines:
    """``e``: an index, counted from the end where it is negative."""
    text = w.read(1, at)
    if w.arg(1).type.dtype.name == "u64":
        return [f"const ptrdiff_t e = {text} > (uint64_t)PTRDIFF_MAX ? PTRDIFF_MAX : (ptrdiff_t){text};"]
    return [f"ptrdiff_t e = (ptrdiff_t){text};", f"e += e < 0 ? {atom(size)} : 0;"]


def _gather(w: _Writer) -> Lines:
    lead, rank = w.attrs["lead"], w.arg(1).type.rank
    size = w.arg(0).type.shape[lead]
    value = w.read(0, [*w.at[:lead], "inside", *w.at[rank:]])
    lines: Lines = []
    if "inside" in value:  # not all elements are the same
        lines = _index(w, w.at[:rank], size)
        lines.append(f"const ptrdiff_t inside = e < 0 ? 0 : e < {atom(size)} ? e : {atom(size - 1)};")
    copied = f"{w.element(w.at)} = {value if isinstance(size, int) else f'{atom(size)} > 0 ? {value} : 0'};"
    shape = w.node.type.shape
    return nest(w.at[:rank], shape[:rank], [*lines, *nest(w.at[rank:], shape[rank:], [copied])])


def _scatter(w: _Writer) -> Lines:
    lead, rank = w.attrs["lead"], w.arg(1).type.rank
    updates = w.arg(2).type.shape
    at = indices(updates)
    size = w.node.type.shape[lead]
    place = w.element([*at[:lead], "e", *at[rank:]])
    value = w.read(2, at)
    mode = w.attrs["mode"]
    change = f"{place} = {value if mode == 'set' else combine(mode, place, value, w.out.dtype)};"
    lines = [*_index(w, at[:rank], size), f"if (e >= 0 && e < {atom(size)}) {{", f"    {change}", "}"]
    change_rows = nest(at, updates, lines)
    old = w.emit.accesses.get(w.arg(0))
    if old is not None and old.buffer is w.out:
        return change_rows
    return nest(w.at, w.node.type.shape, [f"{w.element(w.at)} = {w.read(0, w.at)};"]) + change_rows


def _reduce(w: _Writer) -> Lines:
    shape, axes, name = w.arg(0).type.shape, w.attrs["axes"], w.node.op.name
    kept = iter(w.at)
    at = [f"k{i}" if i in axes else next(kept) for i in range(len(shape))]
    inner = [f"acc = {combine(name, 'acc', w.read(0, at), w.out.dtype)};"]
    body = nest([f"k{i}" for i in axes], [shape[i] for i in axes], inner)
    lines = [f"{w.ctype} acc = {neutral(name, w.out.dtype)};", *body, f"{w.element(w.at)} = acc;"]
    return nest(w.at, w.node.type.shape, lines)


def _extreme(w: _Writer) -> Lines:
    """The first of the largest or smallest elements; nan is more extreme than any number."""
    axis, shape = w.attrs["axis"], w.arg(0).type.shape
    dtype = w.arg(0).type.dtype.name
    at = [*w.at[:axis], "k", *w.at[axis:]]
    symbol = ">" if w.node.op.name == "argmax" else "<"
    better = f"now {symbol} best"
    if dtype in ("f32", "f64"):
        better = f"{better} || (now != now && best == best)"
    step = [f"const {C_TYPES[dtype]} now = {w.read(0, at)};", f"if ({better}) {{", "    best = now;", "    e = k;", "}"]
    first = w.read(0, [*w.at[:axis], "0", *w.at[axis:]])
    if not isinstance(shape[axis], int):
        first = f"{atom(shape[axis])} > 0 ? {first} : 0"
    lines = [f"{C_TYPES[dtype]} best = {first};", "int64_t e = 0;", *loop("k", shape[axis], step)]
    return nest(w.at, w.node.type.shape, [*lines, f"{w.element(w.at)} = e;"])


def _cumulate(w: _Writer) -> Lines:
    """Running sums and products, from either end, with or without the element itself."""
    axis, name = w.attrs["axis"], "sum" if w.node.op.name == "cumsum" else "prod"
    at, extent = _along(w, axis, "k"), w.node.type.shape[axis]
    value = combine(name, "acc", w.read(0, at), w.out.dtype)
    keep, step = f"{w.element(at)} = acc;", f"acc = {value};"
    inner = [keep, step] if w.attrs.get("exclusive") else [step, keep]
    start = neutral(name, w.out.dtype)
    if name == "sum" and w.out.dtype in ("f32", "f64") and not w.attrs.get("exclusive"):
        start = f"-{start}"  # what stands first stays as it is: 0 + -0 would be 0
    lines = [
        f"{w.ctype} acc = {start};",
        *loop("k", extent, inner, down=bool(w.attrs.get("reverse"))),
    ]
    return _around(w, axis, lines)


def _along(w: _Writer, axis: int, index: str) -> list[str]:
    return [*w.at[:axis], index, *w.at[axis + 1 :]]


def _around(w: _Writer, axis: int, lines: Lines) -> Lines:
    """``lines`` inside loops over the other axes."""
    others = [i for i in range(w.node.type.rank) if i != axis]
    return nest([w.at[i] for i in others], [w.node.type.shape[i] for i in others], lines)


def _recurrence(w: _Writer) -> Lines:
    axis = w.attrs["axis"]
    at, extent = _along(w, axis, "k"), w.node.type.shape[axis]
    first = f"{atom(extent)} - 1" if w.attrs.get("reverse") else "0"
    value = f"{w.read(1, at)} + {w.read(0, at)} * acc"
    step = [f"acc = k == {first} ? {w.read(1, at)} : {value};", f"{w.element(at)} = acc;"]
    lines = [f"{w.ctype} acc = 0;", *loop("k", extent, step, down=bool(w.attrs.get("reverse")))]
    return _around(w, axis, lines)


def _argsort(w: _Writer) -> Lines:
    """Heap sort of the indices, in place; equal elements by index, as in the stable order; nan is the largest."""
    axis, dtype = w.attrs["axis"], w.arg(0).type.dtype.name
    extent = atom(w.node.type.shape[axis])

    def index(text: str) -> str:
        return w.element(_along(w, axis, text))

    def key(text: str) -> str:
        return w.read(0, _along(w, axis, text))

    symbol, largest = ("<", "right") if w.attrs.get("descending") else (">", "left")
    after = f"left {symbol} right || (left == right && one > two)"
    if dtype in ("f32", "f64"):
        after = f"(left != left) != (right != right) ? {largest} != {largest} : {after} || (left != left && one > two)"

    def compare(first: str, second: str, then: Sequence[str]) -> Lines:
        ctype = C_TYPES[dtype]
        return [
            f"one = {first};",
            f"two = {second};",
            "{",
            f"    const {ctype} left = {key('one')}, right = {key('two')};",
            f"    is_after = {after};",
            "}",
            *then,
        ]

    sift = [
        "for (ptrdiff_t root = start;;) {",
        "    ptrdiff_t child = 2 * root + 1, one, two;",
        "    int is_after;",
        "    if (child >= end) {",
        "        break;",
        "    }",
        "    if (child + 1 < end) {",
        *[f"        {x}" for x in compare(index("(child + 1)"), index("child"), ["child += is_after;"])],
        "    }",
        *[f"    {x}" for x in compare(index("child"), index("root"), ["if (!is_after) {", "    break;", "}"])],
        f"    {index('child')} = two;",
        f"    {index('root')} = one;",
        "    root = child;",
        "}",
    ]
    lines = [
        *loop("k", extent, [f"{index('k')} = k;"]),
        f"for (ptrdiff_t start = {extent} / 2, end = {extent}; end > 1;) {{",
        "    if (start > 0) {",
        "        start--;",
        "    } else {",
        "        end--;",
        f"        const int64_t last = {index('end')};",
        f"        {index('end')} = {index('0')};",
        f"        {index('0')} = last;",
        "    }",
        *[f"    {line}" for line in sift],
        "}",
    ]
    return _around(w, axis, lines)


def _one_hot(w: _Writer) -> Lines:
    text = f"(int64_t){w.read(0, w.at[:-1])} == {w.at[-1]}"
    half = {"f16": "0x3c00", "bf16": "0x3f80"}.get(w.out.dtype)
    return w.fill(f"{text} ? {half} : 0" if half else f"({w.ctype})({text})")


def _iota(w: _Writer) -> Lines:
    return w.fill(f"({w.ctype}){w.at[w.attrs['axis']]}")


def _random_bits(w: _Writer) -> Lines:
    flat = linear([*zip(w.at, _dense(w.node.type.shape), strict=True)])
    keys = [w.read(0, [str(i)]) for i in (0, 1)]
    value = f"threefry({keys[0]}, {keys[1]}, (uint64_t)({flat}), {w.attrs['site']}u)"
    return w.fill(value)


KERNELS: dict[str, Callable[[_Writer], Lines]] = {
    "take": _take,
    "put_add": _put_add,
    "stack": _stack,
    "concat": _concat,
    "reshape": _reshape,
    "pad": _pad,
    "fold": _fold,
    "gather": _gather,
    "scatter": _scatter,
    **dict.fromkeys(("sum", "prod", "max", "min"), _reduce),
    **dict.fromkeys(("argmax", "argmin"), _extreme),
    **dict.fromkeys(("cumsum", "cumprod"), _cumulate),
    "linear_recurrence": _recurrence,
    "argsort": _argsort,
    "iota": _iota,
    "one_hot": _one_hot,
    "random_bits": _random_bits,
}
