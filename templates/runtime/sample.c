// ------------------------------------------------------------------------------------------------------------- sample
// Which token follows, by the scores of all: the same one on every platform, since no sum here is of rounded numbers.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "runtime/types.h"

#if HAS_TEXT
// How an answer is drawn; a top_k of 0 takes all tokens.
typedef struct {
    double temperature, top_p, min_p, repetition_penalty;
    int64_t top_k;
    uint64_t seed;
} Sampling;

enum { WHOLE = 2147482753 };  // the weight of the likeliest token, about 2^31

// What may follow: its score, and its weight beside the likeliest.
typedef struct {
    float score;
    uint32_t weight;
    int32_t token;
} Candidate;

// A number that depends on a seed and on how many were drawn before (SplitMix64: Steele, Lea and Flood 2014).
static uint64_t random_bits(uint64_t seed, uint64_t drawn)
{
    uint64_t z = seed + (drawn + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

// 2^31 times the sixteen powers 2^(-k / 16) up to one half.
static const int64_t POWERS[] = {
    2147483648, 2056437387, 1969251188, 1885761398, 1805811301, 1729250827, 1655936265, 1585730000,
    1518500250, 1454120821, 1392470869, 1333434672, 1276901417, 1222764986, 1170923762, 1121280436,
};

// The weight of a score beside the best one: about 2^31 times 2^-x, of an x that the scale makes a number of 31 binary
// places. Of these 4 choose a power, a polynomial of the others is off by 4e-7.
static uint32_t weight_beside(double best, float score, double scale)
{
    const double distance = best - (double)score, x = distance * scale;
    if (!(x < 32 * 2147483648.0)) {  // or both, if not a number
        return distance == 0 ? WHOLE : 0;
    }
    const int64_t fixed = (int64_t)x, rest = fixed & 0x7ffffff;
    const int64_t value = WHOLE + ((-1488264393 + (504843001 * rest >> 31)) * rest >> 31);
    return (uint32_t)(value * POWERS[fixed >> 27 & 15] >> 31 >> (fixed >> 31));
}

// Tell whether one candidate comes before another: the likelier first, and of equals the smaller token.
static bool is_likelier(const Candidate *a, const Candidate *b)
{
    return a->score > b->score || (a->score == b->score && a->token < b->token);
}

// Let the candidate at a place of a heap sink to where those below it come later; with `last`, those that come before.
static void sink(Candidate *heap, ptrdiff_t count, ptrdiff_t place, bool last)
{
    const Candidate own = heap[place];
    for (ptrdiff_t child; (child = 2 * place + 1) < count; place = child) {
        if (child + 1 < count && is_likelier(&heap[child + 1], &heap[child]) != last) {
            child++;
        }
        if (is_likelier(&heap[child], &own) == last) {
            break;
        }
        heap[place] = heap[child];
    }
    heap[place] = own;
}

static void make_heap(Candidate *heap, ptrdiff_t count, bool last)
{
    for (ptrdiff_t place = count / 2; place-- > 0;) {
        sink(heap, count, place, last);
    }
}

// Put the likeliest k of all tokens into `kept`; how many these are.
static ptrdiff_t keep_likeliest(const float *scores, ptrdiff_t count, int64_t k, Candidate *kept)
{
    const ptrdiff_t most = k > 0 && k < count ? (ptrdiff_t)k : count;
    for (ptrdiff_t i = 0; i < most; i++) {
        kept[i] = (Candidate){scores[i], 0, (int32_t)i};
    }
    if (most == count) {
        return count;
    }
    make_heap(kept, most, true);
    for (ptrdiff_t i = most; i < count; i++) {
        if (scores[i] > kept->score) {
            *kept = (Candidate){scores[i], 0, (int32_t)i};
            sink(kept, most, 0, true);
        }
    }
    return most;
}

// Keep the fewest that together have a share of the total; how many these are, and their total.
static ptrdiff_t keep_share(Candidate *kept, ptrdiff_t count, double share, uint64_t *total)
{
    // What weighs less than an equal part of the rest is not among them: it could be left out and the share be reached.
    const uint64_t wanted = (uint64_t)((double)*total * share), least = (*total - wanted) / (uint64_t)count;
    ptrdiff_t heavy = 0;
    for (ptrdiff_t i = 0; i < count; i++) {
        if (kept[i].weight >= least) {
            kept[heavy++] = kept[i];
        }
    }
    make_heap(kept, heavy, false);
    uint64_t sum = 0;
    ptrdiff_t left = heavy;
    do {
        const Candidate next = *kept;
        sum += next.weight;
        *kept = kept[--left];
        sink(kept, left, 0, false);
        kept[left] = next;
    } while (left > 0 && sum < wanted);
    memmove(kept, kept + left, (size_t)(heavy - left) * sizeof *kept);
    *total = sum;
    return heavy - left;
}

// Make the tokens of a text less likely (Keskar et al. 2019, section 4.1), each once.
static void penalize(float *scores, double penalty, const int32_t *text, ptrdiff_t length, Candidate *room)
{
    for (ptrdiff_t i = 0; i < length; i++) {
        room[text[i]].weight = 1;
    }
    for (ptrdiff_t i = 0; i < length; i++) {
        if (room[text[i]].weight == 1) {
            float *score = &scores[text[i]];
            *score = (float)(*score > 0 ? *score / penalty : *score * penalty);
            room[text[i]].weight = 0;
        }
    }
}

enum { BLOCK = 64 };  // scores that are compared with the best one before them at once, in vectors

// Whether a whole block has a score that is not at most `top`.
static bool goes_above(const float *scores, float top)
{
    int above = 0;
    for (int i = 0; i < BLOCK; i++) {
        above |= !(scores[i] <= top);
    }
    return above != 0;
}

// The first of the likeliest tokens, or one whose score is not a number.
static ptrdiff_t likeliest(const float *scores, ptrdiff_t count)
{
    ptrdiff_t best = 0;
    for (ptrdiff_t start = 0; start < count; start += BLOCK) {
        const ptrdiff_t size = count - start < BLOCK ? count - start : BLOCK;
        if (size < BLOCK || goes_above(scores + start, scores[best])) {
            for (ptrdiff_t i = start; i < start + size; i++) {
                best = scores[best] == scores[best] && !(scores[i] <= scores[best]) ? i : best;
            }
        }
    }
    return best;
}

// The token at a share of the total of all weights.
static ptrdiff_t token_at(uint64_t total, uint64_t random, const uint32_t *weights, ptrdiff_t count)
{
    uint64_t at = (uint64_t)((int128)random * (int128)total >> 64);
    ptrdiff_t token = 0;
    while (token < count - 1 && at >= weights[token]) {
        at -= weights[token++];
    }
    return token;
}

// Choose among all tokens that are at least `least` times as likely as the best, by their scores.
static ptrdiff_t sample_all(const float *scores, ptrdiff_t count, double best, double scale, uint32_t least,
                            uint64_t random, uint32_t *weights)
{
    uint64_t total = 0;
    for (ptrdiff_t i = 0; i < count; i++) {
        const uint32_t weight = weight_beside(best, scores[i], scale);
        weights[i] = weight < least ? 0 : weight;
        total += weights[i];
    }
    return token_at(total, random, weights, count);
}

// Choose what follows a text; -1 where a score is not a number, or the highest is infinite. `room` has as many places
// as there are scores, which are changed.
static ptrdiff_t sample(float *scores, ptrdiff_t count, const Sampling *how, const int32_t *text, ptrdiff_t length,
                        uint64_t drawn, Candidate *room)
{
    if (how->repetition_penalty != 1) {
        penalize(scores, how->repetition_penalty, text, length, room);
    }
    const ptrdiff_t first = likeliest(scores, count);
    const double best = scores[first];
    if (!(best - best == 0)) {
        return -1;
    }
    if (how->temperature == 0) {
        return first;
    }
    const double scale = 1.4426950408889634 / how->temperature * 2147483648.0;  // 2^31 / log 2
    const uint32_t below = (uint32_t)(how->min_p * WHOLE), least = below + (below < how->min_p * WHOLE);
    const uint64_t random = random_bits(how->seed, drawn);
    if ((how->top_k == 0 || how->top_k >= count) && how->top_p >= 1) {
        return sample_all(scores, count, best, scale, least, random, (uint32_t *)(void *)room);
    }
    ptrdiff_t kept = keep_likeliest(scores, count, how->top_k, room);
    uint64_t total = 0;
    for (ptrdiff_t i = 0; i < kept; i++) {
        room[i].weight = weight_beside(best, room[i].score, scale);
        total += room[i].weight;
    }
    if (how->top_p < 1) {
        kept = keep_share(room, kept, how->top_p, &total);
    }
    if (least > 0) {
        total = 0;
        for (ptrdiff_t i = 0; i < kept; i++) {
            room[i].weight = room[i].weight < least ? 0 : room[i].weight;
            total += room[i].weight;
        }
    }
    uint64_t at = (uint64_t)((int128)random * (int128)total >> 64);
    for (ptrdiff_t i = 0; i < kept; i++) {
        if (at < room[i].weight) {
            return room[i].token;
        }
        at -= room[i].weight;
    }
    return first;
}
#endif
