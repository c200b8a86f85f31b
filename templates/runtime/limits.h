// How large the tables of a module may be whose runtime is shared, and what that has: all but texts, dates and
// what makes strings, which few models have and much code serves. A module that needs more has a runtime of its own.
#pragma once

#define HAS_STATE 1
#define HAS_GRADIENTS 1
#define HAS_SCALARS 1
#define HAS_PHASES 1
#define HAS_NAMED 1
#define HAS_REFUSALS 1
#define HAS_COUNTS 1
#define HAS_INDICES 1
#define HAS_STRINGS 1
#define HAS_SESSION 1
#define HAS_FIT 1
#define HAS_PROFILE 0
#define HAS_WEIGHTS_FILE 1
#define HAS_PREPARED 1
#define HAS_TEXT 0
#define HAS_TEXTS 0
#define HAS_TOKENIZER 0
#define HAS_ROWS 0
#define HAS_VECTORIZER 0
#define HAS_STEPS 0
#define HAS_TOKENS 0
#define HAS_DATES 0

#define DIMS 16
#define MAX_RANK 8
#define MAX_INPUTS 64
#define MAX_OUTPUTS 64
#define MAX_COUNTS 16
#define MAX_LATE 64
#define CPUID_COUNT 16
