// ------------------------------------------------------------------------------------------------------------- tokens
// From Python's strings and numbers to tokens, and back.
#pragma once

#include <stdlib.h>

#include "runtime/calls.c"

#if HAS_TEXT
typedef struct {
    int32_t *data;
    ptrdiff_t count;
} Tokens;

// Bytes that come one piece after the other.
typedef struct {
    char *data;
    ptrdiff_t count, room;
} Bytes;

// Sort arguments by their names. The first one must be there, and may come by its place.
static int take_arguments(const char *function, const char *const *known, PyObject *const *args, Py_ssize_t count,
                          PyObject *names, PyObject **given)
{
    if (count > 1) {
        PyErr_Format(PyExc_TypeError, "%s() takes 1 positional argument, got %zd", function, count);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        given[i] = args[i];
    }
    const Py_ssize_t named = names == NULL ? 0 : PyTuple_Size(names);
    for (Py_ssize_t k = 0; k < named; k++) {
        PyObject *name = PyTuple_GetItem(names, k);
        int i = 0;
        while (known[i] != NULL && PyUnicode_CompareWithASCIIString(name, known[i]) != 0) {
            i++;
        }
        if (known[i] == NULL || given[i] != NULL) {
            PyErr_Format(PyExc_TypeError, "%s() got %s argument '%U'", function,
                         known[i] == NULL ? "an unexpected keyword" : "more than one", name);
            return -1;
        }
        given[i] = args[count + k];
    }
    if (given[0] == NULL) {
        PyErr_Format(PyExc_TypeError, "%s() is missing argument '%s'", function, known[0]);
        return -1;
    }
    return 0;
}

// The tokens of a sequence of numbers.
static int take_numbers(const Text *text, const char *function, const char *name, PyObject *numbers, Tokens *tokens)
{
    if (PySequence_Check(numbers) == 0 || (type_flags(numbers) & Py_TPFLAGS_UNICODE_SUBCLASS) != 0) {
        return refuse_type(function, name, "a sequence of tokens", numbers);
    }
    const Py_ssize_t count = PySequence_Size(numbers);
    tokens->data = count < 0 ? NULL : calloc((size_t)count + 1, sizeof *tokens->data);
    if (tokens->data == NULL) {
        if (count >= 0) {
            PyErr_NoMemory();
        }
        return -1;
    }
    for (; tokens->count < count; tokens->count++) {
        int64_t token;
        PyObject *number = PySequence_GetItem(numbers, tokens->count);
        const int status = number == NULL ? -1 : element_set(function, name, I64, (char *)&token, number);
        release(number);
        if (status < 0) {
            return -1;
        }
        if (token < 0 || token >= text->tokens) {
            PyErr_Format(PyExc_ValueError, "%s: %s: expected tokens from 0 to %zd, got %lld", function, name,
                         text->tokens - 1, (long long)token);
            return -1;
        }
        tokens->data[tokens->count] = (int32_t)token;
    }
    return 0;
}

#if HAS_TOKENIZER
static Tokenizer tokenizer_of(const Model *self)
{
    return tokenizer_view(weights_at(self, TABLE_OF(self)->text->tokenizer_at));
}

// The character at a place of a text is no token.
SELDOM static void refuse_character(const char *function, const char *name, const char *text, ptrdiff_t place, ptrdiff_t size)
{
    ptrdiff_t end = place + 1;
    while (end < size && ((unsigned char)text[end] & 0xc0) == 0x80) {
        end++;
    }
    PyObject *character = PyUnicode_DecodeUTF8(text + place, end - place, "replace");
    if (character != NULL) {
        PyErr_Format(PyExc_ValueError, "%s: %s: the tokenizer has no %R", function, name, character);
    }
    release(character);
}

// The tokens of a string.
static int take_string(const Model *self, const char *function, const char *name, PyObject *string, bool special,
                       bool begin, bool end, Tokens *tokens)
{
    enum { LONG_STRING = 4096 };  // other threads run Python code meanwhile
    PyObject *bytes = PyUnicode_AsUTF8String(string);
    if (bytes == NULL) {
        return -1;
    }
    const Tokenizer tokenizer = tokenizer_of(self);
    const char *data = PyBytes_AsString(bytes);
    const Py_ssize_t size = PyBytes_Size(bytes);
    PyThreadState *thread = size > LONG_STRING ? PyEval_SaveThread() : NULL;
    tokens->count = tokenizer_encode(&tokenizer, data, size, special, begin, end, &tokens->data);
    if (thread != NULL) {
        PyEval_RestoreThread(thread);
    }
    if (tokens->count < -1) {
        refuse_character(function, name, data, -2 - tokens->count, size);
    } else if (tokens->count < 0) {
        PyErr_NoMemory();
    }
    Py_DecRef(bytes);
    return tokens->count < 0 ? -1 : 0;
}

// Put what a token adds to a text behind some bytes; `first`: whether only hidden ones stand before it, then behind it.
static int append_piece(Bytes *bytes, const Model *self, int32_t token, bool *first)
{
    const Tokenizer tokenizer = tokenizer_of(self);
    const char *piece;
    const ptrdiff_t size = tokenizer_piece(&tokenizer, token, *first, &piece);
    if (bytes->count + size > bytes->room) {
        const ptrdiff_t room = 2 * (bytes->count + size) + 64;
        char *data = PyMem_Malloc((size_t)room);
        if (data == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        if (bytes->count > 0) {
            memcpy(data, bytes->data, (size_t)bytes->count);
        }
        PyMem_Free(bytes->data);
        bytes->data = data;
        bytes->room = room;
    }
    if (size > 0) {
        memcpy(bytes->data + bytes->count, piece, (size_t)size);
    }
    bytes->count += size;
    *first = *first && tokenizer_hides(&tokenizer, token);
    return 0;
}

static PyObject *method_encode(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    static const char *const NAMES[] = {"text", "special", "begin", "end", NULL};
    const Model *model = PY_BODY(self);
    PyObject *given[4] = {NULL};
    char special = 1, begin = 1, end = 0;
    Tokens tokens = {NULL, 0};
    if (take_arguments("encode", NAMES, args, count, names, given) < 0 ||
        (given[1] != NULL && element_set("encode", NAMES[1], BOOL, &special, given[1]) < 0) ||
        (given[2] != NULL && element_set("encode", NAMES[2], BOOL, &begin, given[2]) < 0) ||
        (given[3] != NULL && element_set("encode", NAMES[3], BOOL, &end, given[3]) < 0)) {
        return NULL;
    }
    if ((type_flags(given[0]) & Py_TPFLAGS_UNICODE_SUBCLASS) == 0) {
        refuse_type("encode", NAMES[0], "a str", given[0]);
        return NULL;
    }
    if (take_string(model, "encode", NAMES[0], given[0], special != 0, begin != 0, end != 0, &tokens) < 0) {
        return NULL;
    }
    PyObject *list = PyList_New(tokens.count);
    for (ptrdiff_t i = 0; list != NULL && i < tokens.count; i++) {
        PyObject *number = PyLong_FromLongLong(tokens.data[i]);
        if (number == NULL || PyList_SetItem(list, i, number) < 0) {
            Py_DecRef(list);
            list = NULL;
        }
    }
    free(tokens.data);
    return list;
}

static PyObject *method_decode(PyObject *self, PyObject *argument)
{
    const Model *model = PY_BODY(self);
    Tokens tokens = {NULL, 0};
    Bytes bytes = {NULL, 0, 0};
    bool first = true;
    int status = take_numbers(TABLE_OF(model)->text, "decode", "tokens", argument, &tokens);
    for (ptrdiff_t i = 0; status == 0 && i < tokens.count; i++) {
        status = append_piece(&bytes, model, tokens.data[i], &first);
    }
    PyObject *text = status < 0 ? NULL : PyUnicode_DecodeUTF8(bytes.data, bytes.count, "replace");
    free(tokens.data);
    PyMem_Free(bytes.data);
    return text;
}
#endif

// Whether nothing is seen of the tokens that a text begins with.
static bool is_hidden(const Model *self, const Tokens *tokens)
{
    bool hidden = true;
#if HAS_TOKENIZER
    if (TABLE_OF(self)->text->tokenizer_at >= 0) {
        const Tokenizer tokenizer = tokenizer_of(self);
        for (ptrdiff_t i = 0; hidden && i < tokens->count; i++) {
            hidden = tokenizer_hides(&tokenizer, tokens->data[i]);
        }
    }
#else
    (void)self;
    (void)tokens;
#endif
    return hidden;
}

// The tokens of a prompt: those of a string, where there is a tokenizer, with what texts begin with before the first.
static int take_prompt(const Model *self, const char *function, const char *name, PyObject *prompt, Tokens *tokens)
{
    const Text *text = TABLE_OF(self)->text;
    const bool is_string = (type_flags(prompt) & Py_TPFLAGS_UNICODE_SUBCLASS) != 0;
#if HAS_TOKENIZER
    if (is_string && text->tokenizer_at >= 0) {
        return take_string(self, function, name, prompt, true, *page_of(self).length == 0, false, tokens);
    }
#endif
    if (is_string) {
        return refuse_type(function, name, "tokens, since the module has no tokenizer", prompt);
    }
    return take_numbers(text, function, name, prompt, tokens);
}
#endif
