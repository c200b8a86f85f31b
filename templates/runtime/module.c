// ------------------------------------------------------------------------------------------------------------- module
#pragma once

#include "runtime/selftest.c"

// Make an instance the one behind the module's functions, unless another thread was faster; the one that is.
static PyObject *keep_model(State *state, PyObject *made)
{
    PyObject *kept = NULL;
#if defined(MLAOT_ABI3T)
    if (atomic_compare_exchange_strong(&state->model, &kept, made)) {
        return made;
    }
#else
    kept = state->model;
    if (kept == NULL) {
        return state->model = made;
    }
#endif
    Py_DecRef(made);
    return kept;
}

// The instance behind the module's functions. It takes its memory when the first of them is called.
static PyObject *default_model(PyObject *module)
{
    State *state = PyModule_GetState(module);
    PyObject *model = state->model;
    if (model != NULL) {
        return model;
    }
    if (state->model_type == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "module " MODULE_NAME " is being unloaded");
        return NULL;
    }
    PyObject *made = model_make(state);
    return made == NULL ? NULL : keep_model(state, made);
}

#define FUNCTION(convention, name, signature, doc)                                          \
    static PyObject *function_##name(PyObject *module, convention##_PARAMETERS)             \
    {                                                                                       \
        PyObject *model = default_model(module);                                            \
        return model == NULL ? NULL : method_##name(model, convention##_ARGUMENTS);         \
    }
METHODS(FUNCTION)

#if HAS_STATE
// What Python asks for names that the module does not have: an attribute of that instance, which it has from then on.
static PyObject *module_getattr(PyObject *module, PyObject *name)
{
    const PyGetSetDef *known = MODEL_ATTRIBUTES;
    if ((PyType_GetFlags(PY_TYPE(name)) & Py_TPFLAGS_UNICODE_SUBCLASS) == 0) {
        PyErr_SetString(PyExc_TypeError, "__getattr__: expected a str");
        return NULL;
    }
    while (known->name != NULL && PyUnicode_CompareWithASCIIString(name, known->name) != 0) {
        known++;
    }
    if (known->name == NULL) {
        return PyErr_Format(PyExc_AttributeError, "module '" MODULE_NAME "' has no attribute '%U'", name);
    }
    PyObject *model = default_model(module), *value = model == NULL ? NULL : known->get(model, known->closure);
    if (value != NULL && PyModule_AddObjectRef(module, known->name, value) < 0) {
        release(value);
        return NULL;
    }
    return value;
}

// All names, also of the attributes that nobody has asked for yet.
static PyObject *module_dir(PyObject *module, PyObject *unused)
{
    (void)unused;
    PyObject *names = PyObject_CallMethod(PyModule_GetDict(module), "copy", NULL);
    for (const PyGetSetDef *known = MODEL_ATTRIBUTES; names != NULL && known->name != NULL; known++) {
        if (PyDict_SetItemString(names, known->name, Py_None) < 0) {
            release(names);
            names = NULL;
        }
    }
    PyObject *list = names == NULL ? NULL : PyDict_Keys(names);
    release(names);
    return list;
}

#endif
// The best instruction set of this CPU, or the one that the environment variable MLAOT_ISA asks for; -1 with an error.
static int choose_isa(void)
{
    const char *forced = getenv("MLAOT_ISA");  // NOLINT(concurrency-mt-unsafe): nothing here sets it
    const int best = find_isa(forced == NULL || *forced == 0 ? NULL : forced);
    if (best < 0) {
        char names[120] = "";
        for (int k = 0; k < ISA_COUNT; k++) {
            if (has_isa(k)) {
                const size_t n = strlen(names);
                snprintf(names + n, sizeof names - n, "%s%s", n > 0 ? ", " : "", ISAS[k].name);
            }
        }
        PyErr_Format(PyExc_ImportError, MODULE_NAME ": expected MLAOT_ISA to be one of %s on this CPU, got '%.50s'",
                     names, forced != NULL ? forced : "");
    }
    return best;
}

static PyObject *isa_names(void)
{
    PyObject *names = PyList_New(ISA_COUNT);
    for (int k = 0; names != NULL && k < ISA_COUNT; k++) {
        PyObject *name = PyUnicode_FromString(ISAS[k].name);
        if (name == NULL || PyList_SetItem(names, k, name) < 0) {
            release(names);
            names = NULL;
        }
    }
    return names;
}

#if HAS_SESSION
// In place of onnxruntime.InferenceSession: an instance of Model, whatever the file and the options.
static PyObject *module_session(PyObject *module, PyObject *args, PyObject *names)
{
    (void)args;
    (void)names;
    return model_make(PyModule_GetState(module));
}

#endif
static PyObject *module_info(PyObject *module, PyObject *unused)
{
    (void)unused;
    PyObject *json = PyImport_ImportModule("json");
    PyObject *info = json == NULL ? NULL : PyObject_CallMethod(json, "loads", "s", INFO);
    const State *state = PyModule_GetState(module);
    PyObject *isas = info == NULL ? NULL : isa_names();
    PyObject *isa = isas == NULL ? NULL : PyUnicode_FromString(ISAS[state->isa].name);
    const bool known = isa != NULL && PyDict_SetItemString(info, "isas", isas) == 0
        && PyDict_SetItemString(info, "isa", isa) == 0;
    release(json);
    release(isas);
    release(isa);
    if (!known) {
        release(info);
        return NULL;
    }
    return info;
}

static const PyMethodDef MODULE_METHODS[] = {
#define FUNCTION_ROW(convention, name, signature, doc)                                     \
    {#name, (PyCFunction)(void (*)(void))function_##name, convention##_FLAGS,             \
     #name "($module" signature ")\n--\n\n" doc},
    METHODS(FUNCTION_ROW)
#if HAS_SESSION
    {"InferenceSession", (PyCFunction)(void (*)(void))module_session, METH_VARARGS | METH_KEYWORDS,
     "InferenceSession($module, /, *args, **options)\n--\n\nA Model, in place of a session of onnxruntime: the file and"
     " the options are not looked at."},
#endif
#if HAS_STATE
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

static int add_type(PyObject *module, const PyType_Spec *spec, PyTypeObject **type)
{
    *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    if (*type == NULL && PyErr_Occurred() == NULL) {  // CPython 3.11 forgets to say that memory ran out
        PyErr_NoMemory();
    }
    return *type == NULL ? -1 : PyModule_AddType(module, *type);
}

static int module_exec(PyObject *module)
{
    State *state = PyModule_GetState(module);
    state->isa = choose_isa();
    if (state->isa < 0) {
        return -1;
    }
#if defined(WEIGHTS_FILE)
    if (map_weights(module, &state->weights) < 0) {
        return -1;
    }
#endif
    if (add_type(module, &ARRAY_SPEC, &state->array_type) < 0 ||
        add_type(module, &MODEL_SPEC, &state->model_type) < 0) {
        return -1;
    }
#if defined(MODULE_VERSION)
    if (PyModule_AddStringConstant(module, "__version__", MODULE_VERSION) < 0) {
        return -1;
    }
#endif
    return 0;
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    const State *state = PyModule_GetState(module);
    PyObject *const members[] = {(PyObject *)state->array_type, (PyObject *)state->model_type, state->model};
    int stop = 0;
    for (size_t k = 0; stop == 0 && k < sizeof members / sizeof *members; k++) {
        stop = visit_member(members[k], visit, arg);
    }
    return stop;
}

static int module_clear(PyObject *module)
{
    State *state = PyModule_GetState(module);
    PyObject *const members[] = {state->model, (PyObject *)state->array_type, (PyObject *)state->model_type};
    state->model = NULL;
    state->array_type = state->model_type = NULL;
    numpy_forget(&state->numpy);
    for (size_t k = 0; k < sizeof members / sizeof *members; k++) {
        release(members[k]);
    }
    return 0;
}

static void module_free(void *module)
{
    module_clear(module);
#if defined(WEIGHTS_FILE)
    PyBuffer_Release(&((State *)PyModule_GetState(module))->weights);
#endif
}

#if defined(MLAOT_ABI3T)
// For interpreters with a GIL and without, from CPython 3.15 on.
static const PyABIInfo ABI = {1, 0, PyABIInfo_STABLE | PyABIInfo_GIL | PyABIInfo_FREETHREADED, 0x030f0000, 0x030f0000};

static const PySlot SLOTS_3_15[] = {
    {Py_mod_abi, PySlot_STATIC, 0, {.data = &ABI}},
    {Py_mod_name, PySlot_STATIC, 0, {.data = MODULE_NAME}},
    {Py_mod_doc, PySlot_STATIC, 0, {.data = MODULE_DOC}},
    {Py_mod_methods, PySlot_STATIC, 0, {.data = MODULE_METHODS}},
    {Py_mod_state_size, 0, 0, {.size = sizeof(State)}},
    {Py_mod_state_traverse, 0, 0, {.function = (void (*)(void))module_traverse}},
    {Py_mod_state_clear, 0, 0, {.function = (void (*)(void))module_clear}},
    {Py_mod_state_free, 0, 0, {.function = (void (*)(void))module_free}},
    {Py_mod_exec, 0, 0, {.function = (void (*)(void))module_exec}},
    {Py_mod_multiple_interpreters, 0, 0, {.size = 2}},  // with a GIL of their own
    {Py_mod_gil, 0, 0, {.size = 1}},                    // not used
    {0, 0, 0, {NULL}},
};

PY_INIT const PySlot *MODULE_EXPORT(void);

PY_INIT const PySlot *MODULE_EXPORT(void)
{
    return SLOTS_3_15;
}
#else
// The slot for interpreters with a GIL of their own exists from CPython 3.12 on.
static const PyModuleDef_Slot SLOTS_3_11[] = {{Py_mod_exec, (void *)module_exec}, {0, NULL}};
static const PyModuleDef_Slot SLOTS_3_12[] = {
    {Py_mod_exec, (void *)module_exec},
    {Py_mod_multiple_interpreters, (void *)2},
    {0, NULL},
};

// CPython keeps its notes in this struct; it is the only static data that is ever written.
static PyModuleDef DEFINITION = {
    .base = {.references = 1},
    .name = MODULE_NAME,
    .doc = MODULE_DOC,
    .state_bytes = sizeof(State),
    .methods = MODULE_METHODS,
    .traverse = module_traverse,
    .clear = module_clear,
    .free = module_free,
};

PY_INIT PyObject *MODULE_INIT(void);

PY_INIT PyObject *MODULE_INIT(void)
{
    DEFINITION.slots = Py_Version >= 0x030c0000 ? SLOTS_3_12 : SLOTS_3_11;
    return PyModuleDef_Init(&DEFINITION);
}
#endif
