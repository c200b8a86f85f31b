// ---------------------------------------------------------------------------------------------------------------- fit
#pragma once

#include "runtime/calls.c"
#if HAS_FIT && defined(_WIN32)
__declspec(dllimport) unsigned long long __stdcall GetTickCount64(void);
#elif HAS_FIT
#include <sys/time.h>
#endif

#if HAS_FIT
__extension__ typedef unsigned __int128 uint128;

// Microseconds. A look at the clock comes after so many operations: some 0.1 ms.
enum { SIGNALS_AFTER = 50000, REPORT_AFTER = 100000, LINE_AFTER = 5000000, CLOCK_WORK = 1000000, STEP_WORK = 500 };

static const char *const FIT_OPTIONS[] = {"batch", "epochs", "shuffle", "seed", "progress", "callback", NULL};

// One run of fit(): what its steps read, and how far they are.
typedef struct {
    Call call;
#if IS_SHARED
    const Table *table;
#endif
    int64_t batch, epochs;
    bool shuffle, progress, on_terminal;
    uint64_t seed;  // the state of the generator
    PyObject *callback;
    ptrdiff_t examples;
    ptrdiff_t row_bytes[MAX_INPUTS];  // of one example; 0 where every step reads the same
    const char *data[MAX_INPUTS];
    char *gathered[MAX_INPUTS];  // room for a batch, or a block
    ptrdiff_t *order;            // the examples; those drawn for this epoch come first
    ptrdiff_t drawn;             // how many these are
#if MAX_LATE > 0
    int block;  // examples that go together, one after the other; 0: none do
    char *ahead[MAX_LATE], *like[MAX_LATE], *changes[MAX_LATE], *change[MAX_LATE], *workspace;
#endif
    Workspace *memory;           // of all these
    int64_t stretch;             // steps between two looks at the clock
    int64_t epoch;               // epochs done
    ptrdiff_t row;               // examples done of this one
    double sum, mean;            // of this epoch's losses so far; of the last epoch's
} Fit;

// Microseconds since some moment. Where the clock is set meanwhile, differences are wrong once.
static uint64_t clock_now(void)
{
#if defined(_WIN32)
    return GetTickCount64() * 1000;
#else
    struct timeval now;
    gettimeofday(&now, NULL);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_usec;
#endif
}

static uint64_t next_random(uint64_t *state)
{
    return split_mix(*state += GAMMA);
}

// Draw examples of this epoch until there are `count`: Fisher and Yates' shuffle, as far as it is needed now.
static void draw(Fit *fit, ptrdiff_t count)
{
    for (ptrdiff_t i = fit->drawn; i < count; i++) {
        const uint64_t left = (uint64_t)(fit->examples - i);
        const ptrdiff_t k = i + (ptrdiff_t)((uint128)next_random(&fit->seed) * left >> 64), drawn = fit->order[k];
        fit->order[k] = fit->order[i];
        fit->order[i] = drawn;
    }
    fit->drawn = count;
}

// An input of the example at a place of this epoch.
static char *example(const Fit *fit, int i, ptrdiff_t row)
{
    return (char *)fit->data[i] + (fit->shuffle ? fit->order[row] : row) * fit->row_bytes[i];
}

static char *gather(const Fit *fit, int i, ptrdiff_t rows)
{
    const size_t bytes = (size_t)fit->row_bytes[i];
    const ptrdiff_t *order = fit->order + fit->row;
    for (ptrdiff_t k = 0; k < rows; k++) {
        memcpy(fit->gathered[i] + (size_t)k * bytes, fit->data[i] + (size_t)order[k] * bytes, bytes);
    }
    return fit->gathered[i];
}

// An input of the next `rows` examples: in place where they lie together.
static char *next_examples(const Fit *fit, int i, ptrdiff_t rows)
{
    return fit->shuffle && rows > 1 ? gather(fit, i, rows) : example(fit, i, fit->row);
}

// train_step on the next batch.
static void run_step(Fit *fit)
{
    Call *call = &fit->call;
    const Entry *entry = call->entry;
    const ptrdiff_t left = fit->examples - fit->row, rows = left < fit->batch ? left : (ptrdiff_t)fit->batch;
    if (fit->shuffle) {
        draw(fit, fit->row + rows);
    }
    for (int i = 0; i < entry->inputs; i++) {
        if (fit->row_bytes[i] > 0) {
            call->p[i] = next_examples(fit, i, rows);
        }
    }
    const ptrdiff_t extent = TABLE_OF(fit)->fit_table->rows;
    if (extent < 0) {
        call->dim[-1 - extent] = rows;
    }
    profile_entry(call->dim);
    call->model->kernels[entry->kernel](call->p, call->dim);
    fit->row += rows;
    fit->sum += float_get(entry->ports[entry->inputs].dtype, call->scalar) * (double)rows;
}

#if MAX_LATE > 0
// Run an entry on the n addresses in p.
static void run_entry(const Fit *fit, int number, char **p, int n)
{
    const Entry *entry = &TABLE_OF(fit)->entries[number];
    p[n] = fit->call.model->state;
    p[n + 1] = (char *)weights_at(fit->call.model, 0);
    p[n + 2] = fit->workspace;
    p[n + 3] = NULL;
    profile_entry(fit->call.dim);
    fit->call.model->kernels[entry->kernel](p, fit->call.dim);
}

// Run the same number of steps on one example each.
static void run_block(Fit *fit)
{
    const Table *table = TABLE_OF(fit);
    const FitTable *of_fit = table->fit_table;
    const int block_rows = fit->block, late = of_fit->late_weights;
    Call *call = &fit->call;
    char *p[MAX_INPUTS + MAX_OUTPUTS + 4], *block[MAX_INPUTS];
    int n = 0;
    if (fit->shuffle) {
        draw(fit, fit->row + block_rows);
    }
    for (int i = 0; i < of_fit->block_inputs; i++) {
        p[n++] = block[i] = next_examples(fit, of_fit->block_input[i], block_rows);
    }
    for (int k = 0; k < late; k++) {
        p[n++] = fit->ahead[k];
        p[n++] = fit->like[k];
        memset(fit->changes[k], 0, (size_t)(of_fit->ahead_bytes[k] * block_rows));
    }
    run_entry(fit, table->fit_begin, p, n);
    for (int row = 0; row < block_rows; row++, fit->row++) {
        n = 0;
        for (int i = 0; i < of_fit->step_inputs; i++) {
            const int input = of_fit->step_input[i];
            p[n++] = fit->row_bytes[input] > 0 ? example(fit, input, fit->row) : call->p[input];
        }
        for (int k = 0; k < late; k++) {
            p[n++] = fit->ahead[k] + row * of_fit->ahead_bytes[k];
            p[n++] = fit->like[k] + row * of_fit->like_bytes[k];
            p[n++] = fit->changes[k];
        }
        p[n++] = call->scalar;
        for (int k = 0; k < late; k++) {
            p[n++] = fit->change[k];
        }
        run_entry(fit, table->fit_step, p, n);
        for (int k = 0; k < late; k++) {
            memcpy(fit->changes[k] + row * of_fit->ahead_bytes[k], fit->change[k], (size_t)of_fit->ahead_bytes[k]);
        }
        fit->sum += float_get(call->entry->ports[call->entry->inputs].dtype, call->scalar);
    }
    n = 0;
    for (int i = 0; i < of_fit->block_inputs; i++) {
        p[n++] = block[i];
    }
    for (int k = 0; k < late; k++) {
        p[n++] = fit->changes[k];
    }
    run_entry(fit, table->fit_end, p, n);
}

#endif
// Steps until all is done, or it is time for signals, or an epoch's end is to be reported.
__attribute__((hot)) static void run_steps(Fit *fit)  // though what calls it is compiled for its size
{
    const uint64_t start = clock_now();
#if HAS_TEXT
    forget_reading(fit->call.model);
#endif
    do {
        for (int64_t k = 0; k < fit->stretch; k++) {
#if MAX_LATE > 0
            (fit->block > 0 && fit->examples - fit->row >= fit->block ? run_block : run_step)(fit);
#else
            run_step(fit);
#endif
            if (fit->row == fit->examples) {
                fit->mean = fit->sum / (double)fit->examples;
                fit->sum = 0;
                fit->row = fit->drawn = 0;
                if (++fit->epoch == fit->epochs || fit->callback != NULL) {
                    return;
                }
            }
        }
    } while (clock_now() - start < SIGNALS_AFTER);
}

static Py_ssize_t examples_done(const Fit *fit)
{
    return (Py_ssize_t)fit->epoch * fit->examples + fit->row;
}

// The mean loss of this epoch so far.
static double loss_so_far(const Fit *fit)
{
    return fit->row > 0 ? fit->sum / (double)fit->row : fit->mean;
}

// Whether sys.stderr is a terminal, where a line can be written anew.
SELDOM static bool is_on_terminal(void)
{
    PyObject *file = PySys_GetObject("stderr");
    Py_IncRef(file);
    PyObject *answer = file == NULL ? NULL : PyObject_CallMethod(file, "isatty", NULL);
    const bool is_terminal = answer != NULL && PyObject_IsTrue(answer) == 1;
    PyErr_Clear();
    release(answer);
    release(file);
    return is_terminal;
}

// The option `progress`: so many microseconds since the start.
SELDOM static void print_progress(const Fit *fit, uint64_t elapsed)
{
    const double done = (double)examples_done(fit), total = (double)fit->epochs * (double)fit->examples;
    PySys_WriteStderr("%sfit: epoch %lld of %lld, loss %.4g, %.0f s left%s", fit->on_terminal ? "\r" : "",
                      (long long)fit->epoch + (fit->row > 0), (long long)fit->epochs, loss_so_far(fit),
                      (double)elapsed / 1e6 * (total - done) / done, fit->on_terminal ? "\033[K" : "\n");
}

SELDOM static int report(const Fit *fit)
{
    const Py_ssize_t total = (Py_ssize_t)fit->epochs * fit->examples;
    PyObject *result = PyObject_CallFunction(fit->callback, "nnd", examples_done(fit), total, loss_so_far(fit));
    release(result);
    return result == NULL ? -1 : 0;
}

// Run all steps. Between two steps, signals are handled, the callback runs, and other calls of this model may run.
static int train(Fit *fit)
{
    Model *model = fit->call.model;
    const ptrdiff_t steps = 1 + (fit->examples - 1) / (ptrdiff_t)fit->batch;
    const int128 work = fit->call.entry->work(fit->call.dim) + STEP_WORK;
    const bool is_long = work > LONG_WORK / steps / fit->epochs;
    fit->stretch = 1 + (int64_t)(CLOCK_WORK / work);
    const uint64_t began = clock_now();
    uint64_t reported = began, printed = began;
    while (fit->epoch < fit->epochs) {
        if (is_long) {
            Threads *threads = lend_threads(model, fit->call.entry, work, fit->call.p);
            renew_locks(model, false);
            PyThreadState *thread = PyEval_SaveThread();
            wait_for_state(model);
            run_steps(fit);
            unlock_state(model);
            PyEval_RestoreThread(thread);
            return_threads(model, threads);
        } else {
            lock_state(model);
            run_steps(fit);
            unlock_state(model);
        }
        if (PyErr_CheckSignals() < 0) {
            return -1;
        }
        if (fit->callback != NULL && (fit->row == 0 || clock_now() - reported >= REPORT_AFTER)) {
            if (report(fit) < 0) {
                return -1;
            }
            reported = clock_now();
        }
        if (fit->progress) {
            const uint64_t now = clock_now();
            if (fit->epoch == fit->epochs || now - printed >= (fit->on_terminal ? REPORT_AFTER : LINE_AFTER)) {
                print_progress(fit, now - began);
                printed = now;
            }
        }
    }
    return 0;
}

SELDOM static int read_options(Fit *fit, PyObject *const *given)
{
    const struct { int dtype; void *to; } OPTIONS[] = {
        {I64, &fit->batch}, {I64, &fit->epochs}, {BOOL, &fit->shuffle}, {U64, &fit->seed},
        {BOOL, &fit->progress},
    };
    for (size_t k = 0; k < sizeof OPTIONS / sizeof *OPTIONS; k++) {
        if (given[k] != NULL && element_set("fit", FIT_OPTIONS[k], OPTIONS[k].dtype, OPTIONS[k].to, given[k]) < 0) {
            return -1;
        }
    }
    for (int k = 0; k < 2; k++) {
        const int64_t value = k == 0 ? fit->batch : fit->epochs;
        if (value < 1) {
            PyErr_Format(PyExc_ValueError, "fit: %s: expected at least 1, got %lld", FIT_OPTIONS[k], (long long)value);
            return -1;
        }
    }
    fit->callback = given[5] == Py_None ? NULL : given[5];
    if (fit->callback != NULL && PyCallable_Check(fit->callback) == 0) {
        return refuse_type("fit", "callback", "a callable", fit->callback);
    }
    return 0;
}

// How many examples a batch has, now that it is known how many there are.
SELDOM static int set_batch(Fit *fit)
{
    Call *call = &fit->call;
    const Table *table = TABLE_OF(fit);
    const ptrdiff_t extent = table->fit_table->rows;
    fit->examples = call->dim[-1 - table->fit_table->examples];
    if (fit->epochs > PTRDIFF_MAX / fit->examples) {
        PyErr_Format(PyExc_ValueError, "fit: epochs: expected at most %zd, got %lld", PTRDIFF_MAX / fit->examples,
                     (long long)fit->epochs);
        return -1;
    }
    call->entry = &table->entries[table->train_step];
    if (extent > 0) {
        if (fit->batch != extent) {
            PyErr_Format(PyExc_ValueError, "fit: batch: expected %zd, got %lld", extent, (long long)fit->batch);
            return -1;
        }
        if (fit->examples % extent != 0) {
            PyErr_Format(PyExc_ValueError, "fit: expected examples in a multiple of %zd, got %zd", extent,
                         fit->examples);
            return -1;
        }
        return check_bounds(call);
    }
    // A last, smaller batch must be as good as the others.
    fit->batch = fit->batch < fit->examples ? fit->batch : fit->examples;
    const ptrdiff_t sizes[] = {fit->examples % (ptrdiff_t)fit->batch, (ptrdiff_t)fit->batch};
    for (int k = sizes[0] == 0; k < 2; k++) {
        call->dim[-1 - extent] = -1;
        if (set_dim(call, 0, (int)(-1 - extent), sizes[k]) < 0 || check_bounds(call) < 0) {
            return -1;
        }
    }
    return 0;
}

// Where the examples of each input are, and memory to put together batches of them.
SELDOM static int place_examples(Fit *fit)
{
    const Table *table = TABLE_OF(fit);
    const FitTable *of_fit = table->fit_table;
    const Entry *entry = &table->entries[table->fit];
    ptrdiff_t at[MAX_INPUTS], total = 0, together = fit->shuffle ? (ptrdiff_t)fit->batch : 0;
#if MAX_LATE > 0
    const int late = of_fit->late_weights;
    fit->block = fit->batch == 1 ? of_fit->block : 0;
    together = fit->shuffle && fit->block > 0 ? fit->block : together;
#endif
    for (int i = 0; i < entry->inputs; i++) {
        const Port *port = &entry->ports[i];
        const bool is_split = port->rank > 0 && port->shape[0] == of_fit->examples;
        fit->row_bytes[i] = is_split ? fit->call.inputs[i].bytes / fit->examples : 0;
        fit->data[i] = fit->call.p[i];
        at[i] = total;
        total += round_up(fit->row_bytes[i] * together);
    }
#if MAX_LATE > 0
    const ptrdiff_t block_at = total;
    ptrdiff_t workspace = 0;
    for (int e = 0; fit->block > 0 && e < 3; e++) {
        const int number = (const int[]){table->fit_begin, table->fit_step, table->fit_end}[e];
        const ptrdiff_t bytes = (ptrdiff_t)table->entries[number].workspace(fit->call.dim);
        workspace = bytes > workspace ? bytes : workspace;
    }
    for (int k = 0; fit->block > 0 && k < late; k++) {
        const ptrdiff_t ahead = of_fit->ahead_bytes[k];
        total += 2 * round_up(fit->block * ahead) + round_up(ahead) + round_up(fit->block * of_fit->like_bytes[k]);
    }
    total += round_up(workspace);
#endif
    if (total == 0 && !fit->shuffle) {
        return 0;
    }
    const ptrdiff_t ordered = fit->shuffle ? fit->examples : 0;
    fit->memory = workspace_lease(fit->call.model, total + ordered * (ptrdiff_t)sizeof *fit->order);
    if (fit->memory == NULL) {
        return -1;
    }
#if MAX_LATE > 0
    char *memory = fit->memory->memory + block_at;
    for (int k = 0; fit->block > 0 && k < late; k++) {
        fit->ahead[k] = memory;
        fit->changes[k] = fit->ahead[k] + round_up(fit->block * of_fit->ahead_bytes[k]);
        fit->change[k] = fit->changes[k] + round_up(fit->block * of_fit->ahead_bytes[k]);
        fit->like[k] = fit->change[k] + round_up(of_fit->ahead_bytes[k]);
        memory = fit->like[k] + round_up(fit->block * of_fit->like_bytes[k]);
    }
    fit->workspace = memory;
#endif
    for (int i = 0; i < entry->inputs; i++) {
        fit->gathered[i] = fit->memory->memory + at[i];
    }
    fit->order = (ptrdiff_t *)(void *)(fit->memory->memory + total);
    for (ptrdiff_t k = 0; k < ordered; k++) {
        fit->order[k] = k;
    }
    return 0;
}

SELDOM static PyObject *method_fit(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    const Table *table = TABLE_OF((Model *)PY_BODY(self));
    if (table->fit_table->refusal != NULL) {
        return PyErr_Format(PyExc_TypeError, "fit: this model has no batches: %s; train_step can train it",
                            table->fit_table->refusal);
    }
    const Entry *entry = &table->entries[table->fit];
    Fit fit = {.batch = table->fit_table->batch, .epochs = 1, .shuffle = true};
#if IS_SHARED
    fit.table = table;
#endif
    PyObject *given[sizeof FIT_OPTIONS / sizeof *FIT_OPTIONS] = {NULL};
    begin_call(&fit.call, PY_BODY(self), entry, "fit");
    int status = see_inputs(&fit.call, args, count, names, FIT_OPTIONS, given);
    if (status == 0 && read_options(&fit, given) == 0 && set_batch(&fit) == 0 && place_inputs(&fit.call, entry) == 0) {
        char **rest = fit.call.p + fit.call.entry->inputs;
        rest[0] = fit.call.scalar;
        rest[1] = fit.call.model->state;
        rest[2] = (char *)weights_at(fit.call.model, 0);
        fit.on_terminal = fit.progress && is_on_terminal();
        status = place_examples(&fit) < 0 ? -1 : train(&fit);
        if (fit.on_terminal) {
            PySys_WriteStderr("\n");
        }
    } else {
        status = -1;
    }
    if (fit.memory != NULL) {
        workspace_return(fit.call.model, fit.memory);
    }
    return end_call(&fit.call, status) < 0 ? NULL : PyFloat_FromDouble(fit.mean);
}

#endif
