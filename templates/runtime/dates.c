// --------------------------------------------------------------------------------------------------------------- dates
// Inputs that callers may have as dates. A model computes with numbers of a unit since 1970, as arrays of dates hold them.
#pragma once

#include "runtime/array.c"

#if HAS_DATES
// How many ticks a date of Python's is; a new reference.
SELDOM static PyObject *date_ticks(const char *function, const Port *port, PyObject *date)
{
    static const struct {
        const char *name;
        int64_t size;
    } PARTS[] = {{"hour", 3600000000000}, {"minute", 60000000000}, {"second", 1000000000}, {"microsecond", 1000},
                 {"nanosecond", 1}};  // the last of pandas' dates
    enum { FIRST_DAY = 719163 };
    PyObject *day = PyObject_CallMethod(date, "toordinal", NULL);
    int128 ticks = day == NULL ? 0 : ((int128)PyLong_AsLongLong(day) - FIRST_DAY) * (24 * PARTS[0].size);
    release(day);
    for (size_t k = 0; k < sizeof PARTS / sizeof *PARTS && PyErr_Occurred() == NULL; k++) {
        if (PyObject_HasAttrString(date, PARTS[k].name) != 0) {
            PyObject *part = PyObject_GetAttrString(date, PARTS[k].name);
            ticks += part == NULL ? 0 : (int128)PyLong_AsLongLong(part) * PARTS[k].size;
            release(part);
        }
    }
    if (PyErr_Occurred() == NULL && PyObject_HasAttrString(date, "utcoffset") != 0) {
        PyObject *offset = PyObject_CallMethod(date, "utcoffset", NULL);
        if (offset != NULL && offset != Py_None) {
            PyErr_Format(PyExc_ValueError, "%s: %s: expected dates without a time zone, got %R", function, port->name,
                         date);
        }
        release(offset);
    }
    if (PyErr_Occurred() != NULL) {
        return NULL;
    }
    const int128 count = port->tick == 0 ? 0 : ticks / port->tick;
    if (port->tick == 0 || count * port->tick != ticks || count != (int64_t)count) {
        PyErr_Format(PyExc_ValueError, "%s: %s: expected dates that %s holds, got %R", function, port->name,
                     port->dates, date);
        return NULL;
    }
    return PyLong_FromLongLong((int64_t)count);
}

// The numbers of a date, or of an array or a column of dates; any other object as it is. A new reference.
SELDOM static PyObject *undated(const char *function, const Port *port, PyObject *object)
{
    if ((type_flags(object) & Py_TPFLAGS_LONG_SUBCLASS) == 0 && PyObject_HasAttrString(object, "toordinal") != 0) {
        return date_ticks(function, port, object);
    }
    PyObject *array = object;
    if (PyObject_HasAttrString(object, "to_numpy") != 0) {
        array = PyObject_CallMethod(object, "to_numpy", NULL);
    } else {
        Py_IncRef(object);
    }
    PyObject *dtype = NULL, *kind = NULL, *name = NULL, *numbers = array;
    if (array != NULL && PyObject_HasAttrString(array, "dtype") != 0) {
        dtype = PyObject_GetAttrString(array, "dtype");
        kind = dtype == NULL ? NULL : PyObject_GetAttrString(dtype, "kind");
        name = kind == NULL ? NULL : PyUnicode_FromFormat("%S", dtype);
        PyErr_Clear();  // of a dtype that is none of NumPy's
    }
    if (name != NULL && PyUnicode_CompareWithASCIIString(kind, "M") == 0) {
        numbers = NULL;
        if (PyUnicode_CompareWithASCIIString(name, port->dates) == 0) {
            numbers = PyObject_CallMethod(array, "view", "s", "int64");
        } else {
            PyErr_Format(PyExc_TypeError, "%s: %s: expected %s or int64, got %U; pass %s.astype('%s')", function,
                         port->name, port->dates, name, port->name, port->dates);
        }
        release(array);
    }
    release(dtype);
    release(kind);
    release(name);
    return numbers;
}
#endif
