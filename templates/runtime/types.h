// What the rendered table of a module is made of. A module with a runtime of its own defines before it includes this
// file how large the parts of its table are, and what the module has (HAS_STATE and so on: 0 or 1). A runtime that
// several modules share, and their tables, include limits.h instead.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mlaot_abi3.h"

#include "runtime/isa.h"

#define SELDOM __attribute__((cold))  // runs once, for a file or for an error: compiled for its size

enum { F16, BF16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, BOOL };

// Kinds: f (floating point), i (signed), u (unsigned), b (bool). Buffers: the format that we give, and the letters that
// we take where the size is right, too; no buffer holds bfloat16. Last the names and codes of safetensors and DLPack.
__attribute__((unused)) static const struct {
    const char *name;
    char kind;
    ptrdiff_t size;
    const char *format, *letters, *tensor;
    uint8_t code;
} DTYPES[] = {
    [F16] = {"float16", 'f', 2, "e", "e", "F16", 2}, [BF16] = {"bfloat16", 'f', 2, NULL, "", "BF16", 4},
    [F32] = {"float32", 'f', 4, "f", "f", "F32", 2}, [F64] = {"float64", 'f', 8, "d", "d", "F64", 2},
    [I8] = {"int8", 'i', 1, "b", "b", "I8", 0},      [I16] = {"int16", 'i', 2, "h", "h", "I16", 0},
    [I32] = {"int32", 'i', 4, "i", "il", "I32", 0},  [I64] = {"int64", 'i', 8, "q", "qln", "I64", 0},
    [U8] = {"uint8", 'u', 1, "B", "B", "U8", 1},     [U16] = {"uint16", 'u', 2, "H", "H", "U16", 1},
    [U32] = {"uint32", 'u', 4, "I", "IL", "U32", 1}, [U64] = {"uint64", 'u', 8, "Q", "QLN", "U64", 1},
    [BOOL] = {"bool", 'b', 1, "?", "?", "BOOL", 6},
};
enum { DTYPE_COUNT = sizeof DTYPES / sizeof *DTYPES };

// Elements of an input along an axis, as a shape writes them; with the step 0 all.
typedef struct { ptrdiff_t start, count, step; } Span;

// Elements of an input that are indices into an axis of so many elements, which a shape would write so. Negative ones
// count from the end where it wraps; one number may be ignored.
typedef struct {
    ptrdiff_t size;
    bool wraps, ignores;
    int64_t ignored;
    Span box[MAX_RANK];
} IndexRange;

// Strings that callers give or get, each of which has a place: the one at a place begins at text + at[place]. `order`:
// the places in the order of their bytes.
typedef struct {
    int count;
    const int32_t *at, *order;
    const char *text;
} Strings;

#if HAS_STEPS
// What makes a column of others: of an input or of a part of an output, of the step -1 - i, or of none. `kind` is one of
// runtime/pieces.c, `dtype` that of numbers, `port` the one whose name messages say; what else there is to know lies in
// the weights.
enum { NO_COLUMN = 1 << 30, MOST_COLUMNS = 16 };
typedef struct {
    int kind, dtype, of[2], port;
    ptrdiff_t at;
} Step;

#endif
// A shape holds numbers, and -1 - i for extent i: first the named dims, then the expressions of them.
typedef struct {
    const char *name;
    int dtype, rank;
    ptrdiff_t shape[MAX_RANK];
    bool has_default;
    double default_value;
    bool converts;  // it takes arrays of other numbers, too
#if HAS_STRINGS
    const Strings *strings;  // whose places the numbers are; or NULL
    bool further;  // strings that are none of these have places of their own behind them, as long as a call
#endif
#if HAS_ROWS
    bool has_texts;  // whose terms or tokens the numbers are
    // Where in the weights lies what makes numbers of them, how many different ones there are, and how many of a text at
    // most; 0: no matter.
    ptrdiff_t texts_at, texts_size, texts_most;
#endif
#if HAS_STEPS
    int step_begin, step_end;  // what makes an input, or strings of an output, by the last of them; none: 0
    int columns;               // how many these take, along the last axis if they are several
    bool is_map;               // callers pass a dict, whose keys it has
#endif
#if HAS_DATES
    const char *dates;  // NumPy's dtype of dates that callers may have in the place of the numbers; or NULL
    int64_t tick;       // nanoseconds of one of these; 0: not a number of them
#endif
#if HAS_INDICES
    const IndexRange *ranges;
    int range_count;
#endif
#if HAS_COUNTS
    bool counted;    // the kernel counts its shape
    ptrdiff_t room;  // then so many elements at most, as a shape writes it
#endif
} Port;

// The axis of an input that gives a dim its value, or (dim -1) an extent whose dims are known by then.
typedef struct { int input, axis, extent, dim; } Solve;

// An extent that must not be smaller.
typedef struct { int extent; ptrdiff_t least; } Bound;

// A dim that a kernel counts: the most that it may be, as a shape writes it, and how many bounds are to be checked once
// it is known, those of the dims before it included.
typedef struct { int dim; ptrdiff_t most; int bounds; } Counted;

typedef struct {
    const char *name;
    const Port *ports;  // inputs, then outputs
    const Solve *solves;
    const Bound *bounds;
    int inputs, outputs, solve_count, bound_count;
#if HAS_STEPS
    const Step *steps;
    const Strings *known;           // whose places made inputs hold
    int asked, before, step_count;  // the inputs that callers pass; the steps that make the others
#endif
    bool scalar;   // the only output is returned as a Python number
    bool numbers;  // outputs without axes are returned as Python numbers
#if HAS_NAMED
    bool named;  // the outputs are returned in a dict
#endif
#if HAS_PHASES
    int held;
#endif
    int kernel;
    ptrdiff_t tile;  // rows at a time; 0: all
    int rows;        // their extent
#if HAS_REFUSALS
    const char *const *refusals;  // what is wrong where the kernel gives a number, from 1 on; NULL: it gives none
#endif
#if HAS_COUNTS
    const Counted *counts;
    const Bound *count_bounds;
    int count_count;
#endif
    int128 (*workspace)(const ptrdiff_t *dim);  // bytes
    int128 (*work)(const ptrdiff_t *dim);       // floating-point operations
} Entry;

enum { PARAMETER, BUFFER, OPTIMIZER };

// The attributes that a module and its models may have.
enum { AT_parameters, AT_gradients, AT_flat_parameters, AT_flat_gradients, AT_buffers, ATTRIBUTE_COUNT };

typedef struct {
    const char *name;
    int kind, dtype, rank;
    ptrdiff_t shape[MAX_RANK], strides[MAX_RANK];  // strides in bytes
    ptrdiff_t offset, gradient_offset;             // bytes in the state; only parameters have a gradient
} Slot;

// How an input of a call whose answers are known is made: numbers from low on by a seed; or where its bytes begin.
typedef struct {
    double low, width;
    int seed;
    ptrdiff_t content;  // -1: it is drawn
} Draw;

// A call whose answers are known: the values of the dims, where the draws of its inputs and where its answers begin.
typedef struct { int entry; ptrdiff_t dim[DIMS]; int draw, at; } Golden;

// What forward() and loss() do without arguments where set_input() keeps some.
enum { NOT_HELD, FORWARD_HELD, LOSS_HELD };

// What a session has to know: what the file calls the inputs of forward(), then its outputs; these described in JSON.
typedef struct {
    const char *const *names;
    const char *inputs, *outputs;
} Session;

// What fit() has to know besides its entry: the batch that it takes by itself, and the extents of the rows of a step
// and of the examples. Where one example after the other goes in blocks: so many, the inputs of train_step that are read
// for a block and for an example of it, and of each weight that is updated at the end of a block the bytes of an
// example's products with it, and with the block.
typedef struct {
    const char *refusal;  // why there are no batches; else NULL
    int batch;
    ptrdiff_t rows, examples;
    int block, block_inputs, step_inputs, late_weights;  // 0: no blocks
    const int *block_input, *step_input;
    const ptrdiff_t *ahead_bytes, *like_bytes;
} FitTable;

// What a row of several texts has of a slot: where that lies in the state, where in the first row, and its size.
typedef struct {
    ptrdiff_t at, row_at, bytes;
} RowPart;

// How texts are read and written: the entry that reads the next tokens, how many a text has at most, and how many
// different ones there are. In the state lie how many of a text were read, how many it has, and all of these.
typedef struct {
    const char *type_name;  // of the iterators that generate
    int entry, update;  // update: the entry that changes weights besides train_step; -1: there is none
    ptrdiff_t context, tokens;
    int seen;      // the dim of the entry that tells how many tokens there are with those that it reads; -1: none does
    bool slides;   // a text goes on behind its context
    bool rereads;  // what is kept of a text does not lie by places: to go back is to read it anew
    ptrdiff_t place_at, length_at, tokens_at;
    ptrdiff_t tokenizer_at;  // where in the weights its tables lie; -1: there is none
    const int *ends;         // the tokens that end an answer
    int end_count;
    // How several texts are read at once, each behind the state in a row of its own: how many, and the entry that does.
    const char *all_type_name;
    int texts, texts_entry, texts_dim;
    const RowPart *parts;  // of a row
    int part_count;
    ptrdiff_t rows_bytes;
} Text;

// What a module is, and others are not: the runtime walks it.
typedef struct {
    const char *name, *array_name, *model_name, *model_doc, *info;
    const char *version;  // or NULL
    int dims, batch;      // how many there are; the extent of one of them
    const char *const *extent_names;
    const int *degrees;  // the highest power of each dim in any expression
    int128 (*extent_value)(int extent, const ptrdiff_t *dim);
    const Entry *entries;
    int forward, phases, train_step, fit, fit_begin, fit_step, fit_end;  // entries; -1: there is no such one
    const Isa *isas;  // best last
    int isa_count, threads;
    const Session *session;  // or NULL
    const FitTable *fit_table;  // or NULL
    const Text *text;           // or NULL
    const Slot *slots;  // NULL where the weights are frozen
    int slot_count;
    const char *tensors;  // the head of a safetensors file of the state: names, types and shapes in JSON
    int needed_slots, file_slots;  // how many slots, the first, a file must have, and one of save() has
    const char *file_tensors;      // the head of the latter
    ptrdiff_t file_tensors_bytes;
    const char *base;  // the digest of the weights beside which adapters are trained; or NULL
    ptrdiff_t tensors_bytes, state_bytes, initial_at, initial_bytes;  // where in the weights the state's start lies
    int flat_dtype;  // of the parameters and the gradients, each without gaps; no gradients: a count of 0
    ptrdiff_t flat_count, parameters_at, gradients_at;
    bool is_split;                 // phases has a kernel for either phase
    int scalars, scalar_runs;      // of the source model
    ptrdiff_t scalars_at;          // where in the weights their table lies
    const Golden *golden;
    int golden_calls, sums;  // of the elements of an output, which are held against answers
    const Draw *draws;
    const unsigned char *contents;
    const double *answers;      // of each output a bound, then elements at even distances
    const char *weights;        // constants, then the start of the state, then scalars; NULL where they lie in a file
    const char *weights_file, *weights_digest;  // its name, and the SHA-256 that it begins with
    ptrdiff_t weights_bytes;
    int prepare;  // the entry that makes of the weights what models read in the place of a state; -1: there is none
    ptrdiff_t prepared_bytes;
} Table;

#if IS_SHARED
#define TABLE_OF(object) ((object)->table)
#else
#define TABLE_OF(object) ((void)(object), &TABLE)
#endif

// How a method is called: its flags, its parameters behind the object, and these as arguments.
#define FAST_FLAGS (METH_FASTCALL | METH_KEYWORDS)
#define FAST_PARAMETERS PyObject *const *args, Py_ssize_t count, PyObject *names
#define FAST_ARGUMENTS args, count, names
#define NAMED_FLAGS (METH_VARARGS | METH_KEYWORDS)
#define NAMED_PARAMETERS PyObject *args, PyObject *named
#define NAMED_ARGUMENTS args, named
#define ONE_FLAGS METH_O
#define ONE_PARAMETERS PyObject *argument
#define ONE_ARGUMENTS argument
#define NONE_FLAGS METH_NOARGS
#define NONE_PARAMETERS PyObject *unused
#define NONE_ARGUMENTS unused
