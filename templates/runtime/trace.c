// -------------------------------------------------------------------------------------------------------------- trace
// What profile() returns: a trace as Chrome and Perfetto read it (Trace Event Format), with a thread for each entry.
#pragma once

#include "runtime/calls.c"

#if HAS_PROFILE
enum { CLOCKS = 1000 };  // readings that tell what one takes

static int append_event(PyObject *events, PyObject *event)
{
    const int status = event == NULL ? -1 : PyList_Append(events, event);
    release(event);
    return status;
}

// Append the kernels that have run, one behind the other in each entry; the time of reading the clock is left out.
static int append_kernels(PyObject *events, const Table *table, const Profile *own)
{
    const int64_t begun = profile_clock();
    for (int k = 1; k < CLOCKS; k++) {
        (void)profile_clock();
    }
    const double clock = (double)(profile_clock() - begun) / (double)CLOCKS;
    double at = 0;
    int entry = -1;
    for (size_t k = 0; k < sizeof PROFILED / sizeof *PROFILED; k++) {
        const Profiled *kernel = &PROFILED[k];
        const int64_t rounds = own->kernels[k].rounds;
        if (rounds == 0) {
            continue;
        }
        if (kernel->entry != entry) {
            entry = kernel->entry;
            at = 0;
            if (append_event(events, Py_BuildValue("{s:s,s:s,s:i,s:i,s:{s:s}}", "name", "thread_name", "ph", "M", "pid", 1,
                                                   "tid", entry, "args", "name", table->entries[entry].name)) < 0) {
                return -1;
            }
        }
        const double spent = (double)own->kernels[k].spent - clock * (double)rounds;
        const double duration = spent > 0 ? spent / 1e3 : 0;
        PyObject *event = Py_BuildValue(
            "{s:s,s:s,s:s,s:i,s:i,s:d,s:d,s:{s:s,s:s,s:L,s:L,s:L}}", "name", kernel->name, "cat", kernel->part, "ph", "X",
            "pid", 1, "tid", entry, "ts", at, "dur", duration, "args", "computes", kernel->computes, "line", kernel->line,
            "rounds", (long long)rounds, "operations", (long long)own->kernels[k].operations, "bytes",
            (long long)own->kernels[k].bytes);
        if (append_event(events, event) < 0) {
            return -1;
        }
        at += duration;
    }
    return 0;
}

// The function that is profiled, its first argument or else forward(), with the others; NULL with an error.
static PyObject *call_profiled(PyObject *self, FAST_PARAMETERS)
{
    const bool is_given = count > 0 && PyCallable_Check(args[0]);
    PyObject *function = is_given ? args[0] : PyObject_GetAttrString(self, "forward");
    PyObject *positional = function == NULL ? NULL : PyTuple_New(count - is_given);
    PyObject *named = positional == NULL ? NULL : PyDict_New();
    bool failed = named == NULL;
    for (Py_ssize_t i = is_given; !failed && i < count; i++) {
        Py_IncRef(args[i]);
        failed = PyTuple_SetItem(positional, i - is_given, args[i]) < 0;
    }
    for (Py_ssize_t i = 0; !failed && names != NULL && i < PyTuple_Size(names); i++) {
        failed = PyDict_SetItem(named, PyTuple_GetItem(names, i), args[count + i]) < 0;
    }
    PyObject *result = failed ? NULL : PyObject_Call(function, positional, named);
    if (!is_given) {
        release(function);
    }
    release(positional);
    release(named);
    return result;
}

static PyObject *method_profile(PyObject *self, FAST_PARAMETERS)
{
    Profile *own = PyMem_Calloc(1, sizeof *own), *outer = profile;
    if (own == NULL) {
        return PyErr_NoMemory();
    }
    const Table *table = TABLE_OF((Model *)PY_BODY(self));
    const int64_t begun = profile_clock();
    profile = own;
    PyObject *result = call_profiled(self, FAST_ARGUMENTS);
    profile = outer;
    const double seconds = (double)(profile_clock() - begun) / 1e9;
    PyObject *events = result == NULL ? NULL : PyList_New(0);
    release(result);
    PyObject *trace = NULL;
    if (events != NULL && append_kernels(events, table, own) == 0) {
        trace = Py_BuildValue("{s:O,s:s,s:{s:s,s:d}}", "traceEvents", events, "displayTimeUnit", "ns", "otherData",
                              "module", table->name, "seconds", seconds);
    }
    release(events);
    PyMem_Free(own);
    return trace;
}
#endif
