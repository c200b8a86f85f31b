// ------------------------------------------------------------------- tokenizers: the tokens of parts that are merged
#pragma once

#include "runtime/tokenizer_merge.c"
#include "runtime/tokenizer_normalize.c"

enum { MOST_SEEN = 1 << 13, BYTES_A_SEEN = 64, SEEN_BYTES = 23, SEEN_TOKENS = 8, LONGEST_TOKEN = 1 << 12, MOST_CUTS = 16 };

// A part that came before, and its tokens: a cache line. The last of its words has the number of its bytes.
typedef struct {
    uint64_t words[3];
    int32_t tokens[SEEN_TOKENS];
    uint32_t count;
} Seen;

// One text on its way.
typedef struct {
    const Tokenizer *t;
    int32_t *tokens;
    ptrdiff_t count, room;
    Buffer text, spare, symbols, path;
    Buffer made_of[MOST_CUTS];  // what a step makes of its part
    const char *limit;  // no byte behind is read
    Seen *seen;
    ptrdiff_t seen_places;  // a power of two; 0: none
    Made *made;
    double score;        // unigram: of all tokens so far
    bool follows;        // the last token stands for what is unknown
    const char *stranger;  // where a text has a character without a token; NULL: nowhere
} Encoding;

static bool more_room(Encoding *e, ptrdiff_t more)
{
    if (more > PTRDIFF_MAX / 16 || e->room > PTRDIFF_MAX / 16) {
        return false;
    }
    const ptrdiff_t room = e->room + e->room / 2 + more + 16;
    int32_t *tokens = realloc(e->tokens, (size_t)room * sizeof *tokens);
    if (tokens == NULL) {
        return false;
    }
    e->tokens = tokens;
    e->room = room;
    return true;
}

static inline bool tokens_room(Encoding *e, ptrdiff_t more)
{
    return more <= e->room - e->count || more_room(e, more);
}

static inline bool add_token(Encoding *e, int64_t token)
{
    if (!tokens_room(e, 1)) {
        return false;
    }
    e->tokens[e->count++] = (int32_t)token;
    return true;
}

// Add the tokens of characters that are no piece.
static bool add_unknown(Encoding *e, const char *at, ptrdiff_t bytes)
{
    const Tokenizer *t = e->t;
    if (t->byte_tokens == NULL) {
        const bool is_fused = e->follows && (t->bits & TOKENIZER_FUSES) != 0;
        e->follows = t->unknown >= 0;
        return t->unknown < 0 || is_fused || add_token(e, t->unknown);
    }
    e->follows = false;
    for (ptrdiff_t i = 0; i < bytes; i++) {
        const bool is_space = at[i] == ' ' && (t->bits & TOKENIZER_MARKS) != 0;
        const char *written = is_space ? "\xE2\x96\x81" : at + i;
        for (ptrdiff_t k = 0; k < (is_space ? 3 : 1); k++) {
            if (!add_token(e, t->byte_tokens[(unsigned char)written[k]])) {
                return false;
            }
        }
    }
    return true;
}

// Add a symbol: what is no token, or unused, is taken apart. That is as deep as a piece is long, at most.
static bool add_symbol(Encoding *e, uint32_t symbol)
{
    const Tokenizer *t = e->t;
    if (e->made != NULL && (t->flags[symbol] & TOKEN_UNUSED) != 0 && e->made[symbol].left != TOKENIZER_NONE) {
        return add_symbol(e, e->made[symbol].left) && add_symbol(e, e->made[symbol].right);
    }
    if (symbol >= t->tokens || symbol == t->unknown) {
        return add_unknown(e, t->bytes + t->ends[symbol], t->ends[symbol + 1] - t->ends[symbol]);
    }
    e->follows = false;
    return add_token(e, symbol);
}

// The symbol of a byte or a character of a part, whose piece says whether it continues or closes one.
static uint32_t find_affixed(const Tokenizer *t, const char *at, ptrdiff_t size, bool continues, bool closes)
{
    char piece[6];
    ptrdiff_t bytes = 0;
    if (continues && (t->bits & TOKENIZER_CONTINUES) != 0) {
        piece[bytes++] = '\xFE';
    }
    memcpy(piece + bytes, at, (size_t)size);
    bytes += size;
    if (closes && (t->bits & TOKENIZER_CLOSES) != 0) {
        piece[bytes++] = '\xFF';
    }
    return find_word(t, piece, bytes, tokenizer_hash(piece, bytes));
}

// The symbols of the bytes, or of the characters of a part.
static ptrdiff_t symbols_of(Encoding *e, const char *at, const char *end)
{
    const Tokenizer *t = e->t;
    const ptrdiff_t most = (t->bits & TOKENIZER_MARKS) != 0 ? 3 * (end - at) : end - at;  // a mark has three bytes
    if (most > PTRDIFF_MAX / 16 || !buffer_room(&e->symbols, most * (ptrdiff_t)sizeof(uint32_t))) {
        return -1;
    }
    uint32_t *symbols = (uint32_t *)(void *)e->symbols.at;
    ptrdiff_t count = 0;
    const char *begin = at;
    const bool is_affixed = (t->bits & (TOKENIZER_CONTINUES | TOKENIZER_CLOSES)) != 0;
    if (is_affixed && (t->bits & TOKENIZER_BYTE_LEVEL) != 0) {
        for (; at < end; at++) {
            const uint32_t symbol = find_affixed(t, at, 1, at > begin, at + 1 == end);
            symbols[count] = symbol;
            count += symbol != TOKENIZER_NONE;
        }
        return count;
    }
    if ((t->bits & TOKENIZER_BYTE_LEVEL) != 0) {
        for (; at < end; at++) {
            const int32_t symbol = t->byte_tokens[(unsigned char)*at];
            symbols[count] = (uint32_t)symbol;
            count += symbol >= 0;
        }
        return count;
    }
    for (ptrdiff_t size; at < end; at += size) {
        size = utf8_size(at, end);
        const int32_t ascii = (unsigned char)*at < 128 ? t->ascii[(unsigned char)*at] : -1;
        uint32_t symbol = (uint32_t)ascii;
        if (is_affixed) {
            symbol = find_affixed(t, at, size, at > begin, at + size == end);
        } else if ((unsigned char)*at >= 128) {
            symbol = find_word(t, at, size, tokenizer_hash(at, size));
        }
        if (symbol != TOKENIZER_NONE) {
            symbols[count++] = symbol;
        } else if (t->byte_tokens != NULL) {
            const bool is_space = *at == ' ' && (t->bits & TOKENIZER_MARKS) != 0;
            const char *written = is_space ? "\xE2\x96\x81" : at;
            for (ptrdiff_t k = 0; k < (is_space ? 3 : size); k++) {
                symbols[count++] = (uint32_t)t->byte_tokens[(unsigned char)written[k]];
            }
        } else if (t->unknown >= 0) {
            symbols[count++] = (uint32_t)t->unknown;
        } else if ((t->bits & TOKENIZER_STRICT) != 0 && e->stranger == NULL) {
            e->stranger = at;  // in the text itself, as nothing normalizes it
        }
    }
    return count;
}

// Eight bytes of a part, of which it has some, or none; the others are zero.
static inline uint64_t word_of_part(const Encoding *e, const char *at, ptrdiff_t bytes)
{
    if (bytes <= 0) {
        return 0;
    }
    if (bytes >= 8 || e->limit - at < 8) {
        return bytes_of_word(at, bytes);
    }
    return bytes_of_word(at, 8) & (UINT64_MAX >> (64 - 8 * bytes));
}

// The place of a part among those that came before. Its words are written to `key`.
static inline Seen *seen_place(const Encoding *e, const char *at, ptrdiff_t bytes, uint64_t *key)
{
    key[0] = word_of_part(e, at, bytes);
    key[1] = word_of_part(e, at + 8, bytes - 8);
    key[2] = word_of_part(e, at + 16, bytes - 16) | (uint64_t)bytes << 56;
    uint64_t hash = (key[0] ^ key[2]) * UINT64_C(0x9E3779B97F4A7C15);
    hash = (hash ^ hash >> 32 ^ key[1]) * UINT64_C(0xD6E8FEB86659FD93);
    return &e->seen[hash >> 32 & (uint64_t)(e->seen_places - 1)];
}

// Note the tokens of a part, if there is a place, they are few, and they depend on nothing that stands before.
static inline void note(const Encoding *e, Seen *seen, const uint64_t *key, ptrdiff_t first)
{
    if (seen != NULL && !e->follows && e->count - first <= SEEN_TOKENS) {
        *seen = (Seen){{key[0], key[1], key[2]}, {0}, (uint32_t)(e->count - first)};
        memcpy(seen->tokens, e->tokens + first, seen->count * sizeof *seen->tokens);
    }
}

// Add the tokens of a part that did not come before, and note them in `seen`, if there is one.
static bool add_new_part(Encoding *e, const char *at, const char *end, Seen *seen, const uint64_t *key)
{
    const Tokenizer *t = e->t;
    const ptrdiff_t bytes = end - at, first = e->count;
    if (t->pair_places > 0 && bytes <= LONGEST_TOKEN) {
        const uint32_t symbol = find_word(t, at, bytes, tokenizer_hash(at, bytes));
        if (symbol != TOKENIZER_NONE && (t->flags[symbol] & TOKEN_WHOLE) != 0) {
            e->follows = false;
            const bool is_done = add_token(e, symbol);
            note(e, seen, key, first);
            return is_done;
        }
    }
    ptrdiff_t count = symbols_of(e, at, end);
    uint32_t *symbols = (uint32_t *)(void *)e->symbols.at;
    count = count < 0 ? -1 : merge_symbols(t, symbols, count, e->made);
    for (ptrdiff_t i = 0; i < count; i++) {
        if (!add_symbol(e, symbols[i])) {
            return false;
        }
    }
    note(e, seen, key, first);
    return count >= 0;
}

// Add the tokens of a part that is merged on its own.
static inline bool add_part(Encoding *e, const char *at, const char *end)
{
    const ptrdiff_t bytes = end - at;
    if (e->seen_places == 0 || bytes > SEEN_BYTES || e->follows) {  // what is unknown depends on what stands before
        return add_new_part(e, at, end, NULL, NULL);
    }
    uint64_t key[3];
    Seen *seen = seen_place(e, at, bytes, key);
    if (seen->words[0] != key[0] || seen->words[2] != key[2] || seen->words[1] != key[1]) {
        return add_new_part(e, at, end, seen, key);
    }
    if (!tokens_room(e, SEEN_TOKENS)) {
        return false;
    }
    memcpy(e->tokens + e->count, seen->tokens, sizeof seen->tokens);
    e->count += seen->count;
    return true;
}

// Whether no piece goes across a place of a text.
static inline bool is_cut(const Tokenizer *t, const char *at)
{
    const unsigned char last = (unsigned char)at[-1], next = (unsigned char)*at;
    return (t->inner[32 * last + next / 8] >> (next & 7) & 1) == 0;
}

// The end of the stretch that begins here: what no piece goes across.
static inline const char *next_cut(const Tokenizer *t, const char *at, const char *end)
{
    do {
        at++;
    } while (at < end && !is_cut(t, at));
    return at;
}

// Add the tokens of characters that are merged: cut where nothing is merged across.
static bool add_characters(Encoding *e, const char *at, const char *end)
{
    const Tokenizer *t = e->t;
    if ((t->bits & TOKENIZER_CUTS) == 0) {
        return at == end || add_part(e, at, end);
    }
    for (const char *next; at < end; at = next) {
        next = next_cut(t, at, end);
        if (!add_part(e, at, next)) {
            return false;
        }
    }
    return true;
}

// The same between the pieces that are kept.
static bool add_stretches(Encoding *e, const char *at, const char *end)
{
    const Tokenizer *t = e->t;
    if (t->frozen == NULL) {
        return add_characters(e, at, end);
    }
    for (const char *begin = at;;) {
        uint32_t token = 0;
        const ptrdiff_t size = at < end ? trie_longest(t->frozen, at, end, &token) : 0;
        if (size > 0 || at == end) {
            if (!add_characters(e, begin, at)) {
                return false;
            }
            if (at == end) {
                return true;
            }
            e->follows = false;
            if (!add_token(e, token)) {
                return false;
            }
            at += size;
            begin = at;
        } else {
            at += utf8_size(at, end);
        }
    }
}
