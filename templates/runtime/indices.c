// ------------------------------------------------------------------------------------------------------------ indices
#pragma once

#include "runtime/inputs.c"

#if HAS_INDICES
// Elements of an input in as few axes as they lie in, the innermost first: elements from one to the next.
typedef struct {
    int rank;
    ptrdiff_t first, size, count[MAX_RANK], stride[MAX_RANK];
} Box;

static Box box_of(const Table *table, const Port *port, const IndexRange *range, const ptrdiff_t *dim)
{
    Box box = {.rank = 1, .size = 1, .count = {1}, .stride = {1}};
    ptrdiff_t stride = 1;
    for (int d = port->rank; d-- > 0;) {
        const ptrdiff_t extent = port_extent(table, port, d, dim);
        const Span *span = &range->box[d];
        const bool whole = span->step == 0;
        const ptrdiff_t step = whole ? stride : span->step * stride;
        const ptrdiff_t count = whole ? extent : extent_at(table, span->count, dim);
        ptrdiff_t *outer = &box.count[box.rank - 1];
        box.first += whole ? 0 : extent_at(table, span->start, dim) * stride;
        box.size *= count;
        if (*outer == 1) {
            *outer = count;
            box.stride[box.rank - 1] = step;
        } else if (step == *outer * box.stride[box.rank - 1]) {
            *outer *= count;
        } else if (count != 1) {
            box.count[box.rank] = count;
            box.stride[box.rank++] = step;
        }
        stride *= extent;
    }
    return box;
}

// Where in the input element k of a box lies.
static ptrdiff_t box_place(const Box *box, ptrdiff_t k)
{
    ptrdiff_t place = box->first;
    for (int axis = 0; axis < box->rank && k > 0; axis++) {
        place += k % box->count[axis] * box->stride[axis];
        k /= box->count[axis];
    }
    return place;
}

// Numbers from `low` on, so many of them, and perhaps one more.
typedef struct { int64_t low; uint64_t count; bool ignores; int64_t ignored; } Allowed;

static Allowed allowed_of(const Table *table, int dtype, const IndexRange *range, const ptrdiff_t *dim)
{
    const bool is_unsigned = DTYPES[dtype].kind == 'u', wraps = range->wraps && !is_unsigned;
    const int64_t size = extent_at(table, range->size, dim);
    return (Allowed){
        .low = wraps ? -size : 0,
        .count = (uint64_t)(wraps ? 2 * size : size),
        .ignores = range->ignores && !(is_unsigned && range->ignored < 0),
        .ignored = range->ignored,
    };
}

// Is a number not allowed? A negative integer is a huge one here; of a fraction the whole part counts.
__attribute__((always_inline, unused)) static inline bool is_integer_outside(uint64_t value, Allowed allowed)
{
    const bool is_in = value - (uint64_t)allowed.low < allowed.count;
    return !(is_in | (allowed.ignores & (value == (uint64_t)allowed.ignored)));
}

__attribute__((always_inline, unused)) static inline bool is_float_outside(double value, Allowed allowed)
{
    const double low = (double)allowed.low;
    const bool is_in = (value > low - 1) & (value < low + (double)allowed.count);
    return !(is_in | (allowed.ignores & (value == (double)allowed.ignored)));
}

#define INTEGER_IS_OUTSIDE(element) is_integer_outside((uint64_t)(element), allowed)
#define FLOAT_IS_OUTSIDE(element) is_float_outside((double)(element), allowed)
#define HALF_IS_OUTSIDE(element) is_float_outside(half_get(F16, element), allowed)

// The first of `count` elements that is not allowed, or -1: a function for each dtype that indices have.
#define OUTSIDE(dtype, ctype, kind)                                                                             \
    static ptrdiff_t outside_##dtype(const char *from, ptrdiff_t count, ptrdiff_t step, Allowed allowed)         \
    {                                                                                                           \
        const ctype *elements = (const ctype *)(const void *)from;                                              \
        for (ptrdiff_t k = 0; k < count; k++) {                                                                 \
            if (__builtin_expect(kind##_IS_OUTSIDE(elements[k * step]), 0)) {                                   \
                return k;                                                                                       \
            }                                                                                                   \
        }                                                                                                       \
        return -1;                                                                                              \
    }

INDEX_DTYPES(OUTSIDE)

static ptrdiff_t first_outside(int dtype, const char *from, ptrdiff_t count, ptrdiff_t step, Allowed allowed)
{
    switch (dtype) {
#define SEARCH(dtype, ctype, kind) \
    case dtype:                    \
        return outside_##dtype(from, count, step, allowed);
        INDEX_DTYPES(SEARCH)
    default:
        return -1;
    }
}

// Name the element at a place of an input as the caller would: y[3, 17].
SELDOM static Words element_words(const Call *call, const Port *port, int i, ptrdiff_t place)
{
    const int lacks = port->rank - call->inputs[i].rank;  // the batch axis that was left out
    ptrdiff_t at[MAX_RANK];
    for (int d = port->rank; d-- > 0;) {
        const ptrdiff_t extent = port_extent(TABLE_OF(call), port, d, call->dim);
        at[d] = place % extent;
        place /= extent;
    }
    Words words;
    int n = snprintf(words.text, sizeof words.text, "%.100s", port->name);
    for (int d = lacks; d < port->rank && n < 200; d++) {
        n += snprintf(words.text + n, sizeof words.text - (size_t)n, "%s%td%s", d == lacks ? "[" : ", ", at[d],
                      d + 1 == port->rank ? "]" : "");
    }
    return words;
}

SELDOM static int refuse_index(const Call *call, const Port *port, int i, const IndexRange *range, ptrdiff_t place)
{
#if HAS_STRINGS
    if (port->strings != NULL) {
        PyErr_Format(PyExc_ValueError, "%s: %s: expected one of the %d strings that the model knows, got another",
                     call->function, element_words(call, port, i, place).text, port->strings->count);
        return -1;
    }
#endif
    const Allowed allowed = allowed_of(TABLE_OF(call), port->dtype, range, call->dim);
    PyObject *got = element_get(port->dtype, call->p[i] + place * DTYPES[port->dtype].size);
    if (got == NULL) {
        return -1;
    }
    char expected[120], other[40] = "";
    if (allowed.ignores) {
        snprintf(other, sizeof other, " or %lld", (long long)allowed.ignored);
    }
    if (allowed.count == 0) {
        snprintf(expected, sizeof expected, "no values, since there is nothing to choose from");
    } else {
        snprintf(expected, sizeof expected, "values from %lld to %lld", (long long)allowed.low,
                 (long long)allowed.low + (long long)allowed.count - 1);
    }
    PyErr_Format(PyExc_ValueError, "%s: %s: expected %s%s, got %S", call->function,
                 element_words(call, port, i, place).text, expected, other, got);
    Py_DecRef(got);
    return -1;
}

// Hold the elements of an input that are indices against what they may be.
static int check_index(const Call *call, const Port *port, int i, const IndexRange *range)
{
    const Box box = box_of(TABLE_OF(call), port, range, call->dim);
    const Allowed allowed = allowed_of(TABLE_OF(call), port->dtype, range, call->dim);
    for (ptrdiff_t k = 0; k < box.size; k += box.count[0]) {
        const ptrdiff_t first = box_place(&box, k);
        const char *from = call->p[i] + first * DTYPES[port->dtype].size;
        const ptrdiff_t found = first_outside(port->dtype, from, box.count[0], box.stride[0], allowed);
        if (found >= 0) {
            return refuse_index(call, port, i, range, first + found * box.stride[0]);
        }
    }
    return 0;
}

static int check_indices(const Call *call, const Port *ports)
{
    for (int i = 0; i < call->entry->inputs; i++) {
        for (int k = 0; k < ports[i].range_count; k++) {
            if (check_index(call, &ports[i], i, &ports[i].ranges[k]) < 0) {
                return -1;
            }
        }
    }
    return 0;
}
#endif
