// ------------------------------------------------------------------------------------------------------- weights file
#pragma once

#include "runtime/array.c"
#if HAS_WEIGHTS_FILE && !defined(_WIN32)
#include <sys/mman.h>
#endif

#if HAS_WEIGHTS_FILE
enum { DIGEST_BYTES = 64 };  // how the file begins: the SHA-256 of what follows, in hexadecimal

// The name of the file, which lies beside the module's own.
static PyObject *weights_path(const Table *table, PyObject *module)
{
    PyObject *os_path = PyImport_ImportModule("os.path");
    PyObject *own = os_path == NULL ? NULL : PyModule_GetFilenameObject(module);
    PyObject *folder = own == NULL ? NULL : PyObject_CallMethod(os_path, "dirname", "(O)", own);
    PyObject *path = folder == NULL ? NULL : PyObject_CallMethod(os_path, "join", "Os", folder,
                                                               table->weights_file);
    release(os_path);
    release(own);
    release(folder);
    return path;
}

// A file as Python's mmap object: read-only, and one copy in memory for all processes.
static PyObject *map_file(PyObject *path)
{
    PyObject *io = PyImport_ImportModule("io"), *mmap = io == NULL ? NULL : PyImport_ImportModule("mmap");
    PyObject *file = mmap == NULL ? NULL : PyObject_CallMethod(io, "open", "Os", path, "rb");
    PyObject *number = file == NULL ? NULL : PyObject_CallMethod(file, "fileno", NULL);
#if defined(_WIN32)
    const int access_read = 1;  // mmap.ACCESS_READ; before it a name, of which there is none
    PyObject *map = number == NULL ? NULL : PyObject_CallMethod(mmap, "mmap", "Oizi", number, 0, NULL, access_read);
#else
    PyObject *map = number == NULL ? NULL : PyObject_CallMethod(mmap, "mmap", "Oiii", number, 0, MAP_SHARED, PROT_READ);
#endif
    PyObject *closed = map == NULL ? NULL : PyObject_CallMethod(file, "close", NULL);
    if (closed == NULL) {
        release(map);
        map = NULL;
    }
    release(io);
    release(mmap);
    release(file);
    release(number);
    release(closed);
    return map;
}

// ImportError in the place of what went wrong with the file.
SELDOM static void refuse_weights(const Table *table)
{
    PyObject *type, *value, *traceback;
    if (!PyErr_ExceptionMatches(PyExc_OSError) && !PyErr_ExceptionMatches(PyExc_ValueError)) {
        return;
    }
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    PyErr_Format(PyExc_ImportError, "%s: cannot read %s beside it: %S; install the package again", table->name,
                 table->weights_file, value);
    release(type);
    release(value);
    release(traceback);
}

// Map the file into memory. Only its size and its digest are looked at: selftest() checks that the digest is right.
static int map_weights(const Table *table, PyObject *module, Py_buffer *view)
{
    PyObject *path = weights_path(table, module), *map = path == NULL ? NULL : map_file(path);
    if (map == NULL || PyObject_GetBuffer(map, view, PyBUF_SIMPLE) < 0) {
        refuse_weights(table);
    } else if (view->len != DIGEST_BYTES + table->weights_bytes) {
        PyErr_Format(PyExc_ImportError, "%s: expected %U to have %zd bytes, got %zd; install the package again",
                     table->name, path, DIGEST_BYTES + table->weights_bytes, view->len);
    } else if (memcmp(view->buf, table->weights_digest, DIGEST_BYTES) != 0) {
        PyErr_Format(PyExc_ImportError, "%s: %U is of another build of it; install the package again", table->name,
                     path);
    }
    release(path);
    release(map);
    return PyErr_Occurred() != NULL ? -1 : 0;
}

// Compute the digest of the weights anew.
static int check_weights(const Table *table, const Py_buffer *view)
{
    PyObject *hashlib = PyImport_ImportModule("hashlib");
    PyObject *content = hashlib == NULL ? NULL : PyMemoryView_FromMemory((char *)view->buf + DIGEST_BYTES,
                                                                         table->weights_bytes, PyBUF_READ);
    PyObject *hash = content == NULL ? NULL : PyObject_CallMethod(hashlib, "sha256", "(O)", content);
    PyObject *digest = hash == NULL ? NULL : PyObject_CallMethod(hash, "hexdigest", NULL);
    if (digest != NULL && PyUnicode_CompareWithASCIIString(digest, table->weights_digest) != 0) {
        PyErr_Format(PyExc_RuntimeError, "selftest: %s is damaged: expected SHA-256 %s, got %U", table->weights_file,
                     table->weights_digest, digest);
    }
    release(hashlib);
    release(content);
    release(hash);
    release(digest);
    return PyErr_Occurred() != NULL ? -1 : 0;
}
#endif
