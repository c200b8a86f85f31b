// ------------------------------------------------------ tokenizers: what is done to a text before tokens are looked for
#pragma once

#include "runtime/tokenizer_automaton.c"
#include "runtime/tokenizer_forms.c"

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

// The end of the whitespace that begins here.
static const char *blanks_end(const char *at, const char *end)
{
    for (ptrdiff_t size; at < end && (size = blank_size(at, end)) > 0;) {
        at += size;
    }
    return at;
}

// The begin of the character that ends here.
static inline const char *character_before(const char *begin, const char *at)
{
    const char *found = at - 1;
    while (found > begin && at - found < 4 && ((unsigned char)*found & 0xC0) == 0x80) {
        found--;
    }
    return found;
}

// The begin of the whitespace that ends here.
static const char *blanks_begin(const char *begin, const char *end)
{
    while (end > begin) {
        const char *before = character_before(begin, end);
        if (blank_size(before, end) != end - before) {
            break;
        }
        end = before;
    }
    return end;
}

// Add a part of a text; marks become spaces, if they are some.
static bool add_unmarked(bool has_marks, const char *at, const char *end, Buffer *to)
{
    if (!has_marks) {
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

// Whether eight characters are printed ASCII, and no space among them stands before another one, if that is asked.
static inline bool is_plain_word(uint64_t word, bool strips)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), tops = 0x80 * ones, rests = 0x7F * ones;
    const uint64_t others = word ^ (' ' * ones);
    const uint64_t spaces = ~((((others & rests) + rests) | others) & tops) & tops;
    const uint64_t odd = (word - ' ' * ones) | (word + ones) | word;  // below a space, above a tilde
    return ((odd & tops) | (strips ? spaces & spaces << 8 : 0)) == 0;
}

// The end of the ASCII characters that begin here and stay what they are. `strips`: of spaces the second one does not.
static inline const char *plain_end(const Tokenizer *t, const char *at, const char *end, bool strips)
{
    uint8_t last = 0;
    const uint8_t mask = strips ? 3 : 1;
    const char *quick = (t->bits & TOKENIZER_PRINTS) != 0 ? at : end;  // from here on eight are looked at together
    for (; at < end; at++) {
        if (at >= quick && end - at >= 8 && (last & mask & 2) == 0) {
            if (is_plain_word(bytes_of_word(at, 8), strips)) {
                at += 7;
                last = *at == ' ' ? 3 : 1;
                continue;
            }
            quick = at + 8;
        }
        const uint8_t kind = (unsigned char)*at < 128 ? t->plain[(unsigned char)*at] : 0;
        if (kind == 0 || (kind & last & mask & 2) != 0) {
            break;
        }
        last = kind;
    }
    return at;
}

// Map characters, and drop spaces where that is to be done.
static bool add_mapped(const Tokenizer *t, const char *at, const char *end, Buffer *to)
{
    const bool strips = (t->bits & TOKENIZER_STRIPS) != 0, has_marks = (t->bits & TOKENIZER_MARKS) != 0;
    const char *plain = at;  // what is copied begins there
    bool after_space = strips;
    while (at < end) {
        if (!after_space || *at != ' ') {
            const char *begin = at;
            at = plain_end(t, at, end, strips);
            if (at < end && at > begin && (unsigned char)*at >= 128) {
                at--;  // it may be composed with what follows
            }
            after_space = at > begin ? strips && at[-1] == ' ' : after_space;
            if (at == end) {
                break;
            }
        }
        const char *part;
        ptrdiff_t bytes;
        const ptrdiff_t size = map_step(t, at, end, &part, &bytes);
        if (part == at && !(after_space && *at == ' ') && !(has_marks && (size > 4 || *at == '\xE2'))) {
            at += size;
            after_space = strips && at[-1] == ' ';
            continue;
        }
        const char *stop = part + bytes;
        while (after_space && part < stop && *part == ' ') {
            part++;
        }
        if (part < stop) {
            after_space = strips && stop[-1] == ' ';
        }
        if (!buffer_add(to, plain, at - plain) || !add_unmarked(has_marks, part, stop, to)) {
            return false;
        }
        at += size;
        plain = at;
    }
    return buffer_add(to, plain, end - plain);
}

// The same of a map among the steps: behind the table of what is plain are the texts, each behind its size.
static bool add_map(const Tokenizer *t, const TokenizerStep *step, const char *at, const char *end, Buffer *to)
{
    const TrieNode *trie = (const TrieNode *)(const void *)(t->parts + step->place);
    const char *plain = t->parts + step->begin, *texts = t->parts + step->middle;
    const char *begin = at;  // what is copied as it is
    while (at < end) {
        if (at + 1 < end && (unsigned char)at[1] < 128 && (unsigned char)*at < 128 && plain[(unsigned char)*at] != 0) {
            at++;
            continue;
        }
        uint32_t value = 0, bytes;
        const ptrdiff_t size = trie_longest(trie, at, end, &value);
        if (size == 0) {
            at += utf8_size(at, end);
            continue;
        }
        memcpy(&bytes, texts + value, sizeof bytes);
        if (!buffer_add(to, begin, at - begin) || !buffer_add(to, texts + value + sizeof bytes, bytes)) {
            return false;
        }
        at += size;
        begin = at;
    }
    return buffer_add(to, begin, end - begin);
}

static bool add_replaced(const Tokenizer *t, const TokenizerStep *step, const char *at, const char *end, Buffer *to)
{
    const char *first = t->parts + step->begin, *second = t->parts + step->middle;
    const ptrdiff_t first_bytes = step->middle - step->begin, second_bytes = step->end - step->middle;
    TextSearch search = search_of(t->parts + step->place, at, end);
    bool is_done = true;
    for (TextSpan span = {at, at, false}; is_done && next_span(&search, &span);) {
        if (!span.matched) {
            is_done = buffer_add(to, span.begin, span.end - span.begin);
            continue;
        }
        is_done = buffer_add(to, first, first_bytes) &&
                  (step->flags == 0 || buffer_add(to, span.begin, span.end - span.begin)) &&
                  buffer_add(to, second, second_bytes);
    }
    return search_ends(&search) && is_done;
}

// Add what a step makes of a text.
static bool add_change(const Tokenizer *t, const TokenizerStep *step, const char *at, const char *end, Buffer *to)
{
    switch (step->kind) {
    case STEP_FORM:
        return add_form(t, at, end, step->flags != 0, to);
    case STEP_MAP:
        return add_map(t, step, at, end, to);
    case STEP_REPLACE:
        return add_replaced(t, step, at, end, to);
    case STEP_STRIP:
        if ((step->flags & 1) != 0) {
            at = blanks_end(at, end);
        }
        return buffer_add(to, at, ((step->flags & 2) != 0 ? blanks_begin(at, end) : end) - at);
    default:
        return at == end || (buffer_add(to, t->parts + step->begin, step->middle - step->begin) &&
                             buffer_add(to, at, end - at));
    }
}

// Normalize a text between special tokens. The result is the text itself, or it lies in one of two buffers, which are
// emptied before.
static bool normalize(const Tokenizer *t, const char **text, ptrdiff_t *bytes, Buffer *to, Buffer *spare)
{
    const int64_t changes = TOKENIZER_MARKS | TOKENIZER_STRIPS | TOKENIZER_MAPS | TOKENIZER_PREFIXES;
    for (ptrdiff_t i = 0; i < t->changes; i++) {
        spare->bytes = 0;
        if (!add_change(t, &t->steps[i], *text, *text + *bytes, spare)) {
            return false;
        }
        *text = spare->bytes > 0 ? spare->at : "";
        *bytes = spare->bytes;
        Buffer *other = to;
        to = spare;
        spare = other;
    }
    to = spare;
    const char *at = *text, *end = at + *bytes;
    if (at == end || (t->bits & changes) == 0) {
        return true;
    }
    to->bytes = 0;
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
    const bool puts = (t->bits & TOKENIZER_PREFIXES) != 0 && at < end;
    bool is_done = buffer_room(to, end - at + 1) && (!puts || buffer_add(to, " ", 1));
    if (is_done && (t->bits & (TOKENIZER_STRIPS | TOKENIZER_MAPS)) != 0) {
        is_done = add_mapped(t, at, end, to);
    } else if (is_done) {
        is_done = add_unmarked((t->bits & TOKENIZER_MARKS) != 0, at, end, to);
    }
    while (is_done && (t->bits & TOKENIZER_STRIPS) != 0 && to->bytes > 0 && to->at[to->bytes - 1] == ' ') {
        to->bytes--;
    }
    *text = to->at;
    *bytes = to->bytes;
    return is_done;
}
