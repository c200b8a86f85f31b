// ----------------------------------------------------------------------------------------------------------- generate
// Continue a text: an iterator that chooses a token, and lets the entry read it when the next one is requested.
#pragma once

#include "runtime/tokens.c"

#if HAS_TEXT
// An answer as far as it is written.
typedef struct {
    Sampling how;
    uint64_t drawn;
    int64_t left;       // how many tokens may come
    bool ended, first;  // first: nothing is seen of the text so far
    Bytes held;         // its end that nobody has got yet: half a letter, or half of what may stop it
} Answer;

typedef struct {
    PY_HEAD
    PyObject *model, *stops;  // stops: a tuple of bytes, or of ints where there is no tokenizer
    Answer answer;
    int64_t length;  // of the text, as this left it
    atomic_flag busy;
    float *scores;
    Candidate *candidates;
    int64_t *room;
} Generation;

static int generation_traverse(PyObject *self, visitproc visit, void *arg)
{
    const Generation *generation = PY_BODY(self);
    int stop = visit_type(self, visit, arg);
    stop = stop == 0 ? visit_member(generation->model, visit, arg) : stop;
    return stop == 0 ? visit_member(generation->stops, visit, arg) : stop;
}

static void generation_dealloc(PyObject *self)
{
    Generation *generation = PY_BODY(self);
    PyObject_GC_UnTrack(self);
    release(generation->model);
    release(generation->stops);
    PyMem_Free(generation->answer.held.data);
    PyMem_Free(generation->scores);
    PyMem_Free(generation->candidates);
    PyMem_Free(generation->room);
    free_object(self);
}

enum { NO_TOKEN = -1, NO_NUMBERS = -2, FAILED = -3 };

// Whether a text may go on.
static bool goes_on(const Text *text, const Answer *answer, const Page *page)
{
    return answer->left != 0 && (*page->length < text->context || text->slides);
}

// Choose a token by the scores of all, which becomes the last of the text; NO_TOKEN where the answer ends.
static ptrdiff_t draw_token(const Text *text, Answer *answer, const Page *page, float *scores, Candidate *candidates)
{
    const ptrdiff_t token = sample(scores, text->tokens, &answer->how, page->tokens, (ptrdiff_t)*page->length,
                                   answer->drawn++, candidates);
    if (token < 0) {
        return NO_NUMBERS;
    }
    for (int i = 0; i < text->end_count; i++) {
        if (token == text->ends[i]) {
            return NO_TOKEN;
        }
    }
    append_token(page, text, (int32_t)token);
    answer->left--;
    return token;
}

SELDOM static ptrdiff_t refuse_scores(void)
{
    PyErr_SetString(PyExc_ValueError, "generate: the scores are not all numbers, so that nothing can be chosen");
    return FAILED;
}

// Read what is new of the text, and choose its next token; NO_TOKEN where the answer ends, FAILED with an error.
static ptrdiff_t choose(Generation *generation)
{
    Model *model = PY_BODY(generation->model);
    const Text *text = TABLE_OF(model)->text;
    Answer *answer = &generation->answer;
    enum { RIGHT, BROKEN, ELSEWHERE, NO_MEMORY } status = RIGHT;
    ptrdiff_t token = NO_TOKEN;
    lock_state(model);
    const Page page = page_of(model);
    if (!is_whole(&page, text)) {
        status = BROKEN;
    } else if (*page.length != generation->length || *page.length == 0) {
        status = ELSEWHERE;
    } else if (goes_on(text, answer, &page)) {
        if (read_page(model, &page, generation->room, generation->scores) < 0) {
            status = NO_MEMORY;
        } else {
            token = draw_token(text, answer, &page, generation->scores, generation->candidates);
            generation->length = *page.length;
        }
    }
    unlock_state(model);
    if (status == BROKEN) {
        refuse_page("generate");
    } else if (status == ELSEWHERE) {
        PyErr_SetString(PyExc_ValueError, "generate: the text has been changed since the last piece; call generate()"
                        " again to go on from where it is");
    } else if (status == NO_MEMORY) {
        PyErr_NoMemory();
    } else {
        return token == NO_NUMBERS ? refuse_scores() : token;
    }
    return FAILED;
}

// Tell whether a token is one of those that end an answer.
static bool is_stop(PyObject *stops, ptrdiff_t token)
{
    for (Py_ssize_t i = 0, count = PyTuple_Size(stops); i < count; i++) {
        if (PyLong_AsLongLong(PyTuple_GetItem(stops, i)) == token) {
            return true;
        }
    }
    return false;
}

#if HAS_TOKENIZER
// Where in the answer a stop begins, else its size. What may be the beginning of one at its end is left out of `sure`.
static ptrdiff_t find_stop(const Bytes *held, PyObject *stops, ptrdiff_t *sure)
{
    *sure = held->count;
    ptrdiff_t found = held->count;
    for (Py_ssize_t i = 0, count = PyTuple_Size(stops); i < count; i++) {
        const char *stop = PyBytes_AsString(PyTuple_GetItem(stops, i));
        const ptrdiff_t size = PyBytes_Size(PyTuple_GetItem(stops, i));
        for (ptrdiff_t at = 0; at < found; at++) {
            const ptrdiff_t rest = held->count - at, same = rest < size ? rest : size;
            if (memcmp(held->data + at, stop, (size_t)same) == 0) {
                if (rest < size) {
                    *sure = at < *sure ? at : *sure;
                } else {
                    found = at;
                }
                break;
            }
        }
    }
    return found;
}

// Put a token behind an answer, or end it with NO_TOKEN; return what nothing that may come can change, as a str. NULL
// where that is nothing, or with an error.
static PyObject *hear_text(const Model *model, PyObject *stops, Answer *answer, ptrdiff_t token)
{
    Bytes *held = &answer->held;
    if (token >= 0 && append_piece(held, model, (int32_t)token, &answer->first) < 0) {
        return NULL;
    }
    answer->ended |= token < 0;
    ptrdiff_t sure;
    const ptrdiff_t stop = find_stop(held, stops, &sure);
    if (stop < held->count) {
        held->count = stop;
        answer->ended = true;
    }
    const ptrdiff_t size = answer->ended ? held->count : sure;
    Py_ssize_t used = size;
    PyObject *piece = answer->ended ? PyUnicode_DecodeUTF8(held->data, size, "replace")
                                    : PyUnicode_DecodeUTF8Stateful(held->data, size, "replace", &used);
    if (piece != NULL && used == 0) {
        Py_DecRef(piece);
        return NULL;
    }
    if (piece != NULL) {
        held->count -= used;
        memmove(held->data, held->data + used, (size_t)held->count);
    }
    return piece;
}
#endif

// What an answer gives with a token more, or NO_TOKEN, at its end: a str, or an int where there is no tokenizer. NULL
// where that is nothing, or with an error.
static PyObject *hear(const Model *model, PyObject *stops, Answer *answer, ptrdiff_t token)
{
#if HAS_TOKENIZER
    if (TABLE_OF(model)->text->tokenizer_at >= 0) {
        return hear_text(model, stops, answer, token);
    }
#else
    (void)model;
#endif
    answer->ended = token < 0 || is_stop(stops, token);
    return answer->ended ? NULL : PyLong_FromSsize_t(token);
}

static PyObject *next_piece(Generation *generation)
{
    Answer *answer = &generation->answer;
    PyObject *piece = NULL;
    while (piece == NULL && !answer->ended) {
        const ptrdiff_t token = choose(generation);
        piece = token == FAILED ? NULL : hear(PY_BODY(generation->model), generation->stops, answer, token);
        if (piece == NULL && PyErr_Occurred() != NULL) {
            break;
        }
    }
    return piece;
}

static PyObject *generation_next(PyObject *self)
{
    Generation *generation = PY_BODY(self);
    if (atomic_flag_test_and_set(&generation->busy)) {
        PyErr_SetString(PyExc_ValueError, "generate: another thread is asking for the next piece already");
        return NULL;
    }
    PyObject *next = next_piece(generation);
    atomic_flag_clear(&generation->busy);
    return next;
}

static const PyType_Slot GENERATION_SLOTS[] = {
    {Py_tp_doc, "How a text goes on, piece by piece."},
    {Py_tp_dealloc, (void *)generation_dealloc},
    {Py_tp_traverse, (void *)generation_traverse},
    {Py_tp_iter, (void *)PyObject_SelfIter},
    {Py_tp_iternext, (void *)generation_next},
    {0, NULL},
};

enum { MAX_TOKENS, TEMPERATURE, TOP_K, TOP_P, MIN_P, REPETITION_PENALTY, STOP, SEED, OPTION_COUNT };
static const char *const GENERATE_ARGUMENTS[] = {
    "prompt", "max_tokens", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "stop", "seed", NULL,
};

// What ends an answer as a tuple: of bytes where texts are strings, else of ints.
static PyObject *take_stops(const char *function, PyObject *stop, bool strings)
{
    const unsigned long kind = strings ? Py_TPFLAGS_UNICODE_SUBCLASS : Py_TPFLAGS_LONG_SUBCLASS;
    const char *expected = strings ? "a str or several" : "an int or several";
    const bool is_one = stop != NULL && (type_flags(stop) & kind) != 0;
    const bool is_text = stop != NULL && (type_flags(stop) & Py_TPFLAGS_UNICODE_SUBCLASS) != 0;
    if (stop != NULL && !is_one && (is_text || PySequence_Check(stop) == 0)) {
        refuse_type(function, "stop", expected, stop);
        return NULL;
    }
    const Py_ssize_t count = stop == NULL ? 0 : is_one ? 1 : PySequence_Size(stop);
    PyObject *stops = count < 0 ? NULL : PyTuple_New(count);
    for (Py_ssize_t i = 0; stops != NULL && i < count; i++) {
        PyObject *one = is_one ? stop : PySequence_GetItem(stop, i), *made = NULL;
        int64_t token;
        if (one != NULL && (type_flags(one) & kind) == 0) {
            refuse_type(function, "stop", expected, one);
        } else if (one != NULL && strings) {
            made = PyUnicode_AsUTF8String(one);
        } else if (one != NULL && element_set(function, "stop", I64, (char *)&token, one) == 0) {
            made = PyLong_FromLongLong(token);
        }
        if (one != NULL && !is_one) {
            Py_DecRef(one);
        }
        if (made != NULL && strings && PyBytes_Size(made) == 0) {
            PyErr_Format(PyExc_ValueError, "%s: stop: an empty str is everywhere; leave it out", function);
            Py_DecRef(made);
            made = NULL;
        }
        if (made == NULL || PyTuple_SetItem(stops, i, made) < 0) {
            Py_DecRef(stops);
            stops = NULL;
        }
    }
    return stops;
}

// A seed that nobody gave.
static int draw_seed(uint64_t *seed)
{
    PyObject *os = PyImport_ImportModule("os");
    PyObject *bytes = os == NULL ? NULL : PyObject_CallMethod(os, "urandom", "i", 8);
    const char *data = bytes == NULL ? NULL : PyBytes_AsString(bytes);
    if (data != NULL) {
        memcpy(seed, data, 8);
    }
    release(os);
    release(bytes);
    return data == NULL ? -1 : 0;
}

// Read the numbers among the options, and refuse those that make no sense.
static int take_options(const char *function, Answer *answer, PyObject *const *given)
{
    Sampling *how = &answer->how;
    *how = (Sampling){.temperature = 1, .top_p = 1, .repetition_penalty = 1};
    answer->left = INT64_MAX;
    const struct { int dtype; void *to; } OPTIONS[OPTION_COUNT] = {
        [MAX_TOKENS] = {I64, &answer->left}, [TEMPERATURE] = {F64, &how->temperature}, [TOP_K] = {I64, &how->top_k},
        [TOP_P] = {F64, &how->top_p}, [MIN_P] = {F64, &how->min_p},
        [REPETITION_PENALTY] = {F64, &how->repetition_penalty}, [SEED] = {U64, &how->seed},
    };
    for (int k = 0; k < OPTION_COUNT; k++) {
        const bool is_none = given[k] == NULL || (given[k] == Py_None && (k == MAX_TOKENS || k == SEED));
        if (k != STOP && !is_none &&
            element_set(function, GENERATE_ARGUMENTS[1 + k], OPTIONS[k].dtype, OPTIONS[k].to, given[k]) < 0) {
            return -1;
        }
        if (k == SEED && is_none && draw_seed(&how->seed) < 0) {
            return -1;
        }
    }
    const char *const wrong = answer->left < 0 ? "max_tokens: expected 0 or more"
        : !(how->temperature >= 0 && how->temperature <= 1e30) ? "temperature: expected 0 or more, and no infinity"
        : how->top_k < 0 ? "top_k: expected 0 or more"
        : !(how->top_p > 0 && how->top_p <= 1) ? "top_p: expected a share over 0, and 1 at most"
        : !(how->min_p >= 0 && how->min_p <= 1) ? "min_p: expected a share from 0 to 1"
        : !(how->repetition_penalty > 0 && how->repetition_penalty <= 1e30) ? "repetition_penalty: expected over 0"
        : NULL;
    if (wrong != NULL) {
        PyErr_Format(PyExc_ValueError, "%s: %s", function, wrong);
        return -1;
    }
    return 0;
}

// Put a prompt behind the text, unless there is no room for it and for so many more; return the text's length, or -1.
static int64_t append_prompt(Model *model, const char *function, const char *name, const Tokens *prompt, int64_t more)
{
    const Text *text = TABLE_OF(model)->text;
    lock_state(model);
    const Page page = page_of(model);
    const bool whole = is_whole(&page, text);
    const int64_t length = *page.length, room = text->context - length;
    const bool wants_count = more != INT64_MAX && more > room - prompt->count;
    const bool fits = text->slides || (prompt->count <= room && !wants_count);
    const bool is_right = whole && fits && length + prompt->count > 0;
    for (ptrdiff_t i = 0; is_right && i < prompt->count; i++) {
        append_token(&page, text, prompt->data[i]);
    }
    const int64_t now = *page.length;
    unlock_state(model);
    if (is_right) {
        return now;
    }
    if (!whole) {
        refuse_page(function);
    } else if (!fits && prompt->count > room) {
        PyErr_Format(PyExc_ValueError, "%s: %s: the text has %lld of %zd tokens, so that these %zd do not fit",
                     function, name, (long long)length, text->context, prompt->count);
    } else if (!fits) {
        PyErr_Format(PyExc_ValueError, "%s: %s: with it the text has %lld of %zd tokens, so that max_tokens can be at"
                     " most %lld, got %lld", function, name, (long long)(length + prompt->count), text->context,
                     (long long)(room - prompt->count), (long long)more);
    } else {
        PyErr_Format(PyExc_ValueError, "%s: %s: expected at least one token, since the text has none", function, name);
    }
    return -1;
}

static PyObject *method_generate(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    Model *model = PY_BODY(self);
    const Text *text = TABLE_OF(model)->text;
    PyObject *given[1 + OPTION_COUNT] = {NULL};
    Tokens prompt = {NULL, 0};
    if (take_arguments("generate", GENERATE_ARGUMENTS, args, count, names, given) < 0) {
        return NULL;
    }
    PyObject *object = _PyObject_GC_New(model->generation_type);
    if (object == NULL) {
        return NULL;
    }
    Generation *generation = PY_BODY(object);
    memset((char *)generation + offsetof(Generation, model), 0, sizeof *generation - offsetof(Generation, model));
    Py_IncRef(self);
    generation->model = self;
    PyObject_GC_Track(object);
    generation->scores = PyMem_Calloc((size_t)text->tokens, sizeof *generation->scores);
    generation->candidates = PyMem_Calloc((size_t)text->tokens, sizeof *generation->candidates);
    generation->room = PyMem_Calloc((size_t)text->context, sizeof *generation->room);
    if (generation->scores == NULL || generation->candidates == NULL || generation->room == NULL) {
        PyErr_NoMemory();
    } else if (take_options("generate", &generation->answer, given + 1) == 0) {
        generation->stops = take_stops("generate", given[1 + STOP], text->tokenizer_at >= 0);
    }
    const bool is_right = generation->stops != NULL && take_prompt(model, "generate", "prompt", given[0], &prompt) == 0;
    generation->answer.first = is_right && *page_of(model).length == 0 && is_hidden(model, &prompt);
    generation->length = is_right ? append_prompt(model, "generate", "prompt", &prompt, generation->answer.left) : -1;
    free(prompt.data);
    if (generation->length < 0) {
        Py_DecRef(object);
        return NULL;
    }
    return object;
}

static PyObject *method_rewind(PyObject *self, PyObject *argument)
{
    Model *model = PY_BODY(self);
    int64_t wanted;
    if (element_set("rewind", "length", I64, (char *)&wanted, argument) < 0) {
        return NULL;
    }
    lock_state(model);
    const Page page = page_of(model);
    const int64_t length = *page.length;
    const bool is_right = wanted == 0 || (wanted > 0 && wanted <= length && is_whole(&page, TABLE_OF(model)->text));
    if (is_right) {
        *page.length = wanted;
        const bool is_back = *page.place < 0 || *page.place > wanted;
        *page.place = !is_back ? *page.place : TABLE_OF(model)->text->rereads ? 0 : wanted;
    }
    unlock_state(model);
    if (!is_right) {
        return PyErr_Format(PyExc_ValueError, "rewind: length: expected 0 to %lld, as many tokens as the text has, got"
                            " %lld", (long long)length, (long long)wanted);
    }
    Py_IncRef(Py_None);
    return Py_None;
}
#endif
