// ---------------------------------------------------------------------------------------------------------- extension
// What Python sees of one module: the functions of the table, and how it is loaded. Before it, the table includes own.c
// or remote.c, which say where the runtime's functions are.
#pragma once

#define ENTRY_METHOD(name)                                                     \
    static PyObject *method_##name(PyObject *self, FAST_PARAMETERS)            \
    {                                                                          \
        return RUNTIME(serve)(self, ENTRY_##name, FAST_ARGUMENTS);             \
    }
ENTRY_METHODS(ENTRY_METHOD)

#define FUNCTION(convention, name, signature, doc)                                          \
    static PyObject *function_##name(PyObject *module, convention##_PARAMETERS)             \
    {                                                                                       \
        PyObject *model = RUNTIME(default_model)(module);                                   \
        return model == NULL ? NULL : method_##name(model, convention##_ARGUMENTS);         \
    }
METHODS(FUNCTION)

static const PyMethodDef MODEL_METHODS[] = {
#define METHOD_ROW(convention, name, signature, doc)                                       \
    {#name, (PyCFunction)(void (*)(void))method_##name, convention##_FLAGS,               \
     #name "($self" signature ")\n--\n\n" doc},
    METHODS(METHOD_ROW)
#if IS_TEXT
    MODEL_ONLY_METHODS(METHOD_ROW)
#endif
    {"__reduce__", model_reduce, METH_NOARGS, "__reduce__($self, /)\n--\n\nFor pickle and copy."},
#if IS_STATEFUL
    {"__setstate__", model_setstate, METH_O, "__setstate__($self, state, /)\n--\n\nFor pickle and copy."},
#else
    {"__setstate__", model_setstate, METH_O,
     "__setstate__($self, state, /)\n--\n\nRaises TypeError: there is no state."},
#endif
    {NULL, NULL, 0, NULL},
};

#if IS_STATEFUL
static const PyGetSetDef MODEL_ATTRIBUTES[] = {
#define ATTRIBUTE_ROW(name, doc) {#name, model_attribute, NULL, doc, (void *)AT_##name},
    ATTRIBUTES(ATTRIBUTE_ROW)
    {NULL, NULL, NULL, NULL, NULL},
};
#else
#define MODEL_ATTRIBUTES NULL
#endif

static const PyMethodDef MODULE_METHODS[] = {
#define FUNCTION_ROW(convention, name, signature, doc)                                     \
    {#name, (PyCFunction)(void (*)(void))function_##name, convention##_FLAGS,             \
     #name "($module" signature ")\n--\n\n" doc},
    METHODS(FUNCTION_ROW)
#if IS_TEXT
#define MODULE_ROW(convention, name, signature, doc)                                       \
    {#name, (PyCFunction)(void (*)(void))module_##name, convention##_FLAGS,                \
     #name "($module" signature ")\n--\n\n" doc},
    MODEL_ONLY_METHODS(MODULE_ROW)
#endif
#if IS_SESSION
    {"InferenceSession", (PyCFunction)(void (*)(void))module_session, METH_VARARGS | METH_KEYWORDS,
     "InferenceSession($module, /, *args, **options)\n--\n\nA Model, in place of a session of onnxruntime: the file and"
     " the options are not looked at."},
#endif
#if IS_STATEFUL
    {"__getattr__", module_getattr, METH_O, "__getattr__($module, name, /)\n--\n\nAn attribute of the instance behind"
     " the module's functions, which is made then."},
    {"__dir__", module_dir, METH_NOARGS, "__dir__($module, /)\n--\n\nAll names of the module."},
#endif
    {"info", module_info, METH_NOARGS,
     "info($module, /)\n--\n\nWhat this model is: names, shapes, sizes, instruction sets."},
    {"selftest", module_selftest, METH_NOARGS,
     "selftest($module, /)\n--\n\nReplay the golden vectors; the largest error by instruction set, as a share of its"
     " bound. Raises RuntimeError where one is missed."},
    {NULL, NULL, 0, NULL},
};

static int extension_exec(PyObject *module)
{
    return RUNTIME(module_exec)(module, &TABLE, MODEL_METHODS, MODEL_ATTRIBUTES);
}

#define HAS_MODULE_STATE 1
#include "runtime/definition.c"
