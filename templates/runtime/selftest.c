// ------------------------------------------------------------------------------------------------------------ selftest
#pragma once

#include "runtime/model_type.c"

// A number that every machine makes alike, as mlaot/ir/ports.py does, and that is exact in its dtype.
static void golden_number(int dtype, const Draw *draw, uint64_t z, char *to)
{
    const int bits = dtype == F16 ? 11 : dtype == BF16 ? 8 : 24;
    if (DTYPES[dtype].kind == 'f') {
        float_set(dtype, to, draw->low + draw->width * ((double)(z >> (64 - bits)) / (double)(1 << bits)));
    } else {
        const bool is_first = draw->width > 64 && z >> 62 != 0;  // three quarters, as in pictures
        integer_set(dtype, to, (uint64_t)(int64_t)draw->low + (is_first ? 0 : z % (uint64_t)draw->width));
    }
}

// The number behind element n of input number i.
static uint64_t golden_bits(const Draw *draw, int i, ptrdiff_t n)
{
    const uint64_t seed = draw == NULL ? 0 : (uint64_t)draw->seed << 48;
    return split_mix(seed + ((uint64_t)i << 32) + (uint64_t)(n + 1) * GAMMA);
}

#if HAS_INDICES
// Indices in place of other numbers.
SELDOM static void golden_indices(const Table *table, const Port *port, const Draw *draw, int i,
                                  const IndexRange *range, const ptrdiff_t *dim, char *data)
{
    const int bits = 8 * (int)DTYPES[port->dtype].size - (DTYPES[port->dtype].kind == 'i');
    const uint64_t most = (uint64_t)1 << (DTYPES[port->dtype].kind == 'f' ? 8 : bits < 31 ? bits : 31);
    const uint64_t size = (uint64_t)extent_at(table, range->size, dim), count = size < most ? size : most;
    const Box box = box_of(table, port, range, dim);
    for (ptrdiff_t k = 0; k < box.size; k++) {
        const ptrdiff_t n = box_place(&box, k);
        float_set(port->dtype, data + n * DTYPES[port->dtype].size, (double)(golden_bits(draw, i, n) % count));
    }
}

#endif
// Input number i of a call, or NULL with an error.
SELDOM static PyObject *golden_input(const State *state, const Port *port, const Draw *draw, int i,
                                     const ptrdiff_t *dim)
{
    const Table *table = TABLE_OF(state);
    const ptrdiff_t width = (ptrdiff_t)DTYPES[port->dtype].size;
    ptrdiff_t shape[MAX_RANK], count = 1;
    for (int d = 0; d < port->rank; d++) {
        shape[d] = port_extent(table, port, d, dim);
        count *= shape[d];
    }
    PyObject *object = array_new(state->array_type, port->dtype, port->rank, shape);
    const Array *array = object == NULL ? NULL : PY_BODY(object);
    if (object != NULL && draw->content >= 0) {
        memcpy(array->data, table->contents + draw->content, (size_t)(count * width));
        return object;
    }
    for (ptrdiff_t n = 0; object != NULL && n < count; n++) {
        golden_number(port->dtype, draw, golden_bits(draw, i, n), array->data + n * width);
    }
#if HAS_ROWS
    for (ptrdiff_t n = 0; object != NULL && port->has_texts && n < count; n++) {
        const uint64_t z = golden_bits(draw, i, n);
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
        golden_indices(table, port, draw, i, &port->ranges[k], dim, array->data);
    }
#endif
    return object;
}

// The sum of every count-th element from number k on, with the signs of signed_sums in mlaot/ir/ports.py.
SELDOM static double golden_sum(const Port *port, const char *data, ptrdiff_t size, ptrdiff_t count, ptrdiff_t k)
{
    double sum = 0;
    uint64_t whole = 0;
    for (ptrdiff_t n = k; n < size; n += count) {
        const char *from = data + n * DTYPES[port->dtype].size;
        const bool is_minus = n >= count && (golden_bits(NULL, 0, n) & 1) != 0;
        if (DTYPES[port->dtype].kind == 'f') {
            sum += is_minus ? -float_get(port->dtype, from) : float_get(port->dtype, from);
        } else {
            whole += is_minus ? -(uint64_t)integer_get(port->dtype, from) : (uint64_t)integer_get(port->dtype, from);
        }
    }
    return DTYPES[port->dtype].kind == 'f' ? sum : (double)(int64_t)whole;
}

// Hold an output against its answers, from *at on; the largest error as a share of the bound, or -1 with an error.
SELDOM static double golden_error(const Table *table, const char *isa, const Entry *entry, const Port *port,
                                  PyObject *output, int *at)
{
    const double bound = table->answers[(*at)++];
    const bool is_number = entry->numbers && port->rank == 0;
    const Array *array = is_number ? NULL : PY_BODY(output);
    const ptrdiff_t size = is_number ? 1 : array_size(array), count = size < table->sums ? size : table->sums;
    double worst = 0;
    for (ptrdiff_t k = 0; k < count; k++) {
        const double found = is_number ? PyFloat_AsDouble(output) : golden_sum(port, array->data, size, count, k);
        const double expected = table->answers[(*at)++], error = found > expected ? found - expected : expected - found;
        if (!(error <= bound)) {
            char text[200];
            snprintf(text, sizeof text, "element %td%s: expected %.9g within %.2g, got %.9g",
                     k, size > count ? " and others, added up with signs" : "", expected, bound, found);
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
        const Draw *draw = &table->draws[golden->draw + count];
        args[count] = golden_input(state, &entry->ports[count], draw, count, golden->dim);
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
