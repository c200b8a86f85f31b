// -------------------------------------------------------------------------------- tokenizers: merging pairs of symbols
#pragma once

#include "runtime/tokenizer_tables.c"

enum { FEW_SYMBOLS = 64 };

// For an unused piece: the pair that was thought of last.
typedef struct {
    uint32_t left, right;
} Made;

static inline TokenizerPair think_of(const Tokenizer *t, Made *made, uint32_t left, uint32_t right)
{
    const TokenizerPair pair = find_pair(t, left, right);
    if (made != NULL && pair.rank != TOKENIZER_NONE && (t->flags[pair.merged] & TOKEN_UNUSED) != 0) {
        made[pair.merged] = (Made){left, right};
    }
    return pair;
}

// Merge a few symbols in place, the best pair first, and of equal ones the first; return how many are left.
static ptrdiff_t merge_few(const Tokenizer *t, uint32_t *symbols, ptrdiff_t count, Made *made)
{
    uint32_t ranks[FEW_SYMBOLS], merged[FEW_SYMBOLS];  // of the pair that begins at a symbol
    for (ptrdiff_t i = 0; i + 1 < count; i++) {
        const TokenizerPair pair = think_of(t, made, symbols[i], symbols[i + 1]);
        ranks[i] = pair.rank;
        merged[i] = pair.merged;
    }
    while (count > 1) {
        ptrdiff_t best = 0;
        for (ptrdiff_t i = 1; i + 1 < count; i++) {
            best = ranks[i] < ranks[best] ? i : best;
        }
        if (ranks[best] == TOKENIZER_NONE) {
            break;
        }
        symbols[best] = merged[best];
        const ptrdiff_t behind = count - best - 2;
        memmove(symbols + best + 1, symbols + best + 2, (size_t)behind * sizeof *symbols);
        if (behind > 0) {
            memmove(ranks + best + 1, ranks + best + 2, (size_t)(behind - 1) * sizeof *ranks);
            memmove(merged + best + 1, merged + best + 2, (size_t)(behind - 1) * sizeof *merged);
        }
        count--;
        if (best > 0) {
            const TokenizerPair pair = think_of(t, made, symbols[best - 1], symbols[best]);
            ranks[best - 1] = pair.rank;
            merged[best - 1] = pair.merged;
        }
        if (best + 1 < count) {
            const TokenizerPair pair = think_of(t, made, symbols[best], symbols[best + 1]);
            ranks[best] = pair.rank;
            merged[best] = pair.merged;
        }
    }
    return count;
}

typedef struct {
    uint32_t rank, at, left, right, merged;
} Waiting;

static inline bool is_before(const Waiting *a, const Waiting *b)
{
    return a->rank < b->rank || (a->rank == b->rank && a->at < b->at);
}

static void heap_push(Waiting *heap, ptrdiff_t count, Waiting pair)
{
    ptrdiff_t at = count;
    for (; at > 0 && is_before(&pair, &heap[(at - 1) / 2]); at = (at - 1) / 2) {
        heap[at] = heap[(at - 1) / 2];
    }
    heap[at] = pair;
}

static Waiting heap_pop(Waiting *heap, ptrdiff_t count)
{
    const Waiting first = heap[0], last = heap[count - 1];
    ptrdiff_t at = 0;
    for (;;) {
        ptrdiff_t child = 2 * at + 1;
        if (child >= count - 1) {
            break;
        }
        child += child + 1 < count - 1 && is_before(&heap[child + 1], &heap[child]);
        if (!is_before(&heap[child], &last)) {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return first;
}

// A heap of the pairs, and the neighbours of each symbol.
typedef struct {
    const Tokenizer *t;
    uint32_t *symbols, *before, *behind;
    Waiting *heap;
    ptrdiff_t waiting;
    uint32_t count;
    Made *made;
} Merging;

static void consider(Merging *m, uint32_t left, uint32_t right)
{
    if (left == TOKENIZER_NONE || right >= m->count) {
        return;
    }
    const TokenizerPair pair = think_of(m->t, m->made, m->symbols[left], m->symbols[right]);
    if (pair.rank != TOKENIZER_NONE) {
        heap_push(m->heap, m->waiting++, (Waiting){pair.rank, left, pair.left, pair.right, pair.merged});
    }
}

// Merge many symbols in place; return how many are left, -1 where memory is short.
static ptrdiff_t merge_many(const Tokenizer *t, uint32_t *symbols, ptrdiff_t count, Made *made)
{
    if (count >= INT32_MAX / 4) {
        return -1;
    }
    // Each merge takes a pair away and adds two at most.
    Waiting *heap = malloc(3 * (size_t)count * sizeof *heap);
    uint32_t *neighbours = malloc(2 * (size_t)count * sizeof *neighbours);
    Merging m = {t, symbols, neighbours, neighbours + (neighbours != NULL ? count : 0), heap, 0, (uint32_t)count, made};
    ptrdiff_t kept = -1;
    if (heap != NULL && neighbours != NULL) {
        for (uint32_t i = 0; i < m.count; i++) {
            m.before[i] = i - 1;
            m.behind[i] = i + 1;
        }
        for (uint32_t i = 0; i + 1 < m.count; i++) {
            consider(&m, i, i + 1);
        }
        while (m.waiting > 0) {
            const Waiting top = heap_pop(heap, m.waiting--);
            const uint32_t right = m.behind[top.at];
            if (symbols[top.at] != top.left || right >= m.count || symbols[right] != top.right) {
                continue;
            }
            symbols[top.at] = top.merged;
            symbols[right] = TOKENIZER_NONE;
            m.behind[top.at] = m.behind[right];
            if (m.behind[top.at] < m.count) {
                m.before[m.behind[top.at]] = top.at;
            }
            consider(&m, m.before[top.at], top.at);
            consider(&m, top.at, m.behind[top.at]);
        }
        kept = 0;
        for (ptrdiff_t i = 0; i < count; i++) {
            if (symbols[i] != TOKENIZER_NONE) {
                symbols[kept++] = symbols[i];
            }
        }
    }
    free(heap);
    free(neighbours);
    return kept;
}

static inline ptrdiff_t merge_symbols(const Tokenizer *t, uint32_t *symbols, ptrdiff_t count, Made *made)
{
    if (t->pair_places == 0) {
        return count;
    }
    return count <= FEW_SYMBOLS ? merge_few(t, symbols, count, made) : merge_many(t, symbols, count, made);
}
