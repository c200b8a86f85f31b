// What this CPU has, by the instruction CPUID.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "runtime/cpuid.h"

// Whether this CPU has all that is needed, and the system saves the registers for it.
static bool cpu_has(const Cpuid *needs, int count, unsigned saved)
{
#if defined(__x86_64__)
    unsigned r[4], last;
    __asm__("cpuid" : "=a"(last), "=b"(r[1]), "=c"(r[2]), "=d"(r[3]) : "a"(0), "c"(0));
    for (int k = 0; k < count && needs[k].bits != 0; k++) {
        if (needs[k].leaf > last) {
            return false;
        }
        __asm__("cpuid" : "=a"(r[0]), "=b"(r[1]), "=c"(r[2]), "=d"(r[3]) : "a"(needs[k].leaf), "c"(needs[k].subleaf));
        if ((r[needs[k].index] & needs[k].bits) != needs[k].bits) {
            return false;
        }
    }
    if (saved != 0) {  // what CPUID said allows to ask
        unsigned low, high;
        __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        return (low & saved) == saved;
    }
#endif
    (void)needs, (void)count;
    return saved == 0;
}
