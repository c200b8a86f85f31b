// -------------------------------------------------------------------------------------------------------------- state
#pragma once

#include "runtime/model.c"

#if HAS_STATE
#if HAS_SCALARS
// Where in the flat parameters a scalar of the source model lies. The table holds runs of scalars at equal steps: the
// first scalar of a run, its element and the step, in order.
static ptrdiff_t scalar_element(const Model *self, ptrdiff_t i)
{
    int32_t run[3];
    int low = 0, high = SCALAR_RUNS;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        memcpy(run, weights_at(self, SCALARS_AT + 12 * middle), 12);
        if (run[0] <= i) {
            low = middle;
        } else {
            high = middle;
        }
    }
    memcpy(run, weights_at(self, SCALARS_AT + 12 * low), 12);
    return run[1] + (i - run[0]) * run[2];
}

// The number behind a scalar parameter of the source model, or its gradient.
static PyObject *scalar_at(PyObject *self, PyObject *number, ptrdiff_t region)
{
    Model *model = PY_BODY(self);
    const Py_ssize_t i = PyNumber_AsSsize_t(number, PyExc_IndexError);
    char value[8];
    if (i == -1 && PyErr_Occurred() != NULL) {
        return NULL;
    }
    if (i < 0 || i >= SCALARS) {
        return PyErr_Format(PyExc_IndexError, "expected a parameter from 0 to %d, got %zd", SCALARS - 1, i);
    }
    const ptrdiff_t element = scalar_element(model, i);
    lock_state(model);
    memcpy(value, model->state + region + element * DTYPES[FLAT_DTYPE].size, (size_t)DTYPES[FLAT_DTYPE].size);
    unlock_state(model);
    return element_get(FLAT_DTYPE, value);
}

static PyObject *method_data(PyObject *self, PyObject *i)
{
    return scalar_at(self, i, PARAMETERS_AT);
}

static PyObject *method_grad(PyObject *self, PyObject *i)
{
    return scalar_at(self, i, GRADIENTS_AT);
}

#endif
// A read-only mapping from name to Array, of the slots of one kind or (`gradients`) of their gradients.
static PyObject *make_mapping(const Model *self, int kind, bool gradients)
{
    PyObject *dict = PyDict_New();
    for (int k = 0; dict != NULL && k < SLOT_COUNT; k++) {
        const Slot *slot = &SLOTS[k];
        if (slot->kind != kind) {
            continue;
        }
        char *data = self->state + (gradients ? slot->gradient_offset : slot->offset);
        PyObject *view = array_view(self->array_type, self->memory, slot->dtype, slot->rank, slot->shape,
                                    slot->strides, data);
        const int status = view == NULL ? -1 : PyDict_SetItemString(dict, slot->name, view);
        release(view);
        if (status < 0) {
            Py_DecRef(dict);
            return NULL;
        }
    }
    PyObject *mapping = dict == NULL ? NULL : PyDictProxy_New(dict);
    release(dict);
    return mapping;
}

#if HAS_GRADIENTS
static PyObject *make_flat(const Model *self, ptrdiff_t offset)
{
    const ptrdiff_t count = FLAT_COUNT, stride = DTYPES[FLAT_DTYPE].size;
    return array_view(self->array_type, self->memory, FLAT_DTYPE, 1, &count, &stride, self->state + offset);
}

#endif
static void free_state(PyObject *capsule)
{
    PyMem_Free(PyCapsule_GetPointer(capsule, NULL));
}

// The memory of the state, on a 64-byte boundary. Zeros that nobody writes, as of gradients, take no pages.
static PyObject *make_memory(const Model *self)
{
    const ptrdiff_t bytes = STATE_BYTES, step = 1;
    char *memory = PyMem_Calloc(1, STATE_BYTES + 64 + 512);
    PyObject *capsule = memory == NULL ? PyErr_NoMemory() : PyCapsule_New(memory, NULL, free_state);
    if (capsule == NULL) {
        PyMem_Free(memory);
        return NULL;
    }
    char *data = memory + (size_t)-(uintptr_t)memory % 64;
    PyObject *array = array_view(self->array_type, capsule, U8, 1, &bytes, &step, data);
    Py_DecRef(capsule);
    return array;
}

static int make_state(Model *self)
{
    self->memory = make_memory(self);
    if (self->memory == NULL) {
        return -1;
    }
    self->state = ((Array *)PY_BODY(self->memory))->data;
    memcpy(self->state, weights_at(self, INITIAL_AT), INITIAL_BYTES);
    self->process = process_id();
    self->lock = PyThread_allocate_lock();
    self->turn = PyThread_allocate_lock();
    if (self->lock == NULL || self->turn == NULL) {
        PyErr_NoMemory();
        return -1;
    }
#define MAKE_MEMBER(name, doc, make) \
    self->name = make;               \
    if (self->name == NULL) {        \
        return -1;                   \
    }
    ATTRIBUTES(MAKE_MEMBER)
    return 0;
}
#endif
