// Which of a module's instruction sets this CPU has.
#pragma once

#include <string.h>

#include "runtime/cpuid.c"
#include "runtime/isa.h"

static bool has_isa(const Isa *isa)
{
    return cpu_has(isa->needs, sizeof isa->needs / sizeof *isa->needs, isa->saved);
}

// The best instruction set of this CPU, or the one of that name; -1 where it has no such one.
static int find_isa(const Isa *isas, int count, const char *name)
{
    for (int k = count - 1; k >= 0; k--) {
        if ((name == NULL || strcmp(name, isas[k].name) == 0) && has_isa(&isas[k])) {
            return k;
        }
    }
    return -1;
}
