// ------------------------------------------------------------------------------------------------------- generate all
// How several texts go on at once: an entry reads the next token of each, and with it each weight once for all of them.
#pragma once

#include "runtime/model_type.c"

#if HAS_TEXTS
// `reader` is a model of its own, behind whose state lies a row for each text. Its own text reads prompts, and what is
// read anew of a text that slides; then it becomes a row.
typedef struct {
    PY_HEAD
    PyObject *reader, *stops;
    Tokens *prompts;
    Py_ssize_t prompt_count, next;  // next: the first prompt that is not being answered
    Answer start;                   // how each answer begins, but for its seed
    Answer *answers;                // of the rows, as are the numbers of their prompts, and the scores
    Py_ssize_t *numbers;
    float *scores;
    int rows, turn;  // how many texts there are, and whose turn it is
    atomic_flag busy;
    Candidate *candidates;
    int64_t *room;
} Generations;

static int generations_traverse(PyObject *self, visitproc visit, void *arg)
{
    const Generations *all = PY_BODY(self);
    int stop = visit_type(self, visit, arg);
    stop = stop == 0 ? visit_member(all->reader, visit, arg) : stop;
    return stop == 0 ? visit_member(all->stops, visit, arg) : stop;
}

static void generations_dealloc(PyObject *self)
{
    Generations *all = PY_BODY(self);
    PyObject_GC_UnTrack(self);
    release(all->reader);
    release(all->stops);
    for (Py_ssize_t i = 0; all->prompts != NULL && i < all->prompt_count; i++) {
        free(all->prompts[i].data);
    }
    for (int row = 0; row < all->rows; row++) {
        PyMem_Free(all->answers[row].held.data);
    }
    PyMem_Free(all->prompts);
    PyMem_Free(all->answers);
    PyMem_Free(all->numbers);
    PyMem_Free(all->scores);
    PyMem_Free(all->candidates);
    PyMem_Free(all->room);
    free_object(self);
}

// Where a row has what lies at a place of the state.
static char *in_row(const Model *reader, int row, ptrdiff_t at)
{
    const Text *text = TABLE_OF(reader)->text;
    int part = 0;
    while (text->parts[part].at != at) {
        part++;
    }
    return reader->state + text->parts[part].row_at + row * text->parts[part].bytes;
}

static Page page_of_row(const Model *reader, int row)
{
    const Text *text = TABLE_OF(reader)->text;
    return (Page){
        (int64_t *)(void *)in_row(reader, row, text->place_at),
        (int64_t *)(void *)in_row(reader, row, text->length_at),
        (int32_t *)(void *)in_row(reader, row, text->tokens_at),
    };
}

// Copy the reader's own text to a row, or the other way.
static void copy_text(const Model *reader, int row, bool to_row)
{
    const Text *text = TABLE_OF(reader)->text;
    for (int part = 0; part < text->part_count; part++) {
        const RowPart *p = &text->parts[part];
        char *own = reader->state + p->at, *there = reader->state + p->row_at + row * p->bytes;
        memcpy(to_row ? there : own, to_row ? own : there, (size_t)p->bytes);
    }
}

// Exchange two rows, by way of the reader's own text.
static void swap_rows(Generations *all, int a, int b)
{
    const Model *reader = PY_BODY(all->reader);
    const Text *text = TABLE_OF(reader)->text;
    copy_text(reader, a, false);
    for (int part = 0; part < text->part_count; part++) {
        const RowPart *p = &text->parts[part];
        memcpy(reader->state + p->row_at + a * p->bytes, reader->state + p->row_at + b * p->bytes, (size_t)p->bytes);
    }
    copy_text(reader, b, true);
    const Answer answer = all->answers[a];
    all->answers[a] = all->answers[b];
    all->answers[b] = answer;
    const Py_ssize_t number = all->numbers[a];
    all->numbers[a] = all->numbers[b];
    all->numbers[b] = number;
}

// Give up the rows whose answers have ended.
static void remove_ended(Generations *all)
{
    for (int row = all->rows - 1; row >= 0; row--) {
        if (all->answers[row].ended) {
            PyMem_Free(all->answers[row].held.data);
            if (row < --all->rows) {
                swap_rows(all, row, all->rows);
            }
        }
    }
}

// Read the text that is the reader's own for the scores of a row, which it becomes.
static int read_row(Generations *all, int row)
{
    Model *reader = PY_BODY(all->reader);
    const Page page = page_of(reader);
    if (read_page(reader, &page, all->room, all->scores + row * TABLE_OF(reader)->text->tokens) < 0) {
        PyErr_NoMemory();
        return -1;
    }
    copy_text(reader, row, true);
    return 0;
}

// Read the next token of all rows, or, of those that slid, all that is left of their texts.
static int read_rows(Generations *all)
{
    Model *reader = PY_BODY(all->reader);
    const Text *text = TABLE_OF(reader)->text;
    int together = all->rows;
    for (int row = all->rows - 1; row >= 0; row--) {
        const Page page = page_of_row(reader, row);
        if (*page.length - *page.place > 1 && row < --together) {
            swap_rows(all, row, together);
        }
    }
    int64_t seen = 1;
    for (int row = 0; row < together; row++) {
        const Page page = page_of_row(reader, row);
        all->room[row] = page.tokens[*page.length - 1];
        seen = *page.length > seen ? *page.length : seen;
    }
    if (together > 0 && run_reading(reader, &TABLE_OF(reader)->entries[text->texts_entry], text->texts_dim, together,
                                    (ptrdiff_t)seen, all->room, all->scores) < 0) {
        PyErr_NoMemory();
        return -1;
    }
    for (int row = together; row < all->rows; row++) {
        copy_text(reader, row, false);
        if (read_row(all, row) < 0) {
            return -1;
        }
    }
    return 0;
}

// Let the reader's own text be a prompt that is given; -1 with an error where it does not fit.
static int write_prompt(const Generations *all, Py_ssize_t number)
{
    Model *reader = PY_BODY(all->reader);
    const Page page = page_of(reader);
    char name[40];
    snprintf(name, sizeof name, "prompts[%td]", (ptrdiff_t)number);
    *page.length = *page.place = 0;
    return append_prompt(reader, "generate_all", name, &all->prompts[number], all->start.left) < 0 ? -1 : 0;
}

// Begin answers while there are rows and prompts.
static int begin_answers(Generations *all)
{
    const Model *reader = PY_BODY(all->reader);
    for (; all->rows < TABLE_OF(reader)->text->texts && all->next < all->prompt_count; all->rows++, all->next++) {
        Answer *answer = &all->answers[all->rows];
        *answer = all->start;
        answer->how.seed += (uint64_t)all->next;
        answer->first = is_hidden(reader, &all->prompts[all->next]);
        all->numbers[all->rows] = all->next;
        if (write_prompt(all, all->next) < 0 || read_row(all, all->rows) < 0) {
            return -1;
        }
    }
    return 0;
}

// Forget all texts, of which some have been read and others not.
static void give_up(Generations *all)
{
    for (int row = 0; row < all->rows; row++) {
        all->answers[row].ended = true;
    }
    remove_ended(all);
    all->next = all->prompt_count;
}

// Let each text have its turn, until one of them has a piece.
static PyObject *next_of_all(Generations *all)
{
    const Model *reader = PY_BODY(all->reader);
    const Text *text = TABLE_OF(reader)->text;
    for (;; all->turn++) {
        if (all->turn == all->rows) {
            remove_ended(all);
            if (read_rows(all) < 0 || begin_answers(all) < 0) {
                give_up(all);
            }
            if (all->rows == 0) {
                return NULL;
            }
            all->turn = 0;
        }
        const int row = all->turn;
        Answer *answer = &all->answers[row];
        const Page page = page_of_row(reader, row);
        ptrdiff_t token = NO_TOKEN;
        if (goes_on(text, answer, &page)) {
            token = draw_token(text, answer, &page, all->scores + row * text->tokens, all->candidates);
        }
        if (token == NO_NUMBERS) {
            refuse_scores();
            return NULL;
        }
        PyObject *piece = hear(reader, all->stops, answer, token);
        if (piece != NULL) {
            all->turn++;
            return Py_BuildValue("nN", all->numbers[row], piece);
        }
        if (PyErr_Occurred() != NULL) {
            return NULL;
        }
    }
}

static PyObject *generations_next(PyObject *self)
{
    Generations *all = PY_BODY(self);
    if (atomic_flag_test_and_set(&all->busy)) {
        PyErr_SetString(PyExc_ValueError, "generate_all: another thread is asking for the next piece already");
        return NULL;
    }
    PyObject *next = next_of_all(all);
    atomic_flag_clear(&all->busy);
    return next;
}

static const PyType_Slot GENERATIONS_SLOTS[] = {
    {Py_tp_doc, "How several texts go on: the number of a prompt, and a piece of what follows it."},
    {Py_tp_dealloc, (void *)generations_dealloc},
    {Py_tp_traverse, (void *)generations_traverse},
    {Py_tp_iter, (void *)PyObject_SelfIter},
    {Py_tp_iternext, (void *)generations_next},
    {0, NULL},
};

// Make the reader, with the weights that a model has now.
static PyObject *make_reader(PyObject *self)
{
    Model *model = PY_BODY(self);
    const Table *table = TABLE_OF(model);
    PyObject *object = model_make(PyType_GetModuleState(PY_TYPE(self)), table->text->rows_bytes);
    if (object != NULL) {
        Model *reader = PY_BODY(object);
        lock_state(model);
        memcpy(reader->state, model->state, (size_t)table->state_bytes);
        reader->wanted = model->wanted;
        unlock_state(model);
    }
    return object;
}

// Read the prompts, and refuse one that does not fit.
static int take_prompts(Generations *all, PyObject *prompts)
{
    const Model *reader = PY_BODY(all->reader);
    if (PySequence_Check(prompts) == 0 || (type_flags(prompts) & Py_TPFLAGS_UNICODE_SUBCLASS) != 0) {
        return refuse_type("generate_all", "prompts", "a sequence of prompts", prompts);
    }
    const Py_ssize_t count = PySequence_Size(prompts);
    all->prompts = count < 0 ? NULL : PyMem_Calloc((size_t)count + 1, sizeof *all->prompts);
    if (all->prompts == NULL) {
        return count < 0 ? -1 : (PyErr_NoMemory(), -1);
    }
    all->prompt_count = count;
    for (Py_ssize_t i = 0; i < count; i++) {
        char name[40];
        snprintf(name, sizeof name, "prompts[%td]", (ptrdiff_t)i);
        *page_of(reader).length = 0;  // what texts begin with comes first
        PyObject *prompt = PySequence_GetItem(prompts, i);
        const int status = prompt == NULL ? -1 : take_prompt(reader, "generate_all", name, prompt, &all->prompts[i]);
        release(prompt);
        if (status < 0 || write_prompt(all, i) < 0) {
            return -1;
        }
    }
    return 0;
}

static PyObject *method_generate_all(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    const Text *text = TABLE_OF((Model *)PY_BODY(self))->text;
    const char *arguments[sizeof GENERATE_ARGUMENTS / sizeof *GENERATE_ARGUMENTS];
    memcpy(arguments, GENERATE_ARGUMENTS, sizeof GENERATE_ARGUMENTS);
    arguments[0] = "prompts";
    PyObject *given[1 + OPTION_COUNT] = {NULL};
    if (take_arguments("generate_all", arguments, args, count, names, given) < 0) {
        return NULL;
    }
    PyObject *object = _PyObject_GC_New(((Model *)PY_BODY(self))->generations_type);
    if (object == NULL) {
        return NULL;
    }
    Generations *all = PY_BODY(object);
    memset((char *)all + offsetof(Generations, reader), 0, sizeof *all - offsetof(Generations, reader));
    PyObject_GC_Track(object);
    const size_t texts = (size_t)text->texts, context = (size_t)text->context;
    all->answers = PyMem_Calloc(texts, sizeof *all->answers);
    all->numbers = PyMem_Calloc(texts, sizeof *all->numbers);
    all->scores = PyMem_Calloc(texts * (size_t)text->tokens, sizeof *all->scores);
    all->candidates = PyMem_Calloc((size_t)text->tokens, sizeof *all->candidates);
    all->room = PyMem_Calloc(texts > context ? texts : context, sizeof *all->room);
    if (all->answers == NULL || all->numbers == NULL || all->scores == NULL || all->candidates == NULL ||
        all->room == NULL) {
        PyErr_NoMemory();
    } else if (take_options("generate_all", &all->start, given + 1) == 0) {
        all->stops = take_stops("generate_all", given[1 + STOP], text->tokenizer_at >= 0);
        all->reader = all->stops == NULL ? NULL : make_reader(self);
    }
    if (all->reader == NULL || take_prompts(all, given[0]) < 0) {
        Py_DecRef(object);
        return NULL;
    }
    return object;
}
#endif
