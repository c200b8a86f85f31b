// ------------------------------------------------------------------------------------------------------------- module
#pragma once

#include "runtime/generate_all.c"
#include "runtime/selftest.c"
#include "runtime/trace.c"

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
        return PyErr_Format(PyExc_RuntimeError, "module %s is being unloaded", TABLE_OF(state)->name);
    }
    PyObject *made = model_make(state, 0);
    return made == NULL ? NULL : keep_model(state, made);
}

#if HAS_STATE
// What Python asks for names that the module does not have: an attribute of that instance, which it has from then on.
// The import system asks before the module is filled.
SELDOM static PyObject *module_getattr(PyObject *module, PyObject *name)
{
    const State *state = PyModule_GetState(module);
    const PyGetSetDef *known = state == NULL ? NULL : state->attributes;
    if ((PyType_GetFlags(PY_TYPE(name)) & Py_TPFLAGS_UNICODE_SUBCLASS) == 0) {
        PyErr_SetString(PyExc_TypeError, "__getattr__: expected a str");
        return NULL;
    }
    while (known != NULL && known->name != NULL && PyUnicode_CompareWithASCIIString(name, known->name) != 0) {
        known++;
    }
    if (known == NULL || known->name == NULL) {
        PyObject *own = PyModule_GetNameObject(module);
        if (own != NULL) {
            PyErr_Format(PyExc_AttributeError, "module '%U' has no attribute '%U'", own, name);
        }
        release(own);
        return NULL;
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
    const State *state = PyModule_GetState(module);
    PyObject *names = PyObject_CallMethod(PyModule_GetDict(module), "copy", NULL);
    const PyGetSetDef *known = state == NULL ? NULL : state->attributes;
    for (; names != NULL && known != NULL && known->name != NULL; known++) {
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
static int choose_isa(const Table *table)
{
    const char *forced = getenv("MLAOT_ISA");  // NOLINT(concurrency-mt-unsafe): nothing here sets it
    const int best = find_isa(table->isas, table->isa_count, forced == NULL || *forced == 0 ? NULL : forced);
    if (best < 0) {
        char names[120] = "";
        for (int k = 0; k < table->isa_count; k++) {
            if (has_isa(&table->isas[k])) {
                const size_t n = strlen(names);
                snprintf(names + n, sizeof names - n, "%s%s", n > 0 ? ", " : "",
                         table->isas[k].name);
            }
        }
        PyErr_Format(PyExc_ImportError, "%s: expected MLAOT_ISA to be one of %s on this CPU, got '%.50s'", table->name,
                     names, forced != NULL ? forced : "");
    }
    return best;
}

static PyObject *isa_names(const Table *table)
{
    PyObject *names = PyList_New(table->isa_count);
    for (int k = 0; names != NULL && k < table->isa_count; k++) {
        PyObject *name = PyUnicode_FromString(table->isas[k].name);
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
    return model_make(PyModule_GetState(module), 0);
}

#endif
#if HAS_TEXT
// What generates a text of its own.
static PyObject *module_generate(PyObject *module, FAST_PARAMETERS)
{
    PyObject *model = model_make(PyModule_GetState(module), 0);
    PyObject *generation = model == NULL ? NULL : method_generate(model, FAST_ARGUMENTS);
    release(model);
    return generation;
}

#endif
SELDOM static PyObject *module_info(PyObject *module, PyObject *unused)
{
    (void)unused;
    const State *state = PyModule_GetState(module);
    const Table *table = TABLE_OF(state);
    PyObject *json = PyImport_ImportModule("json");
    PyObject *info = json == NULL ? NULL : PyObject_CallMethod(json, "loads", "s", table->info);
    PyObject *isas = info == NULL ? NULL : isa_names(table);
    PyObject *isa = isas == NULL ? NULL : PyUnicode_FromString(table->isas[state->isa].name);
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

static int add_type(PyObject *module, const PyType_Spec *spec, PyTypeObject **type)
{
    *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    if (*type == NULL && PyErr_Occurred() == NULL) {  // CPython 3.11 forgets to say that memory ran out
        PyErr_NoMemory();
    }
    return *type == NULL ? -1 : PyModule_AddType(module, *type);
}

#if HAS_TEXT
// Make the types of the iterators that generate texts, which nobody looks for in the module.
SELDOM static int add_generation_types(PyObject *module, State *state)
{
    enum { FLAGS = Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_GC };
    const Text *text = TABLE_OF(state)->text;
    if (text == NULL) {
        return 0;
    }
    const PyType_Spec one = {text->type_name, PY_BASIC_SIZE(Generation), 0, FLAGS, GENERATION_SLOTS};
    state->generation_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &one, NULL);
    if (state->generation_type == NULL) {
        return -1;
    }
#if HAS_TEXTS
    const PyType_Spec all = {text->all_type_name, PY_BASIC_SIZE(Generations), 0, FLAGS, GENERATIONS_SLOTS};
    state->generations_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &all, NULL);
    return state->generations_type == NULL ? -1 : 0;
#else
    return 0;
#endif
}

#endif
// Make the two types, the second of which has the methods and attributes of the module's models.
SELDOM static int add_types(PyObject *module, State *state, const PyMethodDef *methods)
{
    const Table *table = TABLE_OF(state);
    const PyType_Spec array = {
        table->array_name, PY_BASIC_SIZE(Array), PY_ITEM_SIZE,
        Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_GC, ARRAY_SLOTS,
    };
    const PyType_Slot slots[] = {
        {Py_tp_doc, (void *)table->model_doc},
        {Py_tp_new, (void *)model_new},
        {Py_tp_dealloc, (void *)model_dealloc},
        {Py_tp_traverse, (void *)model_traverse},
        {Py_tp_members, (void *)MODEL_MEMBERS},
        {Py_tp_methods, (void *)methods},
        {state->attributes != NULL ? Py_tp_getset : 0, (void *)state->attributes},
        {0, NULL},
    };
    const PyType_Spec model = {
        table->model_name, PY_BASIC_SIZE(Model), 0, Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_GC, slots,
    };
    if (add_type(module, &array, &state->array_type) < 0) {
        return -1;
    }
    return add_type(module, &model, &state->model_type);
}

// Fill a new module. The methods and the attributes are those of its models.
SELDOM static int module_exec(PyObject *module, const Table *table, const PyMethodDef *methods,
                              const PyGetSetDef *attributes)
{
    State *state = PyModule_GetState(module);
#if IS_SHARED
    state->table = table;
#endif
    state->attributes = attributes;
    state->isa = choose_isa(table);
    if (state->isa < 0) {
        return -1;
    }
#if HAS_WEIGHTS_FILE
    if (table->weights == NULL && map_weights(table, module, &state->weights) < 0) {
        return -1;
    }
#endif
    if (add_types(module, state, methods) < 0) {
        return -1;
    }
#if HAS_TEXT
    if (add_generation_types(module, state) < 0) {
        return -1;
    }
#endif
    return table->version == NULL ? 0 : PyModule_AddStringConstant(module, "__version__", table->version);
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    const State *state = PyModule_GetState(module);
    PyObject *const members[] = {
        (PyObject *)state->array_type, (PyObject *)state->model_type, state->model,
#if HAS_TEXT
        (PyObject *)state->generation_type,
#endif
#if HAS_TEXTS
        (PyObject *)state->generations_type,
#endif
    };
    int stop = 0;
    for (size_t k = 0; stop == 0 && k < sizeof members / sizeof *members; k++) {
        stop = visit_member(members[k], visit, arg);
    }
    return stop;
}

SELDOM static int module_clear(PyObject *module)
{
    State *state = PyModule_GetState(module);
    PyObject *const members[] = {
        state->model, (PyObject *)state->array_type, (PyObject *)state->model_type,
#if HAS_TEXT
        (PyObject *)state->generation_type,
#endif
#if HAS_TEXTS
        (PyObject *)state->generations_type,
#endif
    };
#if HAS_TEXT
    state->generation_type = NULL;
#endif
#if HAS_TEXTS
    state->generations_type = NULL;
#endif
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
#if HAS_WEIGHTS_FILE
    PyBuffer_Release(&((State *)PyModule_GetState(module))->weights);
#endif
#if HAS_PREPARED
    PyMem_Free(((State *)PyModule_GetState(module))->prepared);
#endif
}
