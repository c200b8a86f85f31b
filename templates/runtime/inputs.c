// -------------------------------------------------------------------------------------------------------------- inputs
#pragma once

#include "runtime/dates.c"
#include "runtime/model.c"
#include "runtime/texts.c"

enum {
    SMALL = 2048, PORTS = MAX_INPUTS + MAX_OUTPUTS,
    MAX_BITS = 84,  // of a product of dims: expressions of them fit into 128 bits then
};

#define MAX_DIM ((ptrdiff_t)1 << 40)
#define MAX_BYTES ((ptrdiff_t)1 << 46)
#define MAX_BROADCAST ((ptrdiff_t)1 << 30)

// One input as it was given: an array of NumPy's, a buffer, a list still to be converted, or a converted number.
typedef struct {
    Py_buffer view;  // view.obj is NULL where there is none
    PyObject *array, *list;  // held, borrowed; NULL where it is none
#if HAS_STRINGS
    PyObject *made;  // the list that was made of an array of strings, held; or NULL
#endif
#if HAS_STEPS
    PyObject *values;  // the list of those of a dict, held; or NULL
#endif
#if HAS_ROWS
    bool has_rows;  // of texts, which lie nowhere else
    TextRows rows;
#endif
    const char *data;
    int rank;
    int dtype;       // what its numbers are, to be converted where the port has another
    bool copy;       // it cannot be read in place
    ptrdiff_t bytes;  // when dense
    const ptrdiff_t *shape, *strides;  // the view's, or these:
    ptrdiff_t own_shape[MAX_RANK], own_strides[MAX_RANK];
    _Alignas(8) char number[8];
} Input;

#if HAS_STEPS
// An array of places of strings, or of numbers, that a step takes or makes.
enum { COLUMN_RANK = MAX_RANK + 8 };
typedef struct {
    Buffer data;
    int rank;
    ptrdiff_t shape[COLUMN_RANK];
} Column;

#endif
typedef struct {
    Model *model;
#if IS_SHARED
    const Table *table;
#endif
    const Entry *entry;
    const char *function;  // its name in messages
    int seen, given;       // how many inputs and out= buffers are to be released
    bool has_batch, lacks_batch;
    int bits;  // of the product of all dims, each as often as its degree
    ptrdiff_t dim[DIMS];
    int dim_from[DIMS];  // the input that a dim's value came from
    Input inputs[MAX_INPUTS];
    Py_buffer outputs[MAX_OUTPUTS];
    PyObject *results[MAX_OUTPUTS];
#if HAS_STRINGS
    PyObject *further;  // the strings that no port knows: their numbers by their bytes; or NULL
#endif
#if HAS_STEPS
    bool gives_all;   // a selftest also passes the inputs that a call would make itself
    Column *columns;  // of the steps, then of the inputs that they take; or NULL
#endif
    char *p[PORTS + 4 + HAS_REFUSALS + MAX_COUNTS];
    Workspace *workspace;
#if HAS_REFUSALS
    int64_t refused;  // what the kernel found wrong
#endif
#if HAS_COUNTS
    int64_t counted[MAX_COUNTS];
#endif
    _Alignas(8) char scalar[8];
    _Alignas(64) char small[SMALL];
} Call;

// How many inputs a caller passes.
static int asked_of(const Entry *entry)
{
#if HAS_STEPS
    return entry->asked;
#else
    return entry->inputs;
#endif
}

// How many inputs a call has. A selftest also passes those that a call would make itself.
static int asked_in(const Call *call)
{
#if HAS_STEPS
    if (call->gives_all) {
        return call->entry->inputs;
    }
#endif
    return asked_of(call->entry);
}

// The dim of the batch.
static int batch_dim(const Call *call)
{
    return -1 - TABLE_OF(call)->batch;
}

// What a port holds, as messages say it.
static const char *dtype_words(const Port *port)
{
#if HAS_ROWS
    if (port->has_texts) {
        return "str";
    }
#endif
#if HAS_STRINGS
    return port->strings != NULL ? "str" : DTYPES[port->dtype].name;
#else
    return DTYPES[port->dtype].name;
#endif
}

// Store a number that a caller has given for a port, or a string.
static int port_set(Call *call, const Port *port, char *to, PyObject *object)
{
#if HAS_STRINGS
    if (port->strings != NULL) {
        return place_set(port, call->function, &call->further, to, object);
    }
#endif
#if HAS_DATES
    if (port->dates != NULL) {
        PyObject *number = undated(call->function, port, object);
        const int status = number == NULL ? -1 : element_set(call->function, port->name, port->dtype, to, number);
        release(number);
        return status;
    }
#endif
    return element_set(call->function, port->name, port->dtype, to, object);
}

SELDOM static int refuse_input(const Call *call, int i, PyObject *exception, const char *got)
{
    const Port *port = &call->entry->ports[i];
    PyErr_Format(exception, "%s: %s: expected %s, got %s", call->function, port->name,
                 type_words(TABLE_OF(call), dtype_words(port), port->rank, port->shape).text, got);
    return -1;
}

// Is an array of another kind of number converted? Only where the port says so; to integers only integers are.
static bool is_convertible(const Port *port, int from)
{
    const char kind = DTYPES[port->dtype].kind;
    const bool is_integer = from >= 0 && DTYPES[from].kind != 'f';
    return port->converts && from >= 0 && (kind == 'f' || (kind == 'i' && is_integer));
}

typedef struct { char text[200]; } Mend;

// Return the advice for an error how to convert a buffer's numbers, unless some would be cut off.
SELDOM static Mend mend_buffer(const Port *port, PyObject *object, const Py_buffer *view)
{
    const int from = buffer_dtype(view);
    const bool is_float = DTYPES[port->dtype].kind == 'f', is_integer = from >= 0 && DTYPES[from].kind != 'f';
    const bool is_swapped = view->format != NULL && strchr("<>!", *view->format) != NULL && strlen(view->format) == 2;
    Mend mend = {""};
    if (!is_integer && !(is_float && (from >= 0 || is_swapped))) {
        return mend;
    }
    if (PyObject_HasAttrString(object, "astype") != 0) {
        snprintf(mend.text, sizeof mend.text, "; pass %.60s.astype('%s')", port->name, DTYPES[port->dtype].name);
    } else if (DTYPES[port->dtype].kind != 'b' && PyObject_HasAttrString(object, "tolist") != 0) {
        snprintf(mend.text, sizeof mend.text, "; pass %.60s.tolist(), whose numbers are converted", port->name);
    }
    return mend;
}

// What makes an array or a list of an object that is neither.
SELDOM static Mend mend_object(const Port *port, PyObject *object)
{
    const char *const name = port->name, *const dtype = DTYPES[port->dtype].name;
    const bool is_text = (type_flags(object) & Py_TPFLAGS_UNICODE_SUBCLASS) != 0;
    Mend mend = {""};
    if (PyObject_HasAttrString(object, "to_numpy") != 0) {
        snprintf(mend.text, sizeof mend.text, "; pass %.60s.to_numpy().astype('%s')", name, dtype);
    } else if (PyObject_HasAttrString(object, "__array__") != 0) {
        snprintf(mend.text, sizeof mend.text, "; pass numpy.asarray(%.60s, '%s')", name, dtype);
    } else if (PySequence_Check(object) != 0 && !is_text) {
        snprintf(mend.text, sizeof mend.text, "; pass list(%.60s)", name);
    }
    return mend;
}

SELDOM static int refuse_with(const Call *call, int i, const char *got, Mend mend)
{
    const Port *port = &call->entry->ports[i];
    PyErr_Format(PyExc_TypeError, "%s: %s: expected %s, got %s%s", call->function, port->name,
                 type_words(TABLE_OF(call), dtype_words(port), port->rank, port->shape).text, got, mend.text);
    return -1;
}

static int set_dim(Call *call, int i, int k, ptrdiff_t value)
{
    const Port *ports = call->entry->ports;
    const char *name = TABLE_OF(call)->extent_names[k];
    if (call->dim[k] < 0) {
        call->dim[k] = value;
        call->dim_from[k] = i;
        if (value > MAX_DIM) {
            PyErr_Format(PyExc_ValueError, "%s: %s: %s is too large: expected at most %zd, got %zd", call->function,
                         ports[i].name, name, MAX_DIM, value);
            return -1;
        }
        call->bits += TABLE_OF(call)->degrees[k] * (64 - __builtin_clzll((unsigned long long)value | 1));
        if (call->bits > MAX_BITS) {
            PyErr_NoMemory();
            return -1;
        }
    } else if (call->dim[k] != value) {
        PyErr_Format(PyExc_ValueError, "%s: %s: %s is %zd here, but %zd in %s", call->function, ports[i].name,
                     name, value, call->dim[k], ports[call->dim_from[k]].name);
        return -1;
    }
    return 0;
}

// Hold an input's shape against the port's, and learn the named dims from it; expressions are left to solve_dims(). A
// missing batch axis means a batch of 1.
static int match_shape(Call *call, int i, const char *got)
{
    const Port *port = &call->entry->ports[i];
    Input *input = &call->inputs[i];
    const bool batched = port->rank > 0 && port->shape[0] == TABLE_OF(call)->batch;
    const int lacks = batched && input->rank == port->rank - 1;
    bool right = input->rank + lacks == port->rank;
    for (int d = 0; right && d < input->rank; d++) {
        right = port->shape[d + lacks] < 0 || port->shape[d + lacks] == input->shape[d];
    }
    if (!right) {
        return refuse_input(call, i, PyExc_ValueError, type_words(TABLE_OF(call), got, input->rank, input->shape).text);
    }
    if (lacks != 0) {
        call->lacks_batch = true;
        if (set_dim(call, i, batch_dim(call), 1) < 0) {
            return -1;
        }
    } else if (batched) {
        call->has_batch = true;
    }
    for (int d = 0; d < input->rank; d++) {
        const int k = (int)(-1 - port->shape[d + lacks]);
        if (k >= 0 && k < TABLE_OF(call)->dims && set_dim(call, i, k, input->shape[d]) < 0) {
            return -1;
        }
    }
    return 0;
}

static bool overlaps(const char *a, ptrdiff_t a_bytes, const char *b, ptrdiff_t b_bytes)
{
    return a_bytes > 0 && b_bytes > 0 && a < b + b_bytes && b < a + a_bytes;
}

// The addresses that a strided view touches.
static void extent(const Input *input, const char **low, ptrdiff_t *bytes)
{
    ptrdiff_t before = 0, after = DTYPES[input->dtype].size;
    for (int d = 0; d < input->rank; d++) {
        const ptrdiff_t step = (input->shape[d] - 1) * input->strides[d];
        before += step < 0 ? step : 0;
        after += step > 0 ? step : 0;
    }
    *low = input->data + before;
    *bytes = input->bytes == 0 ? 0 : after - before;
}

// What is left to find out where numbers, extents and strides are known: can they be read in place?
static int see_strided(Call *call, int i, bool dense)
{
    const Port *port = &call->entry->ports[i];
    Input *input = &call->inputs[i];
    const ptrdiff_t size = DTYPES[input->dtype].size;
    if (match_shape(call, i, DTYPES[input->dtype].name) < 0) {
        return -1;
    }
    input->copy = !dense || input->dtype != port->dtype || ((uintptr_t)input->data & (uintptr_t)(size - 1)) != 0;
#if HAS_INDICES
    // Indices are checked in a copy, which no other thread can change afterwards.
    input->copy = input->copy || (port->range_count > 0 && DTYPES[port->dtype].kind != 'f');
#endif
    const char *low = input->data;
    ptrdiff_t bytes = input->bytes;
    if (!dense) {
        extent(input, &low, &bytes);
        if (input->bytes > MAX_BROADCAST && bytes < input->bytes) {
            PyErr_Format(PyExc_ValueError, "%s: %s: expected an array of its own, got a broadcast view of %zd bytes",
                         call->function, port->name, input->bytes);
            return -1;
        }
    }
#if HAS_STATE
    // A view of the state may change under the kernel.
    input->copy = input->copy || overlaps(low, bytes, call->model->state, TABLE_OF(call)->state_bytes);
#endif
    if (input->dtype != port->dtype && !dense_bytes(port->dtype, input->rank, input->shape, &input->bytes)) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

// An array that holds the right numbers. Extents and strides are copied: a list among the inputs may run code that gives
// the array others.
static int see_array(Call *call, int i, PyObject *object, char *data, int rank, const ptrdiff_t *shape,
                     const ptrdiff_t *strides)
{
    Input *input = &call->inputs[i];
    ptrdiff_t bytes = DTYPES[input->dtype].size;  // no array has more of them than fit
    bool dense = true;
    Py_IncRef(object);
    for (int d = rank; d-- > 0;) {
        input->own_shape[d] = shape[d];
        input->own_strides[d] = strides[d];
        dense = dense && (shape[d] == 1 || strides[d] == bytes);
        bytes *= shape[d];
    }
    input->array = object;
    input->data = data;
    input->rank = rank;
    input->bytes = bytes;
    input->shape = input->own_shape;
    input->strides = input->own_strides;
    return see_strided(call, i, dense || bytes == 0);
}

static int see_buffer(Call *call, int i, PyObject *object)
{
    const Port *port = &call->entry->ports[i];
    Input *input = &call->inputs[i];
    if (PyObject_GetBuffer(object, &input->view, PyBUF_STRIDES | PyBUF_FORMAT) < 0) {
        input->view.obj = NULL;
        return -1;
    }
    const Py_buffer *view = &input->view;
    if (!is_format(view->format, view->itemsize, port->dtype)) {
        input->dtype = buffer_dtype(view);
        if (!is_convertible(port, input->dtype)) {
            return refuse_with(call, i, buffer_words(view).text, mend_buffer(port, object, view));
        }
    }
    if (view->ndim > MAX_RANK) {
        return refuse_input(call, i, PyExc_ValueError, buffer_words(view).text);
    }
    input->data = view->buf;
    input->rank = view->ndim;
    input->bytes = view->len;
    input->shape = view->shape;
    input->strides = view->strides;
    if (view->strides == NULL) {  // dense, as ctypes gives it
        dense_strides(input->dtype, input->rank, input->shape, input->own_strides);
        input->strides = input->own_strides;
    }
    numpy_learn(call->model->numpy, object, view);
    return see_strided(call, i, is_dense(input->dtype, input->rank, input->shape, input->strides));
}

// Is an object an array with axes, and no number or text?
static bool is_array(PyObject *object)
{
    Py_buffer view;
    const bool is_text = (type_flags(object) & Py_TPFLAGS_BYTES_SUBCLASS) != 0;
    if (is_text || !PyObject_CheckBuffer(object) ||
        PyObject_GetBuffer(object, &view, PyBUF_STRIDES | PyBUF_FORMAT) < 0) {
        PyErr_Clear();
        return false;
    }
    const bool has_axes = view.ndim > 0;
    PyBuffer_Release(&view);
    return has_axes;
}

// The shape of nested lists, going by the first items; fill_list() finds ragged ones.
static int see_list(Call *call, int i, PyObject *list)
{
    Input *input = &call->inputs[i];
    PyObject *item = list;
    Py_IncRef(item);
    input->rank = 0;
    input->shape = input->own_shape;
    while (is_list(item)) {
        const Py_ssize_t n = PySequence_Size(item);
        if (n < 0 || input->rank == MAX_RANK) {
            Py_DecRef(item);
            return n < 0 ? -1 : refuse_input(call, i, PyExc_ValueError, "lists nested too deep");
        }
        input->own_shape[input->rank++] = n;
        PyObject *first = n == 0 ? NULL : PySequence_GetItem(item, 0);
        Py_DecRef(item);
        if (n == 0) {
            item = NULL;
            break;
        }
        if (first == NULL) {
            return -1;
        }
        item = first;
    }
#if HAS_DATES
    const bool has_rows = item != NULL && call->entry->ports[i].dates == NULL && is_array(item);
#else
    const bool has_rows = item != NULL && is_array(item);
#endif
    release(item);
    if (has_rows) {
        Mend mend;
        snprintf(mend.text, sizeof mend.text, "; pass numpy.stack(%.60s)", call->entry->ports[i].name);
        return refuse_with(call, i, "a list of arrays", mend);
    }
    input->list = list;
    input->copy = true;
    if (match_shape(call, i, "list") < 0) {
        return -1;
    }
    if (!dense_bytes(call->entry->ports[i].dtype, input->rank, input->shape, &input->bytes)) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

static int see_number(Call *call, int i, PyObject *number)
{
    const Port *port = &call->entry->ports[i];
    Input *input = &call->inputs[i];
    const bool fits = port->rank == 0 || (port->rank == 1 && port->shape[0] == TABLE_OF(call)->batch);
    input->rank = 0;
    input->data = input->number;
    input->bytes = DTYPES[port->dtype].size;
    if (!fits) {
        PyObject *type = PyType_GetName(PY_TYPE(number)), *name = type == NULL ? NULL : PyUnicode_AsUTF8String(type);
        const int status =
            name == NULL ? -1 : refuse_with(call, i, PyBytes_AsString(name), mend_object(port, number));
        release(type);
        release(name);
        return status;
    }
    if (number == NULL) {
        float_set(port->dtype, input->number, port->default_value);
    } else if (port_set(call, port, input->number, number) < 0) {
        return -1;
    }
    return match_shape(call, i, dtype_words(port));
}

// Take a DataFrame, a Series or a tensor, which makes an array of itself.
static int see_convertible(Call *call, int i, PyObject *object)
{
    PyObject *array = PyObject_CallMethod(object, "__array__", NULL);
    int status = -1;
    if (array != NULL && PyObject_CheckBuffer(array) != 0) {
        status = see_buffer(call, i, array);  // whose view keeps it alive
    } else if (array != NULL) {
        status = see_number(call, i, object);
    }
    release(array);
    return status;
}

#if HAS_STRINGS
// An array without elements, whose axes a list would not tell.
SELDOM static bool see_empty(Input *input, const Py_buffer *view)
{
    bool is_empty = false;
    for (int d = 0; d < view->ndim && view->ndim <= MAX_RANK; d++) {
        input->own_shape[d] = view->shape[d];
        is_empty = is_empty || view->shape[d] == 0;
    }
    input->data = input->number;
    input->rank = view->ndim;
    input->shape = input->own_shape;
    input->bytes = 0;
    return is_empty;
}

// Strings that are no list: an array of NumPy's, a column of pandas, an array of Arrow, a str or bytes; or places.
SELDOM static int see_strings(Call *call, int i, PyObject *object)
{
    Py_buffer view;
    if (!is_bytes(object) && PyObject_CheckBuffer(object) != 0) {
        if (PyObject_GetBuffer(object, &view, PyBUF_STRIDES | PyBUF_FORMAT) == 0) {
            const bool has_places = is_format(view.format, view.itemsize, I64);
            const bool is_empty = see_empty(&call->inputs[i], &view);
            PyBuffer_Release(&view);
            if (has_places || is_empty) {
                return has_places ? see_buffer(call, i, object) : match_shape(call, i, "list");
            }
        }
        PyErr_Clear();
    }
    PyObject *list = listed(object);
    if (list == NULL || is_list(list)) {
        call->inputs[i].made = list;
        return list == NULL ? -1 : see_list(call, i, list);
    }
    const int status = see_number(call, i, list);
    Py_DecRef(list);
    return status;
}

#endif
#if HAS_ROWS
// Texts: a str or bytes, a list of them, an array of NumPy's, a column of pandas, an array of Arrow.
static int see_texts(Call *call, int i, PyObject *object)
{
    const Port *port = &call->entry->ports[i];
    Input *input = &call->inputs[i];
    TextRows *rows = &input->rows;
    const char *block = weights_at(call->model, port->texts_at);
    PyObject *texts = listed(object);
    const bool is_one = texts != NULL && !is_list(texts);
    const int status = texts == NULL ? -1 : take_texts(call->function, port->name, block, texts, rows);
    release(texts);
    if (status < 0) {
        return -1;
    }
    const ptrdiff_t count = rows->ends.bytes / (ptrdiff_t)sizeof(ptrdiff_t);
    ptrdiff_t longest = 1;
    for (ptrdiff_t k = 0; k < count; k++) {
        longest = longer_row(rows, k, longest);
        if (port->texts_most > 0 && longest > port->texts_most) {
            char where[40] = "";
            if (!is_one) {
                snprintf(where, sizeof where, "[%td]", k);
            }
            PyErr_Format(PyExc_ValueError, "%s: %s%s: expected a text of at most %zd tokens, got one of %zd",
                         call->function, port->name, where, port->texts_most, longest);
            return -1;
        }
    }
    input->own_shape[0] = count;
    input->own_shape[is_one ? 0 : 1] = longest;
    input->rank = is_one ? 1 : 2;
    input->shape = input->own_shape;
    input->has_rows = true;
    input->bytes = 0;
    return match_shape(call, i, "str");
}

#endif
// Start an input that refers to no objects yet.
static void begin_input(Call *call, int i)
{
    Input *input = &call->inputs[i];
    input->view.obj = NULL;
    input->array = input->list = NULL;
#if HAS_STRINGS
    input->made = NULL;
#endif
#if HAS_STEPS
    input->values = NULL;
#endif
#if HAS_ROWS
    input->has_rows = false;
    input->rows = (TextRows){.numbers = {0}};
#endif
    input->dtype = call->entry->ports[i].dtype;
    input->copy = false;
    call->seen = i + 1;
}

#if HAS_STEPS
// A dict: the list of its keys; that of its values is kept.
SELDOM static int see_map(Call *call, int i, PyObject *object)
{
    Input *input = &call->inputs[i];
    if ((type_flags(object) & Py_TPFLAGS_DICT_SUBCLASS) == 0) {
        return refuse_type(call->function, call->entry->ports[i].name, "dict", object);
    }
    input->made = PyDict_Keys(object);
    input->values = PyDict_Values(object);
    return input->made == NULL || input->values == NULL ? -1 : see_list(call, i, input->made);
}

#endif
// An object that is neither an array with the right numbers nor strings.
static int see_plain(Call *call, int i, PyObject *object)
{
    if (PyObject_CheckBuffer(object)) {
        return see_buffer(call, i, object);
    }
    if (is_list(object)) {
        return see_list(call, i, object);
    }
    if (call->entry->ports[i].converts && PyObject_HasAttrString(object, "__array__") != 0) {
        return see_convertible(call, i, object);
    }
    return see_number(call, i, object);
}

static int see_input(Call *call, int i, PyObject *object)
{
    const Input *input = &call->inputs[i];
    begin_input(call, i);
    if (call->entry->ports[i].has_default) {
        return see_number(call, i, object);
    }
#if HAS_ROWS
    if (call->entry->ports[i].has_texts && PY_TYPE(object) != call->model->array_type) {
        return see_texts(call, i, object);
    }
#endif
#if HAS_STEPS
    if (call->entry->ports[i].is_map && !call->gives_all) {
        return see_map(call, i, object);
    }
#endif
    const NumpyArray *array = numpy_array(call->model->numpy, object, input->dtype);
    if (array != NULL && array->rank <= MAX_RANK) {
        return see_array(call, i, object, array->data, array->rank, array->shape, array->strides);
    }
    if (PY_TYPE(object) == call->model->array_type && ((Array *)PY_BODY(object))->dtype == input->dtype) {
        const Array *own = PY_BODY(object);
        return see_array(call, i, object, own->data, own->rank, own->shape, own->strides);
    }
#if HAS_STRINGS
    if (call->entry->ports[i].strings != NULL && !is_list(object)) {
        return see_strings(call, i, object);
    }
#endif
#if HAS_DATES
    if (call->entry->ports[i].dates != NULL && !is_list(object)) {
        PyObject *numbers = undated(call->function, &call->entry->ports[i], object);
        const int status = numbers == NULL ? -1 : see_plain(call, i, numbers);  // a view keeps them alive
        release(numbers);
        return status;
    }
#endif
    return see_plain(call, i, object);
}

static int fill_list(Call *call, int i, PyObject *list, int rank, const ptrdiff_t *shape, char **to)
{
    const Port *port = &call->entry->ports[i];
    if (rank == 0) {
        const int result = port_set(call, port, *to, list);
        *to += DTYPES[port->dtype].size;
        return result;
    }
    const Py_ssize_t n = is_list(list) ? PySequence_Size(list) : -1;
    if (n != shape[0]) {
        return PyErr_Occurred() != NULL ? -1 : refuse_input(call, i, PyExc_ValueError, "lists of unequal length");
    }
    for (Py_ssize_t k = 0; k < n; k++) {
        PyObject *item = PySequence_GetItem(list, k);
        const int result = item == NULL ? -1 : fill_list(call, i, item, rank - 1, shape + 1, to);
        release(item);
        if (result < 0) {
            if (PyErr_ExceptionMatches(PyExc_IndexError)) {  // the list shrank meanwhile
                PyErr_Clear();
                return refuse_input(call, i, PyExc_ValueError, "lists of unequal length");
            }
            return -1;
        }
    }
    return 0;
}

SELDOM static int refuse_extent(const Call *call, const Solve *solve, const char *expected, ptrdiff_t got)
{
    PyErr_Format(PyExc_ValueError, "%s: %s: expected an extent of %s%s, got %zd", call->function,
                 call->entry->ports[solve->input].name, TABLE_OF(call)->extent_names[solve->extent], expected,
                 got);
    return -1;
}

// Learn the dim that makes an extent, which is linear in it, the size of an axis.
static int find_dim(Call *call, const Solve *solve, ptrdiff_t size)
{
    ptrdiff_t *dim = &call->dim[solve->dim];
    *dim = 0;
    const int128 base = TABLE_OF(call)->extent_value(solve->extent, call->dim);
    *dim = 1;
    const int128 step = TABLE_OF(call)->extent_value(solve->extent, call->dim) - base;
    *dim = -1;
    if (step == 0 && size == base) {
        char expected[80];
        snprintf(expected, sizeof expected, " that tells %.50s", TABLE_OF(call)->extent_names[solve->dim]);
        return refuse_extent(call, solve, expected, size);
    }
    if (step == 0 || (size - base) % step != 0 || (size - base) / step < 0) {
        return refuse_extent(call, solve, "", size);
    }
    const int128 value = (size - base) / step;
    return set_dim(call, solve->input, solve->dim, value > PTRDIFF_MAX ? PTRDIFF_MAX : (ptrdiff_t)value);
}

// Learn the dims that stand in expressions only, and hold the other expressions against their axes.
static int solve_dims(Call *call)
{
    for (int k = 0; k < call->entry->solve_count; k++) {
        const Solve *solve = &call->entry->solves[k];
        const Input *input = &call->inputs[solve->input];
        const int lacks = call->entry->ports[solve->input].rank - input->rank;
        const ptrdiff_t size = input->shape[solve->axis - lacks];
        if (solve->dim >= 0 && find_dim(call, solve, size) < 0) {
            return -1;
        }
        const int128 value = TABLE_OF(call)->extent_value(solve->extent, call->dim);
        if (value != size) {
            char expected[80];
            snprintf(expected, sizeof expected, " = %lld", (long long)value);
            return refuse_extent(call, solve, expected, size);
        }
    }
    return 0;
}

static int check_extents(const Call *call, const Bound *bounds, int count)
{
    for (int k = 0; k < count; k++) {
        const Bound *bound = &bounds[k];
        const int128 value = TABLE_OF(call)->extent_value(bound->extent, call->dim);
        if (value < bound->least) {
            PyErr_Format(PyExc_ValueError, "%s: expected %s of at least %zd, got %lld", call->function,
                         TABLE_OF(call)->extent_names[bound->extent], bound->least, (long long)value);
            return -1;
        }
        if (value > MAX_BYTES) {
            PyErr_NoMemory();
            return -1;
        }
    }
    return 0;
}

// Check that the dims are large enough for the outputs and for intermediate results.
static int check_bounds(const Call *call)
{
    return check_extents(call, call->entry->bounds, call->entry->bound_count);
}
