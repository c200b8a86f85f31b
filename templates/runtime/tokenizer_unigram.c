// -------------------------------------------------------- tokenizers: the best way through a text, of a unigram model
#pragma once

#include "runtime/tokenizer_parts.c"

// Each is compiled once for sums in float32, and once for those in float64.
#define SPECIALIZED __attribute__((always_inline)) static inline

enum { WINDOW = 512 };  // bytes whose ways lie on the stack

// The last piece on the best way to a place: its size in bytes in the upper half, its token in the lower one.
typedef uint64_t Way;

static inline Way way_of(ptrdiff_t size, uint32_t token)
{
    return (uint64_t)size << 32 | token;
}

static inline ptrdiff_t way_size(Way way)
{
    return (ptrdiff_t)(way >> 32);
}

SPECIALIZED double score_at(const void *scores, ptrdiff_t i, bool single)
{
    return single ? (double)((const float *)scores)[i] : ((const double *)scores)[i];
}

SPECIALIZED void set_score(void *scores, ptrdiff_t i, double score, bool single)
{
    if (single) {
        ((float *)scores)[i] = (float)score;
    } else {
        ((double *)scores)[i] = score;
    }
}

SPECIALIZED double sum_of(double score, double before, bool single)
{
    return single ? (double)(float)(score + before) : score + before;
}

// Go to a place with a score, if that is better than any other way there.
SPECIALIZED void reach(void *best, Way *ways, ptrdiff_t place, double score, Way way, bool single)
{
    const double old = score_at(best, place, single);
    const bool is_better = score > old;
    set_score(best, place, is_better ? score : old, single);
    const uint64_t mask = UINT64_C(0) - is_better;  // as a branch would be taken at random
    ways[place] = (way & mask) | (ways[place] & ~mask);
}

// Go behind characters between cuts that no piece begins with, as one way: what is unknown is fused, or bytes.
SPECIALIZED ptrdiff_t pass_strangers(const Tokenizer *t, const char *at, ptrdiff_t begin, ptrdiff_t bytes, void *best,
                                     Way *ways, bool single)
{
    const ptrdiff_t first = begin;
    double score = score_at(best, begin, single);
    do {
        begin += utf8_size(at + begin, at + bytes);
        score = sum_of(t->unknown_score, score, single);
    } while (begin < bytes && trie_child(t->trie, 0, at[begin]) == TOKENIZER_NONE && is_cut(t, at + begin));
    set_score(best, begin, score, single);
    ways[begin] = way_of(begin - first, (uint32_t)t->unknown);
    return begin;
}

// The best way to each place of a window. What lies between two cuts and is a piece is this one, unless the score before
// it is so large that rounded sums decide.
SPECIALIZED void best_ways(const Tokenizer *t, const char *at, ptrdiff_t bytes, void *best, Way *ways, bool single)
{
    const TrieNode *trie = t->trie;
    const void *scores = t->scores;
    const uint32_t root = trie[0].link >> 9, none = (uint32_t)t->tokens, unknown = (uint32_t)t->unknown;
    for (ptrdiff_t i = 1; i <= bytes; i++) {
        set_score(best, i, -INFINITY, single);
    }
    bool is_clean = true;  // no piece goes across the place where this one begins
    for (ptrdiff_t begin = 0; begin < bytes;) {
        const double here = score_at(best, begin, single);
        const ptrdiff_t behind = begin + utf8_size(at + begin, at + bytes);
        bool has_single = false;
        uint32_t base = root, token = none;
        ptrdiff_t next = begin;
        while (next < bytes) {
            const uint32_t label = (unsigned char)at[next];
            const TrieNode node = trie[base + label];
            if ((node.link & 511) != label) {
                break;
            }
            next++;
            base = node.link >> 9;
            token = node.value < none ? node.value : none;
            const double score = sum_of(score_at(scores, token, single), here, single);
            reach(best, ways, next, score, way_of(next - begin, token), single);
            has_single |= (next == behind) & (token < none);
        }
        if (is_clean && next == begin) {
            begin = pass_strangers(t, at, begin, bytes, best, ways, single);
            continue;
        }
        if (is_clean && token < none && (next == bytes || is_cut(t, at + next)) &&
            (here < 0 ? -here : here) < (double)t->most[token]) {
            begin = next;
            continue;
        }
        if (!has_single) {
            const double score = sum_of(t->unknown_score, here, single);
            reach(best, ways, behind, score, way_of(behind - begin, unknown), single);
        }
        begin = behind;
        is_clean = begin < bytes && is_cut(t, at + begin);
    }
}

// Add the pieces of the best way through a window.
SPECIALIZED bool add_ways(Encoding *e, const char *at, ptrdiff_t bytes, void *best, Way *ways, bool single)
{
    set_score(best, 0, e->score, single);
    best_ways(e->t, at, bytes, best, ways, single);
    e->score = score_at(best, bytes, single);
    // The pieces of the way move behind all others, the last one first.
    ptrdiff_t first = bytes + 1;
    for (ptrdiff_t place = bytes; place > 0;) {
        const Way way = ways[place];
        ways[--first] = way;
        place -= way_size(way);
    }
    for (; first <= bytes; first++) {
        const uint32_t token = (uint32_t)ways[first];
        const ptrdiff_t size = way_size(ways[first]);
        const bool is_unknown = token == e->t->unknown;
        if (is_unknown ? !add_unknown(e, at, size) : !add_token(e, token)) {
            return false;
        }
        e->follows = is_unknown && e->follows;
        at += size;
    }
    return true;
}

static bool add_window(Encoding *e, const char *at, ptrdiff_t bytes)
{
    Way ways[WINDOW + 1];
    if ((e->t->bits & TOKENIZER_SINGLE) != 0) {
        float best[WINDOW + 1];
        return add_ways(e, at, bytes, best, ways, true);
    }
    double best[WINDOW + 1];
    return add_ways(e, at, bytes, best, ways, false);
}

// The same of more bytes, which no cut is in.
static bool add_large_window(Encoding *e, const char *at, ptrdiff_t bytes)
{
    if (bytes > PTRDIFF_MAX / 64 || bytes >= INT32_MAX ||
        !buffer_room(&e->path, (bytes + 1) * (ptrdiff_t)(sizeof(Way) + sizeof(double)))) {
        return false;
    }
    Way *ways = (Way *)(void *)e->path.at;
    void *best = ways + bytes + 1;
    return (e->t->bits & TOKENIZER_SINGLE) != 0 ? add_ways(e, at, bytes, best, ways, true)
                                                : add_ways(e, at, bytes, best, ways, false);
}

// Add the pieces of a part, in windows that end where no piece goes across.
static bool add_unigram(Encoding *e, const char *at, const char *end)
{
    e->score = 0.0;
    for (const char *stop; at < end; at = stop) {
        stop = end - at > WINDOW ? at + WINDOW : end;
        while (stop > at && stop < end && !is_cut(e->t, stop)) {
            stop--;
        }
        stop = stop > at ? stop : next_cut(e->t, at, end);
        const ptrdiff_t bytes = stop - at;
        if (!(bytes > WINDOW ? add_large_window(e, at, bytes) : add_window(e, at, bytes))) {
            return false;
        }
    }
    return true;
}
