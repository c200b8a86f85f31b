// ------------------------------------------------------------------------- tokenizers: the canonical forms of a text
#pragma once

#include "runtime/tokenizer_buffer.c"
#include "runtime/tokenizer_tables.c"

enum { CHANGES = 255, HANGUL = 0xAC00, LEADING = 0x1100, VOWEL = 0x1161, TRAILING = 0x11A7 };
enum { LEADINGS = 19, VOWELS = 21, TRAILINGS = 28, SYLLABLES = LEADINGS * VOWELS * TRAILINGS };
enum { FEW_MARKS = 32 };

static inline int compose_class(const Tokenizer *t, uint32_t code)
{
    return t->compose_classes[256 * t->compose_pages[code >> 8] + (code & 255)];
}

static inline int combining_class(const Tokenizer *t, uint32_t code)
{
    const int class = compose_class(t, code);
    return class == CHANGES ? 0 : class;
}

// The parts of a character, at most four.
static int decompose(const Tokenizer *t, uint32_t code, uint32_t *parts)
{
    if (code >= HANGUL && code < HANGUL + SYLLABLES) {
        const uint32_t rest = (code - HANGUL) % (VOWELS * TRAILINGS);
        parts[0] = LEADING + (code - HANGUL) / (VOWELS * TRAILINGS);
        parts[1] = VOWEL + rest / TRAILINGS;
        parts[2] = TRAILING + rest % TRAILINGS;
        return rest % TRAILINGS != 0 ? 3 : 2;
    }
    ptrdiff_t low = 0, high = t->decomposition_count;
    while (low < high) {
        const ptrdiff_t middle = (low + high) / 2;
        if (t->decompositions[middle].code < code) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == t->decomposition_count || t->decompositions[low].code != code) {
        parts[0] = code;
        return 1;
    }
    int count = 0;
    while (count < 4 && t->decompositions[low].parts[count] != 0) {
        parts[count] = t->decompositions[low].parts[count];
        count++;
    }
    return count;
}

// What two characters are composed to; 0: they are not.
static uint32_t compose_two(const Tokenizer *t, uint32_t first, uint32_t second)
{
    if (first >= LEADING && first < LEADING + LEADINGS && second >= VOWEL && second < VOWEL + VOWELS) {
        return HANGUL + ((first - LEADING) * VOWELS + (second - VOWEL)) * TRAILINGS;
    }
    const bool is_open = first >= HANGUL && first < HANGUL + SYLLABLES && (first - HANGUL) % TRAILINGS == 0;
    if (is_open && second > TRAILING && second < TRAILING + TRAILINGS) {
        return first + (second - TRAILING);
    }
    ptrdiff_t low = 0, high = t->composition_count;
    while (low < high) {
        const ptrdiff_t middle = (low + high) / 2;
        const Composition *at = &t->compositions[middle];
        if (at->first < first || (at->first == first && at->second < second)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    const Composition *at = &t->compositions[low];
    return low < t->composition_count && at->first == first && at->second == second ? at->code : 0;
}

// Put marks in the order of their classes, those of one class as they stand; `spare` has room for them all.
static void order_marks(const Tokenizer *t, uint32_t *codes, ptrdiff_t count, uint32_t *spare)
{
    if (count <= FEW_MARKS) {
        for (ptrdiff_t i = 1; i < count; i++) {
            const uint32_t code = codes[i];
            const int class = combining_class(t, code);
            ptrdiff_t k = i;
            for (; k > 0 && combining_class(t, codes[k - 1]) > class; k--) {
                codes[k] = codes[k - 1];
            }
            codes[k] = code;
        }
        return;
    }
    ptrdiff_t begins[257] = {0};
    for (ptrdiff_t i = 0; i < count; i++) {
        begins[combining_class(t, codes[i]) + 1]++;
    }
    for (int class = 0; class < 256; class++) {
        begins[class + 1] += begins[class];
    }
    for (ptrdiff_t i = 0; i < count; i++) {
        spare[begins[combining_class(t, codes[i])]++] = codes[i];
    }
    memcpy(codes, spare, (size_t)count * sizeof *codes);
}

// The form of what lies between two characters that nothing changes.
static bool form_stretch(const Tokenizer *t, const char *at, const char *end, bool composes, Buffer *to)
{
    const ptrdiff_t most = 4 * (end - at);
    if (most > PTRDIFF_MAX / 16) {
        return false;
    }
    uint32_t *codes = malloc(2 * (size_t)most * sizeof *codes);
    if (codes == NULL) {
        return false;
    }
    ptrdiff_t count = 0;
    for (ptrdiff_t size; at < end; at += size) {
        size = utf8_size(at, end);
        count += decompose(t, utf8_code(at, size), codes + count);
    }
    for (ptrdiff_t i = 0, begin = 0; i <= count; i++) {
        if (i == count || combining_class(t, codes[i]) == 0) {
            order_marks(t, codes + begin, i - begin, codes + most);
            begin = i + 1;
        }
    }
    ptrdiff_t kept = 0, starter = -1;
    int last = 0;
    for (ptrdiff_t i = 0; i < count; i++) {
        const int class = combining_class(t, codes[i]);
        const bool is_open = composes && starter >= 0 && (last < class || kept - 1 == starter);
        const uint32_t both = is_open ? compose_two(t, codes[starter], codes[i]) : 0;
        if (both != 0) {
            codes[starter] = both;
            continue;
        }
        starter = class == 0 ? kept : starter;
        last = class;
        codes[kept++] = codes[i];
    }
    bool is_done = true;
    for (ptrdiff_t i = 0; is_done && i < kept; i++) {
        is_done = buffer_add_code(to, codes[i]);
    }
    free(codes);
    return is_done;
}

// Add the form of a text. What is plain is copied: a character that stays what it is, before another one that does.
static bool add_form(const Tokenizer *t, const char *at, const char *end, bool composes, Buffer *to)
{
    const char *plain = at, *previous = at;  // what is copied begins there; the character before this one
    while (at < end) {
        const ptrdiff_t size = utf8_size(at, end);
        if (size == 1 || compose_class(t, utf8_code(at, size)) == 0) {
            previous = at;
            at += size;
            continue;
        }
        const char *next = at + size;
        for (; next < end; next += utf8_size(next, end)) {
            if (compose_class(t, utf8_code(next, utf8_size(next, end))) == 0) {
                break;
            }
        }
        if (!buffer_add(to, plain, previous - plain) || !form_stretch(t, previous, next, composes, to)) {
            return false;
        }
        plain = previous = at = next;
    }
    return buffer_add(to, plain, end - plain);
}
