// ------------------------------------------------------------------------------------------------------------- remote
// A module whose runtime is another module's: it finds the functions there when it is imported.
#pragma once

#include <string.h>

#include "runtime/functions.h"
#include "runtime/objects.h"

// The same for every interpreter, since CPython loads an extension once and never unloads it.
static const Runtime *_Atomic runtime;

#define RUNTIME(name) runtime->name

void SHARE(void *threads, Task *task, char *const *p, const ptrdiff_t *dim, ptrdiff_t extent, ptrdiff_t step,
                   ptrdiff_t work)
{
    runtime->share(threads, task, p, dim, extent, step, work);
}

void SHARE_APART(void *threads, Task *task, char *const *p, const ptrdiff_t *dim, ptrdiff_t extent,
                         ptrdiff_t work, int own, ptrdiff_t at, ptrdiff_t bytes)
{
    runtime->share_apart(threads, task, p, dim, extent, work, own, at, bytes);
}

// Those that no method of this module needs, the compiler leaves out.
#define REMOTE(convention, name)                                                              \
    __attribute__((unused)) static PyObject *name(PyObject *self, convention##_PARAMETERS)    \
    {                                                                                         \
        return runtime->name(self, convention##_ARGUMENTS);                                   \
    }
SHARED_FUNCTIONS(REMOTE)

#if IS_STATEFUL
static PyObject *model_attribute(PyObject *self, void *number)
{
    return runtime->model_attribute(self, number);
}

#endif
static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    return runtime->module_traverse(module, visit, arg);
}

static int module_clear(PyObject *module)
{
    return runtime->module_clear(module);
}

static void module_free(void *module)
{
    runtime->module_free(module);
}

// ImportError in the place of what went wrong with the runtime.
SELDOM static void refuse_runtime(void)
{
    PyObject *type, *value, *traceback;
    if (!PyErr_ExceptionMatches(PyExc_ImportError) && !PyErr_ExceptionMatches(PyExc_AttributeError) &&
        !PyErr_ExceptionMatches(PyExc_ValueError)) {
        return;
    }
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    PyErr_Format(PyExc_ImportError, MODULE_NAME ": cannot import its runtime " RUNTIME_NAME ": %S; install the package"
                 " again", value);
    release(type);
    release(value);
    release(traceback);
}

// Find the runtime; -1 with an ImportError where it is missing or of another build.
static int find_runtime(void)
{
    PyObject *module = PyImport_ImportModule(RUNTIME_NAME);
    PyObject *capsule = module == NULL ? NULL : PyObject_GetAttrString(module, "functions");
    const Runtime *functions = capsule == NULL ? NULL : PyCapsule_GetPointer(capsule, RUNTIME_NAME ".functions");
    release(module);
    release(capsule);  // what it points to stays: no extension is ever unloaded
    if (functions == NULL) {
        refuse_runtime();
        return -1;
    }
    if (strcmp(functions->build, RUNTIME_BUILD) != 0) {
        PyErr_SetString(PyExc_ImportError, MODULE_NAME ": its runtime " RUNTIME_NAME " is of another build; install the"
                        " package again");
        return -1;
    }
    runtime = functions;
    return 0;
}
