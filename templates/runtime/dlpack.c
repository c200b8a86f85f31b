// ------------------------------------------------------------------------------------------------------------- DLPack
#pragma once

#include "runtime/array.c"

// The exchange format of array libraries, old and new (1.0) form. Layouts: github.com/dmlc/dlpack, dlpack.h.
typedef struct {
    void *data;
    struct { int32_t type, id; } device;  // 1, 0: the CPU
    int32_t ndim;
    struct { uint8_t code, bits; uint16_t lanes; } dtype;
    int64_t *shape, *strides;  // strides in elements
    uint64_t byte_offset;
} Tensor;

typedef struct OldTensor {
    Tensor tensor;
    void *owner;
    void (*deleter)(struct OldTensor *);
    int64_t extents[2 * MAX_RANK];
} OldTensor;

typedef struct NewTensor {
    struct { uint32_t major, minor; } version;
    void *owner;
    void (*deleter)(struct NewTensor *);
    uint64_t flags;
    Tensor tensor;
    int64_t extents[2 * MAX_RANK];
} NewTensor;

static void set_tensor(Tensor *tensor, int64_t *extents, const Array *array)
{
    memset(tensor, 0, sizeof *tensor);
    tensor->data = array->data;
    tensor->device.type = 1;
    tensor->ndim = array->rank;
    tensor->dtype.code = DTYPES[array->dtype].code;
    tensor->dtype.bits = (uint8_t)(8 * DTYPES[array->dtype].size);
    tensor->dtype.lanes = 1;
    tensor->shape = extents;
    tensor->strides = extents + MAX_RANK;
    for (int d = 0; d < array->rank; d++) {
        extents[d] = array->shape[d];
        extents[MAX_RANK + d] = array->strides[d] / DTYPES[array->dtype].size;
    }
}

// Consumers may call a deleter from any thread, with or without the GIL.
static void drop_tensor(void *owner, void *tensor)
{
    Py_DecRef(owner);
    PyMem_Free(tensor);
}

static void delete_old(OldTensor *tensor)
{
    const int thread = PyGILState_Ensure();
    drop_tensor(tensor->owner, tensor);
    PyGILState_Release(thread);
}

static void delete_new(NewTensor *tensor)
{
    const int thread = PyGILState_Ensure();
    drop_tensor(tensor->owner, tensor);
    PyGILState_Release(thread);
}

// A consumer renames the capsule; one that keeps its name was never consumed.
static void drop_capsule(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor")) {
        OldTensor *tensor = PyCapsule_GetPointer(capsule, "dltensor");
        drop_tensor(tensor->owner, tensor);
    } else if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        NewTensor *tensor = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        drop_tensor(tensor->owner, tensor);
    }
}

static PyObject *old_capsule(PyObject *array)
{
    OldTensor *tensor = PyMem_Malloc(sizeof *tensor);
    if (tensor == NULL) {
        return PyErr_NoMemory();
    }
    set_tensor(&tensor->tensor, tensor->extents, PY_BODY(array));
    Py_IncRef(array);
    tensor->owner = array;
    tensor->deleter = delete_old;
    PyObject *capsule = PyCapsule_New(tensor, "dltensor", drop_capsule);
    if (capsule == NULL) {
        drop_tensor(array, tensor);
    }
    return capsule;
}

static PyObject *new_capsule(PyObject *array, bool is_copy)
{
    NewTensor *tensor = PyMem_Malloc(sizeof *tensor);
    if (tensor == NULL) {
        return PyErr_NoMemory();
    }
    set_tensor(&tensor->tensor, tensor->extents, PY_BODY(array));
    Py_IncRef(array);
    tensor->version.major = 1;
    tensor->version.minor = 0;
    tensor->owner = array;
    tensor->deleter = delete_new;
    tensor->flags = is_copy ? 2 : 0;
    PyObject *capsule = PyCapsule_New(tensor, "dltensor_versioned", drop_capsule);
    if (capsule == NULL) {
        drop_tensor(array, tensor);
    }
    return capsule;
}

static PyObject *array_copy(const Array *array, PyTypeObject *type)
{
    PyObject *object = array_new(type, array->dtype, array->rank, array->shape);
    if (object != NULL && array_size(array) > 0) {
        const Array *copy = PY_BODY(object);
        copy_strided(array->dtype, array->rank, array->shape, copy->data, copy->strides, array->data, array->strides);
    }
    return object;
}

// The two integers of a tuple such as a device or a version; false when it is something else.
static bool read_pair(PyObject *tuple, ptrdiff_t *pair)
{
    if ((type_flags(tuple) & Py_TPFLAGS_TUPLE_SUBCLASS) == 0 || PyTuple_Size(tuple) != 2) {
        return false;
    }
    for (int k = 0; k < 2; k++) {
        PyObject *item = PyTuple_GetItem(tuple, k);
        if (!PyIndex_Check(item)) {
            return false;
        }
        pair[k] = PyNumber_AsSsize_t(item, NULL);
    }
    return PyErr_Occurred() == NULL;
}

SELDOM static PyObject *array_dlpack(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    static const char *const NAMES[] = {"stream", "max_version", "dl_device", "copy"};
    PyObject *values[4] = {Py_None, Py_None, Py_None, Py_None};
    const Py_ssize_t named = names == NULL ? 0 : PyTuple_Size(names);
    for (Py_ssize_t k = 0; k < named; k++) {
        PyObject *name = PyTuple_GetItem(names, k);
        int i = 0;
        while (i < 4 && PyUnicode_CompareWithASCIIString(name, NAMES[i]) != 0) {
            i++;
        }
        if (i == 4) {
            return PyErr_Format(PyExc_TypeError, "__dlpack__() got an unexpected keyword argument '%U'", name);
        }
        values[i] = args[count + k];
    }
    ptrdiff_t version[2] = {0, 0}, device[2] = {1, 0};
    if (count > 0 || (values[1] != Py_None && !read_pair(values[1], version)) ||
        (values[2] != Py_None && !read_pair(values[2], device))) {
        if (PyErr_Occurred() == NULL) {
            PyErr_SetString(PyExc_TypeError, "__dlpack__() takes keywords, max_version and dl_device as pairs of ints");
        }
        return NULL;
    }
    if (values[0] != Py_None || device[0] != 1 || device[1] != 0) {
        return PyErr_Format(PyExc_BufferError, "this Array lies in the CPU's memory, without streams");
    }
    const int is_copy = values[3] == Py_None ? 0 : PyObject_IsTrue(values[3]);
    if (is_copy < 0) {
        return NULL;
    }
    PyObject *array = self;
    if (is_copy != 0) {
        array = array_copy(PY_BODY(self), PY_TYPE(self));
    } else {
        Py_IncRef(array);
    }
    if (array == NULL) {
        return NULL;
    }
    PyObject *capsule = version[0] >= 1 ? new_capsule(array, is_copy != 0) : old_capsule(array);
    Py_DecRef(array);
    return capsule;
}

static PyObject *array_device(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    PyObject *device = PyTuple_New(2);
    for (int k = 0; device != NULL && k < 2; k++) {
        PyObject *number = PyLong_FromLongLong(1 - k);
        if (number == NULL || PyTuple_SetItem(device, k, number) < 0) {
            Py_DecRef(device);
            return NULL;
        }
    }
    return device;
}
