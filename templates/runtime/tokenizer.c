// ------------------------------------------------------------------------- tokenizers: from texts to tokens, and back
#pragma once

#include "runtime/tokenizer_parts.c"
#include "runtime/tokenizer_patterns.c"
#include "runtime/tokenizer_unigram.c"

// Add the tokens of a text between added tokens.
static bool add_text(Encoding *e, const char *text, ptrdiff_t bytes, bool first)
{
    const Tokenizer *t = e->t;
    if (!normalize(t, &text, &bytes, first, &e->text, &e->spare)) {
        return false;
    }
    const char *end = text + bytes;
    e->limit = end;
    e->follows = false;
    if ((t->bits & TOKENIZER_UNIGRAM) != 0) {
        return add_unigram(e, text, end);
    }
    if ((t->bits & TOKENIZER_BYTE_LEVEL) == 0) {
        return add_stretches(e, text, end);
    }
    for (const char *next; text < end; text = next) {
        next = part_end(t, text, end);
        if (!add_part(e, text, next)) {
            return false;
        }
    }
    return true;
}

static bool add_all(Encoding *e, const char *text, ptrdiff_t bytes, bool special)
{
    const Tokenizer *t = e->t;
    const char *at = text, *end = text + bytes, *begin = text;
    while (t->added != NULL && at < end) {
        uint32_t token = 0;
        const ptrdiff_t size = trie_longest(t->added, at, end, &token);
        if (size == 0 || (!special && (t->flags[token] & TOKEN_SPECIAL) != 0)) {
            at += size > 0 ? size : 1;
            continue;
        }
        if (begin < at && !add_text(e, begin, at - begin, begin == text)) {
            return false;
        }
        if (!add_token(e, token)) {
            return false;
        }
        at += size;
        begin = at;
    }
    return begin == end || add_text(e, begin, end - begin, begin == text);
}

// Give the tokens of a text, which is UTF-8, in memory that the caller frees, and return how many there are. `special`:
// texts of special tokens are these tokens. `begin`: the tokens that begin a text come first. -1: memory is short;
// -2 - i: the character at byte i has no token, of a tokenizer of characters.
static ptrdiff_t tokenizer_encode(const Tokenizer *t, const char *text, ptrdiff_t bytes, bool special, bool begin,
                                  int32_t **tokens)
{
    Encoding e = {.t = t};
    bool is_done = tokens_room(&e, bytes / 3 + 16);
    for (ptrdiff_t i = 0; is_done && begin && i < t->begin_count; i++) {
        is_done = add_token(&e, t->begin[i]);
    }
    while ((t->pair_places > 0 || t->trie != NULL) && e.seen_places < MOST_SEEN && e.seen_places < bytes / BYTES_A_SEEN) {
        e.seen_places = e.seen_places > 0 ? 2 * e.seen_places : 1;
    }
    if (is_done && e.seen_places > 0) {
        e.seen = calloc((size_t)e.seen_places, sizeof *e.seen);
        is_done = e.seen != NULL;
    }
    if (is_done && (t->bits & TOKENIZER_UNUSES) != 0) {
        e.made = malloc((size_t)t->symbols * sizeof *e.made);
        is_done = e.made != NULL;
        if (is_done) {
            memset(e.made, -1, (size_t)t->symbols * sizeof *e.made);
        }
    }
    is_done = is_done && add_all(&e, text, bytes, special);
    free(e.text.at);
    free(e.spare.at);
    free(e.symbols.at);
    free(e.path.at);
    free(e.seen);
    free(e.made);
    if (!is_done || e.stranger != NULL) {
        free(e.tokens);
        *tokens = NULL;
        return is_done ? -2 - (e.stranger - text) : -1;
    }
    *tokens = e.tokens;
    return e.count;
}

// The bytes that a token adds to a text. `first`: only hidden tokens stand before it, as at the beginning.
static ptrdiff_t tokenizer_piece(const Tokenizer *t, int32_t token, bool first, const char **piece)
{
    *piece = t->bytes;
    if (token < 0 || token >= t->tokens || (t->flags[token] & TOKEN_SILENT) != 0) {
        return 0;
    }
    const char *begin = t->bytes + t->ends[token];
    ptrdiff_t bytes = t->ends[token + 1] - t->ends[token];
    if (first && (t->bits & TOKENIZER_DROPS_SPACE) != 0 && bytes > 0 && *begin == ' ') {
        begin++;
        bytes--;
    }
    *piece = begin;
    return bytes;
}

// Whether nothing is seen of a token that a text begins with, as of spaces where they are stripped.
static bool tokenizer_hides(const Tokenizer *t, int32_t token)
{
    const char *piece;
    const ptrdiff_t bytes = tokenizer_piece(t, token, false, &piece);
    return bytes == 0 || (bytes == 1 && *piece == ' ' && (t->bits & TOKENIZER_STRIPS) != 0);
}
