// ------------------------------------------------------------------------------------------------------------- threads
#pragma once

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if !defined(_WIN32)
#include <signal.h>
#include <time.h>
#include <unistd.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#endif

#include "mlaot_abi3.h"

#include "runtime/share.h"

// A Model that may use several threads has helpers: threads that compute parts of a kernel for a thread that runs an
// entry. Its first long call starts them; they never touch Python. Between two kernels they look for work for 50
// microseconds, then they sleep. A helper is offered each kernel; what no helper has taken when the caller has finished
// the rest, the caller takes back, so that nobody waits for a thread that the system does not run.
//
// Locks are CPython's: on Linux they are futexes, and their threads need no newer glibc than Python itself.
enum {
    LEAST_WORK = 65536,     // operations that a part should have
    PARTS = 4,              // of a kernel for each thread, so that a slow thread can take fewer
    SPIN_NANOSECONDS = 50000,
    CACHE_LINE = 64,
};

// What a helper does. The caller changes IDLE and ASLEEP to OFFERED, OFFERED back to IDLE, RUNNING to AWAITED when it
// goes to sleep itself; the helper does the rest.
enum { IDLE, ASLEEP, OFFERED, RUNNING, AWAITED, LEAVING };

typedef struct Threads Threads;

// The parts of a task that a thread computes, unless others are done with theirs before.
typedef struct {
    _Alignas(CACHE_LINE) _Atomic ptrdiff_t next;  // where the first of them begins that nobody has taken
    ptrdiff_t end;
} Share;

typedef struct {
    Share share;
    _Alignas(CACHE_LINE) _Atomic int state;
    void *wake;  // a lock that is released for a helper ASLEEP
    Threads *threads;
    void *memory;  // of its own, for tasks that need some
    ptrdiff_t bytes;
} Helper;

struct Threads {
    int users;          // the Model and its running calls, counted while the Model is busy
    int process;        // a forked child has no helpers
    int count;          // helpers
    _Atomic int alive;  // helpers that have not left, and one for the users; the last one frees the memory
    _Atomic bool busy;  // a call has them; others do their work alone
    void *done;         // a lock that is released for a caller that waits for a helper AWAITED
    Task *task;
    char *const *p;
    const ptrdiff_t *dim;
    ptrdiff_t part;
    int sharers;  // the caller and the first helpers
    int own;      // the pointer to memory of each thread's own, of so many bytes; 0 where none is needed
    ptrdiff_t bytes;
    Share share;  // the caller's
    Helper helpers[];
};

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#if defined(_WIN32)
static int process_id(void)
{
    return 0;  // no process is forked here
}

// One thread only.
static Threads *threads_enter(Threads **at, int wanted)
{
    (void)at, (void)wanted;
    return NULL;
}

static void threads_leave(Threads *threads)
{
    (void)threads;
}

static int thread_count(int wanted)
{
    (void)wanted;
    return 1;
}

#include "runtime/alone.c"
#else
static int process_id(void)
{
    return getpid();
}

static int64_t nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

// The state of a helper once it is not `state` any more, or `state` if that takes too long.
static int spin_while(_Atomic int *at, int state)
{
    const int64_t start = nanoseconds();
    do {
        for (int k = 0; k < 16; k++) {
            const int now = atomic_load_explicit(at, memory_order_acquire);
            if (now != state) {
                return now;
            }
            pause_briefly();
        }
    } while (nanoseconds() - start < SPIN_NANOSECONDS);
    return state;
}

static Share *share_of(Threads *threads, int sharer)
{
    return sharer == 0 ? &threads->share : &threads->helpers[sharer - 1].share;
}

// The parts of a sharer, then those of the others. Kernel after kernel a thread has the same share, so that it reads
// what it wrote: of a batch the same examples, of a matrix the same rows.
static void run_parts(Threads *threads, char *const *p, int sharer)
{
    for (int k = 0; k < threads->sharers; k++) {
        Share *share = share_of(threads, (sharer + k) % threads->sharers);
        for (;;) {
            const ptrdiff_t begin = atomic_fetch_add(&share->next, threads->part);
            if (begin >= share->end) {
                break;
            }
            const ptrdiff_t rest = share->end - begin;
            threads->task(p, threads->dim, begin, begin + (rest < threads->part ? rest : threads->part));
        }
    }
}

static void threads_release(Threads *threads)
{
    if (atomic_fetch_sub(&threads->alive, 1) > 1) {
        return;
    }
    for (int k = 0; k < threads->count; k++) {
        PyThread_free_lock(threads->helpers[k].wake);
        free(threads->helpers[k].memory);
    }
    if (threads->done != NULL) {
        PyThread_free_lock(threads->done);
    }
    free(threads);
}

// Run parts of the task on a helper, or on other threads if there is no memory for it.
static void help(Helper *self)
{
    Threads *threads = self->threads;
    const int sharer = (int)(self - threads->helpers) + 1;
    if (threads->own == 0) {
        run_parts(threads, threads->p, sharer);
        return;
    }
    if (self->bytes < threads->bytes) {
        free(self->memory);
        self->memory = calloc(1, (size_t)threads->bytes + CACHE_LINE);
        self->bytes = self->memory != NULL ? threads->bytes : 0;
    }
    if (self->memory != NULL) {
        char *p[POINTERS];
        memcpy(p, threads->p, (size_t)threads->own * sizeof *p);
        p[threads->own] = (char *)self->memory + (size_t)-(uintptr_t)self->memory % CACHE_LINE;
        run_parts(threads, p, sharer);
    }
}

static void helper_main(void *argument)
{
    Helper *self = argument;
    sigset_t all;
    sigfillset(&all);
    // Signals are for Python's threads. pthread_sigmask does the same, but would ask for a newer glibc.
    sigprocmask(SIG_BLOCK, &all, NULL);  // NOLINT(concurrency-mt-unsafe)
    for (;;) {
        int state = spin_while(&self->state, IDLE);
        if (state == IDLE && atomic_compare_exchange_strong(&self->state, &state, ASLEEP)) {
            PyThread_acquire_lock(self->wake, 1);
        } else if (state == OFFERED && atomic_compare_exchange_strong(&self->state, &state, RUNNING)) {
            help(self);
            if (atomic_exchange(&self->state, IDLE) == AWAITED) {
                PyThread_release_lock(self->threads->done);
            }
        } else if (state == LEAVING) {
            break;
        }
    }
    threads_release(self->threads);
}

static void change_state(Helper *helper, int state)
{
    if (atomic_exchange(&helper->state, state) == ASLEEP) {
        PyThread_release_lock(helper->wake);
    }
}

// Run a task on [0, extent) in parts of whole steps. Which thread computes which part makes no difference to the result.
// work: operations of one round; below 0, those of one that threads share in as few parts as there are threads.
static void share_parts(Threads *threads, Task *task, char *const *p, const ptrdiff_t *dim, ptrdiff_t extent,
                        ptrdiff_t step, ptrdiff_t work, int own, ptrdiff_t bytes)
{
    const bool are_few = work < 0;
    const ptrdiff_t operations = are_few ? -work : work > 0 ? work : 1;
    const ptrdiff_t least = LEAST_WORK / (step * operations) + 1;
    const ptrdiff_t turn = step * (threads->count + 1);  // a step for each thread
    const ptrdiff_t fair = are_few ? (extent - 1) / turn + 1 : extent / (PARTS * turn);
    const ptrdiff_t part = step * (fair > least ? fair : least);
    if (part >= extent || atomic_exchange(&threads->busy, true)) {
        task(p, dim, 0, extent);
        return;
    }
    threads->task = task;
    threads->p = p;
    threads->dim = dim;
    threads->part = part;
    threads->own = own;
    threads->bytes = bytes;
    const ptrdiff_t others = (extent - 1) / part;
    const int offers = others < threads->count ? (int)others : threads->count;
    threads->sharers = offers + 1;
    for (ptrdiff_t k = 0, begin = 0; k <= offers; k++) {
        Share *share = share_of(threads, (int)k);
        share->next = begin;
        share->end = begin = k < offers ? step * ((k + 1) * (extent / step) / (offers + 1)) : extent;
    }
    for (int k = 0; k < offers; k++) {
        change_state(&threads->helpers[k], OFFERED);
    }
    run_parts(threads, p, 0);
    for (int k = 0; k < offers; k++) {
        _Atomic int *at = &threads->helpers[k].state;
        int state = OFFERED;
        if (!atomic_compare_exchange_strong(at, &state, IDLE) && spin_while(at, RUNNING) == RUNNING) {
            state = RUNNING;
            if (atomic_compare_exchange_strong(at, &state, AWAITED)) {
                PyThread_acquire_lock(threads->done, 1);
            }
        }
    }
    atomic_store(&threads->busy, false);
}

void SHARE(void *threads, Task *task, char *const *p, const ptrdiff_t *dim, ptrdiff_t extent, ptrdiff_t step,
                   ptrdiff_t work)
{
    share_parts(threads, task, p, dim, extent, step, work, 0, 0);
}

void SHARE_APART(void *threads, Task *task, char *const *p, const ptrdiff_t *dim, ptrdiff_t extent,
                         ptrdiff_t work, int own, ptrdiff_t at, ptrdiff_t bytes)
{
    char *mine[POINTERS];
    memcpy(mine, p, (size_t)own * sizeof *p);
    mine[own] = p[own - 2] + at;
    if (threads == NULL) {
        task(mine, dim, 0, extent);
    } else {
        share_parts(threads, task, mine, dim, extent, 1, work, own, bytes);
    }
}

#if defined(__linux__)
// Number `word` of the first line of a file; -1 where there is none.
static long read_number(const char *path, int word)
{
    char line[64] = "";
    FILE *file = fopen(path, "r");
    const char *at = file != NULL ? fgets(line, sizeof line, file) : NULL;
    if (file != NULL) {
        fclose(file);
    }
    for (int k = 0; at != NULL && k < word; k++) {
        at = strchr(at, ' ');
        at = at != NULL ? at + 1 : NULL;
    }
    return at != NULL && *at >= '0' && *at <= '9' ? atol(at) : -1;
}

// The CPUs that the quotas of a control group and of those around it allow, at most `count`.
static int quota_count(const char *root, const char *quota, const char *period, int word, char *group, int count)
{
    for (char *end = group + strlen(group); end != NULL; end = strrchr(group, '/')) {
        char path[PATH_MAX];
        *end = 0;
        snprintf(path, sizeof path, "%s%s/%s", root, group, quota);
        const long most = read_number(path, 0);
        snprintf(path, sizeof path, "%s%s/%s", root, group, period);
        const long whole = read_number(path, word);
        if (most > 0 && whole > 0 && most / whole < count) {
            count = most < whole ? 1 : (int)(most / whole);
        }
    }
    return count;
}
#endif

// The CPUs that this process may keep busy: by its affinity, and by the quotas of its control groups.
static int cpu_count(void)
{
#if defined(__linux__)
    unsigned char mask[1024];
    const long bytes = syscall(SYS_sched_getaffinity, 0, sizeof mask, mask);
    int count = 0;
    for (long k = 0; k < bytes; k++) {
        count += __builtin_popcount(mask[k]);
    }
    char line[PATH_MAX];
    FILE *file = fopen("/proc/self/cgroup", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {  // number:controllers:group
        char *group = line, *names = (strsep(&group, ":"), strsep(&group, ":")), *name;
        if (group == NULL) {
            continue;
        }
        group[strcspn(group, "\n")] = 0;
        while ((name = strsep(&names, ",")) != NULL) {
            if (*name == 0) {  // version 2 names none
                count = quota_count("/sys/fs/cgroup", "cpu.max", "cpu.max", 1, group, count);
            } else if (strcmp(name, "cpu") == 0) {
                count = quota_count("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "cpu.cfs_period_us", 0, group, count);
            }
        }
    }
    if (file != NULL) {
        fclose(file);
    }
#else
    const int count = (int)sysconf(_SC_NPROCESSORS_ONLN);
#endif
    return count > 0 ? count : 1;
}

static int thread_count(int wanted)
{
    const int cpus = wanted == 1 ? 1 : cpu_count();
    return wanted == 0 || wanted > cpus ? cpus : wanted;
}

// A lock that is taken.
static void *new_lock(void)
{
    void *lock = PyThread_allocate_lock();
    if (lock != NULL) {
        PyThread_acquire_lock(lock, 1);
    }
    return lock;
}

static Threads *threads_start(int helpers)
{
    void *memory;
    if (posix_memalign(&memory, CACHE_LINE, sizeof(Threads) + (size_t)helpers * sizeof(Helper)) != 0) {
        return NULL;
    }
    Threads *threads = memset(memory, 0, sizeof(Threads) + (size_t)helpers * sizeof(Helper));
    threads->users = 1;
    threads->process = process_id();
    atomic_init(&threads->alive, 1);
    threads->done = new_lock();
    for (int k = 0; k < helpers && threads->done != NULL; k++) {
        Helper *helper = &threads->helpers[k];
        helper->threads = threads;
        helper->wake = new_lock();
        if (helper->wake == NULL) {
            break;
        }
        atomic_fetch_add(&threads->alive, 1);
        if (PyThread_start_new_thread(helper_main, helper) == (unsigned long)-1) {  // those that there are will do
            atomic_fetch_sub(&threads->alive, 1);
            PyThread_free_lock(helper->wake);
            break;
        }
        threads->count = k + 1;
    }
    return threads;
}

// The threads at `at`, for one call; NULL where there is only one. Called while the Model is busy, as threads_leave is.
// Short calls, which never come here, are faster without a copy of it.
__attribute__((noinline)) static Threads *threads_enter(Threads **at, int wanted)
{
    if (wanted == 1) {
        return NULL;
    }
    if (*at == NULL || (*at)->process != process_id()) {  // what a forked child finds is left as it is
        *at = threads_start(thread_count(wanted) - 1);
    }
    if (*at == NULL || (*at)->count == 0) {
        return NULL;
    }
    (*at)->users++;
    return *at;
}

__attribute__((noinline)) static void threads_leave(Threads *threads)
{
    if (threads == NULL || --threads->users > 0) {
        return;
    }
    for (int k = 0; k < threads->count; k++) {
        change_state(&threads->helpers[k], LEAVING);
    }
    threads_release(threads);
}
#endif
