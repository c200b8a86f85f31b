// ------------------------------------------------------------------------------------------------------------- shared
// The runtime as a module of its own, which several modules share.
#pragma once

#include "runtime/limits.h"

#define IS_SHARED 1
#define SHARE shared_share
#define SHARE_APART shared_share_apart

typedef void Task(char *const *p, const ptrdiff_t *dim, ptrdiff_t begin, ptrdiff_t end);

#include "runtime/types.h"

// The dtypes that indices have, their types in C, and how these are compared.
#define INDEX_DTYPES(X) \
    X(F16, uint16_t, HALF) X(F32, float, FLOAT) X(F64, double, FLOAT) X(I8, int8_t, INTEGER) X(I16, int16_t, INTEGER) \
    X(I32, int32_t, INTEGER) X(I64, int64_t, INTEGER) X(U8, uint8_t, INTEGER) X(U16, uint16_t, INTEGER) \
    X(U32, uint32_t, INTEGER) X(U64, uint64_t, INTEGER)

#include "runtime/functions.h"
#include "runtime/module.c"

_Static_assert(sizeof(State) <= STATE_SIZE, "the state of a module");

static const Runtime FUNCTIONS = {
    .build = RUNTIME_BUILD,
    .share = SHARE,
    .share_apart = SHARE_APART,
    .module_exec = module_exec,
    .module_traverse = module_traverse,
    .module_clear = module_clear,
    .module_free = module_free,
    .default_model = default_model,
    .serve = serve,
    .model_attribute = model_attribute,
#define SHARED_ROW(convention, name) .name = name,
    SHARED_FUNCTIONS(SHARED_ROW)
};

static int extension_exec(PyObject *module)
{
    PyObject *capsule = PyCapsule_New((void *)&FUNCTIONS, MODULE_NAME ".functions", NULL);
    const int status = capsule == NULL ? -1 : PyModule_AddObjectRef(module, "functions", capsule);
    release(capsule);
    return status;
}

static int find_runtime(void)
{
    return 0;
}

#define HAS_MODULE_STATE 0
#include "runtime/definition.c"
