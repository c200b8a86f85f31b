// ------------------------------------------------------------------------------------------------------------ session
#pragma once

#include "runtime/calls.c"

#if HAS_SESSION
// A list of objects with the attributes name, shape and type.
SELDOM static PyObject *described(const char *text)
{
    PyObject *json = PyImport_ImportModule("json"), *types = json == NULL ? NULL : PyImport_ImportModule("types");
    PyObject *list = types == NULL ? NULL : PyObject_CallMethod(json, "loads", "s", text);
    PyObject *make = list == NULL ? NULL : PyObject_GetAttrString(types, "SimpleNamespace");
    PyObject *none = make == NULL ? NULL : PyTuple_New(0);
    bool made = none != NULL;
    for (Py_ssize_t i = 0, count = made ? PyObject_Size(list) : 0; made && i < count; i++) {
        PyObject *attributes = PySequence_GetItem(list, i);
        PyObject *object = attributes == NULL ? NULL : PyObject_Call(make, none, attributes);
        release(attributes);
        made = object != NULL && PyList_SetItem(list, i, object) == 0;
    }
    release(json);
    release(types);
    release(make);
    release(none);
    if (!made) {
        release(list);
        return NULL;
    }
    return list;
}

static PyObject *method_get_inputs(PyObject *self, PyObject *unused)
{
    (void)unused;
    return described(TABLE_OF((Model *)PY_BODY(self))->session->inputs);
}

static PyObject *method_get_outputs(PyObject *self, PyObject *unused)
{
    (void)unused;
    return described(TABLE_OF((Model *)PY_BODY(self))->session->outputs);
}

static PyObject *method_get_providers(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return Py_BuildValue("[s]", "CPUExecutionProvider");
}

// The inputs by their names in the file; false with an error when one is missing or unknown.
static bool take_feed(PyObject *feed, const Entry *entry, const char *const *known, PyObject **inputs)
{
    for (int i = 0; i < asked_of(entry); i++) {
        PyObject *name = PyUnicode_FromString(known[i]);
        inputs[i] = name == NULL ? NULL : PyObject_GetItem(feed, name);
        release(name);
        if (inputs[i] == NULL) {
            if (PyErr_ExceptionMatches(PyExc_KeyError)) {
                PyErr_Clear();
                PyErr_Format(PyExc_ValueError, "run: input_feed: no value for the input '%s'", known[i]);
            }
            return false;
        }
    }
    if (PyObject_Size(feed) != asked_of(entry)) {
        if (PyErr_Occurred() == NULL) {
            PyErr_Format(PyExc_ValueError, "run: input_feed: expected %d values, got %zd: it has names of no input",
                         asked_of(entry), PyObject_Size(feed));
        }
        return false;
    }
    return true;
}

// numpy.asarray, where one of the inputs is an array of NumPy's; else NULL, without an error.
static PyObject *numpy_for(PyObject *const *inputs, int count)
{
    PyObject *name = PyUnicode_FromString("numpy"), *numpy = name == NULL ? NULL : PyImport_GetModule(name);
    PyObject *type = numpy == NULL ? NULL : PyObject_GetAttrString(numpy, "ndarray"), *found = NULL;
    for (int i = 0; type != NULL && found == NULL && i < count; i++) {
        if (PyObject_IsInstance(inputs[i], type) > 0) {
            found = PyObject_GetAttrString(numpy, "asarray");
        }
    }
    release(name);
    release(numpy);
    release(type);
    PyErr_Clear();
    return found;
}

// Which of the outputs of these names in the file a name means; -1 with an error when none.
static int output_of(PyObject *name, const char *const *known, int count)
{
    for (int k = 0; k < count; k++) {
        PyObject *other = PyUnicode_FromString(known[k]);
        const int same = other == NULL ? -1 : PyObject_RichCompareBool(other, name, Py_EQ);
        release(other);
        if (same != 0) {
            return same < 0 ? -1 : k;
        }
    }
    PyErr_Format(PyExc_ValueError, "run: output_names: the model has no output %R", name);
    return -1;
}

// Output k of what forward() gave.
static PyObject *result_of(PyObject *results, const Entry *entry, int k)
{
#if HAS_NAMED
    if (entry->named) {
        PyObject *name = PyUnicode_FromString(entry->ports[entry->inputs + k].name);
        PyObject *found = name == NULL ? NULL : PyObject_GetItem(results, name);
        release(name);
        return found;
    }
#endif
    if (entry->outputs > 1) {
        return PySequence_GetItem(results, k);
    }
    Py_IncRef(results);
    return results;
}

// An argument of run() by its place or its name; NULL with an error.
static PyObject *run_argument(PyObject *args, PyObject *named, Py_ssize_t place, const char *name)
{
    PyObject *found = NULL;
    if (PyTuple_Size(args) > place) {
        found = PyTuple_GetItem(args, place);
    } else if (named != NULL) {
        found = dict_get(named, name);
    }
    if (found == NULL && PyErr_Occurred() == NULL) {
        PyErr_Format(PyExc_TypeError, "run() is missing the argument '%s'", name);
    }
    return found;
}

static PyObject *method_run(PyObject *self, PyObject *args, PyObject *named)
{
    const Table *table = TABLE_OF((Model *)PY_BODY(self));
    const Entry *entry = &table->entries[table->forward];
    PyObject *inputs[MAX_INPUTS] = {NULL}, *list = NULL;
    PyObject *names = run_argument(args, named, 0, "output_names");
    PyObject *feed = names == NULL ? NULL : run_argument(args, named, 1, "input_feed");
    if (feed == NULL) {
        return NULL;
    }
    const bool all = names == Py_None || PyObject_Size(names) == 0;
    const Py_ssize_t count = all ? entry->outputs : PyObject_Size(names);
    PyErr_Clear();
    if (count < 0) {
        PyErr_SetString(PyExc_TypeError, "run: output_names: expected a list of names or None");
        return NULL;
    }
    const char *const *known = table->session->names + asked_of(entry);
    PyObject *results = NULL, *numpy = NULL;
    if (take_feed(feed, entry, table->session->names, inputs)) {
        results = call_entry(PY_BODY(self), entry, inputs, asked_of(entry), NULL, true);
        numpy = results == NULL ? NULL : numpy_for(inputs, asked_of(entry));
        list = results == NULL ? NULL : PyList_New(count);
    }
    for (Py_ssize_t i = 0; list != NULL && i < count; i++) {
        PyObject *name = all ? NULL : PySequence_GetItem(names, i);
        const int k = all ? (int)i : name == NULL ? -1 : output_of(name, known, entry->outputs);
        PyObject *result = k < 0 ? NULL : result_of(results, entry, k);
        if (result != NULL && numpy != NULL) {
#if HAS_STRINGS
            const char *dtype = entry->ports[entry->inputs + k].strings != NULL ? "O" : NULL;
#else
            const char *dtype = NULL;
#endif
            PyObject *array = PyObject_CallFunction(numpy, "Oz", result, dtype);
            release(result);
            result = array;
        }
        release(name);
        if (result == NULL || PyList_SetItem(list, i, result) < 0) {
            release(list);
            list = NULL;
        }
    }
    for (int i = 0; i < asked_of(entry); i++) {
        release(inputs[i]);
    }
    release(results);
    release(numpy);
    return list;
}
#endif
