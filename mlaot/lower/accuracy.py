"""The largest errors of the vector functions, in units of the last place: measured by ``python -m tests.lower.ulp``."""

ULP: dict[str, dict[str, float]] = {}

for n in ('exp', 'exp2', 'expm1', 'log', 'log2', 'log10', 'log1p', 'sin', 'cos', 'tan', 'asin', 'acos', 'atan', 'sinh', 'cosh', 'tanh', 'asinh', 'acosh', 'atanh', 'sigmoid', 'erf', 'erfc', 'erfinv', 'sqrt', 'pow', 'atan2', 'hypot'): ULP[n]={'f32':2.0,'f64':2.0}
