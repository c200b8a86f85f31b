// -------------------------------------------------------------------------------------------------------------- verbs
#pragma once

#include "runtime/calls.c"

#if HAS_PHASES
// Where the state behind the parameters begins, which a forward phase must put back.
static ptrdiff_t rest_at(const Table *table)
{
    return table->parameters_at + table->flat_count * DTYPES[table->flat_dtype].size;
}

static ptrdiff_t rest_bytes(const Table *table)
{
    return table->is_split ? 0 : table->state_bytes - rest_at(table);
}

static const Entry *phases_of(const Model *self)
{
    return &TABLE_OF(self)->entries[TABLE_OF(self)->phases];
}

// Give the held block room for one call's inputs, outputs and workspace.
static int hold(Held *held, const Call *call)
{
    const Entry *entry = call->entry;
    const int ports = entry->inputs + entry->outputs;
    ptrdiff_t at[PORTS + 1], total = round_up((ptrdiff_t)entry->workspace(call->dim));
    for (int i = 0; i < ports; i++) {
        const Port *port = &entry->ports[i];
        ptrdiff_t shape[MAX_RANK], bytes;
        for (int d = 0; d < port->rank; d++) {
            shape[d] = port_extent(TABLE_OF(call), port, d, call->dim);
        }
        at[i] = total;
        if (!dense_bytes(port->dtype, port->rank, shape, &bytes) || bytes > MAX_BYTES ||
            (total += round_up(bytes)) > MAX_BYTES) {
            PyErr_NoMemory();
            return -1;
        }
    }
    const ptrdiff_t kept_at = total;
    total += round_up(rest_bytes(TABLE_OF(call)));
    if (held->memory == NULL || held->memory->bytes < total) {
        Workspace *memory = workspace_new(total);
        if (memory == NULL) {
            return -1;
        }
        PyMem_Free(held->memory);
        held->memory = memory;
    }
    for (int i = 0; i < ports; i++) {
        held->p[i] = held->memory->memory + at[i];
    }
    held->rest = held->memory->memory + kept_at;
    held->p[ports] = call->model->state;
    held->p[ports + 1] = (char *)weights_at(call->model, 0);
    held->p[ports + 2] = held->memory->memory;
    for (int k = 0; k < DIMS; k++) {
        held->dim[k] = call->dim[k];
    }
    held->drop_batch = call->lacks_batch && !call->has_batch;
    held->phase = INPUT_SET;
    return 0;
}

static int set_input(Model *model, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    Call call;
    begin_call(&call, model, phases_of(model), "set_input");
    if (see_inputs(&call, args, count, names, NO_OPTIONS, NULL) < 0 || place_inputs(&call, call.entry) < 0) {
        return end_call(&call, -1);
    }
    lock_state(model);
    const int status = hold(&model->held, &call);
    for (int i = 0; status == 0 && i < call.entry->inputs; i++) {
        memcpy(model->held.p[i], call.p[i], (size_t)call.inputs[i].bytes);
    }
    unlock_state(model);
    return end_call(&call, status);
}

static PyObject *method_set_input(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    if (set_input(PY_BODY(self), args, count, names) < 0) {
        return NULL;
    }
    Py_IncRef(Py_None);
    return Py_None;
}

SELDOM static PyObject *refuse_phase(const char *function, const char *missing)
{
    PyErr_Format(PyExc_ValueError, "%s: call %s first", function, missing);
    return NULL;
}

// The forward phase (0) or the backward phase (1) of the entry `phases`. Where one kernel gives outputs and
// gradients at once, the forward phase puts gradients and buffers back.
static void run_phase(Model *self, int phase)
{
    const Table *table = TABLE_OF(self);
    const Entry *entry = phases_of(self);
    char *rest = self->state + rest_at(table);
    const size_t bytes = phase == 0 ? (size_t)rest_bytes(table) : 0;
    memcpy(self->held.rest, rest, bytes);
    run_kernel(self, entry, table->is_split ? phase : 0, entry->work(self->held.dim), self->held.p, self->held.dim);
    memcpy(rest, self->held.rest, bytes);
    self->held.phase = phase == 0 ? FORWARD_DONE : BACKWARD_DONE;
}

// Whether an entry that is called without arguments is meant for what set_input() stored. One that takes none, in a
// model that does, also serves before. A model without inputs needs no set_input().
static bool is_held(Model *self, const Entry *entry)
{
    lock_state(self);
    const bool is_set = self->held.phase != NOTHING;
    unlock_state(self);
    return is_set || entry->inputs > 0 || phases_of(self)->inputs == 0;
}

// forward() on what set_input() stored.
static PyObject *forward_held(Model *self)
{
    const Entry *entry = phases_of(self);
    const int count = entry->outputs - 1;  // without the loss
    if (entry->inputs == 0 && set_input(self, NULL, 0, NULL) < 0) {
        return NULL;
    }
    for (;;) {
        // Memory for the results is taken before the lock, since that may run Python code.
        Call call;
        begin_call(&call, self, entry, "forward");
#if defined(MLAOT_ABI3T)
        lock_state(self);  // else the GIL keeps the next lines together
#endif
        memcpy(call.dim, self->held.dim, sizeof call.dim);
        call.lacks_batch = self->held.drop_batch;
        const bool ready = self->held.phase != NOTHING;
#if defined(MLAOT_ABI3T)
        unlock_state(self);
#endif
        if (!ready) {
            return refuse_phase("forward", "set_input");
        }
        for (int k = 0; k < count; k++) {
            const Port *port = &entry->ports[entry->inputs + k];
            ptrdiff_t shape[MAX_RANK];
            const int rank = output_shape(&call, port, shape);
            call.results[k] = array_new(self->array_type, port->dtype, rank, shape);
            if (call.results[k] == NULL) {
                end_call(&call, -1);
                return NULL;
            }
        }
        lock_state(self);
        const bool same_dims = memcmp(call.dim, self->held.dim, sizeof call.dim) == 0;
        const bool same = same_dims && call.lacks_batch == self->held.drop_batch;
        if (same) {
            run_phase(self, 0);
            for (int k = 0; k < count; k++) {
                const Array *array = PY_BODY(call.results[k]);
                const ptrdiff_t bytes = array_size(array) * DTYPES[array->dtype].size;
                memcpy(array->data, self->held.p[entry->inputs + k], (size_t)bytes);
            }
        }
        unlock_state(self);
        if (same) {
            return end_call(&call, PyErr_CheckSignals()) < 0 ? NULL : make_result(&call, count, true);
        }
        end_call(&call, -1);  // another thread gave a batch of another size
    }
}

// loss() of what set_input() stored.
static PyObject *loss_held(Model *self)
{
    const Entry *entry = phases_of(self);
    const int last = entry->inputs + entry->outputs - 1;
    char loss[8];
    if (entry->inputs == 0 && set_input(self, NULL, 0, NULL) < 0) {
        return NULL;
    }
    lock_state(self);
    const bool ready = self->held.phase != NOTHING;
    if (self->held.phase == INPUT_SET) {
        run_phase(self, 0);
    }
    if (ready) {
        memcpy(loss, self->held.p[last], (size_t)DTYPES[entry->ports[last].dtype].size);
    }
    unlock_state(self);
    return ready ? element_get(entry->ports[last].dtype, loss) : refuse_phase("loss", "set_input");
}

static PyObject *method_backward(PyObject *self, PyObject *unused)
{
    (void)unused;
    Model *model = PY_BODY(self);
    lock_state(model);
    const int phase = model->held.phase;
    if (phase == BACKWARD_DONE) {
        run_phase(model, 0);  // the backward phase has used up what the forward phase left
    }
    if (phase >= FORWARD_DONE) {
        run_phase(model, 1);
    }
    unlock_state(model);
    if (phase < FORWARD_DONE) {
        const bool lacks_input = phase == NOTHING && phases_of(model)->inputs > 0;
        return refuse_phase("backward", lacks_input ? "set_input and forward" : "forward");
    }
    if (PyErr_CheckSignals() < 0) {
        return NULL;
    }
    Py_IncRef(Py_None);
    return Py_None;
}
#endif
