// -------------------------------------------------------- tokenizers: the best way through a text, of a unigram model
#pragma once

#include "runtime/tokenizer_parts.c"

typedef struct {
    double score;
    uint32_t size, token;  // of the last piece on the best way here; size 0: none
} Step;

static inline void reach(Step *step, double score, bool single, ptrdiff_t size, uint32_t token)
{
    score = single ? (double)(float)score : score;
    const bool is_better = score > step->score;
    step->score = is_better ? score : step->score;
    step->size = is_better ? (uint32_t)size : step->size;
    step->token = is_better ? token : step->token;
}

// The best way to each place of a text.
static inline void best_steps(const Tokenizer *t, const char *at, ptrdiff_t bytes, bool single, Step *steps)
{
    const TrieNode *trie = t->trie;
    for (ptrdiff_t begin = 0, size; begin < bytes; begin += size) {
        size = utf8_size(at + begin, at + bytes);
        const double here = steps[begin].score;
        bool has_single = false;
        uint32_t node = 0;
        for (ptrdiff_t next = begin; next < bytes;) {
            node = trie_child(trie, node, at[next++]);
            if (node == TOKENIZER_NONE) {
                break;
            }
            const uint32_t token = trie[node].value;
            if (token != TOKENIZER_NONE) {
                reach(&steps[next], t->scores[token] + here, single, next - begin, token);
                has_single |= next - begin == size;
            }
        }
        if (!has_single) {
            reach(&steps[begin + size], t->unknown_score + here, single, size, (uint32_t)t->unknown);
        }
    }
}

// Add the pieces of the best way through a text.
static bool add_best(Encoding *e, const char *at, const char *end)
{
    const Tokenizer *t = e->t;
    const ptrdiff_t bytes = end - at;
    if (bytes > PTRDIFF_MAX / 64 || bytes >= INT32_MAX) {
        return false;
    }
    if (!buffer_room(&e->path, (bytes + 1) * (ptrdiff_t)sizeof(Step))) {
        return false;
    }
    Step *steps = (Step *)(void *)e->path.at;
    steps[0] = (Step){e->score, 0, 0};
    for (ptrdiff_t i = 1; i <= bytes; i++) {
        steps[i] = (Step){-INFINITY, 0, 0};
    }
    if ((t->bits & TOKENIZER_SINGLE) != 0) {
        best_steps(t, at, bytes, true, steps);
    } else {
        best_steps(t, at, bytes, false, steps);
    }
    e->score = steps[bytes].score;
    // Turn the way around: each step's token moves to where its piece begins.
    ptrdiff_t place = bytes;
    uint32_t size = steps[place].size, token = steps[place].token;
    while (place > 0) {
        place -= size;
        const Step previous = steps[place];
        steps[place].size = size;
        steps[place].token = token;
        size = previous.size;
        token = previous.token;
    }
    for (ptrdiff_t i = 0; i < bytes; i += steps[i].size) {
        const bool is_unknown = steps[i].token == t->unknown;
        if (is_unknown ? !add_unknown(e, at + i, steps[i].size) : !add_token(e, steps[i].token)) {
            return false;
        }
        e->follows = is_unknown && e->follows;
    }
    return true;
}

static inline double larger(double a, double b)
{
    return a > b ? a : b;
}

static inline double smaller(double a, double b)
{
    return a < b ? a : b;
}

static inline double size_of(double a)
{
    return a < 0 ? -a : a;
}

// How far from zero the score before a word may be for its pieces to be the same: where sums are rounded more than the
// best way is better than others, at any place of it, another one may win. 0: never.
static float most_of(const Tokenizer *t, const char *at, ptrdiff_t bytes)
{
    double scores[SEEN_BYTES + 1], gaps[SEEN_BYTES + 1];  // of the best way to a place; to the second one
    ptrdiff_t sizes[SEEN_BYTES + 1];
    bool unknown[SEEN_BYTES + 1];
    for (ptrdiff_t i = 0; i <= SEEN_BYTES; i++) {
        scores[i] = i == 0 ? 0.0 : -INFINITY;
        gaps[i] = INFINITY;
        sizes[i] = 0;
        unknown[i] = false;
    }
    double span = 0.0;
    for (ptrdiff_t begin = 0, size; begin < bytes; begin += size) {
        size = utf8_size(at + begin, at + bytes);
        span = larger(span, size_of(scores[begin]));
        bool has_single = false;
        uint32_t node = 0;
        for (ptrdiff_t next = begin; next < bytes || !has_single;) {
            node = next < bytes && node != TOKENIZER_NONE ? trie_child(t->trie, node, at[next++]) : TOKENIZER_NONE;
            uint32_t token = node == TOKENIZER_NONE ? TOKENIZER_NONE : t->trie[node].value;
            const bool is_unknown = node == TOKENIZER_NONE && !has_single;
            if (node == TOKENIZER_NONE && !is_unknown) {
                break;
            }
            if (token == TOKENIZER_NONE && !is_unknown) {
                continue;
            }
            const ptrdiff_t place = is_unknown ? begin + size : next;
            const double score = (is_unknown ? t->unknown_score : t->scores[token]) + scores[begin];
            has_single |= place - begin == size;
            if (score > scores[place]) {
                gaps[place] = score - scores[place];
                scores[place] = score;
                sizes[place] = place - begin;
                unknown[place] = is_unknown;
            } else {
                gaps[place] = smaller(gaps[place], scores[place] - score);
            }
        }
    }
    double gap = INFINITY;
    for (ptrdiff_t place = bytes; place > 0; place -= sizes[place]) {
        gap = unknown[place] ? 0.0 : smaller(gap, gaps[place]);
    }
    span = larger(span, size_of(scores[bytes]));
    const double unit = (t->bits & TOKENIZER_SINGLE) != 0 ? 0x1p-23 : 0x1p-52;  // of a sum, which is rounded to half
    return gap > 0.0 ? (float)(0.99 * gap / ((double)(bytes + 2) * unit) - 1.01 * span) : 0.0F;
}

// Add the pieces of a stretch that no piece goes across.
static inline bool add_stretch(Encoding *e, const char *at, const char *end)
{
    const Tokenizer *t = e->t;
    const ptrdiff_t bytes = end - at, first = e->count;
    if (e->seen_places == 0 || bytes > SEEN_BYTES || e->follows) {
        return add_best(e, at, end);
    }
    uint64_t key[3];
    Seen *seen = seen_place(e, at, bytes, key);
    const double before = e->score;
    if (seen->words[0] != key[0] || seen->words[2] != key[2] || seen->words[1] != key[1] ||
        !(size_of(before) < (double)seen->most)) {
        const bool is_done = add_best(e, at, end);
        const float most = is_done ? most_of(t, at, bytes) : 0.0F;
        if (size_of(before) < (double)most) {
            note(e, seen, key, first);
            seen->most = most;
        }
        return is_done;
    }
    if (!tokens_room(e, SEEN_TOKENS)) {
        return false;
    }
    memcpy(e->tokens + e->count, seen->tokens, sizeof seen->tokens);
    e->count += seen->count;
    for (uint32_t i = 0; i < seen->count; i++) {
        const double score = t->scores[seen->tokens[i]] + e->score;
        e->score = (t->bits & TOKENIZER_SINGLE) != 0 ? (double)(float)score : score;
    }
    return true;
}

// Add the pieces of a part.
static bool add_unigram(Encoding *e, const char *at, const char *end)
{
    e->score = 0.0;
    for (const char *next; at < end; at = next) {
        next = next_cut(e->t, at, end);
        if (!add_stretch(e, at, next)) {
            return false;
        }
    }
    return true;
}
