// -------------------------------------------------------------------------------------------------------------- NumPy
#pragma once

#include "runtime/array.c"

// How an array begins in NumPy 1 and 2: PyArrayObject_fields of its C API.
typedef struct {
    PY_HEAD
    char *data;
    int rank;
    ptrdiff_t *shape, *strides;  // strides in bytes
    PyObject *base, *dtype;
} NumpyArray;

// The type of such arrays, and NumPy's dtypes: NULL before the first array came. They are read where they lie, as their
// buffer protocol writes down format and shape anew for each view, which takes as long as a small model. Nothing here
// needs NumPy.
typedef struct {
    PyTypeObject *array;
    PyTypeObject *other;  // the last type that was found to be another one; only compared
    PyObject *dtypes[DTYPE_COUNT];
} Numpy;

static void numpy_forget(Numpy *numpy)
{
    release((PyObject *)numpy->array);
    for (int k = 0; k < DTYPE_COUNT; k++) {
        release(numpy->dtypes[k]);
    }
    memset(numpy, 0, sizeof *numpy);
}

// Is `type` the ndarray of a NumPy whose arrays begin like that?
static bool is_numpy_array(PyObject *module, const PyTypeObject *type)
{
    PyObject *found = PyObject_GetAttrString(module, "ndarray");
    PyObject *version = found == (const PyObject *)type ? PyObject_GetAttrString(module, "__version__") : NULL;
    PyObject *known = version == NULL ? NULL : PyObject_CallMethod(version, "startswith", "((ss))", "1.", "2.");
    const bool right = known != NULL && PyObject_IsTrue(known) == 1;
    release(found);
    release(version);
    release(known);
    return right;
}

// Does an array say of itself what its buffer says?
static bool is_buffer(const NumpyArray *array, const Py_buffer *view)
{
    bool same = array->data == view->buf && array->rank == view->ndim;
    for (int d = 0; same && d < array->rank; d++) {
        same = array->shape[d] == view->shape[d] && array->strides[d] == view->strides[d];
    }
    return same;
}

// Learn the types from the first array.
static void numpy_learn(Numpy *numpy, PyObject *object, const Py_buffer *view)
{
    PyTypeObject *type = PY_TYPE(object);
    if (!PY_HEAD_IS_KNOWN || numpy->array != NULL || numpy->other == type) {
        return;
    }
    numpy->other = type;
    PyObject *name = PyUnicode_FromString("numpy"), *module = name == NULL ? NULL : PyImport_GetModule(name);
    if (module != NULL && is_numpy_array(module, type) && is_buffer((const NumpyArray *)(const void *)object, view)) {
        for (int k = 0; k < DTYPE_COUNT; k++) {
            numpy->dtypes[k] = PyObject_CallMethod(module, "dtype", "s", DTYPES[k].name);
            PyErr_Clear();  // a kind of number that NumPy does not have
        }
        Py_IncRef((PyObject *)type);
        numpy->array = type;
    }
    release(module);
    release(name);
    PyErr_Clear();
}

// An object as an array of NumPy's with numbers of one kind, in the machine's order of bytes; else NULL.
static const NumpyArray *numpy_array(const Numpy *numpy, PyObject *object, int dtype)
{
    const NumpyArray *array = (const NumpyArray *)(const void *)object;
    return PY_TYPE(object) == numpy->array && array->dtype == numpy->dtypes[dtype] ? array : NULL;
}
