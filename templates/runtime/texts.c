// -------------------------------------------------------------------------------------------------------------- texts
// Inputs that callers see as texts. A model computes with rows of their terms, or of their tokens.
#pragma once

#include "runtime/strings.c"

#if HAS_VECTORIZER || HAS_STEPS
#include "runtime/tokenizer_automaton.c"
#include "runtime/tokenizer_buffer.c"
#endif

#if HAS_ROWS
#if HAS_VECTORIZER
#include "runtime/vectorizer.c"
#endif
#if HAS_TOKENS
#include "runtime/token_rows.c"
#endif

// The numbers of texts one behind the other, where the row of each ends, in bytes, some rows in the same length, and in
// which order rows are computed, if that is another one.
typedef struct {
    Buffer numbers, ends, packed, order;
} TextRows;

// Add what a text of the caller's is made of.
static int take_text(const char *function, const char *name, const char *block, PyObject *text, Terms *terms)
{
    enum { LONG_TEXT = 4096 };  // other threads run Python code meanwhile
    PyObject *bytes = NULL;
    if (is_str(text)) {
        bytes = PyUnicode_AsEncodedString(text, "utf-8", TEXT_ERRORS);
    } else if (is_bytes(text)) {
        PyObject *decoded = PyUnicode_DecodeUTF8(PyBytes_AsString(text), PyBytes_Size(text), NULL);
        bytes = decoded == NULL ? NULL : PyUnicode_AsUTF8String(decoded);
        release(decoded);
    } else {
        return refuse_type(function, name, "str", text);
    }
    if (bytes == NULL) {
        return -1;
    }
    const char *data = PyBytes_AsString(bytes);
    const Py_ssize_t size = PyBytes_Size(bytes);
    bool is_done = size < INT32_MAX;  // as counts are
    PyThreadState *thread = size > LONG_TEXT ? PyEval_SaveThread() : NULL;
    is_done = is_done && read_text(block, data, size, terms);
    if (thread != NULL) {
        PyEval_RestoreThread(thread);
    }
    Py_DecRef(bytes);
    if (!is_done) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

// Add the row of a text, or of a pair of texts, and where it ends.
static int take_row(const char *function, const char *name, const char *block, PyObject *text, Terms *terms,
                    Buffer *ends)
{
    int status = 0;
#if HAS_VECTORIZER
    status = take_text(function, name, block, text, terms);
#else
    const bool is_pair = is_list(text) && frames_pairs(block) && PySequence_Size(text) == 2;
    begin_row(terms);
    for (Py_ssize_t i = 0; status == 0 && i < (is_pair ? 2 : 1); i++) {
        PyObject *part = is_pair ? PySequence_GetItem(text, i) : text;
        status = part == NULL ? -1 : take_text(function, name, block, part, terms);
        if (is_pair) {
            release(part);
        }
    }
    if (status == 0 && !end_row(block, terms)) {
        PyErr_NoMemory();
        status = -1;
    }
#endif
    if (status == 0 && !buffer_add(ends, (const char *)&terms->rows.bytes, sizeof terms->rows.bytes)) {
        PyErr_NoMemory();
        status = -1;
    }
    return status;
}

// The rows of a text, or of a list of texts.
static int take_texts(const char *function, const char *name, const char *block, PyObject *object, TextRows *rows)
{
    Terms terms = {.rows = rows->numbers};
    const bool is_one = !is_list(object);
    const Py_ssize_t count = is_one ? 1 : PySequence_Size(object);
    int status = count < 0 ? -1 : 0;
    for (Py_ssize_t i = 0; status == 0 && i < count; i++) {
        PyObject *text = is_one ? object : PySequence_GetItem(object, i);
        status = text == NULL ? -1 : take_row(function, name, block, text, &terms, &rows->ends);
        if (!is_one) {
            release(text);
        }
    }
    rows->numbers = terms.rows;
    terms.rows.at = NULL;
    free_terms(&terms);
    return status;
}

static ptrdiff_t row_begin(const TextRows *rows, ptrdiff_t i)
{
    return i == 0 ? 0 : ((const ptrdiff_t *)(const void *)rows->ends.at)[i - 1];
}

// Which row is computed as number i.
static ptrdiff_t row_at(const TextRows *rows, ptrdiff_t i)
{
    return rows->order.bytes > 0 ? ((const ptrdiff_t *)(const void *)rows->order.at)[i] : i;
}

// How many numbers the longer one of the row that is computed as number i and of some others has; at least one.
static ptrdiff_t longer_row(const TextRows *rows, ptrdiff_t i, ptrdiff_t longest)
{
    i = row_at(rows, i);
    const ptrdiff_t own = (row_begin(rows, i + 1) - row_begin(rows, i)) / (ptrdiff_t)sizeof(int64_t);
    return own > longest ? own : longest;
}

// Lay rows out in the same length; false where memory is short.
static bool pack_rows(TextRows *rows, ptrdiff_t start, ptrdiff_t count, ptrdiff_t longest)
{
    const ptrdiff_t size = (ptrdiff_t)sizeof(int64_t), bytes = longest * size;
    rows->packed.bytes = 0;
    if (count > PTRDIFF_MAX / 8 / bytes || !buffer_room(&rows->packed, count * bytes)) {
        return false;
    }
    char *to = rows->packed.at;
    for (ptrdiff_t k = start; k < start + count; k++, to += bytes) {
        const ptrdiff_t i = row_at(rows, k), begin = row_begin(rows, i), own = row_begin(rows, i + 1) - begin;
        if (own > 0) {
            memcpy(to, rows->numbers.at + begin, (size_t)own);
        }
        for (ptrdiff_t place = own; place < bytes; place += size) {
            memcpy(to + place, &(int64_t){NO_WORD}, sizeof(int64_t));
        }
    }
    return true;
}

static void free_rows(TextRows *rows)
{
    free(rows->numbers.at);
    free(rows->ends.at);
    free(rows->packed.at);
    free(rows->order.at);
}

#if HAS_TOKENS
// Let rows be computed in the order of their lengths, so that those that are laid out together have few to fill; false
// where memory is short.
static bool order_rows(TextRows *rows, ptrdiff_t count)
{
    ptrdiff_t longest = 1, shortest = PTRDIFF_MAX;
    for (ptrdiff_t i = 0; i < count; i++) {
        const ptrdiff_t own = longer_row(rows, i, 1);
        longest = own > longest ? own : longest;
        shortest = own < shortest ? own : shortest;
    }
    if (longest <= shortest) {
        return true;
    }
    ptrdiff_t *begins = calloc((size_t)longest + 2, sizeof *begins);
    const bool is_done = begins != NULL && buffer_room(&rows->order, count * (ptrdiff_t)sizeof *begins);
    ptrdiff_t *order = (ptrdiff_t *)(void *)rows->order.at;
    for (ptrdiff_t i = 0; is_done && i < count; i++) {
        begins[longer_row(rows, i, 1) + 1]++;
    }
    for (ptrdiff_t length = 1; is_done && length <= longest; length++) {
        begins[length + 1] += begins[length];
    }
    for (ptrdiff_t i = 0; is_done && i < count; i++) {
        order[begins[longer_row(rows, i, 1)]++] = i;
    }
    rows->order.bytes = is_done ? count * (ptrdiff_t)sizeof *order : 0;
    free(begins);
    return is_done;
}
#endif
#endif
