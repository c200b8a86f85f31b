// -------------------------------------------------------------------------------------------------------------- texts
// Inputs that callers see as texts. A model computes with rows of their terms.
#pragma once

#include "runtime/strings.c"

#if HAS_VECTORIZER
#include "runtime/vectorizer.c"

// Add the row of a text of the caller's, and where it ends.
static int take_text(const char *function, const char *name, const char *block, PyObject *text, Terms *terms,
                     Buffer *ends)
{
    enum { LONG_TEXT = 4096 };  // other threads run Python code meanwhile
    PyObject *bytes = NULL;
    if (is_str(text)) {
        bytes = PyUnicode_AsEncodedString(text, "utf-8", "surrogatepass");
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
    is_done = is_done && add_text(block, data, size, terms);
    if (thread != NULL) {
        PyEval_RestoreThread(thread);
    }
    Py_DecRef(bytes);
    if (!is_done || !buffer_add(ends, (const char *)&terms->rows.bytes, sizeof terms->rows.bytes)) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

// Rows of the same length of the terms of texts: an Array.
static PyObject *make_rows(PyTypeObject *type, const Terms *terms, const Buffer *ends, bool is_one)
{
    const ptrdiff_t *end = (const ptrdiff_t *)(const void *)ends->at;
    const ptrdiff_t count = ends->bytes / (ptrdiff_t)sizeof *end;
    ptrdiff_t longest = (ptrdiff_t)sizeof(int64_t), begin = 0;
    for (ptrdiff_t i = 0; i < count; begin = end[i], i++) {
        longest = end[i] - begin > longest ? end[i] - begin : longest;
    }
    const ptrdiff_t words = longest / (ptrdiff_t)sizeof(int64_t), shape[] = {count, words};
    PyObject *object = array_new(type, I64, is_one ? 1 : 2, shape + is_one);
    if (object == NULL) {
        return NULL;
    }
    char *to = ((Array *)PY_BODY(object))->data;
    begin = 0;
    for (ptrdiff_t i = 0; i < count; begin = end[i], i++) {
        const ptrdiff_t bytes = end[i] - begin;
        if (bytes > 0) {
            memcpy(to, terms->rows.at + begin, (size_t)bytes);
        }
        for (ptrdiff_t k = bytes; k < longest; k += (ptrdiff_t)sizeof(int64_t)) {
            memcpy(to + k, &(int64_t){NO_WORD}, sizeof(int64_t));
        }
        to += longest;
    }
    return object;
}

// The rows of a text, or of a list of texts: an Array, or NULL with an error.
static PyObject *rows_of_texts(PyTypeObject *type, const char *function, const char *name, const char *block,
                               PyObject *object)
{
    Terms terms = {.text = {0}};
    Buffer ends = {0};
    const bool is_one = !is_list(object);
    const Py_ssize_t count = is_one ? 1 : PySequence_Size(object);
    int status = count < 0 ? -1 : 0;
    for (Py_ssize_t i = 0; status == 0 && i < count; i++) {
        PyObject *text = is_one ? object : PySequence_GetItem(object, i);
        status = text == NULL ? -1 : take_text(function, name, block, text, &terms, &ends);
        if (!is_one) {
            release(text);
        }
    }
    PyObject *rows = status < 0 ? NULL : make_rows(type, &terms, &ends, is_one);
    free_terms(&terms);
    free(ends.at);
    return rows;
}
#endif
