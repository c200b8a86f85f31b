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

// The list that an array or a column makes of itself, which a str, bytes and a list need not; any other object as it is.
// A new reference.
SELDOM static PyObject *listed(PyObject *object)
{
    const char *method = PyObject_HasAttrString(object, "to_pylist") != 0 ? "to_pylist" : "tolist";
    if (is_str(object) || is_bytes(object) || is_list(object) || PyObject_HasAttrString(object, method) == 0) {
        Py_IncRef(object);
        return object;
    }
    return PyObject_CallMethod(object, method, NULL);
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

// The place of further strings, which are none of the strings that a port knows: behind these, one after the other.
// `*further` has their numbers by their bytes. -1 with an error.
SELDOM static int64_t further_place(PyObject **further, PyObject *key, int known)
{
    if (*further == NULL) {
        *further = PyDict_New();
    }
    PyObject *number = *further == NULL ? NULL : PyDict_GetItemWithError(*further, key);
    if (number != NULL) {
        return known + PyLong_AsLongLong(number);
    }
    if (PyErr_Occurred() != NULL) {
        return -1;
    }
    const Py_ssize_t count = PyDict_Size(*further);
    number = PyLong_FromSsize_t(count);
    const int status = number == NULL ? -1 : PyDict_SetItem(*further, key, number);
    release(number);
    return status < 0 ? -1 : known + count;
}

// What pandas has for a string that is missing.
SELDOM static bool is_nan(PyObject *object)
{
    const double value = PyFloat_AsDouble(object);
    if (PyErr_Occurred() != NULL) {
        PyErr_Clear();
    }
    return value != value;
}

// Store the place of a str, of bytes in UTF-8, or of None or nan, which are none of the strings; of an int itself.
static int place_set(const Port *port, const char *function, PyObject **further, char *to, PyObject *object)
{
    int64_t place = port->strings->count;
    PyObject *key = Py_None;
    if (is_str(object)) {
        key = PyUnicode_AsEncodedString(object, "utf-8", "surrogatepass");
    } else if (is_bytes(object)) {
        key = PyBytes_FromStringAndSize(PyBytes_AsString(object), PyBytes_Size(object));
    } else {
        if (object != Py_None && !is_nan(object)) {
            const int status = element_set(function, port->name, I64, to, object);
            if (status < 0 && PyErr_ExceptionMatches(PyExc_TypeError)) {
                PyErr_Clear();
                return refuse_type(function, port->name, "str", object);
            }
            return status;
        }
        Py_IncRef(key);
    }
    if (key == NULL) {
        return -1;
    }
    if (key != Py_None) {
        place = place_of(port->strings, PyBytes_AsString(key), PyBytes_Size(key));
    }
    if (place == port->strings->count && port->further) {
        place = further_place(further, key, port->strings->count);
    }
    Py_DecRef(key);
    memcpy(to, &place, sizeof place);
    return place < 0 ? -1 : 0;
}

// The string at a place, which may be one of the `further` of a call, a list of bytes or NULL; or None.
SELDOM static PyObject *string_at(const Strings *strings, PyObject *further, int64_t place)
{
    if (place >= 0 && place < strings->count) {
        const int32_t *at = strings->at + place;
        return PyUnicode_DecodeUTF8(strings->text + at[0], at[1] - at[0], "replace");
    }
    const Py_ssize_t count = further == NULL ? 0 : PyList_Size(further);
    const bool is_further = place >= 0 && place - strings->count < count;
    PyObject *found = is_further ? PyList_GetItem(further, (Py_ssize_t)(place - strings->count)) : Py_None;
    if (found != Py_None) {
        return found == NULL ? NULL : PyUnicode_DecodeUTF8(PyBytes_AsString(found), PyBytes_Size(found), "replace");
    }
    Py_IncRef(Py_None);
    return Py_None;
}

// The strings at the places that an array holds from `data` on: a str, or lists of them.
SELDOM static PyObject *strings_from(const Strings *strings, PyObject *further, const Array *array, int axis, const char *data)
{
    if (axis == array->rank) {
        int64_t place;
        memcpy(&place, data, sizeof place);
        return string_at(strings, further, place);
    }
    PyObject *list = PyList_New(array->shape[axis]);
    for (ptrdiff_t i = 0; list != NULL && i < array->shape[axis]; i++) {
        PyObject *item = strings_from(strings, further, array, axis + 1, data + i * array->strides[axis]);
        if (item == NULL || PyList_SetItem(list, i, item) < 0) {
            Py_DecRef(list);
            list = NULL;
        }
    }
    return list;
}
#endif
