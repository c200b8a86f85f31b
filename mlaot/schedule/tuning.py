"""Every number that was chosen because code is faster, shorter or sooner compiled with it: what it counts, and why.

"Measured" says what was, on the machine of the kernels' experiments (one core of a Zen 5) unless said. "Not measured"
says that no measurement of the number itself is kept: it was reasoned, or tried and not noted. What describes a machine
stands in ``machine.py``.
"""

from __future__ import annotations

from fractions import Fraction

# --- Shares of a cache that loops may fill. Those of the second level were chosen at different times for different
# --- loops, as 512, 768 and 896 KiB, and not measured against each other.

# Of the first level: a block of columns that each block of rows reads again. Not measured.
NEAR_SHARE = Fraction(5, 6)
# Of the second: an operand. Measured: weights of 768 KiB are read at 250 GB/s, of 1.5 MiB at 127.
NEXT_SHARE = Fraction(3, 4)
# Of the second: the workspace of a part of a large batch. Not measured.
BATCH_SHARE = Fraction(1, 2)
# Of the second: what lies between Winograd's three kernels. Measured: 512 to 896 KiB are read at 250 to 257 GB/s.
WINOGRAD_SHARE = Fraction(7, 8)
# Of what the first or second keeps, beyond which a panel is asked for ahead. Not measured.
PREFETCH_SHARE = Fraction(1, 2)

# --- Contractions: the cost model.

# Multiply-adds of a contraction up to which short code is worth more than the last of its speed. Not measured.
LIGHT_PRODUCTS = 16 * 1024
# Accumulators of a tile of such a one, at most. Not measured.
LIGHT_ACCUMULATORS = 4
# Shares of the cycles of loads, and of those from far away, not hidden behind arithmetic. Measured, but not kept.
LOAD_CYCLES = 1.0
STREAM_CYCLES = 0.25
# Cycles of a loop's step beside its arithmetic; around a tile; for an accumulator, to initialize and store it, and
# where its lanes are added up as well. Not measured.
STEP_CYCLES = 0.7
TILE_CYCLES = 10
RESULT_CYCLES = 1.5
FOLDED_CYCLES = 4
# Steps of a sum that are written out: the taps of a window of 5 x 5. Not measured.
UNROLLED_STEPS = 25
# Vectors or columns of a tile, at most. Not measured.
TILE_COLUMNS = 6
# Rows of a tile, at most. Measured: 24 rows of one vector have 258 GFLOP/s of 271.
TILE_ROWS = 24
# Rows along the innermost variable up to which a tile has rows along the next one as well. Not measured.
TILE_INNER_ROWS = 8
# Share of the registers that accumulators may take. Measured: 28 of 32 are slow with tiles of 4 vectors.
ACCUMULATORS_SHARE = Fraction(3, 4)
# Sets of accumulators, by the widest vectors of a row, for sums of so many steps or more. Measured: narrow products are
# the fastest with 8 to 12 accumulators; the numbers themselves are not measured.
NARROW_SETS = {1: 4, 2: 2}
NARROW_STEPS = 32

# --- Contractions: their code.

# Steps of a sum that a panel is asked for ahead: some 200 cycles in a tile of many rows, a kilobyte or more for a
# single one. Measured: GPT is 3 to 4 % faster, a decode step 13 %, an MLP at batch 64 5 %, AVX2 and SSE2 up to 9 %.
PREFETCH_STEPS = 16
# Statements of a tile's epilogue from which on it is written once, in a loop over the accumulators. Not measured.
EPILOGUE_STATEMENTS = 120
# The same behind a sum of so many steps, beside which storing the accumulators does not count. Measured: where this
# holds for all sums, a perceptron of 784-50-10 is trained in 10 % more time, and gcc takes 4 to 8 % less.
LONG_EPILOGUE_STATEMENTS = 40
LONG_STEPS = 128
# Rows of a batch at a time, which whole tiles divide, and how many times as many at most. Not measured.
BATCH_ROWS = 240
BATCH_TIMES = 64
# Gates of a recurrent unit: so many accumulators fit in the registers of all machines. Not measured.
MOST_GATES = 8
# Registers that hold no vectors of those side by side: of a sparse product, no columns. Not measured.
SPARE_REGISTERS = 4

# --- How arrays lie in memory.

# Bytes of a panel's row: four of the widest vectors. Measured: panels of 4, 8 and 16 vectors are read at 248, 250 and
# 237 GB/s.
PANEL_BYTES = 256
# Columns that would make a vector of their own, mostly empty, and are dot products instead. Measured: an MLP with 50
# columns at batch 64 takes 20.05 us with 48 + 2, and 24.4 with 64.
COLUMNS_APART = 2
# How many times its room an array may take for rows of whole vectors. Not measured.
PADDING_GROWTH = 1.3
# How many times their bytes constants may take, for products that read them as their kernels like to. Not measured.
CONSTANTS_GROWTH = 1.3
# Bytes of a row that waits for a later stage on the stack, at most. Not measured.
STACK_ROW_BYTES = 4096
# Elements of a row below which they may be scattered. Not measured.
SCATTERED_ELEMENTS = 8

# --- Loops over rows.

# Lines of a loop body from which on it is written once, for whole and partial vectors; not measured.
STAGE_LINES_ONCE = 150
# Lines up to which it may be written several times. Not measured.
STAGE_LINES_SEVERAL = 10
# Accumulators of a long reduction: an addition takes so many times as long as the next one may wait. Not measured.
SUM_CHAINS = 4

# Elements of a loop that loops became, from which on it is worth vectors. Not measured.
COLLAPSED_ELEMENTS = 32
# Elements of an array from which on its kernel is told how many they are. Not measured: training a perceptron of
# 784-50-10 takes as long with 32.
SIZED_ELEMENTS = 256
# Statements that a short loop over numbers may become inside another one, of which compilers then make vectors.
# Measured: max pooling of 2 by 2 takes a third of the time; the number itself is not measured.
UNROLLED_NUMBERS = 16

# --- Groups of nodes.

# Nodes of a kernel. Measured: gcc's time grows faster than linearly with a function, and 1,000 statements are bearable;
# the number itself is not measured.
GROUP_NODES = 400
# Cheap nodes that a kernel computes again for one that it reads. Not measured.
NODES_AGAIN = 64
# Nodes of a scalar that every kernel computes for itself. Not measured.
FREE_NODES = 48
# Seconds of gcc, as estimated; a file that takes more at -O2 is compiled with -O1, and its helpers stay functions.
KERNELS_SECONDS = 60
# The same of a file that is compiled as one, and of one part of a longer one. Measured: a training LeNet, 0.7 by this
# estimate, takes 2.4 s for each machine as one, and a change of some kernels a third of it in 8 parts; in 4, all of it
# takes 6 % less.
WHOLE_SECONDS = 0.25
PART_SECONDS = 0.2

# --- Threads.

# Operations of a kernel; fewer are not worth a second thread. Not measured; measured was that waking a thread takes 10
# to 60 us.
SHARED_OPERATIONS = 65536
# Elements of arrays of any shape that threads share. Not measured; as many as operations by the eighth.
SHARED_ELEMENTS = SHARED_OPERATIONS // 8
# Operations of a row; with fewer, code that is short and whole serves better. Not measured.
LIGHT_OPERATIONS = 100
# Operations that one statement on a number takes as long as, where vectors are the measure. Not measured.
SCALAR_OPERATIONS = 8
# Rounds that several threads can share evenly: of a loop, of tiles, of a loop over kernels that go along from one to
# the next. Not measured.
SHARED_ROUNDS = 16
SHARED_TILES = 6
SHARED_STEPS = 4

# --- Decision trees.

# Perfect trees that a row walks in step. Measured: 0.52 us, 0.61 with 4 of them, 0.93 with 1 (gcc).
TREES_IN_STEP = 16
# Rows, or linked trees, that are walked in step. Not measured.
ROWS_IN_STEP = 8
# Levels of a perfect tree: 255 nodes. Not measured.
PERFECT_LEVELS = 8
# Levels of the subtrees whose evaluation is written out: compilers are slow with more. Not measured.
SUBTREE_LEVELS = 5
# A tree of more than BUSHY_LEVELS is made perfect if it has at most PADDED_LEAVES times its leaves then. Not measured.
BUSHY_LEVELS = 6
PADDED_LEAVES = 4
# Bytes of a feature in a block of rows. Measured: two vectors of 16 rows are the best at a batch, four of 8 on AVX2.
FEATURE_BLOCK_BYTES = 128
# The time of evaluating a node for a vector of rows, by that of a step of one row. No measurement is kept.
NODE_BY_VECTOR = 0.35

# --- Convolutions by Winograd's transforms, in products of a vector of 16 with a scalar.

# A vector of weights from behind the caches. No measurement is kept.
WEIGHT_PRODUCTS = 8
# The transforms of a tile, by its size. No measurement is kept.
TRANSFORM_PRODUCTS = {2: 160, 4: 400}

# --- Training.

# Examples of a tile: the widest vector of float32; what a round computes stays in the caches. Not measured.
EXAMPLES_TILE = 16
# Examples of a block: more save little traffic, and each is multiplied with all others. Not measured.
LATE_EXAMPLES = 8
# Elements of a weight from which on it costs to read and write it for each example. Not measured.
LATE_WEIGHT = 8 * 1024
# Parameters that are read one by one, beyond which they share a tensor. Not measured.
SINGLE_PARAMETERS = 8

# --- Rules over graphs.

# How many times as many elements the largest operand has where copying the others costs nothing beside. Not measured.
GATHERED_BY = 8
# Attention with a known mask in blocks of rows: how many; the rows from which on they are worth their kernels; the
# share of the work that is left at most. Measured: skipping what a causal mask hides is 1.6 to 1.7 times as fast; the
# numbers themselves are not measured.
MASK_BLOCKS = 4
MASK_ROWS = 64
MASK_WORK = 0.8
# Elements of a weight from which on it is worth 16 bits. Not measured.
NARROW_ELEMENTS = 1024
# Rows, columns and steps of a sum from which on an operand is worth turning. Not measured.
TRANSPOSED_EXTENT = 16
# Elements of a window that is pooled element by element. Not measured.
POOLED_WINDOW = 16
# Places along an axis that are written out in the kernel. Not measured.
KNOWN_PLACES = 4096
# Different values that added channels may hold before they count as unknown. Not measured.
KNOWN_FILLINGS = 16
# Products in a sum, and results that share a factor, from which on bytes are worth it. Not measured.
BYTES_EXTENT = 16
# Of the nodes, the share that is left at most, or raising scalars to tensors is undone. Not measured.
RAISED_SHARE = 0.7
# Equal terms that are no products and stay operands of an elementwise op. Not measured.
FEW_TERMS = 4
# The part of their operands that sums share at least to be flattened together. Not measured.
SHARED_TERMS = 0.25
