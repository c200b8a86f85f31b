// ------------------------------------------------------------------------- tokenizers: their tables, read where they lie
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// The lists of mlaot/tokenizers/packing.py.
enum {
    TOKENIZER_UNIGRAM = 1 << 0,
    TOKENIZER_BYTE_LEVEL = 1 << 1,
    TOKENIZER_FUSES = 1 << 2,
    TOKENIZER_SINGLE = 1 << 3,
    TOKENIZER_WORD_PIECES = 1 << 4,
    TOKENIZER_MARKS = 1 << 5,
    TOKENIZER_STRIPS = 1 << 6,
    TOKENIZER_PREFIXES = 1 << 7,
    TOKENIZER_DROPS_SPACE = 1 << 8,
    TOKENIZER_STRICT = 1 << 9,
    TOKENIZER_CUTS = 1 << 10,
    TOKENIZER_MAPS = 1 << 11,
    TOKENIZER_UNUSES = 1 << 12,
    TOKENIZER_PRINTS = 1 << 13,  // all printed ASCII characters are plain
    TOKENIZER_CONTINUES = 1 << 14,
    TOKENIZER_CLOSES = 1 << 15,
};
enum {
    TOKEN_SILENT = 1 << 0,
    TOKEN_WHOLE = 1 << 1,
    TOKEN_UNUSED = 1 << 2,
    TOKEN_SPECIAL = 1 << 3,
    TOKEN_LEFT = 1 << 4,
    TOKEN_RIGHT = 1 << 5,
    TOKEN_ALONE = 1 << 6,
};
enum { ACTION_WORD, ACTION_ALONE, ACTION_GAP, ACTION_SLOW, ACTION_SYLLABLE, ACTION_SEQUENCE, MOST_WORD_BYTES = 64 };
enum { STEP_FORM, STEP_MAP, STEP_REPLACE, STEP_STRIP, STEP_PREPEND, STEP_CUT, STEP_PREFIX };
enum { CUT_ISOLATED, CUT_REMOVED, CUT_CONTIGUOUS, CUT_WITH_PREVIOUS, CUT_WITH_NEXT, CUT_INVERTED = 8 };
#define TOKENIZER_MAGIC UINT64_C(0x316b6f746f616c6d)
#define TOKENIZER_NONE UINT32_MAX

// A base, above the byte that leads here.
typedef struct {
    uint32_t link, value;
} TrieNode;

typedef struct {
    uint32_t check, symbol;
} TokenizerWord;

typedef struct {
    uint32_t left, right, rank, merged;
} TokenizerPair;

typedef struct {
    uint32_t code, parts[4];
} Decomposition;

typedef struct {
    uint32_t first, second, code;
} Composition;

// Flags, the place of a table or of a trie, and where the three ends of two texts are.
typedef struct {
    int64_t kind, flags, place, begin, middle, end;
} TokenizerStep;

// The symbol that a token is written as, where that is another one, and the one where a text begins with it.
typedef struct {
    uint32_t token, symbol, first;
} Written;

// What a character is, and what is added to its code or where the bytes of a sequence are; how many, of how many
// characters.
typedef struct {
    int32_t change;
    uint8_t kind, bytes, characters, unused;
} WordAction;

typedef struct {
    int64_t bits, tokens, symbols, changes, longest_word, unknown;
    double unknown_score;
    const uint32_t *ends;  // of each symbol's bytes, behind a zero
    const char *bytes;
    const uint8_t *flags;
    const TokenizerWord *words;
    const TokenizerPair *pairs;
    uint32_t word_places, pair_places;  // no pairs: 0
    const int32_t *byte_tokens;         // NULL: none
    const int32_t *ascii;               // the symbols of ASCII characters
    const uint8_t *inner;
    const void *scores;                 // of tokens, float32 in models of float32, and behind them that of no piece
    const float *most;                  // of scores before a token, for what is a piece to be this token
    const int32_t *begin, *closing, *end;
    ptrdiff_t begin_count, closing_count, end_count;
    const TrieNode *added, *added_later, *kept, *frozen, *trie, *map;  // NULL: none
    const uint32_t *map_ends;
    const char *map_bytes;
    const uint8_t *plain;  // ASCII characters that stay what they are before others are 1, of these a space is 3
    const TokenizerStep *steps;  // `changes` of them before added tokens are looked for again
    const char *parts, *words_of;
    const Written *written;
    const uint8_t *compose_pages, *compose_classes;
    const Decomposition *decompositions;
    const Composition *compositions;
    ptrdiff_t step_count, written_count, decomposition_count, composition_count;
    // What each character becomes where one does not depend on another; NULL: not known. `word_plain`: the ASCII
    // characters that those of words become, 0 for all others.
    const uint16_t *word_pages, *word_codes;
    const WordAction *word_actions;
    const char *word_bytes, *word_plain;
} Tokenizer;

// The tables of a block, in the order of mlaot/tokenizers/packing.py.
typedef struct {
    int64_t place, bytes;
} TokenizerTable;

static inline const void *tokenizer_table(const char *packed, const TokenizerTable **next, ptrdiff_t size,
                                          ptrdiff_t *count)
{
    const TokenizerTable *table = (*next)++;
    if (count != NULL) {
        *count = (ptrdiff_t)table->bytes / size;
    }
    return table->bytes > 0 ? packed + table->place : NULL;
}

// Views into a block that lies at a multiple of 8.
static inline Tokenizer tokenizer_view(const char *packed)
{
    const int64_t *head = (const int64_t *)(const void *)packed + 2;
    Tokenizer t = {.bits = head[0], .tokens = head[1], .symbols = head[2], .changes = head[3],
                   .longest_word = head[4],
                   .unknown = head[5]};
    memcpy(&t.unknown_score, &head[6], sizeof t.unknown_score);
    const TokenizerTable *next = (const TokenizerTable *)(const void *)(head + 7);
    ptrdiff_t words, pairs;
    t.ends = tokenizer_table(packed, &next, 4, NULL);
    t.bytes = tokenizer_table(packed, &next, 1, NULL);
    t.flags = tokenizer_table(packed, &next, 1, NULL);
    t.words = tokenizer_table(packed, &next, sizeof *t.words, &words);
    t.pairs = tokenizer_table(packed, &next, sizeof *t.pairs, &pairs);
    t.word_places = (uint32_t)words;
    t.pair_places = (uint32_t)pairs;
    t.byte_tokens = tokenizer_table(packed, &next, 4, NULL);
    t.ascii = tokenizer_table(packed, &next, 4, NULL);
    t.inner = tokenizer_table(packed, &next, 1, NULL);
    t.scores = tokenizer_table(packed, &next, 1, NULL);
    t.most = tokenizer_table(packed, &next, 4, NULL);
    t.begin = tokenizer_table(packed, &next, 4, &t.begin_count);
    t.closing = tokenizer_table(packed, &next, 4, &t.closing_count);
    t.end = tokenizer_table(packed, &next, 4, &t.end_count);
    t.added = tokenizer_table(packed, &next, 1, NULL);
    t.added_later = tokenizer_table(packed, &next, 1, NULL);
    t.kept = tokenizer_table(packed, &next, 1, NULL);
    t.frozen = tokenizer_table(packed, &next, 1, NULL);
    t.trie = tokenizer_table(packed, &next, 1, NULL);
    t.map = tokenizer_table(packed, &next, 1, NULL);
    t.map_ends = tokenizer_table(packed, &next, 1, NULL);
    t.map_bytes = tokenizer_table(packed, &next, 1, NULL);
    t.plain = tokenizer_table(packed, &next, 1, NULL);
    t.steps = tokenizer_table(packed, &next, sizeof *t.steps, &t.step_count);
    t.parts = tokenizer_table(packed, &next, 1, NULL);
    t.words_of = tokenizer_table(packed, &next, 1, NULL);
    t.written = tokenizer_table(packed, &next, sizeof *t.written, &t.written_count);
    t.compose_pages = tokenizer_table(packed, &next, 1, NULL);
    t.compose_classes = tokenizer_table(packed, &next, 1, NULL);
    t.decompositions = tokenizer_table(packed, &next, sizeof *t.decompositions, &t.decomposition_count);
    t.compositions = tokenizer_table(packed, &next, sizeof *t.compositions, &t.composition_count);
    t.word_pages = tokenizer_table(packed, &next, 1, NULL);
    t.word_codes = tokenizer_table(packed, &next, 1, NULL);
    t.word_actions = tokenizer_table(packed, &next, 1, NULL);
    t.word_bytes = tokenizer_table(packed, &next, 1, NULL);
    t.word_plain = tokenizer_table(packed, &next, 1, NULL);
    return t;
}

// The number of bytes of the character that begins here, within the text.
static inline ptrdiff_t utf8_size(const char *at, const char *end)
{
    const unsigned char c = (unsigned char)*at;
    const ptrdiff_t size = (ptrdiff_t)(UINT64_C(0x4322111111111111) >> 4 * (c / 16) & 7);
    return size <= end - at ? size : end - at;
}

static inline uint32_t utf8_code(const char *at, ptrdiff_t size)
{
    const unsigned char *c = (const unsigned char *)at;
    uint32_t code = c[0];
    if (size == 2) {
        code = (c[0] & 31U) << 6 | (c[1] & 63U);
    } else if (size == 3) {
        code = (c[0] & 15U) << 12 | (c[1] & 63U) << 6 | (c[2] & 63U);
    } else if (size == 4) {
        code = (c[0] & 7U) << 18 | (c[1] & 63U) << 12 | (c[2] & 63U) << 6 | (c[3] & 63U);
    }
    return code < 0x110000 ? code : 0xFFFD;
}

// The child of a node by a byte; TOKENIZER_NONE: none.
static inline uint32_t trie_child(const TrieNode *trie, uint32_t node, char byte)
{
    const uint32_t label = (unsigned char)byte, child = (trie[node].link >> 9) + label;
    return (trie[child].link & 511) == label ? child : TOKENIZER_NONE;
}

// The first place from here on where a key may begin.
static inline const char *trie_skip(const TrieNode *trie, const char *at, const char *end)
{
    const TrieNode *children = trie + (trie[0].link >> 9);
    while (at < end && (children[(unsigned char)*at].link & 511) != (unsigned char)*at) {
        at++;
    }
    return at;
}

// The longest key below a node that a text begins with: its size, and its value; 0 without one.
static inline ptrdiff_t trie_below(const TrieNode *trie, uint32_t node, const char *at, const char *end,
                                   uint32_t *value)
{
    ptrdiff_t size = 0;
    for (const char *next = at; next < end;) {
        node = trie_child(trie, node, *next++);
        if (node == TOKENIZER_NONE) {
            break;
        }
        if (trie[node].value != TOKENIZER_NONE) {
            *value = trie[node].value;
            size = next - at;
        }
    }
    return size;
}

static inline ptrdiff_t trie_longest(const TrieNode *trie, const char *at, const char *end, uint32_t *value)
{
    return trie_below(trie, 0, at, end, value);
}

static inline uint64_t bytes_of_word(const char *at, ptrdiff_t bytes)  // the first 1 to 7 of a word, or all 8
{
    uint64_t word = 0;
    if (bytes >= 8) {
        memcpy(&word, at, 8);
    } else if (bytes >= 4) {
        uint32_t low, high;
        memcpy(&low, at, 4);
        memcpy(&high, at + bytes - 4, 4);
        word = low | (uint64_t)high << (8 * (bytes - 4));
    } else {
        const unsigned char *c = (const unsigned char *)at;
        word = c[0] | (uint64_t)c[bytes / 2] << (8 * (bytes / 2)) | (uint64_t)c[bytes - 1] << (8 * (bytes - 1));
    }
    return word;
}

static inline uint64_t tokenizer_hash(const char *at, ptrdiff_t bytes)
{
    uint64_t value = (uint64_t)bytes;
    for (; bytes > 0; at += 8, bytes -= 8) {
        value = (value ^ bytes_of_word(at, bytes)) * UINT64_C(0x9E3779B97F4A7C15);
        value ^= value >> 32;
    }
    return value;
}

// Whether two pieces of the same size are equal; most are a few bytes.
static inline bool same_bytes(const char *a, const char *b, ptrdiff_t bytes)
{
    for (; bytes > 8; a += 8, b += 8, bytes -= 8) {
        if (bytes_of_word(a, 8) != bytes_of_word(b, 8)) {
            return false;
        }
    }
    return bytes_of_word(a, bytes) == bytes_of_word(b, bytes);
}

// The symbol of a piece; TOKENIZER_NONE: none.
static inline uint32_t find_word(const Tokenizer *t, const char *at, ptrdiff_t bytes, uint64_t hash)
{
    const uint32_t check = (uint32_t)(hash >> 32);
    uint32_t place = (uint32_t)((hash & UINT32_MAX) * t->word_places >> 32);
    for (;; place = place + 1 < t->word_places ? place + 1 : 0) {
        const TokenizerWord word = t->words[place];
        if (word.symbol == TOKENIZER_NONE) {
            return TOKENIZER_NONE;
        }
        const uint32_t begin = t->ends[word.symbol];
        if (word.check == check && (ptrdiff_t)(t->ends[word.symbol + 1] - begin) == bytes &&
            same_bytes(t->bytes + begin, at, bytes)) {
            return word.symbol;
        }
    }
}

// What a pair is merged to, by which rank; the rank TOKENIZER_NONE: never.
static inline TokenizerPair find_pair(const Tokenizer *t, uint32_t left, uint32_t right)
{
    uint64_t hash = (left * UINT64_C(0x9E3779B97F4A7C15) ^ right) * UINT64_C(0xD6E8FEB86659FD93);
    hash ^= hash >> 32;
    uint32_t place = (uint32_t)((hash & UINT32_MAX) * t->pair_places >> 32);
    for (;; place = place + 1 < t->pair_places ? place + 1 : 0) {
        const TokenizerPair pair = t->pairs[place];
        if (pair.rank == TOKENIZER_NONE || (pair.left == left && pair.right == right)) {
            return pair;
        }
    }
}

// Whether a token ends a text.
static inline bool tokenizer_ends(const Tokenizer *t, int32_t token)
{
    for (ptrdiff_t i = 0; i < t->end_count; i++) {
        if (t->end[i] == token) {
            return true;
        }
    }
    return false;
}
