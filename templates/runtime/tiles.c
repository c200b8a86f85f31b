// -------------------------------------------------------------------------------------------------------------- tiles
// Which rows one run of a kernel computes, and what it takes.
#pragma once

#include "runtime/inputs.c"

// The dim of the rows that do not depend on each other.
static int rows_dim(const Call *call)
{
    return -1 - call->entry->rows;
}

// How many of them one run of the kernel computes.
static ptrdiff_t rows_at_a_time(const Call *call)
{
    const ptrdiff_t rows = call->dim[rows_dim(call)], tile = call->entry->tile;
    return tile > 0 && tile < rows ? tile : rows;
}

#if HAS_ROWS
static bool has_texts(const Call *call)
{
    for (int i = 0; i < call->entry->inputs; i++) {
        if (call->inputs[i].has_rows) {
            return true;
        }
    }
    return false;
}

// May rows of texts be laid out anew for each run of the kernel? Not where outputs have their length.
static bool are_rows_apart(const Call *call)
{
    const Entry *entry = call->entry;
    bool apart = entry->tile > 0;
    for (int k = entry->inputs; k < entry->inputs + entry->outputs; k++) {
        for (int d = 1; d < entry->ports[k].rank; d++) {
            apart = apart && entry->ports[k].shape[d] >= 0;
        }
    }
    return apart;
}

#if HAS_TOKENS
// Compute texts in the order of their lengths, where they are the one input that has rows; -1 with an error.
static int order_texts(Call *call)
{
    int inputs = 0, which = 0;
    for (int i = 0; i < call->entry->inputs; i++) {
        const Port *port = &call->entry->ports[i];
        inputs += port->rank > 0 && port->shape[0] == call->entry->rows;
        which = call->inputs[i].has_rows ? i : which;
    }
    Input *input = &call->inputs[which];
    if (inputs == 1 && input->has_rows && are_rows_apart(call) && !order_rows(&input->rows, call->dim[rows_dim(call)])) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

// Put the rows of outputs, which begin at `outputs`, into the order of the texts; -1 with an error.
static int restore_order(const Call *call, char *const *outputs)
{
    const Entry *entry = call->entry;
    const TextRows *rows = NULL;
    for (int i = 0; i < entry->inputs; i++) {
        rows = call->inputs[i].has_rows && call->inputs[i].rows.order.bytes > 0 ? &call->inputs[i].rows : rows;
    }
    const ptrdiff_t count = call->dim[rows_dim(call)];
    for (int k = 0; k < entry->outputs && rows != NULL; k++) {
        const Port *port = &entry->ports[entry->inputs + k];
        ptrdiff_t size = DTYPES[port->dtype].size;
        for (int d = 1; d < port->rank; d++) {
            size *= port_extent(TABLE_OF(call), port, d, call->dim);
        }
        char *copy = size > 0 ? malloc((size_t)(count * size)) : NULL;
        if (copy == NULL && size > 0) {
            PyErr_NoMemory();
            return -1;
        }
        if (copy != NULL) {
            memcpy(copy, outputs[k], (size_t)(count * size));
        }
        for (ptrdiff_t i = 0; copy != NULL && i < count; i++) {
            memcpy(outputs[k] + row_at(rows, i) * size, copy + i * size, (size_t)size);
        }
        free(copy);
    }
    return 0;
}

#endif
// Set the dims of one run of the kernel, which begins with a row: so many rows that a long text is not among many.
static void set_text_dims(const Call *call, ptrdiff_t start, ptrdiff_t tile, ptrdiff_t *dim)
{
#if HAS_TOKENS
    enum { TOGETHER = 96 };  // so many tokens pay for fetching the weights, and what they make stays near
    const ptrdiff_t room = TOGETHER;
#else
    enum { USUAL_TERMS = 64 };
    const ptrdiff_t room = tile * USUAL_TERMS;
#endif
    const Entry *entry = call->entry;
    const bool apart = are_rows_apart(call);
    const ptrdiff_t rows = call->dim[rows_dim(call)];
    ptrdiff_t longest[MAX_INPUTS], count = 0, sum = 0;
    for (int i = 0; i < entry->inputs; i++) {
        longest[i] = 1;
        sum += call->inputs[i].has_rows;
    }
    for (; count < rows - start && (count < tile || !apart); count++) {
        ptrdiff_t next[MAX_INPUTS], all = 0;
        for (int i = 0; i < entry->inputs; i++) {
            const Input *input = &call->inputs[i];
            next[i] = input->has_rows ? longer_row(&input->rows, start + count, longest[i]) : 0;
            all += next[i];
        }
        if (apart && count > 0 && all * (count + 1) > room * sum) {
            break;
        }
        memcpy(longest, next, sizeof(ptrdiff_t) * (size_t)entry->inputs);
    }
    dim[rows_dim(call)] = count;
    for (int i = 0; i < entry->inputs; i++) {
        const Port *port = &entry->ports[i];
        if (call->inputs[i].has_rows) {
            dim[-1 - port->shape[port->rank - 1]] = longest[i];
        }
    }
}

#endif
// The largest workspace that one run of the kernel takes.
static int128 largest_workspace(const Call *call)
{
    ptrdiff_t dim[DIMS];
    memcpy(dim, call->dim, sizeof dim);
    dim[rows_dim(call)] = rows_at_a_time(call);
#if HAS_ROWS
    int128 largest = 0;
    const ptrdiff_t rows = call->dim[rows_dim(call)], tile = rows_at_a_time(call);
    for (ptrdiff_t start = 0; has_texts(call) && start < rows; start += dim[rows_dim(call)]) {
        set_text_dims(call, start, tile, dim);
        const int128 workspace = call->entry->workspace(dim);
        largest = workspace > largest ? workspace : largest;
    }
    if (largest > 0) {
        return largest;
    }
#endif
    return call->entry->workspace(dim);
}

#if HAS_ROWS
// Lay out the rows of texts for one run of the kernel.
static int lay_texts(Call *call, ptrdiff_t start, ptrdiff_t rows, ptrdiff_t tile)
{
    if (!has_texts(call) || start >= rows) {
        return 0;
    }
    call->dim[rows_dim(call)] = rows;
    set_text_dims(call, start, tile, call->dim);
    for (int i = 0; i < call->entry->inputs; i++) {
        const Port *port = &call->entry->ports[i];
        Input *input = &call->inputs[i];
        if (input->has_rows) {
            const ptrdiff_t longest = call->dim[-1 - port->shape[port->rank - 1]];
            if (!pack_rows(&input->rows, start, call->dim[rows_dim(call)], longest)) {
                PyErr_NoMemory();
                return -1;
            }
            call->p[i] = input->rows.packed.at;
        }
    }
    return 0;
}

#endif
