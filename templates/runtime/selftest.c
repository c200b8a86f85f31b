// ------------------------------------------------------------------------------------------------------------ selftest
#pragma once

#include "runtime/model_type.c"

// A number that every machine makes alike, as mlaot/report/golden.py does, and that is exact in its dtype.
static void golden_number(int dtype, uint64_t z, char *to)
{
    const int bits = dtype == F16 ? 11 : dtype == BF16 ? 8 : 24;
    switch (DTYPES[dtype].kind) {
    case 'f':
        float_set(dtype, to, (double)(z >> (64 - bits)) / (double)(1 << (bits - 1)) - 1);
        break;
    case 'b':
        *to = (char)(z & 1);
        break;
    default:
        integer_set(dtype, to, z % 8);
    }
}

// The number behind element n of input number i.
static uint64_t golden_bits(int i, ptrdiff_t n)
{
    return split_mix(((uint64_t)i << 32) + (uint64_t)(n + 1) * GAMMA);
}

#if HAS_INDICES
// Indices in place of other numbers.
SELDOM static void golden_indices(const Table *table, const Port *port, int i, const IndexRange *range,
                                  const ptrdiff_t *dim, char *data)
{
    const int bits = 8 * (int)DTYPES[port->dtype].size - (DTYPES[port->dtype].kind == 'i');
    const uint64_t most = (uint64_t)1 << (DTYPES[port->dtype].kind == 'f' ? 8 : bits < 31 ? bits : 31);
    const uint64_t size = (uint64_t)extent_at(table, range->size, dim), count = size < most ? size : most;
    const Box box = box_of(table, port, range, dim);
    for (ptrdiff_t k = 0; k < box.size; k++) {
        const ptrdiff_t n = box_place(&box, k);
        float_set(port->dtype, data + n * DTYPES[port->dtype].size, (double)(golden_bits(i, n) % count));
    }
}

#endif
// Input number i of a call, or NULL with an error.
SELDOM static PyObject *golden_input(const State *state, const Port *port, int i, const ptrdiff_t *dim)
{
    const Table *table = TABLE_OF(state);
    ptrdiff_t shape[MAX_RANK], count = 1;
    for (int d = 0; d < port->rank; d++) {
        shape[d] = port_extent(table, port, d, dim);
        count *= shape[d];
    }
    PyObject *object = array_new(state->array_type, port->dtype, port->rank, shape);
    const Array *array = object == NULL ? NULL : PY_BODY(object);
    for (ptrdiff_t n = 0; object != NULL && n < count; n++) {
        golden_number(port->dtype, golden_bits(i, n), array->data + n * DTYPES[port->dtype].size);
    }
#if HAS_ROWS
    for (ptrdiff_t n = 0; object != NULL && port->has_texts && n < count; n++) {
        const uint64_t z = golden_bits(i, n);
#if HAS_VECTORIZER
        const uint64_t number = (z >> 32) % 4 << 32 | (z & UINT32_MAX) % (uint64_t)port->texts_size;
#else
        const bool is_end = z >> 61 == 0 && n % shape[port->rank - 1] != 0;
        const uint64_t number = is_end ? UINT64_MAX : z % (uint64_t)port->texts_size;
#endif
        memcpy(array->data + n * 8, &number, sizeof number);
    }
#endif
#if HAS_INDICES
    for (int k = 0; object != NULL && k < port->range_count; k++) {
        golden_indices(table, port, i, &port->ranges[k], dim, array->data);
    }
#endif
    return object;
}

// Hold an output against its answers, from *at on; the largest error as a share of the bound, or -1 with an error.
SELDOM static double golden_error(const Table *table, const char *isa, const Entry *entry, const Port *port,
                                  PyObject *output, int *at)
{
    const double bound = table->answers[(*at)++];
    const bool is_number = entry->numbers && port->rank == 0;
    const Array *array = is_number ? NULL : PY_BODY(output);
    const ptrdiff_t size = is_number ? 1 : array_size(array), count = size < table->samples ? size : table->samples;
    double worst = 0;
    for (ptrdiff_t k = 0; k < count; k++) {
        const char *from = is_number ? NULL : array->data + k * size / count * DTYPES[port->dtype].size;
        const bool is_float = DTYPES[port->dtype].kind == 'f';
        const double found = is_number  ? PyFloat_AsDouble(output)
                             : is_float ? float_get(port->dtype, from)
                                        : (double)integer_get(port->dtype, from);
        const double expected = table->answers[(*at)++], error = found > expected ? found - expected : expected - found;
        if (!(error <= bound)) {
            char text[160];
            snprintf(text, sizeof text, "element %td: expected %.9g within %.2g, got %.9g", k * size / count, expected,
                     bound, found);
            PyErr_Format(PyExc_RuntimeError, "selftest: %s of %s on %s: %s", port->name, entry->name, isa, text);
            return -1;
        }
        const double share = bound > 0 ? error / bound : 0;
        worst = share > worst ? share : worst;
    }
    return worst;
}

// One call on one instruction set, by a model of its own.
SELDOM static double golden_call(State *state, int isa, int call)
{
    const Table *table = TABLE_OF(state);
    const Golden *golden = &table->golden[call];
    const Entry *entry = &table->entries[golden->entry];
    int at = golden->at, count = 0;
    PyObject *args[MAX_INPUTS] = {NULL}, *object = model_make(state, 0), *result = NULL;
    Model *model = object == NULL ? NULL : PY_BODY(object);
    double worst = -1;
    while (model != NULL && count < entry->inputs && !entry->ports[count].has_default) {
        args[count] = golden_input(state, &entry->ports[count], count, golden->dim);
        if (args[count] == NULL) {
            break;
        }
        count++;
    }
    if (model != NULL && (count == entry->inputs || entry->ports[count].has_default)) {
        model->kernels = table->isas[isa].kernels;
        result = call_entry(model, entry, args, count, NULL, false);
    }
    for (int k = 0; result != NULL && k < entry->outputs; k++) {
        const Port *port = &entry->ports[entry->inputs + k];
#if HAS_NAMED
        PyObject *output = entry->named         ? dict_get(result, port->name)
                           : entry->outputs > 1 ? PyTuple_GetItem(result, k)
                                                : result;
#else
        PyObject *output = entry->outputs > 1 ? PyTuple_GetItem(result, k) : result;
#endif
        const double error = golden_error(table, table->isas[isa].name, entry, port, output, &at);
        worst = error > worst || error < 0 ? error : worst;
        if (error < 0) {
            break;
        }
    }
    for (int i = 0; i < count; i++) {
        Py_DecRef(args[i]);
    }
    release(result);
    release(object);
    return worst;
}

SELDOM static PyObject *module_selftest(PyObject *module, PyObject *unused)
{
    (void)unused;
    State *state = PyModule_GetState(module);
    const Table *table = TABLE_OF(state);
#if HAS_WEIGHTS_FILE
    if (state->weights.buf != NULL && check_weights(table, &state->weights) < 0) {
        return NULL;
    }
#endif
    PyObject *found = PyDict_New();
    for (int isa = 0; found != NULL && isa <= state->isa; isa++) {
        if (!has_isa(&table->isas[isa])) {
            continue;
        }
        double worst = 0;
        for (int call = 0; call < table->golden_calls && worst >= 0; call++) {
            const double error = golden_call(state, isa, call);
            worst = error > worst || error < 0 ? error : worst;
        }
        PyObject *share = worst < 0 || table->golden_calls == 0 ? NULL : PyFloat_FromDouble(worst);
        const int status = share == NULL ? -1 : PyDict_SetItemString(found, table->isas[isa].name, share);
        release(share);
        if (status < 0 && table->golden_calls > 0) {
            release(found);
            return NULL;
        }
    }
    return found;
}
