// --------------------------------------------------------------------------------------------------------------- calls
#pragma once

#include "runtime/indices.c"
#include "runtime/inputs.c"
#include "runtime/steps.c"
#include "runtime/text.c"
#include "runtime/tiles.c"

// Convert the numbers of an array one by one; what would become infinite, or does not fit an integer, is refused.
static int convert(const Call *call, int i, int rank, const ptrdiff_t *shape, const ptrdiff_t *strides,
                   const char *from, char **to)
{
    const Port *port = &call->entry->ports[i];
    const int dtype = call->inputs[i].dtype;
    for (ptrdiff_t k = 0; rank > 0 && k < shape[0]; k++) {
        if (convert(call, i, rank - 1, shape + 1, strides + 1, from + k * strides[0], to) < 0) {
            return -1;
        }
    }
    if (rank == 0) {
        if (!number_convert(port->dtype, *to, dtype, from)) {
            PyObject *number = element_get(dtype, from);
            if (number != NULL) {
                refuse_number(call->function, port->name, port->dtype, number);
            }
            release(number);
            return -1;
        }
        *to += DTYPES[port->dtype].size;
    }
    return 0;
}

#if HAS_COUNTS
// Return the most bytes that an output with a counted shape can take; 0 for other outputs.
static int128 room_bytes(const Call *call, const Port *port)
{
    return port->counted ? (int128)extent_at(TABLE_OF(call), port->room, call->dim) * DTYPES[port->dtype].size : 0;
}

#endif
// Take scratch memory: the kernel's workspace, then room for outputs whose shapes are counted, then the copies of those inputs that cannot be read in place. They were
// given for the entry `taker`.
static int place_inputs(Call *call, const Entry *taker)
{
    const Entry *entry = call->entry;
    const int128 workspace = largest_workspace(call);
    if (workspace > MAX_BYTES) {
        PyErr_NoMemory();
        return -1;
    }
    ptrdiff_t total = round_up((ptrdiff_t)workspace);
    for (int i = 0; i < entry->inputs; i++) {
        const Input *input = &call->inputs[i];
        if (input->copy && (input->bytes > MAX_BYTES || (total += round_up(input->bytes)) > MAX_BYTES)) {
            PyErr_NoMemory();
            return -1;
        }
    }
#if HAS_COUNTS
    for (int k = 0; k < entry->outputs; k++) {
        const int128 bytes = room_bytes(call, &entry->ports[entry->inputs + k]);
        if (bytes > MAX_BYTES || (total += round_up((ptrdiff_t)bytes)) > MAX_BYTES) {
            PyErr_NoMemory();
            return -1;
        }
    }
#endif
    char *memory = call->small;
    if (total > SMALL) {
        call->workspace = workspace_lease(call->model, total);
        if (call->workspace == NULL) {
            return -1;
        }
        memory = call->workspace->memory;
    } else {
        for (ptrdiff_t at = 0; at < total; at += 64) {  // whole pieces of 64 bytes: a few stores each
            memset(memory + at, 0, 64);
        }
    }
    call->p[behind_ports(entry) + 2] = memory;
    memory += round_up((ptrdiff_t)workspace);
#if HAS_COUNTS
    for (int k = 0; k < entry->outputs; k++) {
        const Port *port = &entry->ports[entry->inputs + k];
        if (port->counted) {
            call->p[entry->inputs + k] = memory;
            memory += round_up((ptrdiff_t)room_bytes(call, port));
        }
    }
#endif
    for (int i = 0; i < entry->inputs; i++) {
        const Port *port = &entry->ports[i];
        const Input *input = &call->inputs[i];
        call->p[i] = input->bytes == 0 ? call->small : (char *)input->data;  // an empty buffer may lie nowhere
        if (input->copy) {
            call->p[i] = memory;
            char *to = memory;
            memory += round_up(input->bytes);
            if (input->list != NULL) {
                if (fill_list(call, i, input->list, input->rank, input->shape, &to) < 0) {
                    return -1;
                }
            } else if (input->dtype != port->dtype) {
                if (convert(call, i, input->rank, input->shape, input->strides, input->data, &to) < 0) {
                    return -1;
                }
            } else {
                ptrdiff_t strides[MAX_RANK];
                dense_strides(port->dtype, input->rank, input->shape, strides);
                copy_strided(port->dtype, input->rank, input->shape, to, strides, input->data, input->strides);
            }
        }
    }
#if HAS_INDICES
    return check_indices(call, taker->ports);
#else
    (void)taker;
    return 0;
#endif
}

static int output_shape(const Call *call, const Port *port, ptrdiff_t *shape)
{
    const bool is_batch = port->rank > 0 && port->shape[0] == TABLE_OF(call)->batch;
    const bool drop = call->lacks_batch && !call->has_batch && is_batch;
    for (int d = drop; d < port->rank; d++) {
        shape[d - drop] = port_extent(TABLE_OF(call), port, d, call->dim);
    }
    return port->rank - drop;
}

SELDOM static int refuse_output(const Call *call, int k, PyObject *exception, const char *got)
{
    const Port *port = &call->entry->ports[call->entry->inputs + k];
    ptrdiff_t shape[MAX_RANK];
    const int rank = output_shape(call, port, shape);
    PyErr_Format(exception, "%s: out: expected a writable %s of its own, got %s", call->function,
                 type_words(TABLE_OF(call), DTYPES[port->dtype].name, rank, shape).text, got);
    return -1;
}

// Tell whether an output shares memory with anything else that the kernel reads or writes.
static const char *find_overlap(const Call *call, int k)
{
    const Entry *entry = call->entry;
    const Py_buffer *view = &call->outputs[k];
#if HAS_STATE
    if (overlaps(view->buf, view->len, call->model->state, TABLE_OF(call)->state_bytes)) {
        return "one that overlaps the model's memory";
    }
#endif
    for (int i = 0; i < entry->inputs; i++) {
        const char *low;
        ptrdiff_t bytes;
        if (call->inputs[i].view.obj != NULL || call->inputs[i].array != NULL) {
            extent(&call->inputs[i], &low, &bytes);
            if (overlaps(view->buf, view->len, low, bytes)) {
                return "one that overlaps an input";
            }
        }
    }
    for (int j = 0; j < call->given; j++) {
        if (j == k || call->outputs[j].obj == NULL) {  // itself, or not taken yet
            continue;
        }
        if (overlaps(view->buf, view->len, call->outputs[j].buf, call->outputs[j].len)) {
            return "one that overlaps another output";
        }
    }
    return NULL;
}

// Take a buffer that the caller gave by out=.
static int take_output(Call *call, int k, PyObject *object)
{
    const Port *port = &call->entry->ports[call->entry->inputs + k];
    Py_buffer *view = &call->outputs[k];
    ptrdiff_t shape[MAX_RANK];
    const int rank = output_shape(call, port, shape);
    if (!PyObject_CheckBuffer(object)) {
        const Words words = type_words(TABLE_OF(call), DTYPES[port->dtype].name, rank, shape);
        return refuse_type(call->function, "out", words.text, object);
    }
    if (PyObject_GetBuffer(object, view, PyBUF_STRIDES | PyBUF_FORMAT) < 0) {
        return -1;
    }
    call->given = call->given > k ? call->given : k + 1;
    if (!is_format(view->format, view->itemsize, port->dtype)) {
        return refuse_output(call, k, PyExc_TypeError, buffer_words(view).text);
    }
    bool right = view->ndim == rank;
    for (int d = 0; right && d < rank; d++) {
        right = view->shape[d] == shape[d];
    }
    if (!right) {
        return refuse_output(call, k, PyExc_ValueError, buffer_words(view).text);
    }
    const char *overlap = find_overlap(call, k);
    if (view->readonly) {
        return refuse_output(call, k, PyExc_ValueError, "a read-only one");
    } else if (view->strides != NULL && !is_dense(port->dtype, rank, shape, view->strides)) {
        return refuse_output(call, k, PyExc_ValueError, "one that is not C-contiguous");
    } else if (((uintptr_t)view->buf & (uintptr_t)(DTYPES[port->dtype].size - 1)) != 0) {
        return refuse_output(call, k, PyExc_ValueError, "one that is not aligned");
    } else if (overlap != NULL) {
        return refuse_output(call, k, PyExc_ValueError, overlap);
    }
    Py_IncRef(object);
    call->results[k] = object;
    call->p[call->entry->inputs + k] = view->len == 0 ? call->small : view->buf;
    return 0;
}

// Return the buffer that the caller gave by out= for an output, borrowed. The buffers come in the order of the outputs.
static PyObject *given_output(const Call *call, int k, PyObject *out)
{
    const Entry *entry = call->entry;
#if HAS_NAMED
    if (entry->named) {
        const bool right = (type_flags(out) & Py_TPFLAGS_DICT_SUBCLASS) != 0 && PyDict_Size(out) == entry->outputs;
        PyObject *given = right ? dict_get(out, entry->ports[entry->inputs + k].name) : NULL;
        if (given == NULL && PyErr_Occurred() == NULL) {
            PyErr_Format(PyExc_TypeError, "%s: out: expected a dict of %d buffers with one for '%s'", call->function,
                         entry->outputs, entry->ports[entry->inputs + k].name);
        }
        return given;
    }
#endif
    if (entry->outputs == 1) {
        return out;
    }
    if ((type_flags(out) & Py_TPFLAGS_TUPLE_SUBCLASS) == 0 || PyTuple_Size(out) != entry->outputs) {
        PyErr_Format(PyExc_TypeError, "%s: out: expected a tuple of %d buffers", call->function, entry->outputs);
        return NULL;
    }
    return PyTuple_GetItem(out, k);
}

// Take the memory of an output: a buffer of `out`, or an array of its own.
static int place_output(Call *call, int k, PyObject *out)
{
    const Entry *entry = call->entry;
    const Port *port = &entry->ports[entry->inputs + k];
#if HAS_STEPS
    if (out != NULL && port->step_end > 0) {
        PyErr_Format(PyExc_TypeError, "%s: out: %s is strings that are made, which no buffer takes", call->function,
                     port->name);
        return -1;
    }
#endif
    if (out != NULL) {
        PyObject *given = given_output(call, k, out);
        if (given == NULL) {
            return -1;
        }
        Py_IncRef(given);  // a dict may lose it meanwhile
        const int status = take_output(call, k, given);
        Py_DecRef(given);
        return status;
    }
    ptrdiff_t shape[MAX_RANK];
    const int rank = output_shape(call, port, shape);
    call->results[k] = array_new(call->model->array_type, port->dtype, rank, shape);
    if (call->results[k] == NULL) {
        return -1;
    }
    const Array *array = PY_BODY(call->results[k]);
    call->p[entry->inputs + k] = array->data;
    return 0;
}

static int place_outputs(Call *call, PyObject *out)
{
    const Entry *entry = call->entry;
    if (entry->scalar) {
        call->p[entry->inputs] = call->scalar;
        return 0;
    }
    for (int k = 0; k < entry->outputs; k++) {
#if HAS_COUNTS
        if (entry->ports[entry->inputs + k].counted) {
            continue;
        }
#endif
        if (place_output(call, k, out) < 0) {
            return -1;
        }
    }
    return 0;
}

#if HAS_COUNTS
// Learn the dims that the kernel has counted. The kernel has computed nothing for sizes that are refused here.
SELDOM static int learn_counts(Call *call)
{
    const Entry *entry = call->entry;
    for (int k = 0, checked = 0; k < entry->count_count; k++) {
        const Counted *counted = &entry->counts[k];
        const int64_t most = extent_at(TABLE_OF(call), counted->most, call->dim);
        if (call->counted[k] > most) {
            PyErr_Format(PyExc_ValueError, "%s: expected %s of at most %lld, got %lld", call->function,
                         TABLE_OF(call)->extent_names[counted->dim], (long long)most, (long long)call->counted[k]);
            return -1;
        }
        call->dim[counted->dim] = (ptrdiff_t)call->counted[k];
        if (check_extents(call, entry->count_bounds + checked, counted->bounds - checked) < 0) {
            return -1;
        }
        checked = counted->bounds;
    }
    return 0;
}

// Take the memory of outputs whose shapes are known by now, then copy what the kernel has written of them.
SELDOM static int take_counted(Call *call, PyObject *out)
{
    const Entry *entry = call->entry;
    char **p = call->p + entry->inputs;
    const char *from[MAX_OUTPUTS];
    for (int k = 0; k < entry->outputs; k++) {
        from[k] = p[k];
        if (entry->ports[entry->inputs + k].counted && place_output(call, k, out) < 0) {
            return -1;
        }
    }
    for (int k = 0; k < entry->outputs; k++) {
        const Port *port = &entry->ports[entry->inputs + k];
        if (port->counted) {
            ptrdiff_t shape[MAX_RANK], bytes;
            const int rank = output_shape(call, port, shape);
            (void)dense_bytes(port->dtype, rank, shape, &bytes);
            memcpy(p[k], from[k], (size_t)bytes);
        }
    }
    return 0;
}

#endif

static const char *const OUT[] = {"out", NULL}, *const *const NO_OPTIONS = OUT + 1;

// Sort positional and keyword arguments by port, and keywords besides by their place among `options`.
static int bind_arguments(const Call *call, PyObject *const *args, Py_ssize_t count, PyObject *names, PyObject **values,
                          const char *const *options, PyObject **given)
{
    const Entry *entry = call->entry;
    if (count > asked_in(call)) {
        PyErr_Format(PyExc_TypeError, "%s() takes %d positional arguments, got %zd", call->function, asked_in(call),
                     count);
        return -1;
    }
    for (int i = 0; i < asked_in(call); i++) {
        values[i] = i < count ? args[i] : NULL;
    }
    const Py_ssize_t named = names == NULL ? 0 : PyTuple_Size(names);
    for (Py_ssize_t k = 0; k < named; k++) {
        PyObject *name = PyTuple_GetItem(names, k), *value = args[count + k];
        int i = 0, option = 0;
        while (options[option] != NULL && PyUnicode_CompareWithASCIIString(name, options[option]) != 0) {
            option++;
        }
        if (options[option] != NULL) {
            given[option] = value;
            continue;
        }
        while (i < asked_in(call) && PyUnicode_CompareWithASCIIString(name, entry->ports[i].name) != 0) {
            i++;
        }
        if (i < asked_in(call) && values[i] == NULL) {
            values[i] = value;
        } else {
            PyErr_Format(PyExc_TypeError, "%s() got %s argument '%U'", call->function,
                         i < asked_in(call) ? "more than one" : "an unexpected keyword", name);
            return -1;
        }
    }
    for (int i = 0; i < asked_in(call); i++) {
        if (values[i] == NULL && !entry->ports[i].has_default) {
            const bool is_frame = count == 1 && PyObject_HasAttrString(args[0], "columns") == 1;
            PyErr_Format(PyExc_TypeError, "%s() is missing argument '%s'%s", call->function, entry->ports[i].name,
                         is_frame ? "; give the columns of a DataFrame by their names: **frame" : "");
            return -1;
        }
    }
    return 0;
}

static void begin_call(Call *call, Model *self, const Entry *entry, const char *function)
{
    call->model = self;
#if IS_SHARED
    call->table = self->table;
#endif
    call->entry = entry;
    call->function = function;
    call->seen = call->given = 0;
    call->has_batch = call->lacks_batch = false;
    call->bits = 0;
    call->workspace = NULL;
#if HAS_STRINGS
    call->further = NULL;
#endif
#if HAS_STEPS
    call->gives_all = false;
    call->columns = NULL;
#endif
    for (int k = 0; k < DIMS; k++) {
        call->dim[k] = -1;
    }
    for (int k = 0; k < entry->outputs; k++) {
        call->results[k] = NULL;
        call->outputs[k].obj = NULL;
    }
}

#if HAS_TEXT
static bool reads_text(const Call *call)
{
    const Text *text = TABLE_OF(call)->text;
    return text != NULL && call->entry == &TABLE_OF(call)->entries[text->entry];
}

#endif
// Read the arguments; afterwards the dims are known.
static int see_inputs(Call *call, PyObject *const *args, Py_ssize_t count, PyObject *names, const char *const *options,
                      PyObject **given)
{
    PyObject *values[MAX_INPUTS], *const *bound = args;
    if (names != NULL || count != asked_in(call)) {
        if (bind_arguments(call, args, count, names, values, options, given) < 0) {
            return -1;
        }
        bound = values;
    }
    for (int i = 0; i < asked_in(call); i++) {
        if (see_input(call, i, bound[i]) < 0) {
            return -1;
        }
    }
#if HAS_STEPS
    if (call->entry->step_count > 0 && !call->gives_all && make_inputs(call) < 0) {
        return -1;
    }
#endif
    if (solve_dims(call) < 0) {
        return -1;
    }
    for (int k = 0; k < DIMS; k++) {
        call->dim[k] = call->dim[k] < 0 ? 1 : call->dim[k];  // no input has it
    }
#if HAS_TEXT
    if (reads_text(call)) {
        set_seen(TABLE_OF(call)->text, TABLE_OF(call)->text->context, call->dim);  // it may be all, as far as we know
    }
#endif
    return check_bounds(call);
}

static int end_call(Call *call, int status)
{
    for (int i = 0; i < call->seen; i++) {
        if (call->inputs[i].view.obj != NULL) {
            PyBuffer_Release(&call->inputs[i].view);
        }
        release(call->inputs[i].array);
#if HAS_STRINGS
        release(call->inputs[i].made);
#endif
#if HAS_STEPS
        release(call->inputs[i].values);
#endif
#if HAS_ROWS
        free_rows(&call->inputs[i].rows);
#endif
    }
    for (int k = 0; k < call->given; k++) {
        PyBuffer_Release(&call->outputs[k]);
    }
#if HAS_STRINGS
    release(call->further);
#endif
#if HAS_STEPS
    free_columns(call);
#endif
    if (call->workspace != NULL) {
        workspace_return(call->model, call->workspace);
    }
    for (int k = 0; status < 0 && k < call->entry->outputs; k++) {
        release(call->results[k]);
    }
    return status;
}

#if HAS_NAMED
static PyObject *make_dict(Call *call, int count)
{
    PyObject *dict = PyDict_New();
    for (int k = 0; k < count; k++) {
        const Port *port = &call->entry->ports[call->entry->inputs + k];
        if (dict != NULL && PyDict_SetItemString(dict, port->name, call->results[k]) < 0) {
            Py_DecRef(dict);
            dict = NULL;
        }
        Py_DecRef(call->results[k]);
    }
    return dict;
}

#endif
// What callers get of an Array: a number where it has no axes and the entry gives numbers, strings where it is their
// places and they are `wanted`; else itself.
static PyObject *given_for(Call *call, const Port *port, PyObject *result, bool wanted)
{
    const Array *array = PY_BODY(result);
#if HAS_STRINGS
#if HAS_STEPS
    if (port->step_end > 0 && wanted) {
        return made_strings(call, port, array);
    }
#endif
    if (port->strings != NULL && wanted) {
        PyObject *further = call->further == NULL ? NULL : PyDict_Keys(call->further);
        PyObject *strings = PyErr_Occurred() == NULL ? strings_from(port->strings, further, array, 0, array->data) : NULL;
        release(further);
        return strings;
    }
#else
    (void)wanted;
#endif
    if (call->entry->numbers && port->rank == 0) {
        return element_get(port->dtype, array->data);
    }
    Py_IncRef(result);
    return result;
}

// Put in the place of Arrays what callers get of them.
static int make_given(Call *call, int count, bool strings)
{
    int status = 0;
    for (int k = 0; k < count; k++) {
        PyObject *given = given_for(call, &call->entry->ports[call->entry->inputs + k], call->results[k], strings);
        Py_DecRef(call->results[k]);
        call->results[k] = given;
        status = given == NULL ? -1 : status;
    }
    for (int k = 0; status < 0 && k < count; k++) {
        release(call->results[k]);
    }
    return status;
}

static PyObject *make_result(Call *call, int count, bool strings)
{
    if (!call->entry->scalar && make_given(call, count, strings) < 0) {
        return NULL;
    }
#if HAS_NAMED
    if (call->entry->named) {
        return make_dict(call, count);
    }
#endif
    if (call->entry->scalar) {
        return element_get(call->entry->ports[call->entry->inputs].dtype, call->scalar);
    }
    if (count == 1) {
        return call->results[0];
    }
    if (count == 0) {
        Py_IncRef(Py_None);
        return Py_None;
    }
    PyObject *tuple = PyTuple_New(count);
    for (int k = 0; k < count; k++) {
        if (tuple == NULL) {
            Py_DecRef(call->results[k]);
        } else {
            PyTuple_SetItem(tuple, k, call->results[k]);
        }
    }
    return tuple;
}

// The operations of a call, rows without elements counted as if they had one: a loop over them takes its time.
static int128 work_of(const Call *call)
{
    ptrdiff_t dim[DIMS];
    for (int i = 0; i < DIMS; i++) {
        dim[i] = call->dim[i] > 0 ? call->dim[i] : 1;
    }
    return call->entry->work(dim);
}

#if HAS_TEXT
// Whether a text has room for the tokens that a call reads, and these are what it has next; with the lock. The dims are
// known then.
static bool find_place(Call *call)
{
    const Text *text = TABLE_OF(call)->text;
    const Page page = page_of(call->model);
    const ptrdiff_t count = call->dim[-1 - call->entry->ports[0].shape[0]];
    if (*page.place < 0 || *page.place != *page.length || count > text->context - *page.place) {
        return false;
    }
    set_seen(text, (ptrdiff_t)*page.place + count, call->dim);
    return true;
}

SELDOM static int refuse_misplaced(const Call *call)
{
    const Page page = page_of(call->model);
    const char *function = call->function, *name = call->entry->ports[0].name;
    const long long place = *page.place, length = *page.length;
    const ptrdiff_t context = TABLE_OF(call)->text->context, count = call->dim[-1 - call->entry->ports[0].shape[0]];
    if (place == length) {
        PyErr_Format(PyExc_ValueError, "%s: %s: expected no more tokens than fit behind the %lld of the text, of %zd at"
                     " most, got %zd; rewind() makes room", function, name, place, context, count);
    } else {
        PyErr_Format(PyExc_ValueError, "%s: %s: %lld of the %lld tokens of the text are yet to be read, since they are"
                     " new or the weights are; generate() reads them, rewind(%lld) forgets them", function, name,
                     length - place, length, place);
    }
    return -1;
}

// Whether a call changes the weights that have read a text.
static bool changes_weights(const Call *call)
{
    const Table *table = TABLE_OF(call);
    const ptrdiff_t number = call->entry - table->entries;
    return table->text != NULL && (number == table->train_step || number == table->text->update);
}

#endif
// Run the kernel, a tile of rows after the other where they do not depend on each other: the workspace stays in the
// cache, and an interrupt is seen between two tiles.
static int run_tiles(Call *call)
{
    const Entry *entry = call->entry;
    int128 work = work_of(call);
    const ptrdiff_t rows = call->dim[rows_dim(call)], tile = rows_at_a_time(call);
    ptrdiff_t start = 0;
    bool is_empty;  // what is written has no elements, however many rows
    do {            // without rows, too: sums over them are 0
        is_empty = true;
        call->dim[rows_dim(call)] = rows - start < tile ? rows - start : tile;
#if HAS_ROWS
        if (lay_texts(call, start, rows, tile) < 0) {
            return -1;
        }
        work = work_of(call);
#endif
        lock_state(call->model);
#if HAS_TEXT
        if (reads_text(call)) {
            if (!find_place(call)) {
                unlock_state(call->model);
                return refuse_misplaced(call);
            }
            work = work_of(call);  // of what is seen
        }
        if (changes_weights(call)) {
            forget_reading(call->model);
        }
#endif
        run_kernel(call->model, entry, 0, work, call->p, call->dim);
        unlock_state(call->model);
#if HAS_COUNTS
        if (learn_counts(call) < 0) {
            return -1;
        }
#endif
#if HAS_REFUSALS
        if (entry->refusals != NULL && call->refused != 0) {
            PyErr_Format(PyExc_ValueError, "%s: %s", call->function, entry->refusals[call->refused - 1]);
            return -1;
        }
#endif
        if (work > LONG_WORK && PyErr_CheckSignals() < 0) {
            return -1;
        }
        for (int i = 0; i < entry->inputs + entry->outputs && call->dim[rows_dim(call)] < rows; i++) {
            const Port *port = &entry->ports[i];
            const bool has_rows = port->rank > 0 && port->shape[0] == entry->rows;
            ptrdiff_t bytes = has_rows ? DTYPES[port->dtype].size * call->dim[rows_dim(call)] : 0;
            for (int d = 1; d < port->rank; d++) {
                bytes *= port_extent(TABLE_OF(call), port, d, call->dim);
            }
            call->p[i] += bytes;
            is_empty &= i < entry->inputs || bytes == 0;
        }
        start += call->dim[rows_dim(call)];
    } while (start < rows && !is_empty);
    return 0;
}

// Serve one call of an entry: check everything, run the kernel, give the results; with their places for `strings`, if
// these are not wanted.
static PyObject *call_entry(Model *self, const Entry *entry, PyObject *const *args, Py_ssize_t count, PyObject *names,
                            bool strings)
{
    Call call;
    PyObject *out = NULL;
    const bool takes_out = entry->outputs > 0 && !entry->scalar;
    begin_call(&call, self, entry, entry->name);
#if HAS_STEPS
    call.gives_all = !strings;
#endif
    if (see_inputs(&call, args, count, names, takes_out ? OUT : NO_OPTIONS, &out) < 0) {
        end_call(&call, -1);
        return NULL;
    }
    out = out == Py_None ? NULL : out;
#if HAS_TOKENS
    if (order_texts(&call) < 0) {
        end_call(&call, -1);
        return NULL;
    }
#endif
    if (place_outputs(&call, out) < 0 || place_inputs(&call, entry) < 0) {
        end_call(&call, -1);
        return NULL;
    }
    char **hidden = call.p + entry->inputs + entry->outputs;
#if HAS_COUNTS
    for (int k = 0; k < entry->count_count; k++) {
        *hidden++ = (char *)&call.counted[k];
    }
#endif
#if HAS_REFUSALS
    *hidden = (char *)&call.refused;  // or one of those behind
#else
    (void)hidden;
#endif
    char **rest = call.p + behind_ports(entry);
#if HAS_STATE || HAS_PREPARED
    rest[0] = self->state;
#else
    rest[0] = NULL;
#endif
    rest[1] = (char *)weights_at(self, 0);
#if HAS_TOKENS
    char *begins[MAX_OUTPUTS];
    const ptrdiff_t rows = call.dim[rows_dim(&call)];
    memcpy(begins, call.p + entry->inputs, sizeof *begins * (size_t)entry->outputs);
#endif
    if (run_tiles(&call) < 0) {
        end_call(&call, -1);
        return NULL;
    }
#if HAS_COUNTS
    if (take_counted(&call, out) < 0) {
        end_call(&call, -1);
        return NULL;
    }
#endif
#if HAS_TOKENS
    call.dim[rows_dim(&call)] = rows;
    if (restore_order(&call, begins) < 0) {
        end_call(&call, -1);
        return NULL;
    }
#endif
    if (out == NULL) {
        out = make_result(&call, entry->outputs, strings);
    } else {
        for (int k = 0; k < entry->outputs; k++) {
            Py_DecRef(call.results[k]);
        }
        Py_IncRef(out);
    }
    end_call(&call, 0);
    return out;
}
