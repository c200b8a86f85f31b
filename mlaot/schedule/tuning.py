"""Every number that was chosen to make code faster, shorter or faster to compile: its meaning, and the reason for it.

"Measured" names the measurement, on one core of a Zen 5 unless the comment says otherwise. "Not measured" means that no
measurement of the number itself is recorded: it was derived, or tried without a record. ``machine.py`` has the
properties of machines.
"""

from __future__ import annotations

from fractions import Fraction

# --- Shares of a cache that loops may fill. Those of the second level were chosen at different times for different
# --- loops, as 512, 768 and 896 KiB, and were not compared.

# Of the first level, for a block of columns that each block of rows reads again. Not measured.
NEAR_SHARE = Fraction(5, 6)
# Of the second level, for an operand. Measured: weights of 768 KiB are read at 250 GB/s, of 1.5 MiB at 127.
NEXT_SHARE = Fraction(3, 4)
# Of the second level, for the workspace of a part of a large batch. Not measured.
BATCH_SHARE = Fraction(1, 2)
# Of the second level, for the values between Winograd's three kernels. Measured: 512 to 896 KiB are read at 250 to 257
# GB/s.
WINOGRAD_SHARE = Fraction(7, 8)
# The share of the second level beyond which a panel is prefetched. Not measured.
PREFETCH_SHARE = Fraction(1, 2)

# --- Contractions: the cost model.

# Terms of a sum up to which vectors run along rows of the result rather than along weights, whose results are then
# scattered. Measured: at 64 terms 12 % less time, at 288 20 % more.
ALONG_ROWS = 96
# Multiply-adds of a light contraction, for which short code matters more than the last of its speed. Not measured.
LIGHT_PRODUCTS = 16 * 1024
# Accumulators of a tile of a light contraction, at most. Not measured.
LIGHT_ACCUMULATORS = 4
# The wait between two multiply-adds into one accumulator, as a multiple of their latency. Measured: with as many
# accumulators as hide the latency, and vectors from the second-level cache, a sum takes 1.2 times as long as with more.
LATENCY_FACTOR = 1.2
# Shares of the cycles of loads, and of loads from farther caches, that arithmetic does not hide. The measurements are
# not kept.
LOAD_CYCLES = 1.0
STREAM_CYCLES = 0.25
# The share of load cycles that arithmetic does not hide if weights have a scale for each group. Measured on a Zen 4,
# AVX2, 64 rows by 384 x 1536: tiles of 3 rows and 2 vectors take 0.55 ms in int8 and 0.66 in int4, of 7 rows and 1
# vector 0.54 and 0.69.
GROUP_LOAD_CYCLES = 1.5
# Overhead in cycles: of a step of a loop; of a tile; of an accumulator that is initialized and stored; of one whose
# lanes are added up as well. Not measured.
STEP_CYCLES = 0.7
TILE_CYCLES = 10
RESULT_CYCLES = 1.5
FOLDED_CYCLES = 4
# Additional cycles of a result that is stored alone, since its neighbours along the lanes lie elsewhere. Not measured.
SCATTER_CYCLES = 2
# Additional cycles of a line of the result if each tile stores to other rows than the tile before: far caches deliver
# lines late if their order is irregular. With 2,000 columns and sums of 30, 1,024 rows take 3 times as long in float64,
# 1.2 in float32, 256 rows 1.1; sums of 64 take equally long, and from 256 on the loads of weights decide.
ROW_RESULT_CYCLES = 5
LONG_ROW_BYTES = 2048  # of the rows for which that is so; those of images are mostly shorter
# Steps of a part of a sum, at least, whose sums lie in memory between the parts. Measured: parts of 64 steps raise the
# gradients of weights from 50 to 88 GFLOP/s (256 x 64, 2,048 steps) and from 76 to 110 (64 x 256).
PART_STEPS = 32
# Bytes of these sums, at most: they lie on the stack, of which a thread has 128 KiB with musl. Not measured.
PART_BYTES = 48 * 1024
# Bytes of a panel's columns and of its rows, and the steps of a part of its sums, with a copy of the rows and without
# one. All of it lies on the stack: 80 KiB. Measured on a Zen 4 with AVX2, products of 1,024 x 1,024 x 1,024: panels of
# 128 columns 83 GFLOP/s, of 256 columns 86 to 91; copies of 48 to 128 steps make no difference.
PANEL_COLUMN_BYTES = 1024
SHARED_COLUMN_BYTES = 256  # at least, where there are too few panels for threads
PANEL_ROW_BYTES = 240
COPIED_STEPS = 64
PANEL_STEPS = 128
# From how many bytes on rows are far from one another. Measured: sums down 2,048 rows of 256 or 384 bytes reach 97 to
# 105 GFLOP/s with copies and without; 1,536 bytes 90 and 53.
FAR_ROW_BYTES = 512
# Bytes of a way of the first-level cache, and how many lines with one place there stay. Measured: columns whose rows
# lie 4 KiB apart are copied to advantage (512 x 1,024 x 1,024: 64 -> 88 GFLOP/s), those of 2,000 bytes apart are not.
WAY_BYTES = 4096
WAY_LINES = 4
# Steps of a sum that are unrolled at most: the taps of a window of 5 x 5. Not measured.
UNROLLED_STEPS = 25
# Vectors or columns of a tile, at most. Not measured.
TILE_COLUMNS = 6
# The same where weights lie in groups and sums are plain additions, or the vectors of a panel where these are more.
# Measured on a Sapphire Rapids, AVX2, one row by 110 million weights in int4: 6.8 ms with a panel of two vectors, 5.8
# with two panels, 3.9 with these and prefetched by 16 steps; in int8 13.3, 10.8 and 8.1; with 15 million 0.41, 0.43 and
# 0.41.
GROUP_COLUMNS = 4
# Rows of a tile, at most. Measured: 24 rows of one vector have 258 GFLOP/s of 271.
TILE_ROWS = 24
# Rows along the innermost variable up to which a tile spans rows along the next one as well. Not measured.
TILE_INNER_ROWS = 8
# Share of the registers that accumulators may take. Measured: 28 of 32 are slow with tiles of 4 vectors.
ACCUMULATORS_SHARE = Fraction(3, 4)
# Sets of accumulators, by the widest vectors of a row, for sums of so many steps or more, where there may be fewer rows
# than this. Measured: narrow products are the fastest with 8 to 12 accumulators. The numbers themselves are not
# measured.
NARROW_SETS = {1: 4, 2: 2}
NARROW_STEPS = 32
NARROW_ROWS = 16

# --- Contractions: their code.

# Steps of a sum by which the panels of a tile are prefetched, 4 KB earlier. Measured on a Sapphire Rapids, AVX2, with
# weights of 288 x 32,000 from memory: 6 rows take 1.27 ms, 1.51 with 32 and 1.74 with 16; 2 rows by two panels
# 1.28, and 1.33 without. A token of 15 million weights in int4 takes 0.40 ms, and 0.48 with 16. With AVX-512, several
# panels that come from the second level take 1.05 to 1.1 times as long with it.
PREFETCH_STEPS = 64
# Lines by which the rows of an array are prefetched that is read line by line, and not from the second-level cache: a
# page. Measured on a Xeon, AVX2, 16 rows of 512 by 512 x 512, 16 times: 2.8 ms without, 2.4 with 16, 2.0 with 64, 2.0
# to 2.1 with 512. ResNet-18 takes 0.89 of its time, and 0.94 with AVX-512, whose tiles read several such streams.
PREFETCH_LINES = 64
# Statements of a tile's epilogue beyond which it is written once, in a loop over the accumulators. Not measured.
EPILOGUE_STATEMENTS = 120
# The limit for an epilogue after a sum of at least LONG_STEPS steps, which dwarf the stores of the accumulators.
# Measured: with this limit for all sums, a perceptron of 784-50-10 is trained in 10 % more time, and gcc takes 4 to 8 %
# less.
LONG_EPILOGUE_STATEMENTS = 40
LONG_STEPS = 128
# Rows of a batch that are computed together: a multiple of BATCH_ROWS, which the rows of most tiles divide. If the
# weights do not stay in the second level, and are read again for each part, it is a multiple of FAR_BATCH_ROWS. The
# last is the largest number of rows. Measured with AVX2, of the time of 1,000 rows at once: a support vector machine
# with products of 1,857 columns takes 0.88, 30 neighbours of 2,000 rows 0.78.
BATCH_ROWS = 48
FAR_BATCH_ROWS = 240
MOST_BATCH_ROWS = 64 * 240
# Gates of a recurrent unit, at most: as many accumulators fit in the registers of all machines. Not measured.
MAX_GATES = 8
# Registers that hold none of the vectors that are interleaved: of a sparse product, no columns. Not measured.
SPARE_REGISTERS = 4

# --- How arrays lie in memory.

# The most remainder columns that are computed as dot products instead of a vector that is mostly empty. Measured: an
# MLP with 50 columns at batch 64 takes 20.05 us with 48 + 2, and 24.4 with 64.
COLUMNS_APART = 2
# How many times its size an array may take with rows padded to whole vectors. Not measured.
PADDING_GROWTH = 1.3
# The largest growth of a convolution's work that blocks of 16 channels may cause. Measured on a Xeon, AVX2, three 3x3
# convolutions, maps of 32, 14 and 7: of 40 channels, 1.44 times the work, inference takes 0.65 to 0.73 of the time that
# it takes along rows, and training 0.81 to 1.02; of 25, 1.64 times, 0.68 to 1.12 and 0.98 to 1.15; of 24, 1.78 times,
# 0.93 to 1.35 and 1.20 to 1.37.
BLOCKED_GROWTH = 1.55
# How many times their size constants may take if each product has them in the layout that it reads best. Not measured.
CONSTANTS_GROWTH = 1.3
# Bytes of a table up to which values computed from its rows are stored as a table as well, if the number of rows that
# will be read is unknown. Measured: the squares of the 32,000 rows of a language model's table took 37 MB of 98, for no
# time.
COMPUTED_TABLE = 1 << 20
# The most groups that are joined to one of 8 channels if there are strides. Measured, as a share of the time along rows
# and in wider groups: groups of 2 take 0.56 with AVX2 and 0.47 with AVX-512, of 4 and of 8 0.79 and 1.0 to 1.04.
# Without strides, groups of 8 take 0.87 and 0.80 where a row has 7 elements and 1.1 and 1.5 where it has 14, and of 4
# at least 0.99.
PART_GROUPS = 4
# Channels of a group from which on two groups become one without strides as well. Measured, of the time before, on AVX2
# and AVX-512: with strides 0.67 to 0.96 and 0.45 to 0.57; without, of 40 channels 0.88, of 24 1.3, of 8 1.1 and 1.04.
WIDENED_CHANNELS = 32
# Bytes of a row that is kept on the stack for a later stage, at most. Not measured.
STACK_ROW_BYTES = 4096
# Statements that are written out for all lanes of a square that is read across rows. Not measured.
SQUARE_STATEMENTS = 128
# Lanes of vectors that go along rows together, a row in each, where rows lie along other axes than the last. Not
# measured: two cache lines.
LANE_BLOCK = 32
# Elements of a row below which its elements may be scattered. Not measured.
SCATTERED_ELEMENTS = 8

# --- Loops over rows.

# Statements of a loop body beyond which it is written once, for full and partial vectors. Not measured.
STAGE_LINES_ONCE = 150
# Statements of a loop body up to which it may be written several times. Not measured.
STAGE_LINES_SEVERAL = 10
# Accumulators of a long reduction: the latency of an addition divided by its throughput. Not measured.
SUM_CHAINS = 4

# Elements of collapsed loops from which on they are worth vectors. Not measured.
COLLAPSED_ELEMENTS = 32
# Elements of an array from which on its kernel gets their number as an argument. Not measured: training a perceptron of
# 784-50-10 takes as long with 32.
SIZED_ELEMENTS = 256
# Statements that an unrolled loop over numbers inside another loop may become; compilers then vectorize the outer one.
# Measured: max pooling of 2 by 2 takes a third of the time; the number itself is not measured.
UNROLLED_NUMBERS = 16

# --- Groups of nodes.

# Nodes of a kernel, at most. Measured: gcc's time grows faster than linearly with a function, and 1,000 statements are
# bearable; the number itself is not measured.
GROUP_NODES = 400
# Cheap nodes that a kernel recomputes for one that it reads, at most. Not measured.
NODES_AGAIN = 64
# The most steps from an element of a row that a later stage recomputes instead of a load. Not measured beyond one.
ROW_NODES_AGAIN = 2
# Nodes of a scalar that every kernel computes for itself, at most. Not measured.
FREE_NODES = 48
# Estimated seconds of gcc at -O2 beyond which a file is compiled with -O1, and its helpers are not inlined.
KERNELS_SECONDS = 60
# Estimated seconds up to which a file is compiled whole, and of a part of a longer file. Measured: a training LeNet,
# 0.7 by this estimate, takes 2.4 s for each machine in one file. In 8 parts, a change of some kernels takes a third of
# that; in 4 parts, all of it takes 6 % less.
WHOLE_SECONDS = 0.25
PART_SECONDS = 0.2

# --- Threads.

# Operations below which a kernel is not worth a second thread; a part of a kernel has as many (threads.c). Measured,
# where each thread keeps its share from kernel to kernel: training steps of small networks take 0.92 to 1.04 times as
# long with two threads as with twice the number, and as long as with half of it. Waking a thread takes 10 to 60 us.
SHARED_OPERATIONS = 65536
# Operations of a round of a loop of unknown length up to which threads share this loop, and none inside it. Measured:
# training steps of a GPT and of small convolutional networks take 0.78 to 0.92 times as long with two threads.
LITTLE_OPERATIONS = 8 * SHARED_OPERATIONS
# Terms of a sum over a batch that each example has, from which on these are added up apart, so that threads share the
# examples. Not measured: the sums of the examples are so many times fewer than the terms.
EXAMPLE_TERMS = 16
# Elements of arrays of any shape from which on threads share them. Not measured: assumes eight operations for each.
SHARED_ELEMENTS = SHARED_OPERATIONS // 8
# Operations of a row below which it is not worth its share of the code for threads. Not measured.
LIGHT_OPERATIONS = 100
# Operations of vectors' lanes that one statement on a number counts as. Not measured.
SCALAR_OPERATIONS = 8
# Kernels of a round of a loop, at most, of which threads share the rows for all rounds: what all of them write is kept
# apart in the workspace. Not measured.
SHARED_KERNELS = 12
# Rounds from which on threads get even shares: of a loop, of a loop over tiles, of a loop over kernels. Not measured.
SHARED_ROUNDS = 16
SHARED_TILES = 6
SHARED_STEPS = 4

# --- Decision trees.

# Perfect trees that a row walks down in step. Measured: 0.52 us, 0.61 with 4 of them, 0.93 with 1 (gcc).
TREES_IN_STEP = 16
# Rows, or linked trees, that are walked in step. Measured with 4, 6, 8, 10, 12: 20, 15.8, 13.8, 13.6, 14.6 ns a row
# down a tree of 484 leaves, and 36, 29, 26, 27, 27 down each of 100 trees of 1,260 leaves (gcc, AVX2).
ROWS_IN_STEP = 8
# Rows that go down all linked trees before the next ones do, as many as fit in these bytes. Measured for 100 trees of
# 1,260 leaves and 30 features: 46 ns a row and tree with 8 rows, 37 with 32, 29 with 128, 26 with 1,000.
LINKED_BLOCK = 128
LINKED_BLOCK_BYTES = 1 << 17
# Levels of a perfect tree: 255 nodes. Not measured.
PERFECT_LEVELS = 8
# Levels of the subtrees whose evaluation is unrolled; compilers are slow with more. Not measured.
SUBTREE_LEVELS = 5
# A tree of more than BUSHY_LEVELS becomes perfect if that takes at most PADDED_LEAVES times its leaves. Not measured.
BUSHY_LEVELS = 6
PADDED_LEAVES = 4
# Bytes of a feature in a block of rows. Measured: two vectors of 16 rows are the best at a batch, four of 8 on AVX2.
FEATURE_BLOCK_BYTES = 128
# The time of evaluating a node for a vector of rows, relative to a step of one row. No measurement is kept.
NODE_BY_VECTOR = 0.35

# --- Convolutions by Winograd's transforms, in products of a vector of 16 with a scalar.

# Loading a vector of weights from memory. No measurement is kept.
WEIGHT_PRODUCTS = 8
# Rows of tiles of a block where the height of the map is open and the weights do not fit the second level, in which one
# row is enough. Measured: 2 take up to 8 % longer, 8 up to 4 %.
OPEN_HEIGHT = 4
# The transforms of a tile, by its size. No measurement is kept.
TRANSFORM_PRODUCTS = {2: 160, 4: 400}

# --- Training.

# Examples of a microbatch: the widest vector of float32, so that what a round computes stays in the caches. Not
# measured.
EXAMPLES_TILE = 16
# Examples of a delayed rank-k update: more save little traffic, and each is multiplied with all others. Not measured.
LATE_EXAMPLES = 8
# Elements of a weight from which on its updates are delayed. Not measured.
LATE_WEIGHT = 8 * 1024
# Scalar parameters beyond which they share a tensor. Not measured.
SINGLE_PARAMETERS = 8

# --- Rules over graphs.

# Ops between two choices by one condition, at most, of which the inner one is known. Not measured.
CHOICE_STEPS = 8
# How many times as many elements the largest operand must have for copies of the others to be free. Not measured.
GATHERED_BY = 8
# Attention with a known mask in blocks of rows: how many; the rows from which on they are worth their kernels; the
# share of the work that is left at most. Measured: skipping what a causal mask hides is 1.6 to 1.7 times as fast; the
# numbers themselves are not measured.
MASK_BLOCKS = 4
MASK_ROWS = 64
MASK_WORK = 0.8
# Elements of a weight from which on it is stored in half precision. Not measured.
NARROW_ELEMENTS = 1024
# Weights of 8 or 4 bits that share a scale, neighbours along a sum. Not measured: as many as llama.cpp's.
GROUP_WEIGHTS = 32
# Elements and columns of a weight from which on it is stored in 8 or 4 bits. Smaller weights stay in the second-level
# cache. Measured on a Zen 4: rounding 64 rows of 128 to 16 bits takes a tenth of their product with 128 columns; with
# 256, AVX2 takes 0.91 times as long as in float32 (int8; 1.06 in int4), 0.63 with one row.
GROUPED_ELEMENTS = 64 * 1024
GROUPED_COLUMNS = 256
# Rows, columns and steps of a sum from which on an operand is worth transposing. Not measured.
TRANSPOSED_EXTENT = 16
# Steps of a sum up to which that is so, too: its vectors would not be full, and folding them would be most of the work.
SHORT_SUM = 8
# Rows from which on a weight that is trained is worth transposing at each step. Measured: products of 64 rows an
# example rise from 62 to 85 GFLOP/s; the number itself is not measured.
TRANSPOSED_WEIGHT_ROWS = 64
# Sets and ways of the first-level cache that an operand's rows may fill before they are copied side by side, and the
# rows of the other operand from which on that pays.
CACHE_SETS = 64
CACHE_WAYS = 8
PACKED_ROWS = 16
# Rows and columns from which on an operand is worth copying where no axis suits the lanes. Not measured.
GATHERED_EXTENT = 4
# Elements of a window up to which it is pooled element by element. Not measured.
POOLED_WINDOW = 16
# Places along an axis that may be constants of the kernel. Not measured.
KNOWN_PLACES = 4096
# Different values that added channels may hold before they count as unknown. Not measured.
KNOWN_FILLINGS = 16
# Products in a sum, and results that share a factor, from which on a product is worth quantizing. Not measured.
BYTES_EXTENT = 16
# Products for each number that has to be rounded to a byte or scaled back from a sum, from which on bytes are faster.
# Measured with AVX2: sums of 17 to 1000 products for 8 to 100 channels take 0.7 to 1.3 of float32's time around it.
QUANTIZED_WORK = 16
# The share of the weights of a product of bytes that may be multiplied apart, so that the others have sums of 16 bits.
# Measured on a Xeon, a recognizer of characters with 9 such products: it takes 0.74 of its time with AVX2, 0.85 with a
# fourth of the share, and 1.04 to 1.07 with AVX-512, which needs no such sums.
LISTED_SHARE = 1 / 2048
# The share of nodes that raising scalars to tensors may leave; else it is undone. Not measured.
RAISED_SHARE = 0.7
# The number of lengths from which sums of the same kinds of terms are raised together, padded with zeros, and the
# largest growth by this padding. Attention to all positions so far pads to twice. Not measured.
UNLIKE_LENGTHS = 3
HOLES = 2
# The rounds from which a chain of scalars is rolled into a loop, and the nodes that they have together. Not measured.
ROLLED_ROUNDS = 4
ROLLED_NODES = 24
# Kinds of scalars that are taken for cells of a table at most, those of which there are most. Not measured.
TRIED_TABLES = 3
# Arguments of a cell that are tried for the cell above it. Not measured.
TRIED_PLACES = 8
# The nodes of a round up to which two chains, of which one reads the other, are one loop. Not measured.
JOINED_NODES = 64
# Equal terms that are no products, up to which they stay operands of an elementwise op. Not measured.
FEW_TERMS = 4
# Elements that a sort orders by their ranks, which it counts without branches; more are split first. Measured.
RANKED_ELEMENTS = 32
# Words that a sort orders by their ranks; a network sorts longer rows. Measured.
RANKED_WORDS = 8
# Vectors of a row that a network of comparisons sorts in registers: there is a network of each size, and the largest
# sorts the parts of longer rows. Measured: a network of 32 vectors would be as large as all the others together, and
# faster only for rows of about that length.
SORTED_VECTORS = (2, 4, 8, 16)
# Elements of a row beyond which the first of its extremes is sought in blocks, instead of comparing them all. Measured
# with AVX2, float32 and float64: rows of 32 take 1.0 and 1.2 times as long, of 100 0.9 and 0.6, of 1,000 0.6 and 0.7.
SOUGHT_ELEMENTS = 32
# Vectors that a split of a row loads at once, while those before it are written; the registers hold both. Measured.
SPLIT_VECTORS = 4
# First elements up to which each one is inserted into a sorted row; a heap holds more. Measured.
INSERTED_WORDS, INSERTED_KEYS = 64, 32
# The share of a row's words up to which inserting its first ones is faster than a search for their places. The search
# takes as long as if the row had SEARCH_START elements more, and twice as long for keys; a heap takes HEAP_COST times
# as long as insertion. Measured at 8 to 50,000 elements.
CHOSEN_SHARE, SEARCH_START, HEAP_COST = 1 / 20, 100, 2.5
# The share of an axis up to which places of its order are searched; where more is wanted, all is sorted. Not measured.
SEARCHED_SHARE = 3 / 4
# The share of their operands that sums must have in common to be flattened together. Not measured.
SHARED_TERMS = 0.25
