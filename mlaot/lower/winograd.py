"""3x3 convolutions by Winograd's transforms, block by block, so that values between the kernels stay in the cache.

    for each image, for each block of rows of tiles:
        V = B^T d B of each tile d of x          a kernel: lanes along the channels, the values of a tile in variables
        M = V u for each component of a tile     a contraction
        Y = A^T M A                              a kernel, with an elementwise epilogue

A transform by itself is also such a kernel, over all tiles at once.

F(m x m, 3 x 3) computes m x m results of a 3 x 3 filter g from a tile d of (m + 2) x (m + 2) values: Y = A^T ((G g G^T)
* (B^T d B)) A, where * is elementwise. It needs (m + 2)^2 products instead of 9 m^2, for m = 2 16 instead of 36. Summed
over input channels, * is a contraction for each of the (m + 2)^2 components of a tile (Lavin and Gray, Fast Algorithms
for Convolutional Neural Networks, 2016).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import count

from mlaot.ir import DTYPES, Dim, Graph, Node, Type, dim
from mlaot.ir.dims import nominal, nonnegative
from mlaot.lower.builder import Accesses, Builder, Stores
from mlaot.lower.contraction import contraction_kernel
from mlaot.lower.fuse import Group
from mlaot.lower.layout import Access
from mlaot.lower.program import Buffer, Kernel, Loop, Step, Steps
from mlaot.nest.expressions import BOOL, INDEX, Array, Call, Expr, Index, ValueType, Var, cast, compare, const, select
from mlaot.nest.statements import Alloc, Block, Body, Choose, For, If, Let, Statement, Store, around, loop
from mlaot.ops import reduction as red
from mlaot.ops.nests.target import place
from mlaot.ops.winograd import INPUT, OUTPUT, Matrix, products_of, winograd_input, winograd_output
from mlaot.schedule.machine import LINE, REFERENCE
from mlaot.schedule.tuning import OPEN_HEIGHT, WINOGRAD_SHARE

NEAR = int(REFERENCE.caches.second * WINOGRAD_SHARE)  # bytes


@dataclass(frozen=True)
class TileRows:
    """Some rows of tiles of an image: the loop variables of the image, the first row, and the number of rows."""

    image: tuple[str, ...]
    first: Dim
    rows: Dim


def winograd_steps(group: Group, accesses: Accesses, stores: Stores, depth: int) -> Step:
    """Return the steps of a group of kind "winograd"; ``depth`` counts the loops around it."""
    transform = next(n for n in group.nodes if n.op in (winograd_input, winograd_output))
    tiles = (transform if transform.op is winograd_input else transform.arg(0)).type
    images, rows = tiles.shape[1:-4], tiles.shape[-4]
    image = tuple("0" if extent == 1 else f"round{depth + i}" for i, extent in enumerate(images))
    products = next((p for n in group.nodes if (p := products_of(n)) and p[0] in group.members), None)
    if products is not None:
        variable = f"round{depth + len(images)}"
        steps = _blocks(_Convolution(group, *products, accesses, stores), image, rows, variable)
    else:
        kernel = _input_kernel if transform.op is winograd_input else _output_kernel
        steps = (kernel(group, accesses, stores, TileRows(image, 0, rows)),)
    for name, extent in reversed([*zip(image, images, strict=True)]):
        steps = steps if name == "0" else (Loop(name, extent, (), None, steps, ()),)
    return Steps(steps)


def _blocks(convolution: _Convolution, image: tuple[str, ...], rows: Dim, variable: str) -> tuple[Step, ...]:
    """Return the steps of an image, one block of rows of tiles at a time.

    With a dynamic size, the last block is smaller.
    """
    height = convolution.height
    rest = rows - rows // height * height
    v, m = convolution.tiles(height)
    if height == rows:
        return convolution.steps(TileRows(image, 0, height), v, m)
    itemsize = DTYPES[v.dtype].itemsize
    both = Buffer("tiles", v.dtype, ((v.bytes + m.bytes) // itemsize,), (1,), "work")
    v = replace(v, where="slice", within=both)
    m = replace(m, where="slice", within=both, start=v.bytes // itemsize)
    block = TileRows(image, dim(variable) * height, height)
    loop = Loop(variable, rows // height, (), None, convolution.steps(block, v, m), (), private=both)
    last = convolution.steps(TileRows(image, rows - rest, rest), *convolution.tiles(rest)) if rest != 0 else ()
    return (loop, *last)


@dataclass(frozen=True)
class _Convolution:
    """Both transforms with the products between them; ``v`` and ``m`` are the nodes of all tiles."""

    group: Group
    v: Node
    m: Node
    accesses: Accesses
    stores: Stores

    def tiles(self, rows: Dim) -> tuple[Buffer, Buffer]:
        """Return memory for some rows of ``v`` and of ``m``."""
        return _buffer(self.v, rows), _buffer(self.m, rows)

    @property
    def height(self) -> int:
        """The number of rows of tiles of a block."""
        rows, weights = self.v.type.shape[-4], nominal(self.accesses[self.m.arg(1)].buffer.bytes)
        if not isinstance(rows, int):
            return OPEN_HEIGHT if weights > NEAR else 1
        return block_height(rows, weights, lambda height: sum(nominal(tiles.bytes) for tiles in self.tiles(height)))

    def steps(self, block: TileRows, v: Buffer, m: Buffer) -> tuple[Step, ...]:
        """Return the three kernels of a block, whose tiles lie along one axis of ``v`` and ``m`` between them."""
        u = self.m.arg(1)
        graph = Graph("block")
        operands = graph.input("v", Type(self.v.type.dtype, v.shape)), graph.input("u", u.type)
        products = red.contract(*operands, spec="ztCc,zOCco->ztOo")
        group = Group("contraction", 1, v.dtype, products.type.shape, nodes=[products], members={products})
        operand_accesses = {operands[0]: Access(v, v.strides), operands[1]: self.accesses[u]}
        accesses = {**self.accesses, self.m: Access(m, m.strides)}
        output_nodes = [n for n in self.group.nodes if n not in (self.v, self.m)]
        return (
            _input_kernel(_part(self.group, [self.v]), self.accesses, {self.v: [v]}, block),
            contraction_kernel(group, operand_accesses, {products: [m]}),
            _output_kernel(_part(self.group, output_nodes), accesses, self.stores, block),
        )


def block_height(rows: int, weights: int, between: Callable[[int], int]) -> int:
    """Return the number of rows of tiles of a block: the largest with the least traffic, for blocks of equal size.

    Traffic is the bytes from beyond the second-level cache. If the values ``between`` the kernels do not fit this
    cache, they are written and read, and count times ``memory`` if they do not fit the third level either. If weights
    and values together do not fit, the weights are read again for each block.
    """

    def traffic(height: int) -> int:
        inside = between(height)
        weight_reads = rows // height if weights + inside > NEAR else 1
        distance = 0 if inside <= NEAR else 1 if inside <= REFERENCE.caches.third else REFERENCE.memory
        return weight_reads * weights + 2 * rows // height * inside * distance

    return min((k for k in range(rows, 0, -1) if rows % k == 0), key=traffic)


def _part(group: Group, nodes: list[Node]) -> Group:
    """Return the group of one of several kernels."""
    return Group(group.kind, group.level, group.dtype, group.shape, (), nodes, set(nodes))


def _buffer(node: Node, rows: Dim) -> Buffer:
    """Return memory for some rows of tiles, [component, tile, block, channel] with the channels adjacent.

    The components of a tile are written together. They are an odd number of cache lines apart, so that they are in
    different sets of the first-level cache.
    """
    components, (columns, blocks, block) = node.type.shape[0], node.type.shape[-3:]
    shape = (components, columns * rows, blocks, block)
    line = LINE // node.type.dtype.itemsize
    plane = (columns * rows * blocks * block // line // 2 * 2 + 1) * line
    return Buffer("tiles", node.type.dtype.name, shape, (plane, shape[3], shape[1] * shape[3], 1), "work")


class _Kernel(Builder):
    """Base of the kernels of both transforms: loops over blocks of channels, and over rows and columns of tiles."""

    def __init__(self, group: Group, accesses: Accesses, stores: Stores, block: TileRows) -> None:
        super().__init__(group, accesses, stores)
        self.node = group.nodes[0]
        self.block = block
        self.m: int = self.node.attrs["m"]
        tiles = (self.node if self.node.op is winograd_input else self.node.arg(0)).type.shape
        self.tiles, self.columns, self.blocks, channels = tiles[-4:]
        assert isinstance(channels, int), "bug in mlaot: blocks of channels of an open size"
        self.channels = channels
        self.image: list[Expr] = [Index(0 if name == "0" else dim(name)) for name in block.image]
        self.i0, self.i1, self.i2, self.j = (Index(dim(name)) for name in ("i0", "i1", "i2", "j"))
        self.row, self.column = Index(dim("row")), Index(dim("column"))

    def over_tiles(self, low: Sequence[int], body: Iterable[Statement]) -> Kernel:
        """Return the kernel of a body for each tile.

        The variables ``row`` and ``column`` are the place of the tile's first element in the map: m elements after that
        of the previous tile, and ``low`` elements, the padding, before the first result.
        """
        row = (self.i1 + Index(self.block.first)) * self.m - low[0]
        column = self.i2 * self.m - low[1]
        corner = (Let(Var("row", INDEX), row), Let(Var("column", INDEX), column))
        loops = [("i0", self.blocks), ("i1", self.block.rows), ("i2", self.columns)]
        return self.kernel(around(loops, (*corner, *body), parallel=True), "winograd")

    def tile(self, component: int, rank: int) -> list[Expr]:
        """Return the indices of a component of a tile: among the tiles of a block, or among those of all images."""
        if rank == 4:
            return [Index(component), self.i1 * Index(self.columns) + self.i2, self.i0, self.j]
        return [Index(component), *self.image, self.i1, self.i2, self.i0, self.j]

    def vectors(self, body: Iterable[Statement]) -> For:
        """Run ``body`` for each channel of a block."""
        return loop("j", self.channels, tuple(body), vector=True)

    def epilogue(self, value: Expr, at: Callable[[int], list[Expr]]) -> Body:
        """Take ``value`` through the elementwise nodes to memory; ``at`` gives the indices for a number of axes."""
        stores = [self.store(b, at(len(b.strides)), value) for b in self.stores.get(self.node, ())]
        nodes = [n for n in self.group.nodes if n is not self.node]
        body = self.elementwise(nodes, lambda n: at(n.type.rank), {self.node: value}, self.group.dtype)
        return (*stores, *body)


def transform(matrix: Matrix, tile: Sequence[Expr], result: Callable[[int, int, Var], Body], dtype: str) -> Body:
    """Compute ``matrix x tile x matrix^T`` in variables, first the columns and then the rows.

    ``a<i>_<j>`` are the values of the tile, ``b = matrix a`` and ``c = b matrix^T``; ``result`` stores a ``c<i>_<j>``.
    """
    height, width, type_ = len(matrix), len(matrix[0]), ValueType(dtype)
    name = count()
    body: list[Statement] = []

    def variables(letter: str, places: Iterable[tuple[int, int]]) -> list[Var]:
        return [Var(f"{letter}{i}_{j}", type_) for i, j in places]

    for j in range(width):
        column = variables("a", [(i, j) for i in range(width)])
        body += [Let(var, tile[i * width + j]) for i, var in enumerate(column)]
        body += multiply(matrix, column, variables("b", [(i, j) for i in range(height)]), name)
    for i in range(height):
        row = variables("c", [(i, j) for j in range(height)])
        body += multiply(matrix, variables("b", [(i, j) for j in range(width)]), row, name)
        body += [s for j, var in enumerate(row) for s in result(i, j, var)]
    return tuple(body)


def multiply(matrix: Matrix, x: Sequence[Var], y: Sequence[Var], name: Iterator[int]) -> list[Let]:
    """Return the statements of ``y = matrix x`` for vectors; further variables are ``r<name>``.

    Rows of the matrices are powers of the interpolation points (Lavin and Gray, Fast Algorithms for Convolutional
    Neural Networks, 2016, section 4.1). The points a and -a differ only in the signs of odd powers. So with even and
    odd parts e and o, one row is e + o and the other one e - o. Two such rows, or columns, share their multiplications.
    """
    lets: list[Let] = []

    def value(terms: Sequence[tuple[float, Var]]) -> Expr:
        total: Expr | None = None
        for factor, term in sorted(terms, key=lambda t: t[0] < 0):
            scale = factor if total is None else abs(factor)  # the first term may be negative where all are
            scaled = term if scale == 1 else const(scale, term.type) * term
            total = scaled if total is None else total - scaled if factor < 0 else total + scaled
        assert total is not None, "bug in mlaot: a row of a transform without a number"
        return total

    def define(x: Expr) -> Var:
        if isinstance(x, Var):
            return x
        lets.append(Let(Var(f"r{next(name)}", x.type), x))
        return lets[-1].var

    columns = [*zip(*matrix, strict=True)]
    terms: list[list[tuple[float, Var]]] = [[] for _ in y]
    shared: list[Var] = []  # by even and by odd rows, of a column and the one before it
    for j, column in enumerate(columns):
        if shared:
            shared = []
            continue
        if j + 1 < len(columns) and columns[j + 1] == _flip_signs(column):
            shared = [define(x[j] + x[j + 1]), define(x[j] - x[j + 1])]
        for i, factor in enumerate(column):
            terms[i] += [(factor, shared[i % 2] if shared else x[j])] if factor else []
    for i, row in enumerate(matrix):
        if i and row == _flip_signs(matrix[i - 1]):
            even, odd = (define(value([t for t in terms[i - 1] if x.index(t[1]) % 2 == side])) for side in (0, 1))
            lets += [Let(y[i - 1], even + odd), Let(y[i], even - odd)]
        elif i + 1 == len(y) or matrix[i + 1] != _flip_signs(row):
            lets.append(Let(y[i], value(terms[i])))
    return lets


def _flip_signs(values: Sequence[float]) -> tuple[float, ...]:
    """Change the sign of every other value."""
    return tuple(-v if i % 2 else v for i, v in enumerate(values))


def _block(body: Body) -> Body:
    """Give a body variables of its own."""
    return (Block(body),) if len(body) > 1 else body


def _input_kernel(group: Group, accesses: Accesses, stores: Stores, block: TileRows) -> Kernel:
    """Return the kernel of V = B^T d B for a block.

    A tile inside of the map is read in place. A tile at a border is read from a copy, the halo, with zeros around the
    map.
    """
    k = _Kernel(group, accesses, stores, block)
    x, size = k.node.arg(0), k.m + 2
    access, low = k.access(x), k.node.attrs["low"]
    inside, within = _tests(k, x, low, size)
    halo = Array("halo", group.dtype, size * size * k.channels, "local")
    is_direct = access.strides[-2:] == (k.channels, 1)  # rows of the map are as those of the copy
    body: list[Statement] = []
    source, pitch = halo, Index(size * k.channels)
    start: Expr = Index(0)
    if is_direct:
        start = place((*k.image, k.i0, k.row, k.column), access.strides[:-1], access.offset)
        source, pitch = k.array(access.buffer), Index(access.strides[-3])
    if inside or not is_direct:
        body.append(Alloc(halo))
        copied = _copy_to_halo(k, access, within, halo, size)
        if is_direct:
            is_inside, tile = Var("inside", BOOL), Array("tile", group.dtype, 0, "local")
            body += [Let(is_inside, _all(inside)), If(Call("not", (is_inside,), BOOL), copied)]
            body.append(Choose(tile, is_inside, source, start, halo))
            body.append(Let(Var("pitch", INDEX), select(is_inside, pitch, Index(size * k.channels))))
            source, start, pitch = tile, Index(0), Index(dim("pitch"))
        else:
            body += copied
    points = [(i, j) for i in range(size) for j in range(size)]
    tile_values: list[Expr] = [source[start + pitch * i + k.j + j * k.channels] for i, j in points]

    def result(i: int, j: int, value: Var) -> Body:
        return _block(k.epilogue(value, lambda rank: k.tile(i * size + j, rank)))

    return k.over_tiles(low, [*body, k.vectors(transform(INPUT[k.m], tile_values, result, group.dtype))])


def _tests(k: _Kernel, x: Node, low: Sequence[int], size: int) -> tuple[list[Expr], list[Expr]]:
    """Return the tests that a tile is inside of the map, and that one value is; tests that always hold are left out."""
    inside: list[Expr] = []
    within: list[Expr] = []
    places = ((k.row, Index(dim("k0"))), (k.column, Index(dim("k1"))))
    extents = zip(low, x.type.shape[-3:-1], (k.tiles, k.columns), strict=True)
    for (first, offset), (before, extent, many) in zip(places, extents, strict=True):
        if before:
            inside.append(compare("ge", first, Index(0)))
            within.append(compare("ge", first + offset, Index(0)))
        if not nonnegative(extent - (many * k.m + 2 - before)):
            inside.append(compare("le", first, Index(extent - size)))
            within.append(compare("lt", first + offset, Index(extent)))
    return inside, within


def _copy_to_halo(k: _Kernel, access: Access, within: Sequence[Expr], halo: Array, size: int) -> Body:
    """Copy a tile to separate memory, with zeros outside of the map."""
    k0, k1 = Index(dim("k0")), Index(dim("k1"))
    target = (k0 * size + k1) * k.channels + k.j
    value = cast(k.element(access, (*k.image, k.i0, k.row + k0, k.column + k1, k.j)), k.group.dtype)
    copy: Statement = k.vectors([Store(halo, target, value)])
    if within:
        zeros = k.vectors([Store(halo, target, const(0.0, ValueType(k.group.dtype)))])
        copy = If(_all(within), (copy,), (zeros,))
    return around([("k0", size), ("k1", size)], [copy])


def _all(tests: Sequence[Expr]) -> Expr:
    """Return whether all tests hold."""
    return reduce(lambda a, b: Call("and", (a, b), BOOL), tests)


def _output_kernel(group: Group, accesses: Accesses, stores: Stores, block: TileRows) -> Kernel:
    """Return the kernel of Y = A^T M A for a block, up to the borders of the maps, with the epilogue."""
    k = _Kernel(group, accesses, stores, block)
    size, access = k.m + 2, k.access(k.node.arg(0))
    rank = len(access.strides)
    tile: list[Expr] = [cast(k.element(access, k.tile(z, rank)), group.dtype) for z in range(size * size)]
    extents = zip(k.node.attrs["size"], (k.tiles, k.columns), strict=True)
    last = [extent - (many - 1) * k.m if isinstance(extent, int) else 1 for extent, many in extents]

    def result(i: int, j: int, value: Var) -> Body:
        at = [*k.image, k.i0, k.row + i, k.column + j, k.j]
        body = k.epilogue(value, lambda _: at)
        axes = zip((i, j), at[-3:-1], last, k.node.attrs["size"], strict=True)
        tests = [compare("lt", index, Index(extent)) for offset, index, left, extent in axes if offset >= left]
        return (If(_all(tests), body),) if tests else _block(body)

    return k.over_tiles((0, 0), [k.vectors(transform(OUTPUT[k.m], tile, result, group.dtype))])
