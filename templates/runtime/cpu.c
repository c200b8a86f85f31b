// Which of the module's instruction sets this CPU has.
#pragma once

#include <string.h>

#include "runtime/isa.h"

enum { ISA_COUNT = sizeof ISAS / sizeof *ISAS };

static bool has_isa(int k)
{
    return cpu_has(ISAS[k].needs, sizeof ISAS[k].needs / sizeof *ISAS[k].needs, ISAS[k].saved);
}

// The best instruction set of this CPU, or the one of that name; -1 where it has no such one.
static int find_isa(const char *name)
{
    for (int k = ISA_COUNT - 1; k >= 0; k--) {
        if ((name == NULL || strcmp(name, ISAS[k].name) == 0) && has_isa(k)) {
            return k;
        }
    }
    return -1;
}
