// -------------------------------------------------------------------------------------------------------------- Model
#pragma once

#include <stdatomic.h>

#include "runtime/array.c"
#include "runtime/numpy.c"
#include "runtime/profile.c"
#include "runtime/threads.c"

// Scratch memory that a call borrows; kept in a list of its Model between calls.
typedef struct Workspace {
    struct Workspace *next;
    ptrdiff_t bytes;
    char *memory;  // on a 64-byte boundary
} Workspace;

#if HAS_PHASES
// What set_input() stored, and the memory that forward() and backward() share.
enum { NOTHING, INPUT_SET, FORWARD_DONE, BACKWARD_DONE };

typedef struct {
    int phase;
    bool drop_batch;
    ptrdiff_t dim[DIMS];
    char *p[MAX_INPUTS + MAX_OUTPUTS + 4];
    Workspace *memory;
    char *rest;  // room to keep the state but for the parameters
} Held;

#endif
typedef struct {
    PY_HEAD
#if IS_SHARED
    const Table *table;
#endif
    PyTypeObject *array_type;
#if HAS_TEXT
    PyTypeObject *generation_type;  // in the state of the module, which this object's type keeps alive
#endif
#if HAS_TEXTS
    PyTypeObject *generations_type;  // likewise
#endif
    PyObject *weak_references;
    Numpy *numpy;  // in the state of the module, which this object's type keeps alive
    Kernel *const *kernels;
#if HAS_WEIGHTS_FILE
    const char *weights;  // in the mapping of the module, which this object's type keeps alive; else NULL
#endif
    Workspace *workspaces;  // free ones
    Threads *threads;       // NULL before the first long call
    int wanted;             // how many there may be; 0: as many as CPUs
#if defined(MLAOT_ABI3T)
    atomic_flag busy;  // while a thread looks at one of these three
#endif
#if HAS_STATE || HAS_PREPARED
    char *state;  // or what the module has made of its weights, which this object's type keeps alive
#endif
#if HAS_STATE
    void *lock;  // held while the state is read or written
    void *turn;  // held by the first of those who wait for the lock
    _Atomic int process;  // that the locks are of
    PyObject *memory;  // the Array that the state lies in
    PyObject *attributes[ATTRIBUTE_COUNT];  // NULL where it has no such one
#endif
#if HAS_PHASES
    Held held;
#endif
} Model;

static const char *weights_at(const Model *self, ptrdiff_t offset)
{
#if HAS_WEIGHTS_FILE
    const char *own = TABLE_OF(self)->weights;
    return (own != NULL ? own : self->weights) + offset;
#else
    return TABLE_OF(self)->weights + offset;
#endif
}

enum { MAX_KEPT = 256 << 20 };  // what a call leaves for the next one: new memory takes longer than many a kernel

static Workspace *workspace_new(ptrdiff_t bytes)
{
    // Padding is zero because its lanes are computed as well, and denormal numbers are slow.
    Workspace *workspace = PyMem_Calloc(1, sizeof(Workspace) + 64 + (size_t)bytes);
    if (workspace == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    workspace->next = NULL;
    workspace->bytes = bytes;
    workspace->memory = (char *)(workspace + 1);
    workspace->memory += (size_t)-(uintptr_t)workspace->memory % 64;
    return workspace;
}

// What a GIL keeps apart where there is one. Whoever is inside neither waits nor runs Python code, so that no fork comes
// between.
static void busy_begin(Model *self)
{
#if defined(MLAOT_ABI3T)
    while (atomic_flag_test_and_set(&self->busy)) {
        pause_briefly();
    }
#else
    (void)self;
#endif
}

static void busy_end(Model *self)
{
#if defined(MLAOT_ABI3T)
    atomic_flag_clear(&self->busy);
#else
    (void)self;
#endif
}

static Workspace *workspace_lease(Model *self, ptrdiff_t bytes)
{
    busy_begin(self);
    Workspace *workspace = self->workspaces;
    if (workspace != NULL) {
        self->workspaces = workspace->next;
    }
    busy_end(self);
    if (workspace != NULL && workspace->bytes < bytes) {
        PyMem_Free(workspace);
        workspace = NULL;
    }
    return workspace != NULL ? workspace : workspace_new(bytes);
}

static void workspace_return(Model *self, Workspace *workspace)
{
    if (workspace->bytes > MAX_KEPT) {
        PyMem_Free(workspace);
        return;
    }
    busy_begin(self);
    workspace->next = self->workspaces;
    self->workspaces = workspace;
    busy_end(self);
}

static ptrdiff_t round_up(ptrdiff_t bytes)
{
    return (bytes + 63) & ~(ptrdiff_t)63;
}

#if HAS_STATE
// Whether a model has a state.
static bool is_stateful(const Model *self)
{
    return TABLE_OF(self)->slots != NULL;
}

// Take the lock in turn with the threads that already wait for it. The caller does not hold the GIL.
static void wait_for_state(Model *self)
{
    PyThread_acquire_lock(self->turn, 1);
    PyThread_acquire_lock(self->lock, 1);
    PyThread_release_lock(self->turn);
}

// A forked child has its parent's locks as they were, and not the threads that would give them back. Called by whoever
// is about to let go of the GIL with the lock, or to wait for the lock; without a GIL, by all who want it.
static void renew_locks(Model *self, bool has_lock)
{
    const int process = process_id();
    if (self->process == process) {
        return;
    }
    busy_begin(self);
    if (self->process != process) {
        void *const turn = PyThread_allocate_lock(), *const lock = has_lock ? NULL : PyThread_allocate_lock();
        self->turn = turn != NULL ? turn : self->turn;
        self->lock = lock != NULL ? lock : self->lock;
        self->process = process;
    }
    busy_end(self);
}

// Whoever holds the lock runs no Python code, so it is always given back.
static void lock_state(Model *self)
{
    if (!is_stateful(self)) {
        return;
    }
#if defined(MLAOT_ABI3T)
    renew_locks(self, false);
#endif
    if (PyThread_acquire_lock(self->lock, 0) == 0) {
        renew_locks(self, false);
        PyThreadState *thread = PyEval_SaveThread();
        wait_for_state(self);
        PyEval_RestoreThread(thread);
    }
}

static void unlock_state(Model *self)
{
    if (is_stateful(self)) {
        PyThread_release_lock(self->lock);
    }
}
#else
// Nothing in this model is ever written, so that calls need no lock.
static void lock_state(Model *self)
{
    (void)self;
}

static void unlock_state(Model *self)
{
    (void)self;
}
#endif

// Other threads run Python code meanwhile when the work is long enough to pay for the switch (about 20 microseconds),
// and take a part of it when it is long enough to wake them (about 100).
enum { LONG_WORK = 200000, SHARED_WORK = 2000000 };

// Where the pointers behind those of the ports are: state, constants, workspace, threads.
static int behind_ports(const Entry *entry)
{
    int ports = entry->inputs + entry->outputs;
#if HAS_COUNTS
    ports += entry->count_count;
#endif
#if HAS_REFUSALS
    ports += entry->refusals != NULL;
#endif
    return ports;
}

// The threads for a call of so much work, or NULL; the kernel finds them behind the workspace.
static Threads *lend_threads(Model *self, const Entry *entry, int128 work, char **p)
{
    Threads *threads = NULL;
    if (work > SHARED_WORK && !is_profiling()) {
        busy_begin(self);
        threads = threads_enter(&self->threads, self->wanted);
        busy_end(self);
    }
    p[behind_ports(entry) + 3] = (char *)threads;
    return threads;
}

static void return_threads(Model *self, Threads *threads)
{
    if (threads != NULL) {
        busy_begin(self);
        threads_leave(threads);
        busy_end(self);
    }
}

static void run_kernel(Model *self, const Entry *entry, int phase, int128 work, char **p, const ptrdiff_t *dim)
{
    Kernel *kernel = self->kernels[entry->kernel + phase];
    Threads *threads = lend_threads(self, entry, work, p);
    profile_entry(dim);
    if (work <= LONG_WORK) {
        kernel(p, dim);
        return;
    }
#if HAS_STATE
    if (is_stateful(self)) {
        renew_locks(self, true);
    }
#endif
    PyThreadState *thread = PyEval_SaveThread();
    kernel(p, dim);
    PyEval_RestoreThread(thread);
    return_threads(self, threads);
}

SELDOM static PyObject *method_set_threads(PyObject *self, PyObject *argument)
{
    Model *model = PY_BODY(self);
    if (argument != Py_None && !PyIndex_Check(argument)) {
        refuse_type("set_threads", "n", "an int or None", argument);
        return NULL;
    }
    const Py_ssize_t wanted = argument == Py_None ? 0 : PyNumber_AsSsize_t(argument, NULL);
    if (wanted == -1 && PyErr_Occurred() != NULL) {
        return NULL;
    }
    if (wanted < 0) {
        PyErr_SetString(PyExc_ValueError, "set_threads: n: expected a number of threads, or 0 for as many as CPUs");
        return NULL;
    }
    const int count = wanted < INT_MAX ? (int)wanted : INT_MAX;
    busy_begin(model);
    model->wanted = count;
    threads_leave(model->threads);
    model->threads = NULL;
    busy_end(model);
    return PyLong_FromLongLong(thread_count(count));
}
