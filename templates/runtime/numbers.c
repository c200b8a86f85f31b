// ------------------------------------------------------------------------------------------------------------ numbers
#pragma once

#include "runtime/shapes.c"

// What SplitMix64 makes of its state (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014),
// which takes steps of GAMMA.
#define GAMMA 0x9e3779b97f4a7c15u
static uint64_t split_mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

// The two floating-point formats of 16 bits: how many of them are the exponent's.
static int exponent_bits(int dtype)
{
    return dtype == F16 ? 5 : 8;
}

static double half_get(int dtype, uint16_t half)
{
    const int fraction_bits = 15 - exponent_bits(dtype), bias = (1 << (exponent_bits(dtype) - 1)) - 1;
    const uint64_t sign = (uint64_t)(half >> 15) << 63, fraction = half & ((1u << fraction_bits) - 1);
    const int exponent = (half & 0x7fff) >> fraction_bits;
    uint64_t bits = sign | fraction << (52 - fraction_bits);
    double value, least;
    if (exponent == 2 * bias + 1) {  // infinity or nan
        bits |= (uint64_t)2047 << 52;
    } else if (exponent > 0) {
        bits |= (uint64_t)(exponent - bias + 1023) << 52;
    } else {  // a multiple of the least number
        const uint64_t least_bits = (uint64_t)(1 - bias - fraction_bits + 1023) << 52;
        memcpy(&least, &least_bits, 8);
        return sign != 0 ? -(double)fraction * least : (double)fraction * least;
    }
    memcpy(&value, &bits, 8);
    return value;
}

// Round to the nearest, halves to even.
static uint16_t half_set(int dtype, double value)
{
    const int fraction_bits = 15 - exponent_bits(dtype), bias = (1 << (exponent_bits(dtype) - 1)) - 1;
    uint64_t bits;
    memcpy(&bits, &value, 8);
    const uint64_t sign = bits >> 63 << 15, infinity = (uint64_t)(2 * bias + 1) << fraction_bits;
    uint64_t fraction = bits & (((uint64_t)1 << 52) - 1);
    int exponent = (int)(bits >> 52 & 2047) - 1023 + bias, drop = 52 - fraction_bits;
    if (value != value) {
        return (uint16_t)(sign | infinity | (uint64_t)1 << (fraction_bits - 1));
    }
    if (exponent > 2 * bias) {
        return (uint16_t)(sign | infinity);
    }
    if (exponent <= 0) {  // fewer digits, down to none
        fraction |= (uint64_t)1 << 52;
        drop += 1 - exponent < 60 - drop ? 1 - exponent : 60 - drop;
        exponent = 0;
    }
    const uint64_t kept = fraction >> drop, rest = fraction - (kept << drop), tie = (uint64_t)1 << (drop - 1);
    const uint64_t up = rest > tie || (rest == tie && (kept & 1) != 0);
    return (uint16_t)(sign | (((uint64_t)exponent << fraction_bits) + kept + up));
}

static double float_get(int dtype, const char *from)
{
    uint16_t half;
    float f32;
    double f64;
    if (dtype == F64) {
        memcpy(&f64, from, 8);
        return f64;
    }
    if (dtype == F32) {
        memcpy(&f32, from, 4);
        return (double)f32;
    }
    memcpy(&half, from, 2);
    return half_get(dtype, half);
}

// An integer's bits; of uint64 the sign is wrong from 2 ** 63 on.
static int64_t integer_get(int dtype, const char *from)
{
    const bool is_signed = DTYPES[dtype].kind == 'i';
    uint16_t u16;
    uint32_t u32;
    int64_t i64;
    switch (DTYPES[dtype].size) {
    case 1:
        return is_signed ? (int64_t)(signed char)*from : (int64_t)(unsigned char)*from;
    case 2:
        memcpy(&u16, from, 2);
        return is_signed ? (int64_t)(int16_t)u16 : (int64_t)u16;
    case 4:
        memcpy(&u32, from, 4);
        return is_signed ? (int64_t)(int32_t)u32 : (int64_t)u32;
    default:
        memcpy(&i64, from, 8);
        return i64;
    }
}

static PyObject *element_get(int dtype, const char *from)
{
    switch (DTYPES[dtype].kind) {
    case 'f':
        return PyFloat_FromDouble(float_get(dtype, from));
    case 'i':
        return PyLong_FromLongLong(integer_get(dtype, from));
    case 'u':
        return PyLong_FromUnsignedLongLong((unsigned long long)integer_get(dtype, from));
    default:
        return PyBool_FromLong(*from != 0);
    }
}

static void integer_set(int dtype, char *to, uint64_t value)
{
    const uint16_t u16 = (uint16_t)value;
    const uint32_t u32 = (uint32_t)value;
    switch (DTYPES[dtype].size) {
    case 1:
        *to = (char)(unsigned char)value;
        break;
    case 2:
        memcpy(to, &u16, 2);
        break;
    case 4:
        memcpy(to, &u32, 4);
        break;
    default:
        memcpy(to, &value, 8);
    }
}

static void float_set(int dtype, char *to, double value)
{
    const float f32 = (float)value;
    if (DTYPES[dtype].kind != 'f') {
        integer_set(dtype, to, (uint64_t)(int64_t)value);
    } else if (dtype == F64) {
        memcpy(to, &value, 8);
    } else if (dtype == F32) {
        memcpy(to, &f32, 4);
    } else {
        integer_set(dtype, to, half_set(dtype, value));
    }
}

SELDOM static int refuse_number(const char *where, const char *name, int dtype, PyObject *number)
{
    PyErr_Format(PyExc_ValueError, "%s: %s: expected %s, got %S", where, name, DTYPES[dtype].name, number);
    return -1;
}

static int float_from_python(const char *where, const char *name, int dtype, char *to, PyObject *number)
{
    const double value = PyFloat_AsDouble(number);
    if (value == -1.0 && PyErr_Occurred() != NULL) {
        if (PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Clear();
            return refuse_type(where, name, DTYPES[dtype].name, number);
        }
        if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
            PyErr_Clear();
            PyErr_Format(PyExc_ValueError, "%s: %s: integer too large for %s", where, name, DTYPES[dtype].name);
        }
        return -1;
    }
    float_set(dtype, to, value);
    const bool overflows = !__builtin_isinf(value) && __builtin_isinf(float_get(dtype, to));
    return overflows ? refuse_number(where, name, dtype, number) : 0;
}

// Does an integer of 64 bits, signed or not, fit into a dtype?
static bool integer_fits(int dtype, bool is_unsigned, uint64_t bits)
{
    const int width = 8 * (int)DTYPES[dtype].size;
    if (is_unsigned) {
        return width == 64 || bits >> width == 0;
    }
    const int64_t value = (int64_t)bits, limit = (int64_t)1 << (width < 64 ? width - 1 : 0);
    return width == 64 || (value >= -limit && value < limit);
}

// Convert a number, but no fraction to an integer; false where it would become infinite or not fit.
static bool number_convert(int dtype, char *to, int from_dtype, const char *from)
{
    const bool is_float = DTYPES[from_dtype].kind == 'f', is_unsigned = DTYPES[from_dtype].kind == 'u';
    const int64_t integer = is_float ? 0 : integer_get(from_dtype, from);
    if (DTYPES[dtype].kind != 'f') {
        integer_set(dtype, to, (uint64_t)integer);
        return (!is_unsigned || integer >= 0) && integer_fits(dtype, false, (uint64_t)integer);
    }
    const double value = is_float      ? float_get(from_dtype, from)
                         : is_unsigned ? (double)(uint64_t)integer
                                       : (double)integer;
    float_set(dtype, to, value);
    return __builtin_isinf(value) || !__builtin_isinf(float_get(dtype, to));
}

static int integer_from_python(const char *where, const char *name, int dtype, char *to, PyObject *number)
{
    PyObject *integer = PyIndex_Check(number) ? PyNumber_Index(number) : NULL;
    if (integer == NULL) {
        return PyErr_Occurred() != NULL ? -1 : refuse_type(where, name, DTYPES[dtype].name, number);
    }
    const bool is_unsigned = DTYPES[dtype].kind == 'u';
    const uint64_t bits = is_unsigned ? PyLong_AsUnsignedLongLong(integer) : (uint64_t)PyLong_AsLongLong(integer);
    Py_DecRef(integer);
    if (bits == UINT64_MAX && PyErr_Occurred() != NULL) {
        PyErr_Clear();
        return refuse_number(where, name, dtype, number);
    }
    if (!integer_fits(dtype, is_unsigned, bits)) {
        return refuse_number(where, name, dtype, number);
    }
    integer_set(dtype, to, bits);
    return 0;
}

static int element_set(const char *where, const char *name, int dtype, char *to, PyObject *number)
{
    if (DTYPES[dtype].kind == 'f') {
        return float_from_python(where, name, dtype, to, number);
    }
    if (DTYPES[dtype].kind != 'b') {
        return integer_from_python(where, name, dtype, to, number);
    }
    if ((void *)PY_TYPE(number) != (void *)&PyBool_Type) {
        return refuse_type(where, name, DTYPES[dtype].name, number);
    }
    *to = (char)PyObject_IsTrue(number);
    return 0;
}
