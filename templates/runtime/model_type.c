// --------------------------------------------------------------------------------------------------------- Model type
#pragma once

#include "runtime/array_type.c"
#include "runtime/cpu.c"
#include "runtime/files.c"
#include "runtime/fit.c"
#include "runtime/session.c"
#include "runtime/verbs.c"
#include "runtime/weights.c"

typedef struct {
    PyTypeObject *array_type, *model_type;
#if defined(MLAOT_ABI3T)
    PyObject *_Atomic model;  // what the module's own functions work on; NULL before the first of these
#else
    PyObject *model;  // what the module's own functions work on; NULL before the first of these
#endif
    int isa;
    Numpy numpy;
#if defined(WEIGHTS_FILE)
    Py_buffer weights;  // the mapping of the file
#endif
} State;

#define ENTRY_METHOD(name)                                                   \
    static PyObject *method_##name(PyObject *self, FAST_PARAMETERS)          \
    {                                                                        \
        return call_entry(PY_BODY(self), &ENTRIES[ENTRY_##name], FAST_ARGUMENTS); \
    }
ENTRY_METHODS(ENTRY_METHOD)

#if HAS_ACCUMULATE
// Without arguments these two serve what set_input() stored.
#define HELD_METHOD(name)                                                                       \
    static PyObject *method_##name(PyObject *self, FAST_PARAMETERS)                             \
    {                                                                                           \
        if (count == 0 && names == NULL && is_held(PY_BODY(self), &ENTRIES[ENTRY_##name])) {    \
            return name##_held(PY_BODY(self));                                                  \
        }                                                                                       \
        return call_entry(PY_BODY(self), &ENTRIES[ENTRY_##name], FAST_ARGUMENTS);               \
    }
HELD_METHODS(HELD_METHOD)
#endif

static int model_traverse(PyObject *self, visitproc visit, void *arg)
{
    const Model *model = PY_BODY(self);
    int stop = visit_type(self, visit, arg);
    PyObject *const members[] = {
        (PyObject *)model->array_type,
#if HAS_STATE
        model->memory,
#define VISITED(name, doc, make) model->name,
        ATTRIBUTES(VISITED)
#endif
    };
    for (size_t k = 0; stop == 0 && k < sizeof members / sizeof *members; k++) {
        stop = visit_member(members[k], visit, arg);
    }
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
#if HAS_ACCUMULATE
    PyMem_Free(model->held.memory);
#endif
#if HAS_STATE
#define RELEASE(name, doc, make) release(model->name);
    ATTRIBUTES(RELEASE)
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

static PyObject *model_make(State *state)
{
    PyObject *object = _PyObject_GC_New(state->model_type);
    if (object == NULL) {
        return NULL;
    }
    Model *model = PY_BODY(object);
    memset((char *)model + offsetof(Model, array_type), 0, sizeof *model - offsetof(Model, array_type));
    model->array_type = state->array_type;
    Py_IncRef((PyObject *)model->array_type);
    model->numpy = &state->numpy;
    model->kernels = ISAS[state->isa].kernels;
#if defined(WEIGHTS_FILE)
    model->weights = (const char *)state->weights.buf + DIGEST_BYTES;
#endif
    model->wanted = THREADS;
#if HAS_STATE
    if (make_state(model) < 0) {
        PyObject_GC_Track(object);
        Py_DecRef(object);
        return NULL;
    }
#endif
    PyObject_GC_Track(object);
    return object;
}

static PyObject *model_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    if (PyTuple_Size(args) != 0 || (names != NULL && PyDict_Size(names) != 0)) {
        PyErr_SetString(PyExc_TypeError, "Model() takes no arguments");
        return NULL;
    }
    return model_make(PyType_GetModuleState(type));
}

#if !HAS_STATE
static PyObject *refuse_state(PyObject *self, PyObject *state)
{
    (void)self;
    (void)state;
    PyErr_SetString(PyExc_TypeError, "the weights of " MODULE_NAME " are frozen; for others build it with frozen = false"
                                     " in its table [tool.mlaot.models.<name>]");
    return NULL;
}

#endif
// What pickle and copy make another instance of: where there is a state, the file that save() writes.
static PyObject *model_reduce(PyObject *self, PyObject *unused)
{
    (void)unused;
#if HAS_STATE
    return Py_BuildValue("O()N", PY_TYPE(self), pack_tensors(PY_BODY(self)));
#else
    return Py_BuildValue("O()", PY_TYPE(self));
#endif
}

static const PyMethodDef MODEL_METHODS[] = {
#define METHOD_ROW(convention, name, signature, doc)                                       \
    {#name, (PyCFunction)(void (*)(void))method_##name, convention##_FLAGS,               \
     #name "($self" signature ")\n--\n\n" doc},
    METHODS(METHOD_ROW)
    {"__reduce__", model_reduce, METH_NOARGS, "__reduce__($self, /)\n--\n\nFor pickle and copy."},
#if !HAS_STATE
    {"__setstate__", refuse_state, METH_O, "__setstate__($self, state, /)\n--\n\nRaises TypeError: there is no state."},
#else
    {"__setstate__", model_setstate, METH_O, "__setstate__($self, state, /)\n--\n\nFor pickle and copy."},
#endif
    {NULL, NULL, 0, NULL},
};

#if HAS_STATE
static const PyGetSetDef MODEL_ATTRIBUTES[] = {
#define ATTRIBUTE_ROW(name, doc, make) {#name, model_attribute, NULL, doc, (void *)offsetof(Model, name)},
    ATTRIBUTES(ATTRIBUTE_ROW)
    {NULL, NULL, NULL, NULL, NULL},
};

#endif
// Where CPython keeps the list of weak references: a read-only Py_ssize_t.
static const PyMemberDef MODEL_MEMBERS[] = {
    {"__weaklistoffset__", 19, offsetof(Model, weak_references), 1 | PY_OFFSET_FLAG, NULL},
    {NULL, 0, 0, 0, NULL},
};

static const PyType_Slot MODEL_SLOTS[] = {
    {Py_tp_doc, "Model()\n--\n\n" MODEL_DOC},
    {Py_tp_new, (void *)model_new},
    {Py_tp_dealloc, (void *)model_dealloc},
    {Py_tp_traverse, (void *)model_traverse},
    {Py_tp_methods, (void *)MODEL_METHODS},
    {Py_tp_members, (void *)MODEL_MEMBERS},
#if HAS_STATE
    {Py_tp_getset, (void *)MODEL_ATTRIBUTES},
#endif
    {0, NULL},
};

static const PyType_Spec MODEL_SPEC = {
    MODULE_NAME ".Model", PY_BASIC_SIZE(Model), 0, Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_GC, MODEL_SLOTS,
};
