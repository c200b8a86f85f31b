// The true values of ulp.py, and how far values are from them: of float in double (the C library's vector functions,
// within 4 units of the last place), of double in 128 bits.

#include <float.h>
// The C library declares its vector functions only to those who ask for fast mathematics.
#define __FAST_MATH__ 1
#include <math.h>
#undef __FAST_MATH__
#include <stddef.h>
#include <stdint.h>
// Numbers of 128 bits, and how the names of their functions end.
#if LDBL_MANT_DIG == 113
typedef long double quad;
#define Q(name) name##l
#else
#include <quadmath.h>
typedef __float128 quad;
#define Q(name) name##q
#endif

static inline double sigmoid(double x)
{
    const double e = exp(-fabs(x));
    return (x < 0 ? e : 1) / (1 + e);
}

static inline quad Q(sigmoid)(quad x)
{
    return 1 / (1 + Q(exp)(-x));
}

static inline double softplus(double x)
{
    return fmax(x, 0) + log1p(exp(-fabs(x)));
}

static inline quad Q(softplus)(quad x)
{
    return Q(fmax)(x, 0) + Q(log1p)(Q(exp)(-Q(fabs)(x)));
}

// Halley's steps on erf(y) = x, from Winitzki's approximation (2008).
static inline double erfinv(double x)
{
    const double a = fabs(x);
    const double w = log((1 - a) * (1 + a)), h = 4.33 + w / 2;
    double y = a > 1e-3 ? sqrt(sqrt(h * h - w / 0.147) - h) : a;
    for (int i = 0; i < 3; i++) {
        const double distance = a < 0.5 ? erf(y) - a : (1 - a) - erfc(y);
        const double step = distance / M_2_SQRTPI * exp(y * y);
        y -= step / (1 + y * step);
    }
    return a == 1 ? copysign(INFINITY, x) : copysign(y, x);
}

static inline quad Q(erfinv)(quad x)
{
    const quad a = Q(fabs)(x);
    quad y = erfinv((double)a);
    for (int i = 0; i < 2; i++) {
        const quad distance = a < 0.5 ? Q(erf)(y) - a : (1 - a) - Q(erfc)(y);
        const quad step = distance * (Q(sqrt)(Q(acos)(-1)) / 2) * Q(exp)(y * y);
        y -= step / (1 + y * step);
    }
    return a == 1 ? Q(copysign)((quad)INFINITY, x) : Q(copysign)(y, x);
}

#define UNARY(name)                                                           \
    void name##_f32(ptrdiff_t n, const float *x, const float *y, double *out) \
    {                                                                         \
        (void)y;                                                              \
        _Pragma("omp simd") for (ptrdiff_t i = 0; i < n; i++)                 \
        {                                                                     \
            out[i] = name((double)x[i]);                                      \
        }                                                                     \
    }                                                                         \
    void name##_f64(ptrdiff_t n, const double *x, const double *y, quad *out) \
    {                                                                         \
        (void)y;                                                              \
        for (ptrdiff_t i = 0; i < n; i++) {                                   \
            out[i] = Q(name)((quad)x[i]);                                     \
        }                                                                     \
    }

#define BINARY(name)                                                          \
    void name##_f32(ptrdiff_t n, const float *x, const float *y, double *out) \
    {                                                                         \
        for (ptrdiff_t i = 0; i < n; i++) {                                   \
            out[i] = name((double)x[i], (double)y[i]);                        \
        }                                                                     \
    }                                                                         \
    void name##_f64(ptrdiff_t n, const double *x, const double *y, quad *out) \
    {                                                                         \
        for (ptrdiff_t i = 0; i < n; i++) {                                   \
            out[i] = Q(name)((quad)x[i], (quad)y[i]);                         \
        }                                                                     \
    }

UNARY(exp)
UNARY(exp2)
UNARY(expm1)
UNARY(log)
UNARY(log2)
UNARY(log10)
UNARY(log1p)
UNARY(sin)
UNARY(cos)
UNARY(tan)
UNARY(asin)
UNARY(acos)
UNARY(atan)
UNARY(sinh)
UNARY(cosh)
UNARY(tanh)
UNARY(asinh)
UNARY(acosh)
UNARY(atanh)
UNARY(sigmoid)
UNARY(softplus)
UNARY(erf)
UNARY(erfc)
UNARY(erfinv)
UNARY(sqrt)
BINARY(pow)
BINARY(atan2)
BINARY(hypot)

static inline double clamp(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

// The distance in units of the last place of float; an overflow counts as the power of two above all numbers.
static inline double distance_f32(float got, double want)
{
    union {
        double number;
        uint64_t bits;
    } unit = {.number = clamp(fabs(want), FLT_MIN, FLT_MAX)};
    unit.bits = (2046 + 23 - (unit.bits >> 52)) << 52;
    const double a = clamp(got, -0x1p128, 0x1p128), b = clamp(want, -0x1p128, 0x1p128);
    const double error = fabs(a - b) * unit.number;
    const double unlike = (got != got) == (want != want) ? 0 : INFINITY;
    return error == error ? error : unlike;
}

static inline double distance_f64(double got, quad want)
{
    int exponent;
    Q(frexp)(Q(fmin)(Q(fmax)(Q(fabs)(want), DBL_MIN), DBL_MAX), &exponent);
    const quad top = (quad)0x1p1023 * 2, a = isinf(got) ? Q(copysign)(top, got) : (quad)got;
    const double error = (double)Q(scalbn)(Q(fabs)(a - Q(fmin)(Q(fmax)(want, -top), top)), 53 - exponent);
    const double nan = (got != got) == (want != want) ? 0 : INFINITY;
    return got != got || want != want ? nan : error;
}

// The largest distance, and where it is, if it is more than the one to beat.
double farthest_f32(ptrdiff_t n, const float *got, const double *want, double beat, ptrdiff_t *at)
{
    double largest = 0;
    _Pragma("omp simd reduction(max : largest)") for (ptrdiff_t i = 0; i < n; i++)
    {
        const double distance = distance_f32(got[i], want[i]);
        largest = distance > largest ? distance : largest;
    }
    for (*at = 0; largest > beat && distance_f32(got[*at], want[*at]) != largest; ++*at) {
    }
    return largest;
}

double farthest_f64(ptrdiff_t n, const double *got, const quad *want, double beat, ptrdiff_t *at)
{
    double largest = beat;
    *at = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        const double distance = distance_f64(got[i], want[i]);
        if (distance > largest) {
            largest = distance;
            *at = i;
        }
    }
    return largest;
}
