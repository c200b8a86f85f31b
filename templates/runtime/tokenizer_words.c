// ------------------------------------------------------------------------------ tokenizers: words, and the pieces of them
#pragma once

#include "runtime/tokenizer_parts.c"

// How far a word has been followed along the trie, from its begin or that of a piece within: the node of its bytes until
// `next`, TOKENIZER_NONE where there is none, and the longest piece so far, which ends at `end`; NULL: none.
typedef struct {
    const char *next, *end;
    uint32_t node, token;
} Walk;

static inline Walk walk_from(const char *at, uint32_t node)
{
    return (Walk){at, NULL, node, 0};
}

// Follow a word to its end; the end of the longest piece, NULL without one.
static inline const char *walk_on(const TrieNode *trie, Walk *walk, const char *end)
{
    while (walk->node != TOKENIZER_NONE && walk->next < end) {
        walk->node = trie_child(trie, walk->node, *walk->next++);
        if (walk->node != TOKENIZER_NONE && trie[walk->node].value != TOKENIZER_NONE) {
            walk->token = trie[walk->node].value;
            walk->end = walk->next;
        }
    }
    return walk->end;
}

// Add the longest pieces that a word begins with, and goes on with; one that has others is unknown.
static bool add_pieces(Encoding *e, Walk walk, const char *end)
{
    const Tokenizer *t = e->t;
    const ptrdiff_t first = e->count;
    for (const char *at;;) {
        at = walk_on(t->trie, &walk, end);
        if (at == NULL) {
            e->count = first;
            return add_token(e, t->unknown);
        }
        if (!add_token(e, walk.token)) {
            return false;
        }
        if (at == end) {
            return true;
        }
        walk = walk_from(at, trie_child(t->trie, 0, '\xFF'));  // below are the pieces within words
    }
}

// The same of a part of a text, which has some bytes; of a longer word than there may be nothing is known.
static bool add_word_pieces(Encoding *e, const char *at, const char *end)
{
    ptrdiff_t characters = 0;
    for (const char *next = at; next < end; next += utf8_size(next, end)) {
        characters++;
    }
    return characters > e->t->longest_word ? add_token(e, e->t->unknown) : add_pieces(e, walk_from(at, 0), end);
}

// A word on its way: its bytes as far as they are of interest, and how many characters it has.
typedef struct {
    char *begin, *to, *limit;
    ptrdiff_t characters;
    Walk walk;
} Word;

static inline void begin_word(Word *w)
{
    w->to = w->begin;
    w->characters = 0;
    w->walk = walk_from(w->begin, 0);
}

static inline void word_characters(Word *w, const char *bytes, ptrdiff_t size, ptrdiff_t characters)
{
    memcpy(w->to, bytes, (size_t)size);
    w->to = w->to + size < w->limit ? w->to + size : w->begin;  // it is too long by then
    w->characters += characters;
}

static inline void word_code(Word *w, uint32_t code)
{
    char bytes[8] = {0};
    Buffer buffer = {bytes, 0, sizeof bytes};
    buffer_add_code(&buffer, code);
    word_characters(w, bytes, buffer.bytes, 1);
}

// Put the plain characters into a word that a text goes on with, and follow it; where they end.
static inline const char *word_plain(const Tokenizer *t, Word *w, const char *at, const char *end)
{
    const char *begin = at, *stop = end - at > w->limit - w->to ? at + (w->limit - w->to) : end;
    char *to = w->to, c;
    if (w->walk.next == to) {
        uint32_t node = w->walk.node;
        for (; node != TOKENIZER_NONE && at < stop && (c = t->word_plain[(unsigned char)*at]) != 0; at++) {
            *to++ = c;
            const uint32_t child = (t->trie[node].link >> 9) + (unsigned char)c;
            const TrieNode found = t->trie[child];
            node = (found.link & 511) == (unsigned char)c ? child : TOKENIZER_NONE;
            if (node != TOKENIZER_NONE && found.value != TOKENIZER_NONE) {
                w->walk.token = found.value;
                w->walk.end = to;
            }
        }
        w->walk.node = node;
        w->walk.next = to;
    }
    for (; at < stop && (c = t->word_plain[(unsigned char)*at]) != 0; at++) {
        *to++ = c;
    }
    w->characters += at - begin;
    w->to = to < w->limit ? to : w->begin;  // it is too long by then
    return at;
}

// Add the tokens of a word, and begin another one.
static inline bool end_word(Encoding *e, Word *w)
{
    const bool is_long = w->characters > e->t->longest_word;
    const bool is_done = w->characters == 0 || (is_long ? add_token(e, e->t->unknown) : add_pieces(e, w->walk, w->to));
    begin_word(w);
    return is_done;
}

static inline const WordAction *action_of(const Tokenizer *t, uint32_t code)
{
    return &t->word_actions[t->word_codes[256 * t->word_pages[code >> 8] + (code & 255)]];
}

// The begin of the next gap between words.
static const char *next_gap(const Tokenizer *t, const char *at, const char *end)
{
    for (ptrdiff_t size; at < end; at += size) {
        size = utf8_size(at, end);
        if (action_of(t, utf8_code(at, size))->kind == ACTION_GAP) {
            break;
        }
    }
    return at;
}

static bool add_cuts(Encoding *e, ptrdiff_t step, const char *at, const char *end, bool first);

// Add the tokens of a text between two gaps by all steps.
static bool add_slowly(Encoding *e, const char *text, ptrdiff_t bytes)
{
    if (!normalize(e->t, &text, &bytes, &e->text, &e->spare)) {
        return false;
    }
    e->limit = text + bytes;
    return bytes == 0 || add_cuts(e, e->t->changes, text, text + bytes, false);
}

// Add the tokens of a text, whose characters are changed and cut one by one.
static bool add_words(Encoding *e, const char *at, const char *end)
{
    const Tokenizer *t = e->t;
    const ptrdiff_t room = 4 * (ptrdiff_t)t->longest_word + MOST_WORD_BYTES;
    e->path.bytes = 0;
    if (!buffer_room(&e->path, room + MOST_WORD_BYTES)) {
        return false;
    }
    Word w = {.begin = e->path.at, .limit = e->path.at + room};
    begin_word(&w);
    const char *gap = at;             // the end of the last one
    ptrdiff_t behind_gap = e->count;  // the tokens until there
    while (at < end) {
        at = word_plain(t, &w, at, end);
        if (at == end) {
            break;
        }
        const ptrdiff_t size = utf8_size(at, end);
        const uint32_t code = utf8_code(at, size);
        const WordAction *action = action_of(t, code);
        uint32_t parts[4];
        const char *next = at + size;
        switch (action->kind) {
        case ACTION_SLOW:
            next = next_gap(t, next, end);
            e->count = behind_gap;
            begin_word(&w);
            if (!add_slowly(e, gap, next - gap)) {
                return false;
            }
            gap = next;
            behind_gap = e->count;
            break;
        case ACTION_GAP:
            if (!end_word(e, &w)) {
                return false;
            }
            gap = next;
            behind_gap = e->count;
            break;
        case ACTION_ALONE:
            if (!end_word(e, &w)) {
                return false;
            }
            word_code(&w, code + (uint32_t)action->change);
            if (!end_word(e, &w)) {
                return false;
            }
            break;
        case ACTION_SYLLABLE:
            for (int i = 0, count = decompose(t, code, parts); i < count; i++) {
                word_code(&w, parts[i]);
            }
            break;
        case ACTION_SEQUENCE:
            word_characters(&w, t->word_bytes + action->change, action->bytes, action->characters);
            break;
        default:
            word_code(&w, code + (uint32_t)action->change);
        }
        at = next;
    }
    return end_word(e, &w);
}
