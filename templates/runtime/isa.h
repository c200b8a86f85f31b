// The instruction sets that a module's kernels were compiled for, as its table lists them.
#pragma once

#include <stddef.h>

#include "runtime/cpuid.h"

typedef void Kernel(char *const *p, const ptrdiff_t *dim);

// `saved`: what the system must save, of the register XCR0.
typedef struct { const char *name; unsigned saved; Cpuid needs[CPUID_COUNT]; Kernel *const *kernels; } Isa;

__extension__ typedef __int128 int128;  // sizes are computed without overflow, then checked
