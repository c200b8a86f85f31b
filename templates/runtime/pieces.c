// ------------------------------------------------------------------- pieces: what steps make of one text, without Python
#pragma once

#include "runtime/tokenizer_automaton.c"
#include "runtime/tokenizer_buffer.c"

// The lists of mlaot/tokenizers/text_packing.py.
enum {
    TEXT_CONSTANT, TEXT_LOWER, TEXT_UPPER, TEXT_WITHOUT, TEXT_CONCAT, TEXT_PIECES, TEXT_COUNTS, TEXT_MATCH,
    TEXT_TOKENS, TEXT_NUMBER, TEXT_OF_NUMBER, TEXT_JOIN, TEXT_VALUES, TEXT_IMAGE,
};
enum { TEXT_NUMBERS = 8 };

// What a step has to know; its texts as Strings has them.
typedef struct {
    const int64_t *numbers;
    int64_t text_count, pattern_count;
    const char *text;
    const int32_t *at, *order;
    const uint16_t *change_pages;
    const uint32_t *changes;
    const int64_t *rows;  // of each pattern: where it begins, and three rows of its table
    const char *patterns;
} TextBlock;

// A part of a text.
typedef struct {
    const char *at;
    ptrdiff_t bytes;
} Piece;

static inline TextBlock text_block(const char *block)
{
    const int64_t *head = (const int64_t *)(const void *)block;
    TextBlock b = {.numbers = head, .text_count = head[TEXT_NUMBERS], .pattern_count = head[TEXT_NUMBERS + 1]};
    const TokenizerTable *next = (const TokenizerTable *)(const void *)(head + TEXT_NUMBERS + 2);
    b.text = tokenizer_table(block, &next, 1, NULL);
    b.text = b.text == NULL ? "" : b.text;
    b.at = tokenizer_table(block, &next, 4, NULL);
    b.order = tokenizer_table(block, &next, 4, NULL);
    b.change_pages = tokenizer_table(block, &next, 2, NULL);
    b.changes = tokenizer_table(block, &next, 4, NULL);
    b.rows = tokenizer_table(block, &next, 8, NULL);
    b.patterns = tokenizer_table(block, &next, 1, NULL);
    return b;
}

static inline Piece text_of_block(const TextBlock *b, int64_t i)
{
    return (Piece){b->text + b->at[i], b->at[i + 1] - b->at[i]};
}

// The bytes of the character that begins here; 0 where that is no UTF-8.
static inline ptrdiff_t strict_size(const char *at, const char *end)
{
    const unsigned char *c = (const unsigned char *)at;
    if (c[0] < 0x80) {
        return 1;
    }
    const ptrdiff_t size = c[0] < 0xC2 ? 0 : c[0] < 0xE0 ? 2 : c[0] < 0xF0 ? 3 : c[0] < 0xF5 ? 4 : 0;
    if (size == 0 || size > end - at) {
        return 0;
    }
    for (ptrdiff_t i = 1; i < size; i++) {
        if ((c[i] & 0xC0) != 0x80) {
            return 0;
        }
    }
    const bool is_wrong = (c[0] == 0xE0 && c[1] < 0xA0) || (c[0] == 0xED && c[1] > 0x9F) ||
                          (c[0] == 0xF0 && c[1] < 0x90) || (c[0] == 0xF4 && c[1] > 0x8F);
    return is_wrong ? 0 : size;
}

static bool is_utf8(Piece text)
{
    const char *const end = text.at + text.bytes;
    for (const char *at = text.at; at < end;) {
        uint64_t word;
        if (end - at >= 8 && (memcpy(&word, at, 8), (word & UINT64_C(0x8080808080808080)) == 0)) {
            at += 8;
            continue;
        }
        const ptrdiff_t size = strict_size(at, end);
        if (size == 0) {
            return false;
        }
        at += size;
    }
    return true;
}

static ptrdiff_t count_characters(const char *at, const char *end)
{
    ptrdiff_t count = 0;
    for (; at < end; at++) {
        count += ((unsigned char)*at & 0xC0) != 0x80;
    }
    return count;
}

// Put each character of a text in another case; false where memory is short.
static bool change_case(const TextBlock *b, bool lower, Piece text, Buffer *to)
{
    const char *const end = text.at + text.bytes;
    const unsigned char first = lower ? 'A' : 'a';
    if (!buffer_room(to, text.bytes)) {
        return false;
    }
    for (const char *at = text.at; at < end;) {
        const unsigned char c = (unsigned char)*at;
        if (c < 0x80) {
            if (!buffer_room(to, 1)) {
                return false;
            }
            to->at[to->bytes++] = (char)((unsigned char)(c - first) < 26 ? c ^ 0x20 : c);
            at++;
            continue;
        }
        const ptrdiff_t size = utf8_size(at, end);
        const uint32_t code = utf8_code(at, size), change = b->changes[256 * b->change_pages[code >> 8] + (code & 255)];
        if (!(change == 0 ? buffer_add(to, at, size) : buffer_add_code(to, change))) {
            return false;
        }
        at += size;
    }
    return true;
}

static inline bool add_piece(Buffer *pieces, const char *at, const char *end)
{
    const Piece piece = {at, end - at};
    return buffer_add(pieces, (const char *)&piece, sizeof piece);
}

// Where a text has another, or its end.
static const char *find_text(const char *at, const char *end, Piece other)
{
    for (; end - at >= other.bytes; at++) {
        at = memchr(at, other.at[0], (size_t)(end - at - other.bytes + 1));
        if (at == NULL) {
            break;
        }
        if (memcmp(at, other.at, (size_t)other.bytes) == 0) {
            return at;
        }
    }
    return end;
}

static const char *skip_spaces(const char *at, const char *end)
{
    while (at < end && *at == ' ') {
        at++;
    }
    return at;
}

// Cut a text where it has a delimiter, at most so many times; without one at spaces, and those around it are dropped.
static bool cut_text(const TextBlock *b, Piece text, Buffer *pieces)
{
    const Piece delimiter = text_of_block(b, 0);
    const char *at = text.at, *end = at + text.bytes;
    int64_t left = b->numbers[0];
    if (delimiter.bytes > 0) {
        const char *stop = end;
        while (at < end && left-- != 0 && (stop = find_text(at, end, delimiter)) < end) {
            if (!add_piece(pieces, at, stop)) {
                return false;
            }
            at = stop + delimiter.bytes;
        }
        return text.bytes == 0 || add_piece(pieces, at, end);
    }
    while (end > at && end[-1] == ' ') {
        end--;
    }
    for (at = skip_spaces(at, end); at < end;) {
        const char *stop = left-- != 0 ? memchr(at, ' ', (size_t)(end - at)) : NULL;
        stop = stop == NULL ? end : stop;
        if (!add_piece(pieces, at, stop)) {
            return false;
        }
        at = skip_spaces(stop, end);
    }
    return true;
}

// Whether the whole of a text is what a pattern says.
static bool matches(const TextBlock *b, Piece text)
{
    if (!is_utf8(text)) {
        return false;
    }
    const Automaton a = automaton_view(b->patterns + b->rows[0]);
    const char *const end = text.at + text.bytes;
    uint32_t row = (uint32_t)b->rows[1];
    ptrdiff_t size;
    for (const char *at = text.at; row != 0 && at < end; at += size) {
        row = a.table[row + class_of(&a, at, end, &size)] >> 1;
    }
    return row != 0 && (a.table[row + a.width - 1] & 1) != 0;
}

// The row in which a search through a part of a text begins: at its begin, behind a character of words, behind another.
static inline uint32_t start_row(const int64_t *rows, const char *begin, const char *at)
{
    if (at == begin) {
        return (uint32_t)rows[1];
    }
    const unsigned char c = (unsigned char)at[-1], letter = c | 0x20;
    const bool is_word = (c >= '0' && c <= '9') || (letter >= 'a' && letter <= 'z' && c < 0x80) || c == '_';
    return (uint32_t)rows[is_word ? 2 : 3];
}

// Add what a pattern matches, if it has enough characters.
static bool matched_pieces(const TextBlock *b, Piece text, Buffer *pieces)
{
    const char *const end = text.at + text.bytes;
    TextSearch search = {.a = automaton_view(b->patterns + b->rows[0]), .begin = text.at, .end = end};
    bool is_done = true;
    for (const char *at = text.at; at < end && is_done && !search.is_short;) {
        const char *stop = match_from(&search, start_row(b->rows, text.at, at), at);
        if (stop > at && count_characters(at, stop) >= b->numbers[1]) {
            is_done = add_piece(pieces, at, stop);
            at = stop;
        } else {
            at += utf8_size(at, end);
        }
    }
    return search_ends(&search) && is_done;
}

// Add what lies between the matches of a pattern, if it has enough characters.
static bool pieces_between(const TextBlock *b, const int64_t *rows, Piece text, Buffer *pieces)
{
    const char *const end = text.at + text.bytes, *begin = text.at;
    TextSearch search = {.a = automaton_view(b->patterns + rows[0]), .begin = text.at, .end = end};
    bool is_done = true;
    for (const char *at = text.at; at < end && is_done && !search.is_short;) {
        const char *stop = match_from(&search, start_row(rows, text.at, at), at);
        if (stop > at) {
            is_done = count_characters(begin, at) < b->numbers[1] || add_piece(pieces, begin, at);
            begin = at = stop;
        } else {
            at += utf8_size(at, end);
        }
    }
    is_done = is_done && (count_characters(begin, end) < b->numbers[1] || add_piece(pieces, begin, end));
    return search_ends(&search) && is_done;
}

// Add the tokens of a text: its characters, what a pattern matches, or what lies between separators; `spare` is used.
static bool tokens_of_text(const TextBlock *b, Piece text, Buffer *pieces, Buffer *spare)
{
    const char *const end = text.at + text.bytes;
    if (b->pattern_count == 0) {
        for (const char *at = text.at, *next; at < end; at = next) {
            next = at + utf8_size(at, end);
            if (!add_piece(pieces, at, next)) {
                return false;
            }
        }
        return true;
    }
    if (b->numbers[2] == 0) {
        return matched_pieces(b, text, pieces);
    }
    const ptrdiff_t begin = pieces->bytes;
    bool is_done = add_piece(pieces, text.at, end);
    for (int64_t i = 0; is_done && i < b->pattern_count; i++) {
        const ptrdiff_t bytes = pieces->bytes - begin;
        spare->bytes = 0;
        is_done = buffer_add(spare, pieces->at + begin, bytes);
        pieces->bytes = begin;
        for (ptrdiff_t k = 0; is_done && k < bytes; k += (ptrdiff_t)sizeof(Piece)) {
            Piece piece;
            memcpy(&piece, spare->at + k, sizeof piece);
            is_done = pieces_between(b, b->rows + 4 * i, piece, pieces);
        }
    }
    return is_done;
}
