// The part of CPython's stable ABI that a compiled model uses: abi3 of 3.11 and up, or, with MLAOT_ABI3T, abi3t of 3.15
// and up, which is for interpreters without a GIL too.
//
// It stands in for Python.h, so that building needs no Python headers and cross-compiling needs no Python at all.
// Objects stay opaque but for their type: reference counts are reached through functions only. Numbers and struct
// layouts are fixed by the stable ABI.
#ifndef MLAOT_ABI3_H
#define MLAOT_ABI3_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define PY_DATA extern __declspec(dllimport)
#define PY_INIT __declspec(dllexport)
#else
#define PY_DATA extern
#define PY_INIT __attribute__((visibility("default")))
#endif

typedef ptrdiff_t Py_ssize_t;
typedef struct PyObject PyObject;
typedef struct PyTypeObject PyTypeObject;
typedef struct PyThreadState PyThreadState;

#if defined(MLAOT_ABI3T)
typedef struct {
    uint16_t slot, flags;
    uint32_t reserved;
    union { const void *data; void (*function)(void); Py_ssize_t size; };
} PySlot;
typedef struct { uint8_t major, minor; uint16_t flags; uint32_t built_with, abi; } PyABIInfo;

// How long the head of an object is depends on the interpreter. What is ours lies behind it, and is found by the type;
// nothing can follow it.
#define PY_TYPE(object) Py_TYPE(object)
#define PY_HEAD
#define PY_HEAD_IS_KNOWN 0
#define PY_VAR_HEAD
#define PY_BODY(object) PyObject_GetTypeData(object, Py_TYPE(object))
#define PY_BASIC_SIZE(body) -(int)sizeof(body)
#define PY_ITEM_SIZE 0
#define PY_OFFSET_FLAG 8  // Py_RELATIVE_OFFSET
#else
// What stands first in every object.
typedef struct { ptrdiff_t references; PyTypeObject *type; } PyHead;
#define PY_TYPE(object) (((const PyHead *)(const void *)(object))->type)
#define PY_HEAD PyHead head;
#define PY_HEAD_IS_KNOWN 1
#define PY_VAR_HEAD struct { PyHead object; Py_ssize_t size; } head;
#define PY_BODY(object) ((void *)(object))
#define PY_BASIC_SIZE(body) sizeof(body)
#define PY_ITEM_SIZE 1
#define PY_OFFSET_FLAG 0
#endif

typedef PyObject *(*PyCFunction)(PyObject *, PyObject *);
typedef PyObject *(*getter)(PyObject *, void *);
typedef int (*visitproc)(PyObject *, void *);

typedef struct { const char *name; PyCFunction function; int flags; const char *doc; } PyMethodDef;
typedef struct { const char *name; getter get; void *set; const char *doc; void *closure; } PyGetSetDef;
typedef struct { const char *name; int type; Py_ssize_t offset; int flags; const char *doc; } PyMemberDef;
typedef struct { int slot; void *value; } PyType_Slot;
typedef struct { const char *name; int basicsize, itemsize; unsigned flags; const PyType_Slot *slots; } PyType_Spec;
typedef struct { int slot; void *value; } PyModuleDef_Slot;
typedef struct {
    struct { ptrdiff_t references; void *type; PyObject *(*init)(void); Py_ssize_t index; PyObject *copy; } base;
    const char *name, *doc;
    Py_ssize_t state_bytes;
    const PyMethodDef *methods;
    const PyModuleDef_Slot *slots;
    int (*traverse)(PyObject *, visitproc, void *);
    int (*clear)(PyObject *);
    void (*free)(void *);
} PyModuleDef;
typedef struct {
    void *buf;
    PyObject *obj;
    Py_ssize_t len, itemsize;
    int readonly, ndim;
    char *format;
    Py_ssize_t *shape, *strides, *suboffsets;
    void *internal;
} Py_buffer;

enum {
    METH_VARARGS = 1, METH_KEYWORDS = 2, METH_NOARGS = 4, METH_O = 8, METH_CLASS = 16, METH_FASTCALL = 128,
    PyBUF_SIMPLE = 0, PyBUF_FORMAT = 0x4, PyBUF_ND = 0x8, PyBUF_STRIDES = 0x18,
    PyBUF_C_CONTIGUOUS = 0x38, PyBUF_F_CONTIGUOUS = 0x58, PyBUF_ANY_CONTIGUOUS = 0x98,
    Py_TPFLAGS_DISALLOW_INSTANTIATION = 1 << 7, Py_TPFLAGS_IMMUTABLETYPE = 1 << 8, Py_TPFLAGS_HAVE_GC = 1 << 14,
    Py_TPFLAGS_LONG_SUBCLASS = 1 << 24, Py_TPFLAGS_LIST_SUBCLASS = 1 << 25, Py_TPFLAGS_TUPLE_SUBCLASS = 1 << 26,
    Py_TPFLAGS_BYTES_SUBCLASS = 1 << 27, Py_TPFLAGS_UNICODE_SUBCLASS = 1 << 28, Py_TPFLAGS_DICT_SUBCLASS = 1 << 29,
    Py_bf_getbuffer = 1, Py_mp_ass_subscript = 3, Py_mp_length = 4, Py_mp_subscript = 5, Py_nb_bool = 9,
    Py_nb_float = 11, Py_nb_int = 26, Py_sq_item = 44, Py_sq_length = 45, Py_tp_dealloc = 52, Py_tp_doc = 56,
    Py_tp_iter = 62, Py_tp_iternext = 63, Py_tp_methods = 64, Py_tp_new = 65, Py_tp_repr = 66, Py_tp_traverse = 71, Py_tp_members = 72,
    Py_tp_getset = 73, Py_EQ = 2, PyBUF_READ = 0x100,
};
#if defined(MLAOT_ABI3T)
enum {
    Py_mod_exec = 85, Py_mod_multiple_interpreters = 86, Py_mod_gil = 87, Py_mod_name = 100, Py_mod_doc = 101,
    Py_mod_state_size = 102, Py_mod_methods = 103, Py_mod_state_traverse = 104, Py_mod_state_clear = 105,
    Py_mod_state_free = 106, Py_mod_abi = 109, PySlot_STATIC = 0x2,
    PyABIInfo_STABLE = 0x1, PyABIInfo_GIL = 0x2, PyABIInfo_FREETHREADED = 0x4,
};
#else
enum {
    Py_mod_exec = 2,
    Py_mod_multiple_interpreters = 3,  // 3.12 and up
};
#endif

PY_DATA const unsigned long Py_Version;
PY_DATA PyObject _Py_NoneStruct, _Py_EllipsisObject;
PY_DATA PyTypeObject PyBool_Type, PySlice_Type;
#define Py_None (&_Py_NoneStruct)
#define Py_Ellipsis (&_Py_EllipsisObject)
PY_DATA PyObject *PyExc_AttributeError, *PyExc_BufferError, *PyExc_Exception, *PyExc_FileNotFoundError,
    *PyExc_ImportError, *PyExc_IndexError, *PyExc_KeyError, *PyExc_MemoryError, *PyExc_OSError, *PyExc_OverflowError,
    *PyExc_RecursionError, *PyExc_RuntimeError, *PyExc_TypeError, *PyExc_ValueError;

void Py_IncRef(PyObject *), Py_DecRef(PyObject *);
int PyErr_CheckSignals(void), PyErr_ExceptionMatches(PyObject *);
void PyErr_Clear(void), PyErr_SetString(PyObject *, const char *), PyErr_SetObject(PyObject *, PyObject *);
void PyErr_Fetch(PyObject **, PyObject **, PyObject **), PyErr_Restore(PyObject *, PyObject *, PyObject *);
void PyErr_NormalizeException(PyObject **, PyObject **, PyObject **);
PyObject *PyErr_Format(PyObject *, const char *, ...), *PyErr_NoMemory(void), *PyErr_Occurred(void);

void *PyMem_Malloc(size_t), *PyMem_Calloc(size_t, size_t);
void PyMem_Free(void *);
PyObject *_PyObject_GC_New(PyTypeObject *), *_PyObject_GC_NewVar(PyTypeObject *, Py_ssize_t);
void PyObject_ClearWeakRefs(PyObject *);
void PyObject_GC_Track(void *), PyObject_GC_UnTrack(void *), PyObject_GC_Del(void *);
PyThreadState *PyEval_SaveThread(void);
void PyEval_RestoreThread(PyThreadState *);
void *PyThread_allocate_lock(void);
int PyThread_acquire_lock(void *, int);
void PyThread_release_lock(void *), PyThread_free_lock(void *);
unsigned long PyThread_start_new_thread(void (*)(void *), void *);

#if defined(MLAOT_ABI3T)
PyTypeObject *Py_TYPE(PyObject *);
void *PyObject_GetTypeData(PyObject *, PyTypeObject *);
#else
PyObject *PyModuleDef_Init(PyModuleDef *);
#endif
void *PyModule_GetState(PyObject *);
PyObject *PyModule_GetDict(PyObject *);
int PyModule_AddStringConstant(PyObject *, const char *, const char *);
int PyModule_AddType(PyObject *, PyTypeObject *), PyModule_AddObjectRef(PyObject *, const char *, PyObject *);
PyObject *PyType_FromModuleAndSpec(PyObject *, const PyType_Spec *, PyObject *), *PyType_GetName(PyTypeObject *);
unsigned long PyType_GetFlags(PyTypeObject *);
void *PyType_GetModuleState(PyTypeObject *);
PyObject *PyModule_GetFilenameObject(PyObject *), *PyModule_GetNameObject(PyObject *);
PyObject *PyImport_ImportModule(const char *), *PyImport_GetModule(PyObject *);

PyObject *PySys_GetObject(const char *);
void PySys_WriteStderr(const char *, ...);
PyObject *PyObject_CallMethod(PyObject *, const char *, const char *, ...);
PyObject *PyObject_CallFunction(PyObject *, const char *, ...), *PyObject_GetAttrString(PyObject *, const char *);
PyObject *PyObject_Call(PyObject *, PyObject *, PyObject *), *PyObject_GetItem(PyObject *, PyObject *);
int PyObject_IsInstance(PyObject *, PyObject *), PyObject_SetAttrString(PyObject *, const char *, PyObject *);
Py_ssize_t PyObject_Size(PyObject *);
PyObject *Py_BuildValue(const char *, ...);
int PyArg_ParseTuple(PyObject *, const char *, ...);
int PyCallable_Check(PyObject *);
int PyObject_CheckBuffer(PyObject *), PyObject_GetBuffer(PyObject *, Py_buffer *, int), PyObject_IsTrue(PyObject *);
int PyObject_RichCompareBool(PyObject *, PyObject *, int);
void PyBuffer_Release(Py_buffer *);
PyObject *PyMemoryView_FromMemory(char *, Py_ssize_t, int);
PyObject *PyBool_FromLong(long), *PyFloat_FromDouble(double);
PyObject *PyLong_FromLongLong(long long), *PyLong_FromSsize_t(Py_ssize_t);
PyObject *PyLong_FromUnsignedLongLong(unsigned long long);
double PyFloat_AsDouble(PyObject *), PyOS_string_to_double(const char *, char **, PyObject *);
char *PyOS_double_to_string(double, char, int, int, int *);
long long PyLong_AsLongLong(PyObject *);
unsigned long long PyLong_AsUnsignedLongLong(PyObject *);
PyObject *PyNumber_Index(PyObject *), *PyNumber_Long(PyObject *);
int PyIndex_Check(PyObject *);
int PySequence_Check(PyObject *), PyObject_HasAttrString(PyObject *, const char *);
int PySlice_Unpack(PyObject *, Py_ssize_t *, Py_ssize_t *, Py_ssize_t *);
Py_ssize_t PySlice_AdjustIndices(Py_ssize_t, Py_ssize_t *, Py_ssize_t *, Py_ssize_t);
Py_ssize_t PyNumber_AsSsize_t(PyObject *, PyObject *);
PyObject *PyUnicode_FromString(const char *), *PyUnicode_FromFormat(const char *, ...);
PyObject *PyUnicode_AsEncodedString(PyObject *, const char *, const char *);
PyObject *PyUnicode_AsUTF8String(PyObject *), *PyUnicode_DecodeUTF8(const char *, Py_ssize_t, const char *);
PyObject *PyUnicode_DecodeUTF8Stateful(const char *, Py_ssize_t, const char *, Py_ssize_t *);
int PyUnicode_CompareWithASCIIString(PyObject *, const char *);
PyObject *PyBytes_FromStringAndSize(const char *, Py_ssize_t);
char *PyBytes_AsString(PyObject *);
Py_ssize_t PyBytes_Size(PyObject *);
PyObject *PyTuple_New(Py_ssize_t), *PyTuple_GetItem(PyObject *, Py_ssize_t);
Py_ssize_t PyTuple_Size(PyObject *);
int PyTuple_SetItem(PyObject *, Py_ssize_t, PyObject *), PyList_SetItem(PyObject *, Py_ssize_t, PyObject *);
int PyList_Append(PyObject *, PyObject *);
PyObject *PyList_New(Py_ssize_t), *PySequence_GetItem(PyObject *, Py_ssize_t), *PySeqIter_New(PyObject *);
PyObject *PyList_GetItem(PyObject *, Py_ssize_t);
PyObject *PyObject_SelfIter(PyObject *);
Py_ssize_t PySequence_Size(PyObject *);
PyObject *PyDict_New(void), *PyDict_GetItemWithError(PyObject *, PyObject *), *PyDictProxy_New(PyObject *);
int PyDict_Next(PyObject *, Py_ssize_t *, PyObject **, PyObject **);
int PyDict_SetItemString(PyObject *, const char *, PyObject *);
Py_ssize_t PyDict_Size(PyObject *), PyList_Size(PyObject *);
int PyDict_SetItem(PyObject *, PyObject *, PyObject *);
PyObject *PyDict_Keys(PyObject *), *PyDict_Values(PyObject *);

PyObject *PyCapsule_New(void *, const char *, void (*)(PyObject *));
int PyCapsule_IsValid(PyObject *, const char *), PyGILState_Ensure(void);
void *PyCapsule_GetPointer(PyObject *, const char *);
void PyGILState_Release(int);

#endif
