// --------------------------------------------------------------------------------------------------------- Model type
#pragma once

#include "runtime/array_type.c"
#include "runtime/cpu.c"
#include "runtime/files.c"
#include "runtime/fit.c"
#include "runtime/generate.c"
#include "runtime/prepare.c"
#include "runtime/session.c"
#include "runtime/verbs.c"
#include "runtime/weights.c"

typedef struct {
#if IS_SHARED
    const Table *table;
#endif
    PyTypeObject *array_type, *model_type;
#if HAS_TEXT
    PyTypeObject *generation_type;  // or NULL
#endif
#if HAS_TEXTS
    PyTypeObject *generations_type;
#endif
    const PyGetSetDef *attributes;  // of models
#if defined(MLAOT_ABI3T)
    PyObject *_Atomic model;  // what the module's own functions work on; NULL before the first of these
#else
    PyObject *model;  // what the module's own functions work on; NULL before the first of these
#endif
    int isa;
    Numpy numpy;
#if HAS_WEIGHTS_FILE
    Py_buffer weights;  // the mapping of the file, where there is one
#endif
#if HAS_PREPARED
    Workspace *_Atomic prepared;  // what all models read; NULL before the first one
#endif
} State;

// Serve a call of the method of an entry.
static PyObject *serve(PyObject *self, int number, FAST_PARAMETERS)
{
    Model *model = PY_BODY(self);
    const Entry *entry = &TABLE_OF(model)->entries[number];
#if HAS_PHASES
    if (entry->held != NOT_HELD && count == 0 && names == NULL && is_held(model, entry)) {
        return entry->held == FORWARD_HELD ? forward_held(model) : loss_held(model);
    }
#endif
    return call_entry(model, entry, FAST_ARGUMENTS, true);
}

static int model_traverse(PyObject *self, visitproc visit, void *arg)
{
    const Model *model = PY_BODY(self);
    int stop = visit_type(self, visit, arg);
    stop = stop == 0 ? visit_member((PyObject *)model->array_type, visit, arg) : stop;
#if HAS_STATE
    stop = stop == 0 ? visit_member(model->memory, visit, arg) : stop;
    for (int k = 0; stop == 0 && k < ATTRIBUTE_COUNT; k++) {
        stop = visit_member(model->attributes[k], visit, arg);
    }
#endif
    return stop;
}

static void model_dealloc(PyObject *self)
{
    Model *model = PY_BODY(self);
    PyObject_GC_UnTrack(self);
    PyObject_ClearWeakRefs(self);
    threads_leave(model->threads);
    while (model->workspaces != NULL) {
        Workspace *next = model->workspaces->next;
        PyMem_Free(model->workspaces);
        model->workspaces = next;
    }
#if HAS_PHASES
    PyMem_Free(model->held.memory);
#endif
#if HAS_STATE
    for (int k = 0; k < ATTRIBUTE_COUNT; k++) {
        release(model->attributes[k]);
    }
    if (model->lock != NULL) {
        PyThread_free_lock(model->lock);
    }
    if (model->turn != NULL) {
        PyThread_free_lock(model->turn);
    }
    release(model->memory);
#endif
    Py_DecRef((PyObject *)model->array_type);
    free_object(self);
}

// An instance with `more` bytes behind its state.
SELDOM static PyObject *model_make(State *state, ptrdiff_t more)
{
    PyObject *object = _PyObject_GC_New(state->model_type);
    if (object == NULL) {
        return NULL;
    }
    Model *model = PY_BODY(object);
    memset((char *)model + offsetof(Model, array_type), 0, sizeof *model - offsetof(Model, array_type));
    const Table *table = TABLE_OF(state);
#if IS_SHARED
    model->table = table;
#endif
    model->array_type = state->array_type;
    Py_IncRef((PyObject *)model->array_type);
#if HAS_TEXT
    model->generation_type = state->generation_type;
#endif
#if HAS_TEXTS
    model->generations_type = state->generations_type;
#endif
    model->numpy = &state->numpy;
    model->kernels = table->isas[state->isa].kernels;
#if HAS_WEIGHTS_FILE
    model->weights = state->weights.buf != NULL ? (const char *)state->weights.buf + DIGEST_BYTES : NULL;
#endif
    model->wanted = table->threads;
    int status = 0;
#if HAS_PREPARED
    status = prepare(model, &state->prepared);
#endif
#if HAS_STATE
    if (is_stateful(model)) {
        status = make_state(model, more);
    }
#else
    (void)more;
#endif
    PyObject_GC_Track(object);
    if (status < 0) {
        Py_DecRef(object);
        return NULL;
    }
    return object;
}

static PyObject *model_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    if (PyTuple_Size(args) != 0 || (names != NULL && PyDict_Size(names) != 0)) {
        PyErr_SetString(PyExc_TypeError, "Model() takes no arguments");
        return NULL;
    }
    return model_make(PyType_GetModuleState(type), 0);
}

// What pickle and copy make another instance of: where there is a state, the file that save() writes.
static PyObject *model_reduce(PyObject *self, PyObject *unused)
{
    (void)unused;
#if HAS_STATE
    if (is_stateful(PY_BODY(self))) {
        return Py_BuildValue("O()N", PY_TYPE(self), pack_tensors(PY_BODY(self), true));
    }
#endif
    return Py_BuildValue("O()", PY_TYPE(self));
}

// What pickle and copy do with what model_reduce() gave.
static PyObject *model_setstate(PyObject *self, PyObject *state)
{
    (void)state;
#if HAS_STATE
    if (is_stateful(PY_BODY(self))) {
        return unpack_state(self, state);
    }
#endif
    return PyErr_Format(PyExc_TypeError, "the weights of %s are frozen; for others build it with frozen = false"
                        " in its table [tool.mlaot.models.<name>]", TABLE_OF((Model *)PY_BODY(self))->name);
}

#if HAS_STATE
static PyObject *model_attribute(PyObject *self, void *number)
{
    const Model *model = PY_BODY(self);
    PyObject *attribute = model->attributes[(uintptr_t)number];
    Py_IncRef(attribute);
    return attribute;
}

#endif
// Where CPython keeps the list of weak references: a read-only Py_ssize_t.
static const PyMemberDef MODEL_MEMBERS[] = {
    {"__weaklistoffset__", 19, offsetof(Model, weak_references), 1 | PY_OFFSET_FLAG, NULL},
    {NULL, 0, 0, 0, NULL},
};
