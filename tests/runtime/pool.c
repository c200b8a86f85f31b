// The threads of a Model, without a Model: templates/runtime/threads.c. Locks and threads stand in for CPython's.
#include <assert.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef void Task(char *const *p, const ptrdiff_t *dim, ptrdiff_t begin, ptrdiff_t end);

#define MAX_INPUTS 1
#define MAX_OUTPUTS 1
#define SHARE pool_share
#define SHARE_APART pool_share_apart

void pool_share(void *, Task *, char *const *, const ptrdiff_t *, ptrdiff_t, ptrdiff_t, ptrdiff_t);
void pool_share_apart(void *, Task *, char *const *, const ptrdiff_t *, ptrdiff_t, ptrdiff_t, int, ptrdiff_t, ptrdiff_t);

static atomic_int locks, members;

void *PyThread_allocate_lock(void)
{
    sem_t *lock = malloc(sizeof *lock);
    sem_init(lock, 0, 1);
    atomic_fetch_add(&locks, 1);
    return lock;
}

int PyThread_acquire_lock(void *lock, int wait)
{
    assert(wait == 1);
    while (sem_wait(lock) != 0) {
    }
    return 1;
}

void PyThread_release_lock(void *lock)
{
    sem_post(lock);
}

void PyThread_free_lock(void *lock)
{
    sem_destroy(lock);
    free(lock);
    atomic_fetch_sub(&locks, 1);
}

typedef struct { void (*run)(void *); void *argument; } Start;

static void *started(void *given)
{
    const Start start = *(Start *)given;
    free(given);
    start.run(start.argument);
    atomic_fetch_sub(&members, 1);
    return NULL;
}

unsigned long PyThread_start_new_thread(void (*run)(void *), void *argument)
{
    Start *start = malloc(sizeof *start);
    *start = (Start){run, argument};
    pthread_t thread;
    atomic_fetch_add(&members, 1);
    if (pthread_create(&thread, NULL, started, start) != 0) {
        return (unsigned long)-1;
    }
    pthread_detach(thread);
    return 0;
}

static const char *root = "";  // in front of every file that the pool looks at

static FILE *open_below_root(const char *path, const char *mode)
{
    char whole[PATH_MAX];
    snprintf(whole, sizeof whole, "%s%s", root, path);
    return fopen(whole, mode);
}

#define fopen open_below_root
#include "runtime/threads.c"
#undef fopen

enum { COUNT = 5000, ROUNDS = 400 };

static void squares(char *const *p, const ptrdiff_t *dim, ptrdiff_t begin, ptrdiff_t end)
{
    int64_t *y = (int64_t *)p[0];
    assert(begin % 8 == 0 && 0 <= begin && begin < end && end <= dim[0]);
    for (ptrdiff_t i = begin; i < end; i++) {
        y[i] += i * i;  // not atomic: two threads on one element are a race
    }
}

static void run_rounds(Threads *threads, int rounds, ptrdiff_t count, ptrdiff_t work)
{
    int64_t *y = calloc((size_t)count, sizeof *y);
    char *const p[] = {(char *)y};
    for (int k = 0; k < rounds; k++) {
        if (k % 100 == 99) {
            usleep(200);  // so that helpers fall asleep
        }
        pool_share(threads, squares, p, &count, count, 8, work);
    }
    for (ptrdiff_t i = 0; i < count; i++) {
        assert(y[i] == rounds * i * i);
    }
    free(y);
}

// Each round counts up in memory that no other thread may touch meanwhile.
static void sums(char *const *p, const ptrdiff_t *dim, ptrdiff_t begin, ptrdiff_t end)
{
    int64_t *y = (int64_t *)p[0], *mine = (int64_t *)p[5];
    assert((uintptr_t)mine % 64 == 0 && 0 <= begin && begin < end && end <= dim[0]);
    for (ptrdiff_t i = begin; i < end; i++) {
        memset(mine, 0, 64 * sizeof *mine);
        for (int64_t k = 0; k < 640; k++) {
            mine[k % 64] += i;
        }
        for (int k = 0; k < 64; k++) {
            y[i] += mine[k];
        }
    }
}

static void run_apart(Threads *threads, int rounds)
{
    enum { PARTS_OF_IT = 40, AT = 128 };
    const ptrdiff_t count = PARTS_OF_IT;
    int64_t y[PARTS_OF_IT] = {0};
    char *workspace = aligned_alloc(64, AT + 64 * sizeof(int64_t));
    char *const p[] = {(char *)y, NULL, NULL, workspace, (char *)threads};
    for (int k = 0; k < rounds; k++) {
        pool_share_apart(threads, sums, p, &count, count, 100000, 5, AT, 64 * sizeof(int64_t));
    }
    for (ptrdiff_t i = 0; i < count; i++) {
        assert(y[i] == rounds * 640 * i);
    }
    free(workspace);
}

static void *run_in_thread(void *threads)
{
    run_rounds(threads, ROUNDS, COUNT, 1000);
    run_apart(threads, ROUNDS);
    return NULL;
}

static void wait_for_none(void)
{
    for (int k = 0; atomic_load(&members) > 0; k++) {
        assert(k < 20000);
        usleep(1000);
    }
    assert(atomic_load(&locks) == 0);
}

static double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    const struct timeval times[] = {usage.ru_utime, usage.ru_stime};
    return (double)(times[0].tv_sec + times[1].tv_sec) + 1e-6 * (double)(times[0].tv_usec + times[1].tv_usec);
}

static void test_rounds(void)
{
    for (int helpers = 0; helpers < 8; helpers += helpers < 3 ? 1 : 4) {
        Threads *threads = threads_start(helpers);
        assert(threads->count == helpers);
        run_rounds(threads, ROUNDS, COUNT, 1000);
        run_rounds(threads, ROUNDS, 8, 1000000);  // a single part
        run_rounds(threads, ROUNDS, 17, 1000000);
        run_rounds(threads, ROUNDS, COUNT, 0);
        run_apart(threads, ROUNDS);
        threads_leave(threads);
        wait_for_none();
    }
}

static void test_one_thread(void)
{
    run_apart(NULL, 3);
}

static void test_many_callers(void)
{
    Threads *threads = threads_start(2);
    pthread_t callers[6];
    for (int k = 0; k < 6; k++) {
        pthread_create(&callers[k], NULL, run_in_thread, threads);
    }
    for (int k = 0; k < 6; k++) {
        pthread_join(callers[k], NULL);
    }
    threads_leave(threads);
    wait_for_none();
}

static void test_comings_and_goings(void)
{
    for (int k = 0; k < 300; k++) {
        Threads *threads = threads_start(3);
        run_rounds(threads, k % 3, COUNT, 1000);
        threads_leave(threads);
    }
    wait_for_none();
}

static void test_idle(void)
{
    Threads *threads = threads_start(3);
    run_rounds(threads, 10, COUNT, 1000);
    usleep(100000);
    const double before = cpu_seconds();
    usleep(300000);
    assert(cpu_seconds() - before < 0.01);
    threads_leave(threads);
    wait_for_none();
}

static void test_fork(void)
{
    Threads *at = threads_start(2);
    run_rounds(at, 10, COUNT, 1000);
    for (int k = 0; k < 20; k++) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(20);
            Threads *old = at, *threads = threads_enter(&at, 0);
            assert(threads == NULL || threads != old);
            if (threads != NULL) {
                run_rounds(threads, 20, COUNT, 1000);
                threads_leave(threads);
            }
            threads_leave(at);
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        assert(status == 0);
        run_rounds(at, 1, COUNT, 1000);
    }
    threads_leave(at);
    wait_for_none();
}

int main(int count, char **arguments)
{
    if (count == 2) {  // the CPUs, by the files below a folder
        root = arguments[1];
        printf("%d %d %d %d\n", thread_count(0), thread_count(1), thread_count(2), thread_count(1000));
        return 0;
    }
    test_rounds();
    test_one_thread();
    test_many_callers();
    test_comings_and_goings();
    test_idle();
    test_fork();
    return 0;
}
