// ------------------------------------------------------------------------------------------------------------- strings
// Inputs and outputs that callers see as strings. A model computes with their places among those that it knows.
#pragma once

#include "runtime/array.c"

#if HAS_STRINGS
static bool is_str(PyObject *object)
{
    return (type_flags(object) & Py_TPFLAGS_UNICODE_SUBCLASS) != 0;
}

static bool is_bytes(PyObject *object)
{
    return (type_flags(object) & Py_TPFLAGS_BYTES_SUBCLASS) != 0;
}

// The place of a text among the strings; behind the last of them where it is none of these.
static int64_t place_of(const Strings *strings, const char *text, ptrdiff_t size)
{
    int low = 0, high = strings->count;
    while (low < high) {
        const int middle = low + (high - low) / 2, place = strings->order[middle];
        const ptrdiff_t own = strings->at[place + 1] - strings->at[place];
        const int sign = memcmp(text, strings->text + strings->at[place], (size_t)(size < own ? size : own));
        if (sign == 0 && size == own) {
            return place;
        }
        if (sign < 0 || (sign == 0 && size < own)) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return strings->count;
}

// What pandas has for a string that is missing.
static bool is_nan(PyObject *object)
{
    const double value = PyFloat_AsDouble(object);
    if (PyErr_Occurred() != NULL) {
        PyErr_Clear();
    }
    return value != value;
}

// Store the place of a str, of bytes in UTF-8, or of None or nan, which are none of the strings; of an int itself.
static int place_set(const Port *port, const char *function, char *to, PyObject *object)
{
    int64_t place = port->strings->count;
    PyObject *bytes = object;
    if (is_str(object)) {
        bytes = PyUnicode_AsUTF8String(object);
        if (bytes == NULL) {  // half a surrogate
            PyErr_Clear();
        }
    } else if (!is_bytes(object)) {
        bytes = NULL;
        if (object != Py_None && !is_nan(object)) {
            const int status = element_set(function, port->name, I64, to, object);
            if (status < 0 && PyErr_ExceptionMatches(PyExc_TypeError)) {
                PyErr_Clear();
                return refuse_type(function, port->name, "str", object);
            }
            return status;
        }
    }
    if (bytes != NULL) {
        place = place_of(port->strings, PyBytes_AsString(bytes), PyBytes_Size(bytes));
        if (bytes != object) {
            Py_DecRef(bytes);
        }
    }
    memcpy(to, &place, sizeof place);
    return 0;
}

static PyObject *string_at(const Strings *strings, int64_t place)
{
    if (place < 0 || place >= strings->count) {
        Py_IncRef(Py_None);
        return Py_None;
    }
    const int32_t *at = strings->at + place;
    return PyUnicode_DecodeUTF8(strings->text + at[0], at[1] - at[0], "replace");
}

// The strings at the places that an array holds from `data` on: a str, or lists of them.
static PyObject *strings_from(const Strings *strings, const Array *array, int axis, const char *data)
{
    if (axis == array->rank) {
        int64_t place;
        memcpy(&place, data, sizeof place);
        return string_at(strings, place);
    }
    PyObject *list = PyList_New(array->shape[axis]);
    for (ptrdiff_t i = 0; list != NULL && i < array->shape[axis]; i++) {
        PyObject *item = strings_from(strings, array, axis + 1, data + i * array->strides[axis]);
        if (item == NULL || PyList_SetItem(list, i, item) < 0) {
            Py_DecRef(list);
            list = NULL;
        }
    }
    return list;
}
#endif
