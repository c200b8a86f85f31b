// ------------------------------------------------------------------------------------------------------------ profile
#pragma once

#if HAS_PROFILE

#include <stdlib.h>
#include <time.h>

// The call that this thread profiles: of each kernel its time, how often it ran and what its first run cost.
typedef struct Profile {
    int64_t last;          // the time of the last mark
    const ptrdiff_t *dim;  // of the entry that runs
    struct {
        int64_t spent, rounds, operations, bytes;
    } kernels[sizeof PROFILED / sizeof *PROFILED];
} Profile;

static _Thread_local Profile *profile;  // NULL: nothing is profiled on this thread

static int64_t profile_clock(void)
{
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

// Called before an entry runs.
static void profile_entry(const ptrdiff_t *dim)
{
    if (profile != NULL) {
        profile->dim = dim;
        profile->last = profile_clock();
    }
}

static int64_t in_64_bits(int128 x)
{
    return x < INT64_MAX ? (int64_t)x : INT64_MAX;
}

// Called by entries behind each kernel.
void MARK(int kernel)
{
    if (profile == NULL) {
        return;
    }
    profile->kernels[kernel].spent += profile_clock() - profile->last;
    if (profile->kernels[kernel].rounds++ == 0) {
        profile->kernels[kernel].operations = in_64_bits(profiled_operations(kernel, profile->dim));
        profile->kernels[kernel].bytes = in_64_bits(profiled_bytes(kernel, profile->dim));
    }
    profile->last = profile_clock();
}

static bool is_profiling(void)
{
    return profile != NULL;
}
#else
#define profile_entry(dim) (void)0
#define is_profiling() false
#endif
