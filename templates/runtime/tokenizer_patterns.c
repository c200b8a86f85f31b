// ---------------------------------------------------------- tokenizers: the patterns that cut a text before it is merged
#pragma once

#include "runtime/tokenizer_tables.c"

enum { IS_LETTER = 1, IS_NUMBER = 2, IS_MARK = 4, IS_UPPER = 8, IS_LOWER = 16, IS_SPACE = 32, IS_NEWLINE = 64 };

static inline int class_of(const Tokenizer *t, const char *at, const char *end, ptrdiff_t *size)
{
    const unsigned char c = (unsigned char)*at;
    if (c < 128) {
        *size = 1;
        return t->classes[256 * t->class_pages[0] + c];
    }
    *size = utf8_size(at, end);
    const uint32_t code = utf8_code(at, *size);
    return t->classes[256 * t->class_pages[code >> 8] + (code & 255)];
}

// The end of the characters from here on that have one of some classes, or have none of them.
static inline const char *run_of(const Tokenizer *t, const char *at, const char *end, int classes, bool has)
{
    ptrdiff_t size;
    while (at < end && ((class_of(t, at, end, &size) & classes) != 0) == has) {
        at += size;
    }
    return at;
}

static inline bool begins_with(const Tokenizer *t, const char *at, const char *end, int classes)
{
    ptrdiff_t size;
    return at < end && (class_of(t, at, end, &size) & classes) != 0;
}

// The end of 's, 't, 're, 've, 'm, 'll or 'd, in capitals too where those are alike; NULL where there is none.
static const char *contraction(const char *at, const char *end, bool alike)
{
    if (end - at < 2 || *at != '\'') {
        return NULL;
    }
    const int lower = alike ? 32 : 0;
    const int first = at[1] | lower;
    if (first == 's' || first == 't' || first == 'm' || first == 'd') {
        return at + 2;
    }
    if (end - at < 3) {
        return NULL;
    }
    if (alike && memcmp(at + 1, "\xC5\xBF", 2) == 0) {  // the long s
        return at + 3;
    }
    const int second = at[2] | lower;
    const bool is_two = ((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l');
    return is_two ? at + 3 : NULL;
}

// The end of a run of whitespace, or of what is taken of it: `\s*[\r\n]+|\s+(?!\S)|\s+`.
static const char *space_end(const Tokenizer *t, const char *at, const char *end, bool newlines, bool last)
{
    const char *after_newline = NULL, *before = at, *next = at;
    ptrdiff_t size;
    for (int class; next < end && ((class = class_of(t, next, end, &size)) & IS_SPACE) != 0; next += size) {
        before = next;
        if ((class & IS_NEWLINE) != 0) {
            after_newline = next + size;
        }
    }
    if (last && next == end) {
        return end;
    }
    if (newlines && after_newline != NULL) {
        return after_newline;
    }
    return next == end || before == at ? next : before;
}

// ` ?[^\s\p{L}\p{N}]+`; where that begins, else NULL.
static inline const char *others_begin(const Tokenizer *t, const char *at, const char *end)
{
    const char *begin = at + (*at == ' ');
    ptrdiff_t size;
    const bool is_other = begin < end && (class_of(t, begin, end, &size) & (IS_SPACE | IS_LETTER | IS_NUMBER)) == 0;
    return is_other ? begin : NULL;
}

static const char *gpt2_end(const Tokenizer *t, const char *at, const char *end)
{
    const char *found = contraction(at, end, false);
    if (found != NULL) {
        return found;
    }
    const char *begin = at + (*at == ' ');
    if (begin < end) {
        ptrdiff_t size;
        const int class = class_of(t, begin, end, &size);
        if ((class & (IS_LETTER | IS_NUMBER)) != 0) {
            return run_of(t, begin + size, end, class & (IS_LETTER | IS_NUMBER), true);
        }
        if ((class & IS_SPACE) == 0) {
            return run_of(t, begin + size, end, IS_SPACE | IS_LETTER | IS_NUMBER, false);
        }
    }
    return space_end(t, at, end, false, false);
}

static const char *numbers_end(const Tokenizer *t, const char *at, const char *end, int most)
{
    for (ptrdiff_t size; most > 0 && begins_with(t, at, end, IS_NUMBER); most--) {
        class_of(t, at, end, &size);
        at += size;
    }
    return at;
}

// The same for Llama 3, Qwen 2 and cl100k, which differ in how many digits are one part and in the end of a text.
static const char *llama3_end(const Tokenizer *t, const char *at, const char *end, int digits, bool last)
{
    const char *found = contraction(at, end, true);
    if (found != NULL) {
        return found;
    }
    ptrdiff_t size;
    const int class = class_of(t, at, end, &size);
    if ((class & IS_LETTER) != 0) {
        return run_of(t, at + size, end, IS_LETTER, true);
    }
    if ((class & IS_NUMBER) != 0) {
        return numbers_end(t, at, end, digits);
    }
    if ((class & IS_NEWLINE) == 0 && begins_with(t, at + size, end, IS_LETTER)) {
        return run_of(t, at + size, end, IS_LETTER, true);
    }
    const char *others = others_begin(t, at, end);
    if (others != NULL) {
        others = run_of(t, others, end, IS_SPACE | IS_LETTER | IS_NUMBER, false);
        return run_of(t, others, end, IS_NEWLINE, true);
    }
    return space_end(t, at, end, true, last);
}

static inline bool may_begin(int class)  // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
{
    return (class & IS_MARK) != 0 || (class & (IS_LETTER | IS_LOWER)) == IS_LETTER;
}

static inline bool may_follow(int class)  // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
{
    return (class & IS_MARK) != 0 || (class & (IS_LETTER | IS_UPPER)) == IS_LETTER;
}

static const char *following_end(const Tokenizer *t, const char *at, const char *end)
{
    ptrdiff_t size;
    while (at < end && may_follow(class_of(t, at, end, &size))) {
        at += size;
    }
    return at;
}

// The end of `begin* follow+`, or of `begin+ follow*` where the first does not match; NULL where neither does.
static const char *cased_end(const Tokenizer *t, const char *at, const char *end, bool needs_follow)
{
    const char *next = at, *last = NULL;  // behind the last of the first ones that may be the only one of the others
    ptrdiff_t size;
    for (int class; next < end && may_begin(class = class_of(t, next, end, &size));) {
        next += size;
        if (may_follow(class)) {
            last = next;
        }
    }
    const char *found = following_end(t, next, end);
    if (found > next || (!needs_follow && next > at)) {
        return found;
    }
    return needs_follow ? last : NULL;
}

static const char *o200k_end(const Tokenizer *t, const char *at, const char *end)
{
    ptrdiff_t size;
    const int class = class_of(t, at, end, &size);
    for (int needs_follow = 1; needs_follow >= 0; needs_follow--) {
        const bool has_other = (class & (IS_NEWLINE | IS_LETTER | IS_NUMBER)) == 0;
        const char *found = has_other ? cased_end(t, at + size, end, needs_follow) : NULL;
        found = found != NULL ? found : cased_end(t, at, end, needs_follow);
        if (found != NULL) {
            const char *with = contraction(found, end, true);
            return with != NULL ? with : found;
        }
    }
    if ((class & IS_NUMBER) != 0) {
        return numbers_end(t, at, end, 3);
    }
    const char *others = others_begin(t, at, end);
    if (others == NULL) {
        return space_end(t, at, end, true, false);
    }
    others = run_of(t, others, end, IS_SPACE | IS_LETTER | IS_NUMBER, false);
    while (others < end && (*others == '\r' || *others == '\n' || *others == '/')) {
        others++;
    }
    return others;
}

// The end of the part that begins here.
static inline const char *part_end(const Tokenizer *t, const char *at, const char *end)
{
    switch (t->pattern) {
    case PATTERN_GPT2:
        return gpt2_end(t, at, end);
    case PATTERN_LLAMA3:
        return llama3_end(t, at, end, 3, false);
    case PATTERN_QWEN2:
        return llama3_end(t, at, end, 1, false);
    case PATTERN_CL100K:
        return llama3_end(t, at, end, 3, true);
    case PATTERN_O200K:
        return o200k_end(t, at, end);
    default:
        return end;
    }
}
