// What a runtime that several modules share offers them, in the place of functions of their own.
#pragma once

#include "runtime/types.h"

// The functions that modules hand to Python, and how they are called.
#define SHARED_FUNCTIONS(X) \
    X(ONE, method_set_threads) X(ONE, method_save) X(ONE, method_load) X(ONE, method_data) X(ONE, method_grad) \
    X(NONE, method_zero_grad) X(NONE, method_backward) X(FAST, method_set_input) X(FAST, method_fit) \
    X(NAMED, method_run) X(NONE, method_get_inputs) X(NONE, method_get_outputs) X(NONE, method_get_providers) \
    X(NONE, model_reduce) X(ONE, model_setstate) X(NONE, module_info) X(NONE, module_selftest) \
    X(NAMED, module_session) X(ONE, module_getattr) X(NONE, module_dir)

typedef struct {
    const char *build;  // of the runtime and of a module: the same, or their tables differ
    void (*share)(void *threads, Task *task, char *const *p, const ptrdiff_t *dim, ptrdiff_t extent, ptrdiff_t step,
                  ptrdiff_t work);
    void (*share_apart)(void *threads, Task *task, char *const *p, const ptrdiff_t *dim, ptrdiff_t extent,
                        ptrdiff_t work, int own, ptrdiff_t at, ptrdiff_t bytes);
    int (*module_exec)(PyObject *module, const Table *table, const PyMethodDef *methods, const PyGetSetDef *attributes);
    int (*module_traverse)(PyObject *module, visitproc visit, void *arg);
    int (*module_clear)(PyObject *module);
    void (*module_free)(void *module);
    PyObject *(*default_model)(PyObject *module);
    PyObject *(*serve)(PyObject *self, int number, FAST_PARAMETERS);
    PyObject *(*model_attribute)(PyObject *self, void *number);
#define SHARED_MEMBER(convention, name) PyObject *(*name)(PyObject *self, convention##_PARAMETERS);
    SHARED_FUNCTIONS(SHARED_MEMBER)
} Runtime;

enum { STATE_SIZE = 256 };  // of a module, at most

#if defined(MLAOT_ABI3T)
#define RUNTIME_BUILD RUNTIME_DIGEST "t"
#else
#define RUNTIME_BUILD RUNTIME_DIGEST
#endif
