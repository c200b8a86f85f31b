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
    const Table *table = TABLE_OF(self);
    int low = 0, high = table->scalar_runs;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        memcpy(run, weights_at(self, table->scalars_at + 12 * middle), 12);
        if (run[0] <= i) {
            low = middle;
        } else {
            high = middle;
        }
    }
    memcpy(run, weights_at(self, table->scalars_at + 12 * low), 12);
    return run[1] + (i - run[0]) * run[2];
}

// The number behind a scalar parameter of the source model, or its gradient.
static PyObject *scalar_at(PyObject *self, PyObject *number, ptrdiff_t region)
{
    Model *model = PY_BODY(self);
    const Py_ssize_t i = PyNumber_AsSsize_t(number, PyExc_IndexError);
    const Table *table = TABLE_OF(model);
    const ptrdiff_t size = DTYPES[table->flat_dtype].size;
    char value[8];
    if (i == -1 && PyErr_Occurred() != NULL) {
        return NULL;
    }
    if (i < 0 || i >= table->scalars) {
        return PyErr_Format(PyExc_IndexError, "expected a parameter from 0 to %d, got %zd", table->scalars - 1, i);
    }
    const ptrdiff_t element = scalar_element(model, i);
    lock_state(model);
    memcpy(value, model->state + region + element * size, (size_t)size);
    unlock_state(model);
    return element_get(table->flat_dtype, value);
}

static PyObject *method_data(PyObject *self, PyObject *i)
{
    return scalar_at(self, i, TABLE_OF((Model *)PY_BODY(self))->parameters_at);
}

static PyObject *method_grad(PyObject *self, PyObject *i)
{
    return scalar_at(self, i, TABLE_OF((Model *)PY_BODY(self))->gradients_at);
}

#endif
// A read-only mapping from name to Array, of the slots of one kind or (`gradients`) of their gradients.
SELDOM static PyObject *make_mapping(const Model *self, int kind, bool gradients)
{
    const Table *table = TABLE_OF(self);
    PyObject *dict = PyDict_New();
    for (int k = 0; dict != NULL && k < table->slot_count; k++) {
        const Slot *slot = &table->slots[k];
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
    const int dtype = TABLE_OF(self)->flat_dtype;
    const ptrdiff_t stride = DTYPES[dtype].size;
    return array_view(self->array_type, self->memory, dtype, 1, &TABLE_OF(self)->flat_count, &stride,
                      self->state + offset);
}

#endif
static void free_state(PyObject *capsule)
{
    PyMem_Free(PyCapsule_GetPointer(capsule, NULL));
}

// The memory of the state, on a 64-byte boundary, and `more` behind it that nobody else sees. Zeros that nobody writes,
// as of gradients, take no pages.
static PyObject *make_memory(const Model *self, ptrdiff_t more)
{
    const ptrdiff_t bytes = TABLE_OF(self)->state_bytes, step = 1;
    char *memory = PyMem_Calloc(1, (size_t)(bytes + more) + 64 + 512);
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

// Whether a model has slots of a kind.
static bool has_slots(const Table *table, int kind)
{
    int k = 0;
    while (k < table->slot_count && table->slots[k].kind != kind) {
        k++;
    }
    return k < table->slot_count;
}

// Make the attributes that a model has; -1 with an error.
static int make_attributes(Model *self)
{
    const Table *table = TABLE_OF(self);
    PyObject **at = self->attributes;
    bool made = true;
    if (has_slots(table, PARAMETER)) {
        at[AT_parameters] = make_mapping(self, PARAMETER, false);
        made = at[AT_parameters] != NULL;
    }
#if HAS_GRADIENTS
    if (made && table->flat_count > 0) {
        at[AT_gradients] = make_mapping(self, PARAMETER, true);
        at[AT_flat_parameters] = make_flat(self, table->parameters_at);
        at[AT_flat_gradients] = make_flat(self, table->gradients_at);
        made = at[AT_gradients] != NULL && at[AT_flat_parameters] != NULL && at[AT_flat_gradients] != NULL;
    }
#endif
    if (made && has_slots(table, BUFFER)) {
        at[AT_buffers] = make_mapping(self, BUFFER, false);
        made = at[AT_buffers] != NULL;
    }
    return made ? 0 : -1;
}

static int make_state(Model *self, ptrdiff_t more)
{
    const Table *table = TABLE_OF(self);
    self->memory = make_memory(self, more);
    if (self->memory == NULL) {
        return -1;
    }
    self->state = ((Array *)PY_BODY(self->memory))->data;
    memcpy(self->state, weights_at(self, table->initial_at), (size_t)table->initial_bytes);
    self->process = process_id();
    self->lock = PyThread_allocate_lock();
    self->turn = PyThread_allocate_lock();
    if (self->lock == NULL || self->turn == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    return make_attributes(self);
}
#endif
