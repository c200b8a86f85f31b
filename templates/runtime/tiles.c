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

// Set the dims of one run of the kernel, which begins with a row: so many rows that a long text is not among many.
static void set_text_dims(const Call *call, ptrdiff_t start, ptrdiff_t tile, ptrdiff_t *dim)
{
    enum { USUAL_TERMS = 64 };
    const Entry *entry = call->entry;
    const bool apart = are_rows_apart(call);
    const ptrdiff_t rows = call->dim[rows_dim(call)];
    ptrdiff_t longest[MAX_INPUTS], count = 0, room = tile * USUAL_TERMS, sum = 0;
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
