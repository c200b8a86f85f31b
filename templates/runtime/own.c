// --------------------------------------------------------------------------------------------------------------- own
// A module whose runtime is in it.
#pragma once

#include "runtime/module.c"

#define RUNTIME(name) name

enum { STATE_SIZE = sizeof(State) };

static int find_runtime(void)
{
    return 0;
}
