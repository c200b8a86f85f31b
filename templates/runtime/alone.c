#pragma once

#include <string.h>

#include "runtime/share.h"

void SHARE(void *threads, Task *task, char *const *p, const ptrdiff_t *dim, ptrdiff_t extent,
                        ptrdiff_t step, ptrdiff_t work)
{
    (void)threads, (void)step, (void)work;
    task(p, dim, 0, extent);
}

void SHARE_APART(void *threads, Task *task, char *const *p, const ptrdiff_t *dim, ptrdiff_t extent,
                              ptrdiff_t work, int own, ptrdiff_t at, ptrdiff_t bytes)
{
    char *mine[POINTERS];
    (void)threads, (void)work, (void)bytes;
    memcpy(mine, p, (size_t)own * sizeof *p);
    mine[own] = p[own - 2] + at;
    task(mine, dim, 0, extent);
}
