// --------------------------------------------------------------------------------------------------------- Array type
#pragma once

#include "runtime/dlpack.c"

static const PyMethodDef ARRAY_METHODS[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))array_dlpack, METH_FASTCALL | METH_KEYWORDS,
     "__dlpack__($self, /, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\n"
     "A DLPack capsule of this memory."},
    {"__dlpack_device__", array_device, METH_NOARGS, "__dlpack_device__($self, /)\n--\n\nThe CPU."},
    {"tolist", array_tolist, METH_NOARGS, "tolist($self, /)\n--\n\nThe numbers as nested lists."},
    {"item", array_one, METH_NOARGS, "item($self, /)\n--\n\nThe one number of an Array of size 1."},
    {"__reduce__", array_reduce, METH_NOARGS, "__reduce__($self, /)\n--\n\nFor pickle and copy: the numbers, copied."},
    {"_restore", array_restore, METH_VARARGS | METH_CLASS, "The Array that __reduce__ took apart."},
    {NULL, NULL, 0, NULL},
};

static const PyGetSetDef ARRAY_ATTRIBUTES[] = {
    {"shape", array_shape, NULL, "The extents, a tuple.", NULL},
    {"dtype", array_dtype, NULL, "The kind of number, such as 'float32'.", NULL},
    {"ndim", array_ndim, NULL, "How many dimensions.", NULL},
    {"size", array_size_object, NULL, "How many numbers.", NULL},
    {"nbytes", array_nbytes, NULL, "The bytes of the numbers.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static const PyType_Slot ARRAY_SLOTS[] = {
    {Py_tp_doc, "Numbers in memory: any buffer consumer (memoryview, NumPy) sees them without a copy."},
    {Py_tp_dealloc, (void *)array_dealloc},
    {Py_tp_traverse, (void *)array_traverse},
    {Py_tp_repr, (void *)array_repr},
    {Py_tp_iter, (void *)array_iter},
    {Py_tp_methods, (void *)ARRAY_METHODS},
    {Py_tp_getset, (void *)ARRAY_ATTRIBUTES},
    {Py_bf_getbuffer, (void *)array_getbuffer},
    {Py_sq_item, (void *)array_item},
    {Py_sq_length, (void *)array_length},
    {Py_mp_length, (void *)array_length},
    {Py_mp_subscript, (void *)array_getitem},
    {Py_mp_ass_subscript, (void *)array_setitem},
    {Py_nb_bool, (void *)array_bool},
    {Py_nb_float, (void *)array_float},
    {Py_nb_int, (void *)array_int},
    {0, NULL},
};
