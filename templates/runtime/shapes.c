// ------------------------------------------------------------------------------------------------------------- shapes
#pragma once

#include <stdio.h>
#include <string.h>

#include "runtime/types.h"

// A number of a table: itself, or an extent of named dims.
static ptrdiff_t extent_at(const Table *table, ptrdiff_t written, const ptrdiff_t *dim)
{
    const ptrdiff_t extent = -1 - written;
    if (extent < 0) {
        return written;
    }
    return extent < table->dims ? dim[extent] : (ptrdiff_t)table->extent_value((int)extent, dim);
}

static ptrdiff_t port_extent(const Table *table, const Port *port, int d, const ptrdiff_t *dim)
{
    return extent_at(table, port->shape[d], dim);
}

// The bytes of a dense array; false when they do not fit.
static bool dense_bytes(int dtype, int rank, const ptrdiff_t *shape, ptrdiff_t *bytes)
{
    ptrdiff_t product = DTYPES[dtype].size;
    bool fits = true;
    for (int d = 0; d < rank; d++) {
        if (shape[d] == 0) {
            *bytes = 0;
            return true;
        }
        fits = fits && !__builtin_mul_overflow(product, shape[d], &product);
    }
    *bytes = product;
    return fits;
}

static void dense_strides(int dtype, int rank, const ptrdiff_t *shape, ptrdiff_t *strides)
{
    ptrdiff_t stride = DTYPES[dtype].size;
    for (int d = rank; d-- > 0;) {
        strides[d] = stride;
        stride *= shape[d];
    }
}

static bool is_dense(int dtype, int rank, const ptrdiff_t *shape, const ptrdiff_t *strides)
{
    ptrdiff_t stride = DTYPES[dtype].size;
    bool dense = true;
    for (int d = rank; d-- > 0;) {
        if (shape[d] == 0) {
            return true;
        }
        dense = dense && (shape[d] == 1 || strides[d] == stride);
        stride *= dense ? shape[d] : 1;
    }
    return dense;
}

static void copy_strided(int dtype, int rank, const ptrdiff_t *shape, char *to, const ptrdiff_t *to_strides,
                         const char *from, const ptrdiff_t *from_strides)
{
    const ptrdiff_t size = DTYPES[dtype].size;
    if (rank == 0) {
        memcpy(to, from, (size_t)size);
        return;
    }
    const ptrdiff_t n = shape[0], step = to_strides[0], from_step = from_strides[0];
    if (rank > 1) {
        for (ptrdiff_t i = 0; i < n; i++) {
            copy_strided(dtype, rank - 1, shape + 1, to + i * step, to_strides + 1, from + i * from_step,
                         from_strides + 1);
        }
    } else if (step == size && from_step == size) {
        memcpy(to, from, (size_t)(n * size));
    } else if (size == 8) {
        for (ptrdiff_t i = 0; i < n; i++) {
            memcpy(to + i * step, from + i * from_step, 8);
        }
    } else if (size == 4) {
        for (ptrdiff_t i = 0; i < n; i++) {
            memcpy(to + i * step, from + i * from_step, 4);
        }
    } else if (size == 2) {
        for (ptrdiff_t i = 0; i < n; i++) {
            memcpy(to + i * step, from + i * from_step, 2);
        }
    } else {
        for (ptrdiff_t i = 0; i < n; i++) {
            to[i * step] = from[i * from_step];
        }
    }
}

// "float32[batch, 784]"
typedef struct { char text[240]; } Words;

// A table is needed where the shape has named dims only.
SELDOM static Words type_words(const Table *table, const char *dtype, int rank, const ptrdiff_t *shape)
{
    Words words;
    int n = snprintf(words.text, sizeof words.text, "%s%s", dtype, rank > 0 ? "[" : "");
    for (int d = 0; d < rank && n < 200; d++) {
        const char *end = d + 1 < rank ? ", " : "]";
        if (shape[d] < 0) {
            n += snprintf(words.text + n, sizeof words.text - (size_t)n, "%s%s", table->extent_names[-1 - shape[d]],
                          end);
        } else {
            n += snprintf(words.text + n, sizeof words.text - (size_t)n, "%lld%s", (long long)shape[d], end);
        }
    }
    return words;
}

static unsigned long type_flags(PyObject *object)
{
    return PyType_GetFlags(PY_TYPE(object));
}

static bool is_list(PyObject *object)
{
    return (type_flags(object) & (Py_TPFLAGS_LIST_SUBCLASS | Py_TPFLAGS_TUPLE_SUBCLASS)) != 0;
}

// Raise "where: name: expected float32, got str".
SELDOM static int refuse_type(const char *where, const char *name, const char *expected, PyObject *got)
{
    PyObject *type_name = PyType_GetName(PY_TYPE(got));
    if (type_name != NULL) {
        PyErr_Format(PyExc_TypeError, "%s: %s: expected %s, got %S", where, name, expected, type_name);
        Py_DecRef(type_name);
    }
    return -1;
}
