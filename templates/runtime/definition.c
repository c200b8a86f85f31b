// --------------------------------------------------------------------------------------------------------- definition
// How Python loads a module.
#pragma once

#if defined(MLAOT_ABI3T)
// For interpreters with a GIL and without, from CPython 3.15 on.
static const PyABIInfo ABI = {1, 0, PyABIInfo_STABLE | PyABIInfo_GIL | PyABIInfo_FREETHREADED, 0x030f0000, 0x030f0000};

static const PySlot SLOTS_3_15[] = {
    {Py_mod_abi, PySlot_STATIC, 0, {.data = &ABI}},
    {Py_mod_name, PySlot_STATIC, 0, {.data = MODULE_NAME}},
    {Py_mod_doc, PySlot_STATIC, 0, {.data = MODULE_DOC}},
#if HAS_MODULE_STATE
    {Py_mod_methods, PySlot_STATIC, 0, {.data = MODULE_METHODS}},
    {Py_mod_state_size, 0, 0, {.size = STATE_SIZE}},
    {Py_mod_state_traverse, 0, 0, {.function = (void (*)(void))module_traverse}},
    {Py_mod_state_clear, 0, 0, {.function = (void (*)(void))module_clear}},
    {Py_mod_state_free, 0, 0, {.function = (void (*)(void))module_free}},
#endif
    {Py_mod_exec, 0, 0, {.function = (void (*)(void))extension_exec}},
    {Py_mod_multiple_interpreters, 0, 0, {.size = 2}},  // with a GIL of their own
    {Py_mod_gil, 0, 0, {.size = 1}},                    // not used
    {0, 0, 0, {NULL}},
};

PY_INIT const PySlot *MODULE_EXPORT(void);

PY_INIT const PySlot *MODULE_EXPORT(void)
{
    return find_runtime() < 0 ? NULL : SLOTS_3_15;
}
#else
// The slot for interpreters with a GIL of their own exists from CPython 3.12 on.
static const PyModuleDef_Slot SLOTS_3_11[] = {{Py_mod_exec, (void *)extension_exec}, {0, NULL}};
static const PyModuleDef_Slot SLOTS_3_12[] = {
    {Py_mod_exec, (void *)extension_exec},
    {Py_mod_multiple_interpreters, (void *)2},
    {0, NULL},
};

// CPython keeps its notes in this struct; it is the only static data that is ever written.
static PyModuleDef DEFINITION = {
    .base = {.references = 1},
    .name = MODULE_NAME,
    .doc = MODULE_DOC,
#if HAS_MODULE_STATE
    .state_bytes = STATE_SIZE,
    .methods = MODULE_METHODS,
    .traverse = module_traverse,
    .clear = module_clear,
    .free = module_free,
#endif
};

PY_INIT PyObject *MODULE_INIT(void);

PY_INIT PyObject *MODULE_INIT(void)
{
    if (find_runtime() < 0) {
        return NULL;
    }
    DEFINITION.slots = Py_Version >= 0x030c0000 ? SLOTS_3_12 : SLOTS_3_11;
    return PyModuleDef_Init(&DEFINITION);
}
#endif
