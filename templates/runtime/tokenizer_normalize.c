// ------------------------------------------------------ tokenizers: what is done to a text before tokens are looked for
#pragma once

#include "runtime/tokenizer_tables.c"

// Bytes that grow.
typedef struct {
    char *at;
    ptrdiff_t bytes, room;
} Buffer;

// Make room for some more bytes; false where memory is short.
static bool buffer_room(Buffer *buffer, ptrdiff_t more)
{
    if (more <= buffer->room - buffer->bytes) {
        return true;
    }
    if (more > PTRDIFF_MAX / 4 || buffer->room > PTRDIFF_MAX / 4) {
        return false;
    }
    const ptrdiff_t room = 2 * buffer->room + more + 64;
    char *at = realloc(buffer->at, (size_t)room);
    if (at == NULL) {
        return false;
    }
    buffer->at = at;
    buffer->room = room;
    return true;
}

static inline bool buffer_add(Buffer *buffer, const char *from, ptrdiff_t bytes)
{
    if (!buffer_room(buffer, bytes)) {
        return false;
    }
    if (bytes > 0) {
        memcpy(buffer->at + buffer->bytes, from, (size_t)bytes);
        buffer->bytes += bytes;
    }
    return true;
}

// ------------------------------------------------------------------------------------------------------------------ NFC
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

static bool buffer_add_code(Buffer *buffer, uint32_t code)
{
    if (!buffer_room(buffer, 4)) {
        return false;
    }
    char *at = buffer->at + buffer->bytes;
    if (code < 0x80) {
        at[0] = (char)code;
        buffer->bytes += 1;
    } else if (code < 0x800) {
        at[0] = (char)(0xC0 | code >> 6);
        at[1] = (char)(0x80 | (code & 63));
        buffer->bytes += 2;
    } else if (code < 0x10000) {
        at[0] = (char)(0xE0 | code >> 12);
        at[1] = (char)(0x80 | (code >> 6 & 63));
        at[2] = (char)(0x80 | (code & 63));
        buffer->bytes += 3;
    } else {
        at[0] = (char)(0xF0 | code >> 18);
        at[1] = (char)(0x80 | (code >> 12 & 63));
        at[2] = (char)(0x80 | (code >> 6 & 63));
        at[3] = (char)(0x80 | (code & 63));
        buffer->bytes += 4;
    }
    return true;
}

// Compose what lies between two characters that nothing changes.
static bool compose_stretch(const Tokenizer *t, const char *at, const char *end, Buffer *to)
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
        const bool is_open = starter >= 0 && (last < class || kept - 1 == starter);
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

// Compose a text. What is plain is copied: a character that stays what it is, before another one that does.
static bool compose(const Tokenizer *t, const char *at, const char *end, Buffer *to)
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
        if (!buffer_add(to, plain, previous - plain) || !compose_stretch(t, previous, next, to)) {
            return false;
        }
        plain = previous = at = next;
    }
    return buffer_add(to, plain, end - plain);
}

// ---------------------------------------------------------------------------------------------------------------- spaces
static inline bool is_mark(const char *at, const char *end)  // that SentencePiece writes for a space
{
    return end - at >= 3 && memcmp(at, "\xE2\x96\x81", 3) == 0;
}

// The size of the whitespace that begins here; 0: none.
static ptrdiff_t blank_size(const char *at, const char *end)
{
    const unsigned char c = (unsigned char)*at;
    if (c < 128) {
        return c == ' ' || (c >= 9 && c <= 13);
    }
    const ptrdiff_t size = utf8_size(at, end);
    const uint32_t code = utf8_code(at, size);
    const bool is_blank = code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) ||
                          code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
    return is_blank ? size : 0;
}

// Add a part of a text; marks become spaces.
static bool add_unmarked(const Tokenizer *t, const char *at, const char *end, Buffer *to)
{
    if ((t->bits & TOKENIZER_MARKS) == 0) {
        return buffer_add(to, at, end - at);
    }
    while (at < end) {
        const char *mark = memchr(at, '\xE2', (size_t)(end - at));
        const char *stop = mark == NULL ? end : mark;
        if (!buffer_add(to, at, stop - at)) {
            return false;
        }
        at = stop;
        if (mark != NULL) {
            const bool is_space = is_mark(at, end);
            if (!buffer_add(to, is_space ? " " : at, 1)) {
                return false;
            }
            at += is_space ? 3 : 1;
        }
    }
    return true;
}

// A space in front of each word, in place of all whitespace.
static bool add_words(const char *at, const char *end, Buffer *to)
{
    while (at < end) {
        const ptrdiff_t blank = blank_size(at, end);
        if (blank > 0) {
            at += blank;
            continue;
        }
        if (!is_mark(at, end) && !buffer_add(to, " ", 1)) {
            return false;
        }
        while (at < end && blank_size(at, end) == 0) {
            const ptrdiff_t size = utf8_size(at, end);
            const bool is_space = is_mark(at, end);
            if (!buffer_add(to, is_space ? " " : at, is_space ? 1 : size)) {
                return false;
            }
            at += size;
        }
    }
    return true;
}

// What the text at a place becomes in one step: the longest key's value, or a character as it is.
static inline ptrdiff_t map_step(const Tokenizer *t, const char *at, const char *end, const char **part,
                                 ptrdiff_t *part_bytes)
{
    uint32_t value = 0, kept = 0;
    const ptrdiff_t kept_size = t->kept != NULL ? trie_longest(t->kept, at, end, &kept) : 0;
    ptrdiff_t size = t->map != NULL ? trie_longest(t->map, at, end, &value) : 0;
    if (kept_size > 0) {
        size = kept_size;
        *part = at;
        *part_bytes = size;
    } else if (size > 0) {
        *part = t->map_bytes + t->map_ends[value];
        *part_bytes = t->map_ends[value + 1] - t->map_ends[value];
    } else {
        size = utf8_size(at, end);
        *part = at;
        *part_bytes = size;
    }
    return size;
}

// Map characters, and drop spaces where that is to be done.
static bool add_mapped(const Tokenizer *t, const char *at, const char *end, Buffer *to)
{
    const bool strips = (t->bits & TOKENIZER_STRIPS) != 0;
    const char *part;
    ptrdiff_t bytes;
    bool after_space = strips;
    for (ptrdiff_t size; at < end; at += size) {
        const char *plain = at;
        while (plain + 1 < end && (unsigned char)plain[1] < 128 && (unsigned char)*plain < 128 &&
               t->plain[(unsigned char)*plain] != 0 && !(strips && *plain == ' ')) {
            plain++;
        }
        if (plain > at) {
            if (!buffer_add(to, at, plain - at)) {
                return false;
            }
            after_space = false;
            at = plain;
        }
        size = map_step(t, at, end, &part, &bytes);
        const char *stop = part + bytes;
        while (after_space && part < stop && *part == ' ') {
            part++;
        }
        if (part < stop) {
            after_space = strips && stop[-1] == ' ';
        }
        const bool keeps = (t->bits & TOKENIZER_WORDS) != 0;
        if (keeps ? !buffer_add(to, part, stop - part) : !add_unmarked(t, part, stop, to)) {
            return false;
        }
    }
    return true;
}

// Normalize a text between special tokens. `first`: nothing stands before it. The result is the text itself, or it lies
// in `to`, which is emptied; `spare` is used on the way.
static bool normalize(const Tokenizer *t, const char **text, ptrdiff_t *bytes, bool first, Buffer *to, Buffer *spare)
{
    const char *at = *text, *end = at + *bytes;
    const int64_t changes = TOKENIZER_MARKS | TOKENIZER_STRIPS | TOKENIZER_WORDS | TOKENIZER_MAPS;
    to->bytes = spare->bytes = 0;
    if ((t->bits & TOKENIZER_COMPOSES) != 0) {
        if (!compose(t, at, end, spare)) {
            return false;
        }
        at = spare->at;
        end = at + spare->bytes;
        *text = at;
        *bytes = spare->bytes;
    }
    const bool prefixes = t->prefix != PREFIX_NEVER && (first || (t->bits & TOKENIZER_PREFIXES_FIRST) == 0);
    if (at == end || ((t->bits & changes) == 0 && !prefixes)) {
        return true;
    }
    if ((t->bits & TOKENIZER_STRIPS) != 0) {  // nothing is left of spaces alone, not even a prefix
        const char *part;
        ptrdiff_t size, part_bytes;
        for (; at < end; at += size) {
            size = map_step(t, at, end, &part, &part_bytes);
            if (part_bytes != 1 || *part != ' ') {
                break;
            }
        }
    }
    const bool is_spaced = at < end && (*at == ' ' || ((t->bits & TOKENIZER_MARKS) != 0 && is_mark(at, end)));
    const bool puts = prefixes && at < end && (t->bits & TOKENIZER_WORDS) == 0 &&
                      !(t->prefix == PREFIX_UNLESS_SPACE && is_spaced);
    bool is_done = buffer_room(to, end - at + 1) && (!puts || buffer_add(to, " ", 1));
    if (is_done && (t->bits & TOKENIZER_WORDS) != 0) {
        if ((t->bits & TOKENIZER_MAPS) != 0) {  // to the words' text, which is not the given one
            is_done = add_mapped(t, at, end, to);
            const Buffer mapped = *to;
            *to = *spare;
            *spare = mapped;
            to->bytes = 0;
            at = spare->at;
            end = at + spare->bytes;
        }
        is_done = is_done && add_words(at, end, to);
    } else if (is_done && (t->bits & (TOKENIZER_STRIPS | TOKENIZER_MAPS)) != 0) {
        is_done = add_mapped(t, at, end, to);
    } else if (is_done) {
        is_done = add_unmarked(t, at, end, to);
    }
    while (is_done && (t->bits & TOKENIZER_STRIPS) != 0 && to->bytes > 0 && to->at[to->bytes - 1] == ' ') {
        to->bytes--;
    }
    *text = to->at;
    *bytes = to->bytes;
    return is_done;
}
