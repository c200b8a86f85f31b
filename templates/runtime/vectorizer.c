// ---------------------------------------------------------------- vectorizers: the terms of a text, and how many there are
#pragma once

#include "runtime/tokenizer_automaton.c"
#include "runtime/tokenizer_buffer.c"

// The lists of mlaot/tokenizers/vectorizer_packing.py.
enum {
    VECTORIZER_CHARACTERS = 1 << 0,    // terms are of characters of the whole text
    VECTORIZER_WITHIN_WORDS = 1 << 1,  // or of those of a word between spaces
    VECTORIZER_HASHED = 1 << 2,
    VECTORIZER_SIGNED = 1 << 3,
    VECTORIZER_BINARY = 1 << 4,
    VECTORIZER_LOWER = 1 << 5,
    VECTORIZER_CHANGES = 1 << 6,
    VECTORIZER_BOUNDARY = 1 << 7,  // a word begins behind no word's character only
};
enum { KIND_WORD = 1 << 0, KIND_SPACE = 1 << 1, KIND_CASED = 1 << 2, KIND_IGNORED = 1 << 3 };
enum { CHANGE_DROPPED = 1, CHANGE_LENGTH_BITS = 5, MAX_TERM = 64, FEW_TERMS = 48 };
enum { CAPITAL_SIGMA = 0x3A3, FINAL_SIGMA = 0x3C2 };
#define CHANGE_SEQUENCE (UINT32_C(1) << 31)
#define TEXT_ERRORS "surrogatepass"  // of a str that is no UTF-8
#define NO_WORD INT64_C(0x7FFFFFFF)  // what fills rows that have fewer terms: no place, and no count

typedef struct {
    int64_t bits, least, most, size;
    Tokenizer terms, stops;  // of which the tables of strings are there
    const char *pattern;
    const uint16_t *change_pages, *kind_pages;
    const uint32_t *changes, *sequences;
    const uint8_t *kinds;
} Vectorizer;

// What is made of texts: each text as it is matched, words with spaces between them, the terms of one as twice their
// place plus one for those that count below zero, and rows of all.
typedef struct {
    Buffer text, words, terms, spare, rows;
} Terms;

static inline Vectorizer vectorizer_view(const char *block, int64_t number)
{
    const int64_t *head = (const int64_t *)(const void *)(block + ((const int64_t *)(const void *)block)[1 + number]);
    Vectorizer v = {.bits = head[0], .least = head[1], .most = head[2], .size = head[3]};
    const TokenizerTable *next = (const TokenizerTable *)(const void *)(head + 4);
    Tokenizer *const strings[] = {&v.terms, &v.stops};
    for (int i = 0; i < 2; i++) {
        ptrdiff_t places;
        strings[i]->words = tokenizer_table(block, &next, sizeof(TokenizerWord), &places);
        strings[i]->word_places = (uint32_t)places;
        strings[i]->ends = tokenizer_table(block, &next, 4, NULL);
        strings[i]->bytes = tokenizer_table(block, &next, 1, NULL);
    }
    v.pattern = tokenizer_table(block, &next, 1, NULL);
    v.change_pages = tokenizer_table(block, &next, 2, NULL);
    v.changes = tokenizer_table(block, &next, 4, NULL);
    v.sequences = tokenizer_table(block, &next, 4, NULL);
    v.kind_pages = tokenizer_table(block, &next, 2, NULL);
    v.kinds = tokenizer_table(block, &next, 1, NULL);
    return v;
}

static inline int kind_of(const Vectorizer *v, uint32_t code)
{
    return v->kinds[256 * v->kind_pages[code >> 8] + (code & 255)];
}

static inline const char *character_before(const char *at)
{
    do {
        at--;
    } while (((unsigned char)*at & 0xC0) == 0x80);
    return at;
}

static inline int kind_at(const Vectorizer *v, const char *at, const char *end)
{
    return kind_of(v, utf8_code(at, utf8_size(at, end)));
}

// Whether a sigma ends a word: a character that has case stands before it and none behind, whatever case does not see.
static inline bool is_final(const Vectorizer *v, const char *begin, const char *at, const char *end)
{
    const char *before = at, *behind = at + 2;
    int kind = KIND_IGNORED;
    while (before > begin && kind == KIND_IGNORED) {
        before = character_before(before);
        kind = kind_at(v, before, end) & (KIND_CASED | KIND_IGNORED);
    }
    if (kind != KIND_CASED) {
        return false;
    }
    kind = KIND_IGNORED;
    for (; behind < end && kind == KIND_IGNORED; behind += utf8_size(behind, end)) {
        kind = kind_at(v, behind, end) & (KIND_CASED | KIND_IGNORED);
    }
    return kind != KIND_CASED;
}

// Make small letters, and take accents away.
static bool change_text(const Vectorizer *v, const char *begin, const char *end, Buffer *to)
{
    const bool lower = (v->bits & VECTORIZER_LOWER) != 0;
    if (!buffer_room(to, end - begin)) {
        return false;
    }
    for (const char *at = begin; at < end;) {
        const unsigned char first = (unsigned char)*at;
        if (first < 0x80) {
            if (!buffer_room(to, 1)) {
                return false;
            }
            to->at[to->bytes++] = (char)(lower && first >= 'A' && first <= 'Z' ? first + 32 : first);
            at++;
            continue;
        }
        const ptrdiff_t size = utf8_size(at, end);
        uint32_t code = utf8_code(at, size);
        if (lower && code == CAPITAL_SIGMA && is_final(v, begin, at, end)) {
            code = FINAL_SIGMA;
        }
        const uint32_t change = v->changes[256 * v->change_pages[code >> 8] + (code & 255)];
        bool is_done = true;
        if (change == 0) {
            is_done = code == FINAL_SIGMA ? buffer_add_code(to, code) : buffer_add(to, at, size);
        } else if ((change & CHANGE_SEQUENCE) != 0) {
            const uint32_t rest = change & ~CHANGE_SEQUENCE;
            const uint32_t *codes = v->sequences + (rest >> CHANGE_LENGTH_BITS);
            for (uint32_t i = 0; is_done && i < (rest & ((1U << CHANGE_LENGTH_BITS) - 1)); i++) {
                is_done = buffer_add_code(to, codes[i]);
            }
        } else if (change != CHANGE_DROPPED) {
            is_done = buffer_add_code(to, change);
        }
        if (!is_done) {
            return false;
        }
        at += size;
    }
    return true;
}

static inline uint32_t turn_left(uint32_t value, int bits)
{
    return value << bits | value >> (32 - bits);
}

// MurmurHash3 (Appleby, 2011) from 0.
static uint32_t murmur(const char *at, ptrdiff_t bytes)
{
    const unsigned char *c = (const unsigned char *)at;
    uint32_t value = 0;
    for (ptrdiff_t i = 0; i < bytes; i += 4) {
        uint32_t word = 0;
        for (int k = 0; k < 4 && i + k < bytes; k++) {
            word |= (uint32_t)c[i + k] << 8 * k;
        }
        value ^= turn_left(word * UINT32_C(0xCC9E2D51), 15) * UINT32_C(0x1B873593);
        if (i + 4 <= bytes) {
            value = turn_left(value, 13) * 5 + UINT32_C(0xE6546B64);
        }
    }
    value ^= (uint32_t)bytes;
    value = (value ^ value >> 16) * UINT32_C(0x85EBCA6B);
    value = (value ^ value >> 13) * UINT32_C(0xC2B2AE35);
    return value ^ value >> 16;
}

// Add a term where it has a place.
static inline bool add_term(const Vectorizer *v, const char *at, ptrdiff_t bytes, Buffer *terms)
{
    uint32_t term;
    if ((v->bits & VECTORIZER_HASHED) != 0) {
        const uint32_t hash = murmur(at, bytes);
        const bool is_negative = hash >> 31 != 0;
        term = (is_negative ? -hash : hash) % (uint32_t)v->size << 1;
        term |= is_negative && (v->bits & VECTORIZER_SIGNED) != 0;
    } else {
        term = find_word(&v->terms, at, bytes, tokenizer_hash(at, bytes));
        if (term == TOKENIZER_NONE) {
            return true;
        }
        term <<= 1;
    }
    return buffer_add(terms, (const char *)&term, sizeof term);
}

// Where the last words or characters begin, of which terms are made.
typedef struct {
    ptrdiff_t begins[MAX_TERM];
    int64_t count;
} Run;

// Add the terms that end with a word or a character of a text.
static inline bool add_to_run(const Vectorizer *v, Run *run, const Buffer *text, ptrdiff_t begin, ptrdiff_t end,
                              Buffer *terms)
{
    run->begins[run->count % MAX_TERM] = begin;
    run->count++;
    for (int64_t n = v->least; n <= v->most && n <= run->count; n++) {
        const ptrdiff_t from = run->begins[(run->count - n) % MAX_TERM];
        if (!add_term(v, text->at + from, end - from, terms)) {
            return false;
        }
    }
    return true;
}

static bool add_word(const Vectorizer *v, Run *run, const char *at, const char *end, Terms *t)
{
    if (v->stops.words != NULL &&
        find_word(&v->stops, at, end - at, tokenizer_hash(at, end - at)) != TOKENIZER_NONE) {
        return true;
    }
    if (v->most == 1) {
        return add_term(v, at, end - at, &t->terms);
    }
    if (run->count > 0 && !buffer_add(&t->words, " ", 1)) {
        return false;
    }
    const ptrdiff_t begin = t->words.bytes;
    return buffer_add(&t->words, at, end - at) && add_to_run(v, run, &t->words, begin, t->words.bytes, &t->terms);
}

// The terms of words that a pattern finds.
static bool words_of_text(const Vectorizer *v, const char *begin, const char *end, Terms *t)
{
    TextSearch search = {.a = automaton_view(v->pattern), .begin = begin, .end = end};
    const bool at_boundary = (v->bits & VECTORIZER_BOUNDARY) != 0;
    bool behind_word = false, is_done = true;  // the character before this one is a word's
    Run run = {.count = 0};
    for (const char *at = begin; at < end && is_done && !search.is_short;) {
        const char *stop = at_boundary && behind_word ? at : match_end(&search, at);
        if (stop > at) {
            is_done = add_word(v, &run, at, stop, t);
            behind_word = at_boundary && (kind_at(v, character_before(stop), end) & KIND_WORD) != 0;
            at = stop;
        } else {
            behind_word = at_boundary && (kind_at(v, at, end) & KIND_WORD) != 0;
            at += utf8_size(at, end);
        }
    }
    return search_ends(&search) && is_done;
}

// The terms of the characters of a text from a place on.
static bool characters_of(const Vectorizer *v, const Buffer *text, ptrdiff_t begin, Buffer *terms)
{
    Run run = {.count = 0};
    for (ptrdiff_t at = begin; at < text->bytes;) {
        const ptrdiff_t next = at + utf8_size(text->at + at, text->at + text->bytes);
        if (!add_to_run(v, &run, text, at, next, terms)) {
            return false;
        }
        at = next;
    }
    const bool is_short = (v->bits & VECTORIZER_WITHIN_WORDS) != 0 && run.count < v->least;
    return !is_short || add_term(v, text->at + begin, text->bytes - begin, terms);
}

// The terms of characters: of the text with single spaces for several, or of each word between spaces.
static bool characters_of_text(const Vectorizer *v, const char *begin, const char *end, Terms *t)
{
    const bool within = (v->bits & VECTORIZER_WITHIN_WORDS) != 0;
    for (const char *at = begin; at < end;) {
        const char *stop = at;
        int spaces = 0;
        while (stop < end && (kind_at(v, stop, end) & KIND_SPACE) != 0) {
            stop += utf8_size(stop, end);
            spaces++;
        }
        if (spaces > 0 && !within && !buffer_add(&t->words, spaces > 1 ? " " : at, spaces > 1 ? 1 : stop - at)) {
            return false;
        }
        at = stop;
        while (stop < end && (kind_at(v, stop, end) & KIND_SPACE) == 0) {
            stop += utf8_size(stop, end);
        }
        if (within && stop > at) {
            t->words.bytes = 0;
            if (!buffer_add(&t->words, " ", 1) || !buffer_add(&t->words, at, stop - at) ||
                !buffer_add(&t->words, " ", 1) || !characters_of(v, &t->words, 0, &t->terms)) {
                return false;
            }
        } else if (!within && !buffer_add(&t->words, at, stop - at)) {
            return false;
        }
        at = stop;
    }
    return within || characters_of(v, &t->words, 0, &t->terms);
}

// Put terms in order: few by insertion, many by their digits.
static bool order_terms(Terms *t)
{
    uint32_t *terms = (uint32_t *)(void *)t->terms.at;
    const ptrdiff_t count = t->terms.bytes / (ptrdiff_t)sizeof *terms;
    if (count <= FEW_TERMS) {
        for (ptrdiff_t i = 1; i < count; i++) {
            const uint32_t term = terms[i];
            ptrdiff_t k = i;
            for (; k > 0 && terms[k - 1] > term; k--) {
                terms[k] = terms[k - 1];
            }
            terms[k] = term;
        }
        return true;
    }
    t->spare.bytes = 0;
    if (!buffer_room(&t->spare, t->terms.bytes)) {
        return false;
    }
    uint32_t *spare = (uint32_t *)(void *)t->spare.at, all = 0;
    for (ptrdiff_t i = 0; i < count; i++) {
        all |= terms[i];
    }
    for (int shift = 0; shift < 32 && all >> shift != 0; shift += 8) {
        ptrdiff_t begins[257] = {0};
        for (ptrdiff_t i = 0; i < count; i++) {
            begins[(terms[i] >> shift & 255) + 1]++;
        }
        for (int digit = 0; digit < 256; digit++) {
            begins[digit + 1] += begins[digit];
        }
        for (ptrdiff_t i = 0; i < count; i++) {
            spare[begins[terms[i] >> shift & 255]++] = terms[i];
        }
        memcpy(terms, spare, (size_t)t->terms.bytes);
    }
    return true;
}

// Add the terms of a text to its row: each place once, with how often it is there.
static bool add_terms(const Vectorizer *v, const char *at, ptrdiff_t bytes, int64_t first, Terms *t)
{
    const char *begin = at, *end = at + bytes;
    t->words.bytes = t->terms.bytes = 0;
    if ((v->bits & VECTORIZER_CHANGES) != 0) {
        t->text.bytes = 0;
        if (!change_text(v, at, end, &t->text)) {
            return false;
        }
        begin = t->text.at;
        end = begin + t->text.bytes;
    }
    const bool is_done = (v->bits & (VECTORIZER_CHARACTERS | VECTORIZER_WITHIN_WORDS)) != 0
                             ? characters_of_text(v, begin, end, t)
                             : words_of_text(v, begin, end, t);
    if (!is_done || !order_terms(t)) {
        return false;
    }
    const uint32_t *terms = (const uint32_t *)(const void *)t->terms.at;
    const ptrdiff_t count = t->terms.bytes / (ptrdiff_t)sizeof *terms;
    for (ptrdiff_t i = 0, next; i < count; i = next) {
        int64_t found = 0;
        for (next = i; next < count && terms[next] >> 1 == terms[i] >> 1; next++) {
            found += (terms[next] & 1) != 0 ? -1 : 1;
        }
        found = (v->bits & VECTORIZER_BINARY) != 0 ? 1 : found;
        const int64_t number = found * (INT64_C(1) << 32) + first + (terms[i] >> 1);
        if (!buffer_add(&t->rows, (const char *)&number, sizeof number)) {
            return false;
        }
    }
    return true;
}

// Add the row of a text; false where memory is short.
static bool read_text(const char *block, const char *at, ptrdiff_t bytes, Terms *t)
{
    const int64_t count = *(const int64_t *)(const void *)block;
    int64_t first = 0;
    for (int64_t i = 0; i < count; i++) {
        const Vectorizer v = vectorizer_view(block, i);
        if (!add_terms(&v, at, bytes, first, t)) {
            return false;
        }
        first += v.size;
    }
    return true;
}

static void free_terms(Terms *t)
{
    free(t->text.at);
    free(t->words.at);
    free(t->terms.at);
    free(t->spare.at);
    free(t->rows.at);
}
