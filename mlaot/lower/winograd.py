"""3x3 convolutions by Winograd's transforms, block by block, so that what lies between them stays in the cache.

for each image, for each block of rows of tiles:
    V = B^T d B of each tile d of x          a kernel: lanes along the channels, the values of a tile in variables
    M = V u for each component of a tile     a contraction
    Y = A^T M A                              a kernel, with an elementwise epilogue

A transform on its own is such a kernel too, over all tiles at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from mlaot.ir import DTYPES, Dim, Graph, Node, Type, dim
from mlaot.lower.contraction import contraction_kernel
from mlaot.lower.emit import C_TYPES, Emitter
from mlaot.lower.fuse import Group
from mlaot.lower.layout import Access, linear
from mlaot.lower.plain import loop
from mlaot.lower.program import Buffer, Loop, Plain, Step
from mlaot.lower.program import Sequence as Steps
from mlaot.lower.sparse import tidy
from mlaot.ops import reduction as red
from mlaot.ops.kinds import base_of, is_free
from mlaot.ops.winograd import INPUT, OUTPUT, Matrix, products_of, winograd_input, winograd_output
from mlaot.schedule.machine import LINE, REFERENCE
from mlaot.schedule.tuning import WINOGRAD_SHARE
from mlaot.spelling import literal

NEAR = int(REFERENCE.caches.second * WINOGRAD_SHARE)  # bytes

Accesses = Mapping[Node, Access]
Stores = Mapping[Node, Sequence[Buffer]]
Lines = list[str]


@dataclass(frozen=True)
class Block:
    """Some rows of tiles of an image: C text of its indices, the first row and how many there are."""

    image: tuple[str, ...]
    first: Dim
    rows: int


def winograd_steps(group: Group, accesses: Accesses, stores: Stores, depth: int) -> Step:
    """The steps of a group of kind "winograd"; ``depth`` counts the loops around it."""
    transform = next(n for n in group.nodes if n.op in (winograd_input, winograd_output))
    tiles = (transform if transform.op is winograd_input else transform.arg(0)).type
    images, rows = tiles.shape[1:-4], _known(tiles.shape[-4])
    image = tuple("0" if extent == 1 else f"round{depth + i}" for i, extent in enumerate(images))
    found = next((p for n in group.nodes if (p := products_of(n)) and p[0] in group.members), None)
    if found is not None:
        variable = f"round{depth + len(images)}"
        steps = _blocks(_Convolution(group, *found, accesses, stores), image, rows, variable)
    else:
        kernel = _input_kernel if transform.op is winograd_input else _output_kernel
        steps = (kernel(group, accesses, stores, Block(image, 0, rows)),)
    for name, extent in reversed([*zip(image, images, strict=True)]):
        steps = steps if name == "0" else (Loop(name, extent, (), None, steps, ()),)
    return Steps(steps)


def _known(extent: Dim) -> int:
    assert isinstance(extent, int), f"bug in mlaot: maps of {extent} by Winograd's transforms"
    return extent


def _blocks(convolution: _Convolution, image: tuple[str, ...], rows: int, variable: str) -> tuple[Step, ...]:
    """The steps of an image."""
    height = convolution.height
    v, m = (_buffer(n, height) for n in (convolution.v, convolution.m))
    if height == rows:
        return convolution.steps(Block(image, 0, height), v, m)
    itemsize = DTYPES[v.dtype].itemsize
    both = Buffer("tiles", v.dtype, ((_known(v.bytes) + _known(m.bytes)) // itemsize,), (1,), "work")
    v = replace(v, where="slice", within=both)
    m = replace(m, where="slice", within=both, start=_known(v.bytes) // itemsize)
    block = Block(image, dim(variable) * height, height)
    return (Loop(variable, rows // height, (), None, convolution.steps(block, v, m), (), apart=both),)


@dataclass(frozen=True)
class _Convolution:
    """Both transforms with the products between them; ``v`` and ``m`` are of all tiles."""

    group: Group
    v: Node
    m: Node
    accesses: Accesses
    stores: Stores

    @property
    def height(self) -> int:
        """Rows of tiles of a block."""
        weights = _known(self.accesses[self.m.arg(1)].buffer.bytes)
        return block_height(
            _known(self.v.type.shape[-4]),
            weights,
            lambda height: sum(_known(_buffer(n, height).bytes) for n in (self.v, self.m)),
        )

    def steps(self, block: Block, v: Buffer, m: Buffer) -> tuple[Step, ...]:
        """The three kernels of a block, with all its tiles along one axis between them, in ``v`` and ``m``."""
        u = self.m.arg(1)
        graph = Graph("block")
        operands = graph.input("v", Type(self.v.type.dtype, v.shape)), graph.input("u", u.type)
        products = red.contract(*operands, spec="ztCc,zOCco->ztOo")
        group = Group("contraction", 1, v.dtype, products.type.shape, None, [products], {products})
        known = {operands[0]: Access(v, v.strides), operands[1]: self.accesses[u]}
        accesses = {**self.accesses, self.m: Access(m, m.strides)}
        last = [n for n in self.group.nodes if n not in (self.v, self.m)]
        return (
            _input_kernel(_part(self.group, [self.v]), self.accesses, {self.v: [v]}, block),
            contraction_kernel(group, known, {products: [m]}),
            _output_kernel(_part(self.group, last), accesses, self.stores, block),
        )


def block_height(rows: int, weights: int, between: Callable[[int], int]) -> int:
    """Rows of tiles of a block, of equal blocks the largest that move the fewest bytes from behind the cache.

    What is ``between`` the kernels does where it does not fit it, farther where it does not fit the next one either,
    and the weights for each block where both together do not.
    """

    def moved(height: int) -> int:
        inside = between(height)
        again = rows // height if weights + inside > NEAR else 1
        distance = 0 if inside <= NEAR else 1 if inside <= REFERENCE.caches.third else REFERENCE.memory
        return again * weights + 2 * rows // height * inside * distance

    return min((k for k in range(rows, 0, -1) if rows % k == 0), key=moved)


def _part(group: Group, nodes: list[Node]) -> Group:
    """The group of one kernel of several."""
    return Group(group.kind, group.level, group.dtype, group.rows, None, nodes, set(nodes))


def _buffer(node: Node, rows: int) -> Buffer:
    """Memory for some rows of tiles, [component, tile, block, channel]: channels first, then tiles, then blocks.

    Components lie an odd number of cache lines apart: they are written together, and so fall into different sets of a
    first-level cache.
    """
    columns, blocks, block = map(_known, node.type.shape[-3:])
    shape = (_known(node.type.shape[0]), columns * rows, blocks, block)
    line = LINE // node.type.dtype.itemsize
    plane = (shape[1] * shape[2] * shape[3] // line | 1) * line
    return Buffer("tiles", node.type.dtype.name, shape, (plane, shape[3], shape[1] * shape[3], 1), "work")


class _Kernel:
    """What the kernels of both transforms have in common: loops over blocks of channels, rows and columns of tiles."""

    def __init__(self, group: Group, accesses: Accesses, stores: Stores, block: Block) -> None:
        self.group = group
        self.node = group.nodes[0]
        self.emit = Emitter(group, accesses, stores)
        self.stores = stores
        self.block = block
        self.m: int = self.node.attrs["m"]
        tiles = (self.node if self.node.op is winograd_input else self.node.arg(0)).type.shape
        self.rows, self.columns, self.blocks, self.channels = map(_known, tiles[-4:])

    def plain(self, low: Sequence[int], body: Lines) -> Plain:
        """The kernel; ``body`` sees the row and the column where a tile begins, ``low`` before its first result."""
        row, column = (dim("i1") + self.block.first) * self.m - low[0], dim("i2") * self.m - low[1]
        loops = (("i0", str(self.blocks)), ("i1", str(self.block.rows)), ("i2", str(self.columns)))
        corner = f"const ptrdiff_t row = {row}, column = {column};".replace("+ -", "- ")
        text = (corner, *map(tidy, body))
        return Plain(self.group.dtype, self.emit.params, (), tuple(self.emit.once), loops, text, self.emit.doc())

    def tile(self, component: int, rank: int) -> list[str]:
        """Indices of a component of a tile: among the tiles of a block, or among those of all images."""
        if rank == 4:
            return [str(component), f"i1 * {self.columns} + i2", "i0", "j"]
        return [str(component), *self.block.image, "i1", "i2", "i0", "j"]

    def vectors(self, body: Sequence[str]) -> Lines:
        """``body`` for each vector of channels."""
        step = f"(ptrdiff_t)(sizeof({self.emit.vector}) / sizeof({C_TYPES[self.group.dtype]}))"
        return [f"for (ptrdiff_t j = 0; j < {self.channels}; j += {step}) {{", *[f"    {x}" for x in body], "}"]

    def transform(self, matrix: Matrix, tile: Sequence[str], result: Callable[[int, int], Lines]) -> Lines:
        """``matrix x matrix^T`` of the vectors ``tile``, row by row, in variables; ``result`` takes ``c<i>_<j>``."""
        height, width, vector = len(matrix), len(matrix[0]), self.emit.vector
        name = count()
        lines: Lines = []
        for j in range(width):
            lines += [f"const {vector} a{i}_{j} = {tile[i * width + j]};" for i in range(width)]
            given, found = [f"a{i}_{j}" for i in range(width)], [f"b{i}_{j}" for i in range(height)]
            lines += [f"const {vector} {x};" for x in times(matrix, given, found, self.group.dtype, name)]
        for i in range(height):
            given, found = [f"b{i}_{j}" for j in range(width)], [f"c{i}_{j}" for j in range(height)]
            lines += [f"const {vector} {x};" for x in times(matrix, given, found, self.group.dtype, name)]
            lines += [line for j in range(height) for line in result(i, j)]
        return lines

    def epilogue(self, value: str, at: Callable[[int], list[str]]) -> Lines:
        """Take ``value`` through the elementwise nodes into the buffers; ``at`` gives the indices by their number."""
        emit, vector = self.emit, self.emit.vector
        lines: Lines = []
        values = {self.node: value}
        loaded: dict[Node, str] = {}

        def operand(node: Node) -> str:
            base = base_of(node)
            if base in values:
                return values[base]
            if is_free(base):
                return emit.splat_once(base)
            if node not in loaded:
                loaded[node] = f"x{len(loaded)}"
                text = emit.load(emit.access(node), at(node.type.rank), node.type.rank - 1, None)
                lines.append(f"const {vector} {loaded[node]} = {text};")
            return loaded[node]

        for n in self.group.nodes:
            if n is not self.node:
                text = emit.expression(n, [operand(a.find()) for a in n.args], vector=True)
                values[n] = emit.names[n]
                lines.append(f"const {vector} {values[n]} = {text};")
            for buffer in self.stores.get(n, ()):
                rank = len(buffer.strides)
                lines.append(emit.store(buffer, at(rank), values[n], rank - 1, None))
        return lines


def times(matrix: Matrix, x: Sequence[str], y: Sequence[str], dtype: str, name: Iterator[int]) -> Lines:
    """``y = matrix x`` as C assignments; further variables are ``r<name>``.

    The points a and -a differ in the signs of odd powers: two rows, or two columns, share their even and odd parts.
    """
    lines: Lines = []

    def value(terms: Sequence[tuple[float, str]]) -> str:
        text = ""
        for factor, term in sorted(terms, key=lambda t: t[0] < 0):
            scaled = term if abs(factor) == 1 else f"{literal(abs(factor), dtype)} * {term}"
            text += f" {'-' if factor < 0 else '+'} {scaled}" if text else scaled
        return text

    def define(text: str) -> str:
        if text.isidentifier():
            return text
        lines.append(f"r{next(name)} = {text}")
        return lines[-1].partition(" ")[0]

    columns = [*zip(*matrix, strict=True)]
    terms: list[list[tuple[float, str]]] = [[] for _ in y]
    shared: list[str] = []  # by even and by odd rows, of a column and the one before it
    for j, column in enumerate(columns):
        if shared:
            shared = []
            continue
        if j + 1 < len(columns) and columns[j + 1] == _flipped(column):
            shared = [define(f"{x[j]} {sign} {x[j + 1]}") for sign in "+-"]
        for i, factor in enumerate(column):
            terms[i] += [(factor, shared[i % 2] if shared else x[j])] if factor else []
    for i, row in enumerate(matrix):
        if i and row == _flipped(matrix[i - 1]):
            even, odd = (define(value([t for t in terms[i - 1] if x.index(t[1]) % 2 == side])) for side in (0, 1))
            lines += [f"{y[i - 1]} = {even} + {odd}", f"{y[i]} = {even} - {odd}"]
        elif i + 1 == len(y) or matrix[i + 1] != _flipped(row):
            lines.append(f"{y[i]} = {value(terms[i])}")
    return lines


def _flipped(values: Sequence[float]) -> tuple[float, ...]:
    """Every other one with its sign changed."""
    return tuple(-v if i % 2 else v for i, v in enumerate(values))


def _braced(head: str, lines: Sequence[str]) -> Lines:
    return [f"{head} {{".strip(), *[f"    {line}" for line in lines], "}"]


def _input_kernel(group: Group, accesses: Accesses, stores: Stores, block: Block) -> Plain:
    """V of a block. What a tile needs is read where it lies; at a border, from a copy with zeros around it."""
    k = _Kernel(group, accesses, stores, block)
    x, size, emit, vector = k.node.arg(0), k.m + 2, k.emit, k.emit.vector
    access = emit.access(x)
    low = k.node.attrs["low"]
    inside: list[str] = []  # tests: the whole tile is in the map
    within: list[str] = []  # tests: one value of it is
    axes = zip(("row", "column"), ("k0", "k1"), low, map(_known, x.type.shape[-3:-1]), (k.rows, k.columns), strict=True)
    for first, offset, before, extent, many in axes:
        if before:
            inside.append(f"{first} >= 0")
            within.append(f"{first} + {offset} >= 0")
        if many * k.m + 2 - before > extent:
            inside.append(f"{first} <= {extent - size}")
            within.append(f"{first} + {offset} < {extent}")
    value = emit.load(access, [*block.image, "i0", "row + k0", "column + k1", "j"], x.type.rank - 1, None)
    body: Lines = []
    is_direct = access.strides[-2:] == (k.channels, 1)  # rows of the map are as those of the copy
    source, pitch = "halo", str(size * k.channels)
    if is_direct:
        offset = linear(zip((*block.image, "i0", "row", "column"), access.strides, strict=False), access.offset)
        source, pitch = f"{emit.buffer(access.buffer)} + {offset}", str(access.strides[-3])
    if inside or not is_direct:
        body.append(f"{C_TYPES[group.dtype]} halo[{size * size * k.channels}];")
        copy = [f"{vector} acc = splat_{vector}({literal(0.0, group.dtype)});"] if within else []
        copy += _braced(f"if ({' && '.join(within)})", [f"acc = {value};"]) if within else [f"{vector} acc = {value};"]
        copy.append(f"store_{vector}(halo + (k0 * {size} + k1) * {k.channels} + j, acc);")
        copied = loop("k0", size, loop("k1", size, k.vectors(copy)))
        if is_direct:
            body.append(f"const int inside = {' && '.join(inside)};")
            copied = _braced("if (!inside)", copied)
            source, pitch = f"inside ? {source} : halo", f"inside ? {pitch} : {size * k.channels}"
        body += copied
    body.append(f"const {C_TYPES[group.dtype]} *p = {source};")
    if "?" in pitch:
        body.append(f"const ptrdiff_t pitch = {pitch};")
        pitch = "pitch"
    tile = []
    for i in range(size):
        for j in range(size):
            rows = linear([(pitch, i)]) if pitch == "pitch" else str(i * int(pitch))
            tile.append(f"load_{vector}(p + {linear([(rows, 1), ('j', 1)], j * k.channels)})")

    def result(i: int, j: int) -> Lines:
        lines = k.epilogue(f"c{i}_{j}", lambda rank: k.tile(i * size + j, rank))
        return _braced("", lines) if len(lines) > 1 else lines

    return k.plain(low, body + k.vectors(k.transform(INPUT[k.m], tile, result)))


def _output_kernel(group: Group, accesses: Accesses, stores: Stores, block: Block) -> Plain:
    """Y of a block, as far as the maps go, through the epilogue."""
    k = _Kernel(group, accesses, stores, block)
    size, access = k.m + 2, k.emit.access(k.node.arg(0))
    rank = len(access.strides)
    tile = [k.emit.load(access, k.tile(z, rank), rank - 1, None) for z in range(size * size)]
    last = [extent - (many - 1) * k.m for extent, many in zip(k.node.attrs["size"], (k.rows, k.columns), strict=True)]

    def result(i: int, j: int) -> Lines:
        at = [*block.image, "i0", f"row + {i}" if i else "row", f"column + {j}" if j else "column", "j"]
        lines = k.epilogue(f"c{i}_{j}", lambda _: at)
        axes = zip((i, j), at[-3:-1], last, k.node.attrs["size"], strict=True)
        tests = [f"{index} < {extent}" for offset, index, left, extent in axes if offset >= left]
        return _braced(f"if ({' && '.join(tests)})" if tests else "", lines) if tests or len(lines) > 1 else lines

    return k.plain((0, 0), k.vectors(k.transform(OUTPUT[k.m], tile, result)))
