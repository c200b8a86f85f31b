// What the rendered table of a module is made of. Before it includes this file, the table defines its numbers, what the
// module has (HAS_STATE and so on: 0 or 1), and how it is called (MODULE_NAME, ..).
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mlaot_abi3.h"

#include "runtime/isa.h"

enum { F16, BF16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, BOOL };

// Kinds: f (floating point), i (signed), u (unsigned), b (bool). Buffers: the format that we give, and the letters that
// we take where the size is right, too; no buffer holds bfloat16. Last the names and codes of safetensors and DLPack.
static const struct { const char *name; char kind; ptrdiff_t size; const char *format, *letters, *tensor; uint8_t code; }
DTYPES[] = {
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

// A shape holds numbers, and -1 - i for extent i: first the named dims, then the expressions of them.
typedef struct {
    const char *name;
    int dtype, rank;
    ptrdiff_t shape[MAX_RANK];
    bool has_default;
    double default_value;
    bool converts;  // it takes arrays of other numbers, too
#if HAS_INDICES
    const IndexRange *ranges;
    int range_count;
#endif
} Port;

// The axis of an input that gives a dim its value, or (dim -1) an extent whose dims are known by then.
typedef struct { int input, axis, extent, dim; } Solve;

// An extent that must not be smaller.
typedef struct { int extent; ptrdiff_t least; } Bound;

typedef struct {
    const char *name;
    const Port *ports;  // inputs, then outputs
    const Solve *solves;
    const Bound *bounds;
    int inputs, outputs, solve_count, bound_count;
    bool scalar;   // the only output is returned as a Python number
    bool numbers;  // outputs without axes are returned as Python numbers
#if HAS_NAMED
    bool named;  // the outputs are returned in a dict
#endif
    int kernel;
    ptrdiff_t tile;  // rows of the batch at a time; 0: all
#if HAS_REFUSALS
    const char *const *refusals;  // what is wrong where the kernel gives a number, from 1 on; NULL: it gives none
#endif
    int128 (*workspace)(const ptrdiff_t *dim);  // bytes
    int128 (*work)(const ptrdiff_t *dim);       // floating-point operations
} Entry;

enum { PARAMETER, BUFFER, OPTIMIZER };

typedef struct {
    const char *name;
    int kind, dtype, rank;
    ptrdiff_t shape[MAX_RANK], strides[MAX_RANK];  // strides in bytes
    ptrdiff_t offset, gradient_offset;             // bytes in the state; only parameters have a gradient
} Slot;

// A call whose answers are known: the values of the dims, and where in ANSWERS the answers begin.
typedef struct { int entry; ptrdiff_t dim[DIMS]; int at; } Golden;

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
