// What this machine can do at best, as a Python module: multiply-adds, reads, and a call with an array in and one out.
#include "mlaot_abi3.h"

#if defined(__AVX512F__)
enum { BYTES = 64 };
#elif defined(__AVX__)
enum { BYTES = 32 };
#else
enum { BYTES = 16 };
#endif
typedef float Vector __attribute__((vector_size(BYTES)));
enum { LANES = BYTES / 4, ACCUMULATORS = 12 };  // enough to hide a latency of 4 cycles at two a cycle

#define EACH(F) F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11)

// multiply_add(rounds): how many floating-point operations it did
static PyObject *multiply_add(PyObject *self, PyObject *argument) {
    (void)self;
    long long rounds = PyLong_AsLongLong(argument);
    Vector factor = (Vector){0} + 0.999f, term = (Vector){0} + 0.001f;
#define START(i) Vector s##i = (Vector){0} + i * 0.1f;
    EACH(START)
    for (long long round = 0; round < rounds; round++) {
#define STEP(i) s##i = s##i * factor + term;
        EACH(STEP)
    }
    Vector sum = (Vector){0};
#define ADD(i) sum += s##i;
    EACH(ADD)
    volatile float keep = sum[0];
    (void)keep;
    return PyFloat_FromDouble(2.0 * LANES * ACCUMULATORS * (double)rounds);
}

// read(buffer): reads a buffer, a multiple of 8 vectors, over and over; how many bytes it read in all
static PyObject *read(PyObject *self, PyObject *argument) {
    (void)self;
    Py_buffer view;
    if (PyObject_GetBuffer(argument, &view, PyBUF_C_CONTIGUOUS)) return NULL;
    const char *end = (const char *)view.buf + view.len;
    Vector s0 = {0}, s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0;
    double bytes = 0;
    for (; bytes < 1 << 24; bytes += (double)view.len) {
        for (const char *at = view.buf; at < end; at += 8 * BYTES) {
            const Vector *v = (const Vector *)at;
            s0 += v[0], s1 += v[1], s2 += v[2], s3 += v[3], s4 += v[4], s5 += v[5], s6 += v[6], s7 += v[7];
        }
    }
    volatile float keep = (s0 + s1 + s2 + s3 + s4 + s5 + s6 + s7)[0];
    (void)keep;
    PyBuffer_Release(&view);
    return PyFloat_FromDouble(bytes);
}

// call(buffer): a new object of 40 bytes, and nothing computed
static PyObject *call(PyObject *self, PyObject *argument) {
    (void)self;
    Py_buffer view;
    if (PyObject_GetBuffer(argument, &view, PyBUF_C_CONTIGUOUS)) return NULL;
    PyBuffer_Release(&view);
    return PyBytes_FromStringAndSize(NULL, 40);
}

static const PyMethodDef methods[] = {
    {"multiply_add", multiply_add, METH_O, 0}, {"read", read, METH_O, 0}, {"call", call, METH_O, 0}, {0}};
static const PyModuleDef_Slot slots[] = {{0}};
static PyModuleDef definition = {.base.references = 1, .name = "limits", .methods = methods, .slots = slots};

PY_INIT PyObject *PyInit_limits(void) {
    return PyModuleDef_Init(&definition);
}
