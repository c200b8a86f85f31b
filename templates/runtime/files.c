// -------------------------------------------------------------------------------------------------------------- files
#pragma once

#include <errno.h>
#include <fcntl.h>

#include "runtime/parameters.c"

#if HAS_STATE
#if !defined(O_BINARY)
#define O_BINARY 0  // a flag of Windows
#endif

// Call a method and let its result go.
static int call_and_drop(PyObject *object, const char *method, PyObject *argument)
{
    PyObject *result = argument != NULL ? PyObject_CallMethod(object, method, "(O)", argument)
                                        : PyObject_CallMethod(object, method, NULL);
    release(result);
    return result == NULL ? -1 : 0;
}

static ptrdiff_t slot_bytes(const Slot *slot)
{
    ptrdiff_t bytes = 0;
    return dense_bytes(slot->dtype, slot->rank, slot->shape, &bytes) ? bytes : 0;
}

// The state but for the gradients as a safetensors file in memory; of all slots, or of those that belong into files.
SELDOM static PyObject *pack_tensors(Model *self, bool all)
{
    const Table *table = TABLE_OF(self);
    const int count = all ? table->slot_count : table->file_slots;
    const ptrdiff_t head = all ? table->tensors_bytes : table->file_tensors_bytes;
    ptrdiff_t total = 8 + head;
    for (int k = 0; k < count; k++) {
        total += slot_bytes(&table->slots[k]);
    }
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, total);
    if (bytes == NULL) {
        return NULL;
    }
    char *to = PyBytes_AsString(bytes);
    for (int b = 0; b < 8; b++) {
        to[b] = (char)((uint64_t)head >> (8 * b) & 255);
    }
    memcpy(to + 8, all ? table->tensors : table->file_tensors, (size_t)head);
    to += 8 + head;
    lock_state(self);
    for (int k = 0; k < count; k++) {
        const Slot *slot = &table->slots[k];
        ptrdiff_t strides[MAX_RANK];
        dense_strides(slot->dtype, slot->rank, slot->shape, strides);
        if (slot_bytes(slot) > 0) {
            copy_strided(slot->dtype, slot->rank, slot->shape, to, strides, self->state + slot->offset, slot->strides);
        }
        to += slot_bytes(slot);
    }
    unlock_state(self);
    return bytes;
}

// Make an error of the operating system name the file that the caller asked for, not the temporary one.
SELDOM static void blame(PyObject *path)
{
    if (PyErr_Occurred() == NULL || !PyErr_ExceptionMatches(PyExc_OSError)) {
        return;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (PyObject_SetAttrString(value, "filename", path) < 0 || PyObject_SetAttrString(value, "filename2", NULL) < 0) {
        PyErr_Clear();
    }
    PyErr_Restore(type, value, traceback);
}

// Call a method to clean up after an error. That error remains the one that is raised.
static void call_behind_error(PyObject *object, const char *method, PyObject *argument)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (call_and_drop(object, method, argument) < 0) {
        PyErr_Clear();
    }
    PyErr_Restore(type, value, traceback);
}

static int write_file(PyObject *io, PyObject *os, PyObject *number, PyObject *bytes)
{
    PyObject *file = PyObject_CallMethod(io, "open", "Os", number, "wb");
    if (file == NULL) {
        call_behind_error(os, "close", number);
        return -1;
    }
    int status = call_and_drop(file, "write", bytes);
    if (status == 0) {
        status = call_and_drop(file, "flush", NULL);
    }
    if (status == 0) {
        status = call_and_drop(os, "fsync", number);
    }
    if (status == 0) {
        status = call_and_drop(file, "close", NULL);
    } else {
        call_behind_error(file, "close", NULL);
    }
    Py_DecRef(file);
    return status;
}

// A file that is to be replaced: what os.stat() says of it, and its mode; NULL and 0666 where there is none.
typedef struct {
    PyObject *path, *stat;
    long long mode;
} Target;

enum { KIND = 0170000, DIRECTORY = 0040000, REGULAR = 0100000, PERMISSIONS = 07777 };  // of st_mode

// Find the file behind symbolic links, which stay; only a regular one can be replaced.
static int find_target(PyObject *os, PyObject *os_path, PyObject *path, Target *target)
{
    PyObject *base = PyObject_CallMethod(os_path, "basename", "(O)", path);
    const Py_ssize_t length = base == NULL ? -1 : PyObject_Size(base);
    release(base);
    target->path = length < 0 ? NULL : PyObject_CallMethod(os_path, "realpath", "(O)", path);
    target->stat = target->path == NULL ? NULL : PyObject_CallMethod(os, "stat", "(O)", target->path);
    target->mode = length == 0 ? DIRECTORY : REGULAR | 0666;
    if (target->stat != NULL) {
        PyObject *mode = PyObject_GetAttrString(target->stat, "st_mode");
        target->mode = mode == NULL ? -1 : PyLong_AsLongLong(mode);
        release(mode);
    } else if (PyErr_ExceptionMatches(PyExc_FileNotFoundError)) {
        PyErr_Clear();
    }
    if (PyErr_Occurred() != NULL || (target->mode & KIND) == REGULAR) {
        return PyErr_Occurred() != NULL ? -1 : 0;
    }
    const bool is_directory = (target->mode & KIND) == DIRECTORY;
    PyObject *error = PyObject_CallFunction(PyExc_OSError, "isO", is_directory ? EISDIR : EINVAL,
                                            is_directory ? "Is a directory" : "Not a regular file", path);
    if (error != NULL) {
        PyErr_SetObject(PyExc_OSError, error);
    }
    release(error);
    return -1;
}

// Give a new file the owner and the mode of the one that it replaces; the owner only where that is allowed.
static int keep_access(PyObject *os, PyObject *file, const Target *target)
{
#if !defined(_WIN32)
    PyObject *user = PyObject_GetAttrString(target->stat, "st_uid");
    PyObject *group = user == NULL ? NULL : PyObject_GetAttrString(target->stat, "st_gid");
    PyObject *owned = group == NULL ? NULL : PyObject_CallMethod(os, "chown", "OOO", file, user, group);
    release(user);
    release(group);
    release(owned);
    if (owned == NULL && !PyErr_ExceptionMatches(PyExc_OSError)) {
        return -1;
    }
    PyErr_Clear();
#endif
    PyObject *done = PyObject_CallMethod(os, "chmod", "Oi", file, (int)(target->mode & PERMISSIONS));
    release(done);
    return done == NULL ? -1 : 0;
}

// A name in the target's folder that is not taken. It is short, whatever the target's own is.
static PyObject *temporary_path(PyObject *os, PyObject *os_path, const Target *target)
{
    PyObject *folder = PyObject_CallMethod(os_path, "dirname", "(O)", target->path);
    PyObject *random = folder == NULL ? NULL : PyObject_CallMethod(os, "urandom", "i", 6);
    PyObject *hex = random == NULL ? NULL : PyObject_CallMethod(random, "hex", NULL);
    PyObject *name = hex == NULL ? NULL : PyUnicode_FromFormat(".%U.tmp", hex);
    PyObject *path = name == NULL ? NULL : PyObject_CallMethod(os_path, "join", "OO", folder, name);
    release(folder);
    release(random);
    release(hex);
    release(name);
    return path;
}

// Write a new file beside the target, then put it in its place: readers see the old file or the new one, never half of
// one.
static int replace_file(PyObject *io, PyObject *os, PyObject *os_path, const Target *target, PyObject *bytes)
{
    PyObject *temporary = temporary_path(os, os_path, target);
    PyObject *number = temporary == NULL ? NULL :
        PyObject_CallMethod(os, "open", "Oii", temporary, O_WRONLY | O_CREAT | O_EXCL | O_BINARY,
                            (int)(target->mode & 0777));
    if (number == NULL) {
        release(temporary);
        return -1;
    }
    int status = target->stat == NULL ? 0 : keep_access(os, temporary, target);
    if (status == 0) {
        status = write_file(io, os, number, bytes);
    } else {
        call_behind_error(os, "close", number);
    }
    if (status == 0) {
        PyObject *moved = PyObject_CallMethod(os, "replace", "OO", temporary, target->path);
        status = moved == NULL ? -1 : 0;
        release(moved);
    }
    if (status < 0) {
        call_behind_error(os, "unlink", temporary);
    }
    release(temporary);
    release(number);
    return status;
}

static int save_file(PyObject *io, PyObject *os, PyObject *path, PyObject *bytes)
{
    PyObject *os_path = PyImport_ImportModule("os.path");
    Target target = {NULL, NULL, 0};
    int status = os_path == NULL ? -1 : find_target(os, os_path, path, &target);
    if (status == 0) {
        status = replace_file(io, os, os_path, &target, bytes);
    }
    blame(path);
    release(os_path);
    release(target.path);
    release(target.stat);
    return status;
}

SELDOM static PyObject *method_save(PyObject *self, PyObject *where)
{
    PyObject *io = PyImport_ImportModule("io"), *os = io == NULL ? NULL : PyImport_ImportModule("os");
    PyObject *path = os == NULL ? NULL : PyObject_CallMethod(os, "fsdecode", "(O)", where);
    PyObject *bytes = path == NULL ? NULL : pack_tensors(PY_BODY(self), false);
    const int status = bytes == NULL ? -1 : save_file(io, os, path, bytes);
    release(io);
    release(os);
    release(path);
    release(bytes);
    if (status < 0) {
        return NULL;
    }
    Py_IncRef(Py_None);
    return Py_None;
}

static PyObject *read_file(PyObject *path)
{
    PyObject *io = PyImport_ImportModule("io");
    PyObject *file = io == NULL ? NULL : PyObject_CallMethod(io, "open", "Os", path, "rb");
    PyObject *bytes = file == NULL ? NULL : PyObject_CallMethod(file, "read", NULL);
    if (bytes != NULL && call_and_drop(file, "close", NULL) < 0) {
        Py_DecRef(bytes);
        bytes = NULL;
    }
    blame(path);
    release(io);
    release(file);
    return bytes;
}

static bool is_dict(PyObject *object)
{
    return (type_flags(object) & Py_TPFLAGS_DICT_SUBCLASS) != 0;
}

static bool is_text(PyObject *object)
{
    return (type_flags(object) & Py_TPFLAGS_UNICODE_SUBCLASS) != 0;
}

// Python's parser says what is wrong with a head, as a ValueError or that it is nested too deep.
SELDOM static void refuse_head(PyObject *where)
{
    if (!PyErr_ExceptionMatches(PyExc_ValueError) && !PyErr_ExceptionMatches(PyExc_RecursionError)) {
        return;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    PyErr_Format(PyExc_ValueError, "%U: not a safetensors file, or damaged: its head is no JSON: %.200S", where, value);
    release(type);
    release(value);
    release(traceback);
}

// Texts by names, which say what they like, but for the weights beside which adapters were trained: a file that names
// others would load, and give nonsense.
SELDOM static int check_metadata(const Table *table, PyObject *where, PyObject *head)
{
    PyObject *metadata = dict_get(head, "__metadata__"), *key, *value;
    Py_ssize_t at = 0;
    bool right = metadata == NULL || is_dict(metadata);
    while (metadata != NULL && right && PyDict_Next(metadata, &at, &key, &value) != 0) {
        right = is_text(value);
    }
    if (!right) {
        PyErr_Format(PyExc_ValueError, "%U: __metadata__: expected texts by name, got %.200R", where, metadata);
    }
    PyObject *base = right && metadata != NULL && table->base != NULL ? dict_get(metadata, "base") : NULL;
    if (base != NULL && PyUnicode_CompareWithASCIIString(base, table->base) != 0) {
        PyErr_Format(PyExc_ValueError, "%U: these adapters were trained beside other weights than this module has",
                     where);
    }
    return PyErr_Occurred() != NULL ? -1 : 0;
}

// Parse the JSON head of a safetensors file; `data` is where the tensors start.
static PyObject *parse_head(const Table *table, PyObject *where, PyObject *bytes, ptrdiff_t *data)
{
    const unsigned char *text = (const unsigned char *)PyBytes_AsString(bytes);
    const Py_ssize_t size = text == NULL ? -1 : PyBytes_Size(bytes);
    uint64_t head = 0;
    if (size < 0) {
        return NULL;
    }
    for (int b = 0; b < 8 && size >= 8; b++) {
        head |= (uint64_t)text[b] << (8 * b);
    }
    if (size < 8 || head > (uint64_t)(size - 8)) {
        return PyErr_Format(PyExc_ValueError, "%U: not a safetensors file, or cut short: %zd bytes", where, size);
    }
    *data = 8 + (ptrdiff_t)head;
    PyObject *json = PyImport_ImportModule("json");
    PyObject *part = json == NULL ? NULL : PyUnicode_DecodeUTF8((const char *)text + 8, (Py_ssize_t)head, NULL);
    PyObject *parsed = part == NULL ? NULL : PyObject_CallMethod(json, "loads", "(O)", part);
    release(json);
    release(part);
    if (parsed == NULL) {
        refuse_head(where);
        return NULL;
    }
    if (!is_dict(parsed)) {
        PyErr_Format(PyExc_ValueError, "%U: not a safetensors file: its head is no JSON object", where);
    }
    if (PyErr_Occurred() != NULL || check_metadata(table, where, parsed) < 0) {
        Py_DecRef(parsed);
        return NULL;
    }
    return parsed;
}

// The n integers of a JSON list; false when it is something else.
static bool read_integers(PyObject *list, int n, ptrdiff_t *integers)
{
    if (list == NULL || (type_flags(list) & Py_TPFLAGS_LIST_SUBCLASS) == 0 || PySequence_Size(list) != n) {
        return false;
    }
    for (int k = 0; k < n; k++) {
        PyObject *item = PySequence_GetItem(list, k);
        const bool right = item != NULL && (type_flags(item) & Py_TPFLAGS_LONG_SUBCLASS) != 0 &&
                           (void *)PY_TYPE(item) != (void *)&PyBool_Type;
        integers[k] = right ? PyNumber_AsSsize_t(item, NULL) : -1;  // clipped, so that it fits nothing
        release(item);
        if (!right) {
            return false;
        }
    }
    return true;
}

// Check one tensor of the head against its slot; `begin` is its offset in the data.
static int check_tensor(PyObject *where, const Slot *slot, PyObject *head, ptrdiff_t size, ptrdiff_t *begin)
{
    PyObject *tensor = dict_get(head, slot->name);
    if (tensor == NULL) {
        if (PyErr_Occurred() == NULL) {
            PyErr_Format(PyExc_ValueError, "%U: expected a tensor %s, got a file without it%s", where, slot->name,
                         slot->kind == OPTIMIZER ? ", but with other state of the optimizer" : "");
        }
        return -1;
    }
    const char *const keys[] = {"dtype", "shape", "data_offsets"};
    PyObject *found[3] = {NULL, NULL, NULL}, *expected = PyUnicode_FromString(DTYPES[slot->dtype].tensor);
    for (int k = 0; k < 3 && is_dict(tensor) && PyErr_Occurred() == NULL; k++) {
        found[k] = dict_get(tensor, keys[k]);
    }
    ptrdiff_t shape[MAX_RANK], range[2];
    bool right = expected != NULL && found[0] != NULL && PyObject_RichCompareBool(found[0], expected, Py_EQ) == 1 &&
                 read_integers(found[1], slot->rank, shape);
    for (int d = 0; right && d < slot->rank; d++) {
        right = shape[d] == slot->shape[d];
    }
    release(expected);
    if (PyErr_Occurred() != NULL) {
        return -1;
    }
    if (!right) {
        const Words words = type_words(NULL, DTYPES[slot->dtype].tensor, slot->rank, slot->shape);
        PyErr_Format(PyExc_ValueError, "%U: %s: expected %s, got %.200R", where, slot->name, words.text, tensor);
        return -1;
    }
    right = read_integers(found[2], 2, range) && range[0] >= 0 && range[1] <= size;
    if (!right || range[1] - range[0] != slot_bytes(slot)) {
        if (PyErr_Occurred() == NULL) {
            PyErr_Format(PyExc_ValueError,
                         "%U: %s: expected %zd bytes inside a file with %zd bytes of data, got %.200R", where,
                         slot->name, slot_bytes(slot), size, tensor);
        }
        return -1;
    }
    *begin = range[0];
    return 0;
}

// Tell whether the file has a part of the optional slots; -1 with an error.
static int has_further(const Table *table, PyObject *head)
{
    for (int k = table->needed_slots; k < table->slot_count; k++) {
        if (dict_get(head, table->slots[k].name) != NULL) {
            return 1;
        }
    }
    return PyErr_Occurred() != NULL ? -1 : 0;
}

#if HAS_GRADIENTS
// Refuse a file with a tensor too many; the error names that tensor.
static int check_names(const Table *table, PyObject *where, PyObject *head)
{
    PyObject *name, *tensor;
    Py_ssize_t at = 0;
    while (PyDict_Next(head, &at, &name, &tensor) != 0) {
        bool known = PyUnicode_CompareWithASCIIString(name, "__metadata__") == 0;
        for (int k = 0; !known && k < table->slot_count; k++) {
            PyObject *own = PyUnicode_FromString(table->slots[k].name);
            known = own == NULL || PyObject_RichCompareBool(name, own, Py_EQ) == 1;
            release(own);
        }
        if (PyErr_Occurred() != NULL) {
            return -1;
        }
        if (!known) {
            PyErr_Format(PyExc_ValueError, "%U: %U is no tensor of this model", where, name);
            return -1;
        }
    }
    return 0;
}

#endif
// Check the whole file before anything is changed. What it need not have may be missing as a whole, such as the
// optimizer's state: `begin` is -1 then.
// A module that only serves passes over what it has no slot for, which a module that trains keeps besides.
static int check_tensors(const Table *table, PyObject *where, PyObject *head, ptrdiff_t size, ptrdiff_t *begin)
{
    ptrdiff_t expected = 0;
    const int resumes = has_further(table, head);
    for (int k = 0; k < table->slot_count && resumes >= 0; k++) {
        begin[k] = -1;
        if (k >= table->needed_slots && resumes == 0) {
            continue;
        }
        if (check_tensor(where, &table->slots[k], head, size, &begin[k]) < 0) {
            return -1;
        }
        expected += slot_bytes(&table->slots[k]);
        for (int j = 0; j < k; j++) {
            const Slot *one = &table->slots[j], *other = &table->slots[k];
            if (begin[j] < begin[k] + slot_bytes(other) && begin[k] < begin[j] + slot_bytes(one)) {
                PyErr_Format(PyExc_ValueError, "%U: %s and %s overlap in the file", where, one->name, other->name);
                return -1;
            }
        }
    }
#if HAS_GRADIENTS
    const bool trains = table->flat_count > 0;
    if (resumes >= 0 && trains && check_names(table, where, head) < 0) {
        return -1;
    }
    if (resumes >= 0 && trains && size != expected) {
        PyErr_Format(PyExc_ValueError, "%U: expected %zd bytes of data, got %zd", where, expected, size);
        return -1;
    }
#endif
    return resumes < 0 ? -1 : 0;
}

// The bytes from a slot's first number to the end of its last.
static size_t slot_extent(const Slot *slot)
{
    ptrdiff_t bytes = DTYPES[slot->dtype].size;
    for (int d = 0; d < slot->rank; d++) {
        bytes += (slot->shape[d] - 1) * slot->strides[d];
    }
    return (size_t)bytes;
}

// Set the state from the bytes of a safetensors file; errors begin with `where`.
SELDOM static PyObject *unpack_tensors(PyObject *self, PyObject *where, PyObject *bytes)
{
    Model *model = PY_BODY(self);
    const Table *table = TABLE_OF(model);
    ptrdiff_t data = 0, *begin = PyMem_Malloc((size_t)table->slot_count * sizeof *begin);
    PyObject *head = begin == NULL ? PyErr_NoMemory() : parse_head(table, where, bytes, &data);
    if (head == NULL || check_tensors(table, where, head, PyBytes_Size(bytes) - data, begin) < 0) {
        PyMem_Free(begin);
        release(head);
        return NULL;
    }
    const char *from = PyBytes_AsString(bytes) + data;
    lock_state(model);
    for (int k = 0; k < table->slot_count; k++) {
        const Slot *slot = &table->slots[k];
        ptrdiff_t strides[MAX_RANK];
        dense_strides(slot->dtype, slot->rank, slot->shape, strides);
        char *to = model->state + slot->offset;
        if (slot_bytes(slot) == 0) {
            continue;
        }
        if (begin[k] >= 0) {
            copy_strided(slot->dtype, slot->rank, slot->shape, to, slot->strides, from + begin[k], strides);
        } else if (slot->offset < table->initial_bytes) {  // the slot starts anew
            copy_strided(slot->dtype, slot->rank, slot->shape, to, slot->strides,
                         weights_at(model, table->initial_at) + slot->offset, slot->strides);
        } else {
            memset(to, 0, slot_extent(slot));
        }
    }
    unlock_state(model);
    PyMem_Free(begin);
    Py_DecRef(head);
    Py_IncRef(Py_None);
    return Py_None;
}

SELDOM static PyObject *method_load(PyObject *self, PyObject *file)
{
    PyObject *os = PyImport_ImportModule("os");
    PyObject *path = os == NULL ? NULL : PyObject_CallMethod(os, "fsdecode", "(O)", file);
    PyObject *bytes = path == NULL ? NULL : read_file(path);
    PyObject *where = bytes == NULL ? NULL : PyUnicode_FromFormat("load: %U", path);
    PyObject *done = where == NULL ? NULL : unpack_tensors(self, where, bytes);
    release(os);
    release(path);
    release(bytes);
    release(where);
    return done;
}

// Set the state from what pack_tensors() gave.
static PyObject *unpack_state(PyObject *self, PyObject *bytes)
{
    PyObject *where = PyUnicode_FromString("load");
    PyObject *done = where == NULL ? NULL : unpack_tensors(self, where, bytes);
    release(where);
    return done;
}

#if HAS_GRADIENTS
static PyObject *method_zero_grad(PyObject *self, PyObject *unused)
{
    (void)unused;
    Model *model = PY_BODY(self);
    const Table *table = TABLE_OF(model);
    lock_state(model);
    memset(model->state + table->gradients_at, 0, (size_t)(table->flat_count * DTYPES[table->flat_dtype].size));
    unlock_state(model);
    Py_IncRef(Py_None);
    return Py_None;
}

#endif
#endif
