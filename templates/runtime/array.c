// -------------------------------------------------------------------------------------------------------------- Array
#pragma once

#include "runtime/buffers.c"
#include "runtime/numbers.c"
#include "runtime/objects.h"

// An array that owns its numbers or looks into another one's.
typedef struct {
    PY_VAR_HEAD
    PyObject *owner;  // of the memory that this one looks into: an Array, a capsule; or NULL
    char *data;
    int dtype, rank;
    ptrdiff_t shape[MAX_RANK], strides[MAX_RANK];  // strides in bytes
#if defined(MLAOT_ABI3T)
    char *memory;  // of its own, or NULL
#else
    _Alignas(16) char memory[];  // of its own
#endif
} Array;

static PyObject *array_make(PyTypeObject *type, ptrdiff_t bytes, PyObject *owner, int dtype, int rank)
{
#if defined(MLAOT_ABI3T)
    PyObject *object = _PyObject_GC_New(type);
#else
    PyObject *object = _PyObject_GC_NewVar(type, bytes);
#endif
    if (object == NULL) {
        return NULL;
    }
    Array *array = PY_BODY(object);
#if defined(MLAOT_ABI3T)
    array->owner = NULL;
    array->memory = owner == NULL ? PyMem_Malloc((size_t)bytes) : NULL;
    if (owner == NULL && array->memory == NULL) {
        Py_DecRef(object);
        return PyErr_NoMemory();
    }
#endif
    if (owner != NULL) {
        Py_IncRef(owner);
    }
    array->owner = owner;
    array->data = array->memory;
    array->dtype = dtype;
    array->rank = rank;
    return object;
}

// A dense array with numbers of its own, not yet set; large ones lie on a 64-byte boundary.
// The collector does not follow it: it refers to its type alone. What is kept in a Model must be tracked all the same,
// or else the module, its type and the Model would hold each other for ever.
static PyObject *array_new(PyTypeObject *type, int dtype, int rank, const ptrdiff_t *shape)
{
    ptrdiff_t bytes;
    if (!dense_bytes(dtype, rank, shape, &bytes) || bytes > PTRDIFF_MAX / 2) {
        return PyErr_NoMemory();
    }
    const ptrdiff_t align = bytes > 256 ? 64 : 0;
    PyObject *object = array_make(type, bytes + align, NULL, dtype, rank);
    if (object == NULL) {
        return NULL;
    }
    Array *array = PY_BODY(object);
    if (align > 0) {
        array->data += (size_t)-(uintptr_t)array->data % 64;
    }
    ptrdiff_t stride = DTYPES[dtype].size;
    for (int d = rank; d-- > 0;) {
        array->shape[d] = shape[d];
        array->strides[d] = stride;
        stride *= shape[d];
    }
    return object;
}

// An array over memory that `owner` keeps alive.
static PyObject *array_view(PyTypeObject *type, PyObject *owner, int dtype, int rank, const ptrdiff_t *shape,
                            const ptrdiff_t *strides, char *data)
{
    PyObject *object = array_make(type, 0, owner, dtype, rank);
    if (object == NULL) {
        return NULL;
    }
    Array *array = PY_BODY(object);
    array->data = data;
    for (int d = 0; d < rank; d++) {
        array->shape[d] = shape[d];
        array->strides[d] = strides[d];
    }
    PyObject_GC_Track(object);
    return object;
}

static int visit_type(PyObject *self, visitproc visit, void *arg)
{
    return visit((PyObject *)PY_TYPE(self), arg);
}

static int visit_member(PyObject *member, visitproc visit, void *arg)
{
    return member == NULL ? 0 : visit(member, arg);
}

#if HAS_STATE || HAS_SESSION || HAS_NAMED
// An entry of a dict, borrowed; NULL where it has none, or with an error.
static PyObject *dict_get(PyObject *dict, const char *name)
{
    PyObject *key = PyUnicode_FromString(name), *value = key == NULL ? NULL : PyDict_GetItemWithError(dict, key);
    release(key);
    return value;
}

#endif
static int array_traverse(PyObject *self, visitproc visit, void *arg)
{
    const Array *array = PY_BODY(self);
    const int stop = visit_type(self, visit, arg);
    return stop != 0 ? stop : visit_member(array->owner, visit, arg);
}

static void free_object(PyObject *self)
{
    PyObject *type = (PyObject *)PY_TYPE(self);
    PyObject_GC_Del(self);
    Py_DecRef(type);
}

static void array_dealloc(PyObject *self)
{
    Array *array = PY_BODY(self);
    PyObject_GC_UnTrack(self);
    release(array->owner);
#if defined(MLAOT_ABI3T)
    PyMem_Free(array->memory);
#endif
    free_object(self);
}

static ptrdiff_t array_size(const Array *array)
{
    ptrdiff_t size = 1;
    for (int d = 0; d < array->rank; d++) {
        size *= array->shape[d];
    }
    return size;
}

static int array_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
    Array *array = PY_BODY(self);
    const bool dense = is_dense(array->dtype, array->rank, array->shape, array->strides);
    view->obj = NULL;
    if (DTYPES[array->dtype].format == NULL) {
        PyErr_Format(PyExc_BufferError, "no buffer can hold %s; use DLPack, or tolist()", DTYPES[array->dtype].name);
        return -1;
    }
    const int contiguous = (PyBUF_ANY_CONTIGUOUS | PyBUF_C_CONTIGUOUS | PyBUF_F_CONTIGUOUS) & ~PyBUF_STRIDES;
    if (!dense && ((flags & PyBUF_STRIDES) != PyBUF_STRIDES || (flags & contiguous) != 0)) {
        PyErr_SetString(PyExc_BufferError, "this Array is strided and cannot be seen as contiguous");
        return -1;
    }
    if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && array->rank > 1) {
        PyErr_SetString(PyExc_BufferError, "this Array is not in Fortran order");
        return -1;
    }
    Py_IncRef(self);
    view->obj = self;
    view->buf = array->data;
    view->itemsize = DTYPES[array->dtype].size;
    view->len = array_size(array) * view->itemsize;
    view->readonly = 0;
    view->ndim = array->rank;
    view->format = (flags & PyBUF_FORMAT) != 0 ? (char *)DTYPES[array->dtype].format : NULL;
    view->shape = (flags & PyBUF_ND) != 0 ? array->shape : NULL;
    view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? array->strides : NULL;
    view->suboffsets = NULL;
    view->internal = NULL;
    return 0;
}

SELDOM static PyObject *array_shape(PyObject *self, void *unused)
{
    (void)unused;
    const Array *array = PY_BODY(self);
    PyObject *shape = PyTuple_New(array->rank);
    for (int d = 0; shape != NULL && d < array->rank; d++) {
        PyObject *n = PyLong_FromSsize_t(array->shape[d]);
        if (n == NULL || PyTuple_SetItem(shape, d, n) < 0) {
            Py_DecRef(shape);
            return NULL;
        }
    }
    return shape;
}

SELDOM static PyObject *array_dtype(PyObject *self, void *unused)
{
    (void)unused;
    const Array *array = PY_BODY(self);
    return PyUnicode_FromString(DTYPES[array->dtype].name);
}

static PyObject *array_ndim(PyObject *self, void *unused)
{
    (void)unused;
    const Array *array = PY_BODY(self);
    return PyLong_FromSsize_t(array->rank);
}

SELDOM static PyObject *array_size_object(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromSsize_t(array_size(PY_BODY(self)));
}

SELDOM static PyObject *array_nbytes(PyObject *self, void *unused)
{
    (void)unused;
    const Array *array = PY_BODY(self);
    return PyLong_FromSsize_t(array_size(array) * DTYPES[array->dtype].size);
}

static Py_ssize_t array_length(PyObject *self)
{
    const Array *array = PY_BODY(self);
    if (array->rank == 0) {
        PyErr_SetString(PyExc_TypeError, "an Array without dimensions has no len()");
        return -1;
    }
    return array->shape[0];
}

static PyObject *to_list(int dtype, int rank, const ptrdiff_t *shape, const ptrdiff_t *strides, const char *data)
{
    if (rank == 0) {
        return element_get(dtype, data);
    }
    PyObject *list = PyList_New(shape[0]);
    for (ptrdiff_t i = 0; list != NULL && i < shape[0]; i++) {
        PyObject *item = to_list(dtype, rank - 1, shape + 1, strides + 1, data + i * strides[0]);
        if (item == NULL || PyList_SetItem(list, i, item) < 0) {
            Py_DecRef(list);
            return NULL;
        }
    }
    return list;
}

static PyObject *array_tolist(PyObject *self, PyObject *unused)
{
    (void)unused;
    const Array *array = PY_BODY(self);
    return to_list(array->dtype, array->rank, array->shape, array->strides, array->data);
}

// What an index picks of an Array: some of its axes, each in steps of its own.
typedef struct {
    char *data;
    int rank;
    bool is_number;  // every axis had an integer, so that it is one number and no view
    ptrdiff_t shape[MAX_RANK], strides[MAX_RANK];
} Part;

static void keep_axis(Part *part, const Array *array, int axis)
{
    part->shape[part->rank] = array->shape[axis];
    part->strides[part->rank++] = array->strides[axis];
}

SELDOM static int slice_axis(Part *part, const Array *array, int axis, PyObject *slice)
{
    ptrdiff_t start, stop, step;
    if (PySlice_Unpack(slice, &start, &stop, &step) < 0) {
        return -1;
    }
    const ptrdiff_t count = PySlice_AdjustIndices(array->shape[axis], &start, &stop, step);
    part->data += count > 0 ? start * array->strides[axis] : 0;
    part->shape[part->rank] = count;
    part->strides[part->rank++] = array->strides[axis] * (count > 1 ? step : 1);  // a step may be as large as it likes
    return 0;
}

static int enter_axis(Part *part, const Array *array, int axis, ptrdiff_t index)
{
    const ptrdiff_t i = index < 0 ? index + array->shape[axis] : index;
    if (i < 0 || i >= array->shape[axis]) {
        PyErr_Format(PyExc_IndexError, "index %zd is out of range for dimension %d of size %zd", index, axis,
                     array->shape[axis]);
        return -1;
    }
    part->data += i * array->strides[axis];
    return 0;
}

// Take one axis by an integer, which removes it, or by a slice, which keeps some of it.
static int take_axis(Part *part, const Array *array, int axis, PyObject *item)
{
    if (PY_TYPE(item) == &PySlice_Type) {
        return slice_axis(part, array, axis, item);
    }
    if (!PyIndex_Check(item)) {
        PyErr_SetString(PyExc_TypeError, "expected ints, slices and ... as index; numpy.asarray(array) can do more");
        return -1;
    }
    const ptrdiff_t index = PyNumber_AsSsize_t(item, PyExc_IndexError);
    return index == -1 && PyErr_Occurred() != NULL ? -1 : enter_axis(part, array, axis, index);
}

// Read an index: an item, or a tuple of them, one of which may be `...`.
SELDOM static int read_index(const Array *array, PyObject *key, Part *part)
{
    const bool is_tuple = (type_flags(key) & Py_TPFLAGS_TUPLE_SUBCLASS) != 0;
    const Py_ssize_t count = is_tuple ? PyTuple_Size(key) : 1;
    Py_ssize_t dots = 0;
    for (Py_ssize_t k = 0; k < count; k++) {
        dots += (is_tuple ? PyTuple_GetItem(key, k) : key) == Py_Ellipsis;
    }
    const Py_ssize_t rest = array->rank - (count - dots);
    if (dots > 1 || rest < 0) {
        PyErr_Format(PyExc_IndexError, dots > 1 ? "expected one ... in an index, got %zd" :
                     "%zd indices for an Array with %d dimensions", dots > 1 ? dots : count - dots, array->rank);
        return -1;
    }
    part->data = array->data;
    part->rank = 0;
    int axis = 0;
    for (Py_ssize_t k = 0; k < count; k++) {
        PyObject *item = is_tuple ? PyTuple_GetItem(key, k) : key;
        if (item == Py_Ellipsis) {
            for (const int end = axis + (int)rest; axis < end; axis++) {
                keep_axis(part, array, axis);
            }
        } else if (take_axis(part, array, axis++, item) < 0) {
            return -1;
        }
    }
    for (; axis < array->rank; axis++) {
        keep_axis(part, array, axis);
    }
    part->is_number = part->rank == 0 && dots == 0;
    return 0;
}

// A number, or a view of what an index picked.
static PyObject *array_part(PyObject *self, const Part *part)
{
    const Array *array = PY_BODY(self);
    if (part->is_number) {
        return element_get(array->dtype, part->data);
    }
    return array_view(PY_TYPE(self), array->owner != NULL ? array->owner : self, array->dtype, part->rank, part->shape,
                      part->strides, part->data);
}

static PyObject *array_getitem(PyObject *self, PyObject *key)
{
    Part part;
    return read_index(PY_BODY(self), key, &part) < 0 ? NULL : array_part(self, &part);
}

static PyObject *array_item(PyObject *self, Py_ssize_t i)
{
    const Array *array = PY_BODY(self);
    Part part = {.data = array->data};
    if (i < 0) {  // CPython has added the length already
        return PyErr_Format(PyExc_IndexError, "index is out of range for dimension 0");
    }
    if (array->rank == 0) {
        return PyErr_Format(PyExc_IndexError, "1 indices for an Array with 0 dimensions");
    }
    if (enter_axis(&part, array, 0, i) < 0) {
        return NULL;
    }
    for (int axis = 1; axis < array->rank; axis++) {
        keep_axis(&part, array, axis);
    }
    part.is_number = array->rank == 1;
    return array_part(self, &part);
}

SELDOM static PyObject *array_iter(PyObject *self)
{
    return array_length(self) < 0 ? NULL : PySeqIter_New(self);
}

SELDOM static int refuse_value(int dtype, const Part *to, PyObject *exception, const char *got)
{
    PyErr_Format(exception, "Array: item: expected %s, got %s",
                 type_words(NULL, DTYPES[dtype].name, to->rank, to->shape).text, got);
    return -1;
}

// Copy a buffer to all of a part, and repeat it along axes that it lacks or has with an extent of 1.
SELDOM static int assign_buffer(int dtype, const Part *to, const Py_buffer *view)
{
    const int lacks = to->rank - view->ndim;
    bool right = lacks >= 0;
    for (int d = 0; right && d < view->ndim; d++) {
        right = view->shape[d] == 1 || view->shape[d] == to->shape[d + lacks];
    }
    const bool same = is_format(view->format, view->itemsize, dtype);
    if (!right || !same) {
        return refuse_value(dtype, to, same ? PyExc_ValueError : PyExc_TypeError, buffer_words(view).text);
    }
    ptrdiff_t dense[MAX_RANK], strides[MAX_RANK];
    dense_strides(dtype, view->ndim, view->shape, dense);
    const ptrdiff_t *from = view->strides != NULL ? view->strides : dense;  // ctypes gives none
    for (int d = 0; d < to->rank; d++) {
        strides[d] = d < lacks || view->shape[d - lacks] == 1 ? 0 : from[d - lacks];
    }
    copy_strided(dtype, to->rank, to->shape, to->data, to->strides, view->buf, strides);
    return 0;
}

SELDOM static int assign(int dtype, const Part *to, PyObject *value);

// A list has an item for each place along the first axis.
SELDOM static int assign_list(int dtype, const Part *to, PyObject *list)
{
    const Py_ssize_t n = PySequence_Size(list);
    if (n < 0 || to->rank == 0 || n != to->shape[0]) {
        char got[40];
        snprintf(got, sizeof got, "a list of %lld", (long long)n);
        return n < 0 ? -1 : refuse_value(dtype, to, PyExc_ValueError, got);
    }
    Part row = {.data = to->data, .rank = to->rank - 1};
    for (int d = 0; d < row.rank; d++) {
        row.shape[d] = to->shape[d + 1];
        row.strides[d] = to->strides[d + 1];
    }
    int status = 0;
    for (Py_ssize_t i = 0; status == 0 && i < n; i++) {
        PyObject *item = PySequence_GetItem(list, i);
        status = item == NULL ? -1 : assign(dtype, &row, item);
        release(item);
        row.data += to->strides[0];
    }
    return status;
}

// Set all of a part to a number, a buffer, or a list of such.
SELDOM static int assign(int dtype, const Part *to, PyObject *value)
{
    if (is_list(value)) {
        return assign_list(dtype, to, value);
    }
    if (PyObject_CheckBuffer(value)) {
        Py_buffer view;
        if (PyObject_GetBuffer(value, &view, PyBUF_STRIDES | PyBUF_FORMAT) < 0) {
            return -1;
        }
        const bool is_number = view.ndim == 0 && !is_format(view.format, view.itemsize, dtype);
        const int status = is_number ? 0 : assign_buffer(dtype, to, &view);
        PyBuffer_Release(&view);
        if (!is_number) {
            return status;
        }
    }
    _Alignas(8) char number[8];
    const ptrdiff_t still[MAX_RANK] = {0};
    if (element_set("Array", "item", dtype, number, value) < 0) {
        return -1;
    }
    copy_strided(dtype, to->rank, to->shape, to->data, to->strides, number, still);
    return 0;
}

// Set what an index picks: all of it, or nothing where the value does not fit. What is to be set lies apart until then,
// as the value may be a view of the same memory.
SELDOM static int array_setitem(PyObject *self, PyObject *key, PyObject *value)
{
    const Array *array = PY_BODY(self);
    Part part;
    if (value == NULL) {
        PyErr_SetString(PyExc_TypeError, "nothing of an Array can be deleted");
        return -1;
    }
    if (read_index(array, key, &part) < 0) {
        return -1;
    }
    PyObject *object = array_new(PY_TYPE(self), array->dtype, part.rank, part.shape);
    if (object == NULL) {
        return -1;
    }
    const Array *apart = PY_BODY(object);
    Part values = {.data = apart->data};
    for (int axis = 0; axis < apart->rank; axis++) {
        keep_axis(&values, apart, axis);
    }
    const int status = assign(array->dtype, &values, value);
    if (status == 0) {
        copy_strided(array->dtype, part.rank, part.shape, part.data, part.strides, values.data, values.strides);
    }
    Py_DecRef(object);
    return status;
}

SELDOM static PyObject *array_one(PyObject *self, PyObject *unused)
{
    (void)unused;
    const Array *array = PY_BODY(self);
    if (array_size(array) != 1) {
        PyErr_Format(PyExc_ValueError, "expected an Array of one number, got %s",
                     type_words(NULL, DTYPES[array->dtype].name, array->rank, array->shape).text);
        return NULL;
    }
    return element_get(array->dtype, array->data);
}

static PyObject *array_float(PyObject *self)
{
    PyObject *number = array_one(self, NULL);
    if (number == NULL) {
        return NULL;
    }
    const double value = PyFloat_AsDouble(number);
    Py_DecRef(number);
    return value == -1.0 && PyErr_Occurred() != NULL ? NULL : PyFloat_FromDouble(value);
}

static PyObject *array_int(PyObject *self)
{
    PyObject *number = array_one(self, NULL);
    PyObject *integer = number == NULL ? NULL : PyNumber_Long(number);
    release(number);
    return integer;
}

static int array_bool(PyObject *self)
{
    PyObject *number = array_one(self, NULL);
    const int value = number == NULL ? -1 : PyObject_IsTrue(number);
    release(number);
    return value;
}

// The number with the fewest digits that a dtype rounds to the same bits: 0.1, not 0.10000000149011612.
SELDOM static double shortest(int dtype, const char *from)
{
    const double value = float_get(dtype, from);
    for (int digits = 1; dtype != F64 && value - value == 0 && digits <= 9; digits++) {
        char *text = PyOS_double_to_string(value, 'g', digits, 0, NULL), back[8];
        if (text == NULL) {
            break;
        }
        const double rounded = PyOS_string_to_double(text, NULL, NULL);
        PyMem_Free(text);
        float_set(dtype, back, rounded);
        if (memcmp(back, from, (size_t)DTYPES[dtype].size) == 0) {
            return rounded;
        }
    }
    return value;
}

static int append_and_drop(PyObject *list, PyObject *item)
{
    const int status = item == NULL ? -1 : PyList_Append(list, item);
    release(item);
    return status;
}

// Nested lists for repr(): of axes longer than twice `edge` the two ends, and `...` between them.
SELDOM static PyObject *shown_list(int dtype, int rank, const ptrdiff_t *shape, const ptrdiff_t *strides,
                                   const char *data, ptrdiff_t edge)
{
    if (rank == 0) {
        return DTYPES[dtype].kind == 'f' ? PyFloat_FromDouble(shortest(dtype, data)) : element_get(dtype, data);
    }
    PyObject *list = PyList_New(0);
    int status = list == NULL ? -1 : 0;
    for (ptrdiff_t i = 0; status == 0 && i < shape[0]; i++) {
        if (i == edge && shape[0] > 2 * edge) {
            status = PyList_Append(list, Py_Ellipsis);
            i = shape[0] - edge;
        }
        if (status == 0) {
            const char *at = data + i * strides[0];
            status = append_and_drop(list, shown_list(dtype, rank - 1, shape + 1, strides + 1, at, edge));
        }
    }
    if (status < 0) {
        release(list);
        return NULL;
    }
    return list;
}

enum { SHOWN = 50 };  // so many numbers are shown in full

SELDOM static PyObject *array_repr(PyObject *self)
{
    const Array *array = PY_BODY(self);
    const ptrdiff_t size = array_size(array);
    const ptrdiff_t edge = size <= SHOWN ? PTRDIFF_MAX / 2 : array->rank < 2 ? 3 : array->rank < 3 ? 2 : 1;
    const bool has_all = size > 0 && size <= SHOWN;
    const Words words = type_words(NULL, DTYPES[array->dtype].name, has_all ? 0 : array->rank, array->shape);
    PyObject *list = shown_list(array->dtype, array->rank, array->shape, array->strides, array->data, edge);
    PyObject *text = list == NULL ? NULL : PyUnicode_FromFormat("Array(%R, %s)", list, words.text);
    PyObject *shown = text == NULL ? NULL : PyObject_CallMethod(text, "replace", "ss", "Ellipsis", "...");
    release(list);
    release(text);
    return shown;
}

// What pickle and copy make another Array of: type, shape and numbers.
SELDOM static PyObject *array_reduce(PyObject *self, PyObject *unused)
{
    (void)unused;
    const Array *array = PY_BODY(self);
    PyObject *data = PyBytes_FromStringAndSize(NULL, array_size(array) * DTYPES[array->dtype].size);
    if (data == NULL) {
        return NULL;
    }
    ptrdiff_t strides[MAX_RANK];
    dense_strides(array->dtype, array->rank, array->shape, strides);
    if (array_size(array) > 0) {
        copy_strided(array->dtype, array->rank, array->shape, PyBytes_AsString(data), strides, array->data,
                     array->strides);
    }
    PyObject *restore = PyObject_GetAttrString((PyObject *)PY_TYPE(self), "_restore");
    return Py_BuildValue("N(sNN)", restore, DTYPES[array->dtype].name, array_shape(self, NULL), data);
}

// The integers of a tuple; how many, or -1.
static int read_extents(PyObject *tuple, ptrdiff_t *shape)
{
    const bool is_tuple = (type_flags(tuple) & Py_TPFLAGS_TUPLE_SUBCLASS) != 0;
    const Py_ssize_t rank = is_tuple ? PyTuple_Size(tuple) : -1;
    if (rank < 0) {
        return refuse_type("Array", "shape", "a tuple", tuple);
    }
    if (rank > MAX_RANK) {
        PyErr_SetString(PyExc_IndexError, "too many extents");
        return -1;
    }
    for (int d = 0; d < (int)rank; d++) {
        shape[d] = PyNumber_AsSsize_t(PyTuple_GetItem(tuple, d), PyExc_IndexError);
        if (shape[d] == -1 && PyErr_Occurred() != NULL) {
            return -1;
        }
    }
    return (int)rank;
}

// Make an Array of what array_reduce() returned, and refuse anything else.
SELDOM static PyObject *array_restore(PyObject *type, PyObject *args)
{
    const char *name;
    PyObject *extents, *data;
    if (!PyArg_ParseTuple(args, "sOS", &name, &extents, &data)) {
        return NULL;
    }
    ptrdiff_t shape[MAX_RANK], bytes = 0;
    const int rank = read_extents(extents, shape);
    if (rank < 0) {
        return NULL;
    }
    int dtype = 0;
    while (dtype < DTYPE_COUNT && strcmp(DTYPES[dtype].name, name) != 0) {
        dtype++;
    }
    bool right = dtype < DTYPE_COUNT;
    for (int d = 0; d < rank; d++) {
        right = right && shape[d] >= 0;
    }
    if (!right || !dense_bytes(dtype, rank, shape, &bytes) || bytes != PyBytes_Size(data)) {
        return PyErr_Format(PyExc_ValueError, "Array: expected the numbers of %s%R, got %zd bytes", name, extents,
                            PyBytes_Size(data));
    }
    PyObject *object = array_new((PyTypeObject *)type, dtype, rank, shape);
    if (object != NULL) {
        const Array *array = PY_BODY(object);
        memcpy(array->data, PyBytes_AsString(data), (size_t)bytes);
    }
    return object;
}
