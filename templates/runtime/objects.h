// What every part of the runtime does with objects.
#pragma once

#include "mlaot_abi3.h"

static void release(PyObject *object)
{
    if (object != NULL) {
        Py_DecRef(object);
    }
}
