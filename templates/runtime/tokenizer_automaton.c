// ------------------------------------------------------------ tokenizers: what patterns match, by tables of their states
#pragma once

#include "runtime/tokenizer_tables.c"

enum { ELSE = 255, PATTERN_PAGES = 0x1100, LONG_SEARCH = 64 };

// A row for each state, a column for each class of characters, and one for the end. What stands there is twice the next
// row, plus one where a match ends before this character. Row 0 goes nowhere, the next one is where a match begins.
typedef struct {
    const uint32_t *pages, *table;
    const uint8_t *first, *classes;  // `first`: of codes below 256; ELSE: the pages have it
    uint32_t width;
} Automaton;

static inline Automaton automaton_view(const char *at)
{
    const uint32_t *head = (const uint32_t *)(const void *)at;
    const uint8_t *first = (const uint8_t *)(head + 2), *classes = first + 256 + 4 * PATTERN_PAGES;
    return (Automaton){
        .pages = (const uint32_t *)(const void *)(first + 256),
        .table = (const uint32_t *)(const void *)(classes + head[1]),
        .first = first,
        .classes = classes,
        .width = head[0],
    };
}

static inline uint32_t class_of(const Automaton *a, const char *at, const char *end, ptrdiff_t *size)
{
    const uint32_t class = a->first[(unsigned char)*at];
    if (class != ELSE) {
        *size = 1;
        return class;
    }
    *size = utf8_size(at, end);
    const uint32_t code = utf8_code(at, *size);
    return a->classes[256 * a->pages[code >> 8] + (code & 255)];
}

// The end of the match that begins here in a row; the place itself where none does. `is_far`: much more was looked at.
static inline const char *quick_end(const Automaton *a, uint32_t row, const char *at, const char *end, bool *is_far)
{
    const char *found = at, *next = at;
    for (ptrdiff_t size; row != 0 && next < end; next += size) {
        const uint32_t entry = a->table[row + class_of(a, next, end, &size)];
        found = (entry & 1) != 0 ? next : found;
        row = entry >> 1;
    }
    if (row != 0 && (a->table[row + a->width - 1] & 1) != 0) {
        return end;
    }
    *is_far = next - found > LONG_SEARCH;
    return found;
}

// A search through a part. Once it has gone far in vain, `vain` has the row at each place that no match followed, so
// that it never goes there again.
typedef struct {
    Automaton a;
    const char *begin, *end;
    const char *match;  // the end of the match at where the next span begins, that place itself without one
    uint32_t *vain;
    bool is_short;  // of memory
} TextSearch;

// What is noted before the end of a match is never asked for, as all searches after it begin there.
static inline const char *careful_end(TextSearch *s, uint32_t row, const char *at)
{
    const char *found = at, *next = at;
    ptrdiff_t size = 1;
    for (; row != 0 && s->vain[next - s->begin] != row; next += size) {
        s->vain[next - s->begin] = row;
        const uint32_t class = next == s->end ? s->a.width - 1 : class_of(&s->a, next, s->end, &size);
        const uint32_t entry = s->a.table[row + class];
        found = (entry & 1) != 0 ? next : found;
        row = entry >> 1;
        if (next == s->end) {
            break;
        }
    }
    return found;
}

// The end of the match that begins here in a row; the place itself where none does.
static inline const char *match_from(TextSearch *s, uint32_t row, const char *at)
{
    bool is_far = false;
    const char *found = s->vain == NULL ? quick_end(&s->a, row, at, s->end, &is_far) : careful_end(s, row, at);
    if (is_far) {
        s->vain = calloc((size_t)(s->end - s->begin + 1), sizeof *s->vain);
        s->is_short = s->vain == NULL;
        return s->is_short ? found : careful_end(s, row, at);
    }
    return found;
}

static inline const char *match_end(TextSearch *s, const char *at)
{
    return match_from(s, s->a.width, at);
}

static inline TextSearch search_of(const char *automaton, const char *at, const char *end)
{
    TextSearch search = {.a = automaton_view(automaton), .begin = at, .end = end};
    search.match = at < end ? match_end(&search, at) : at;
    return search;
}

// What is matched, or lies between matches.
typedef struct {
    const char *begin, *end;
    bool matched;
} TextSpan;

// Go to the next span; false where there is none.
static inline bool next_span(TextSearch *s, TextSpan *span)
{
    const char *at = span->end;
    if (at == s->end || s->is_short) {
        return false;
    }
    span->begin = at;
    span->matched = s->match > at;
    if (span->matched) {
        at = s->match;
        s->match = at < s->end ? match_end(s, at) : at;
    } else {
        do {
            ptrdiff_t size;
            class_of(&s->a, at, s->end, &size);
            at += size;
            s->match = at < s->end ? match_end(s, at) : at;
        } while (at < s->end && s->match == at);
    }
    span->end = at;
    return true;
}

// Give back the memory of a search; false where it was short.
static inline bool search_ends(TextSearch *s)
{
    free(s->vain);
    return !s->is_short;
}
