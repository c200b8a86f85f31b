// ------------------------------------------------------------------------- rows of tokens: texts that a model reads whole
#pragma once

#include "runtime/tokenizer.c"

// The words that a block of mlaot/tokenizers/rows_packing.py begins with.
enum { ROWS_TOKENIZER, ROWS_MOST, ROWS_CUT_BEGIN, ROWS_SINGLE, ROWS_PAIR, ROWS_NUMBERS };

// Where the tokens of a text stand among the numbers around them, and of another one.
#define FIRST_TEXT UINT32_C(0x7FFFFFFF)
#define SECOND_TEXT UINT32_C(0x7FFFFFFE)
#define TEXT_ERRORS "strict"  // of a str that is no UTF-8
#define NO_WORD INT64_C(-1)   // what fills rows that have fewer numbers

// What is made of texts: the tokens of one, or of two one behind the other, and the rows of all.
typedef struct {
    Tokenizer tokenizer;
    Encoding e;
    ptrdiff_t ends[2];  // of the tokens of each text
    int texts;          // that have been added to this row
    Buffer rows;
} Terms;

static inline const int64_t *rows_head(const char *block)
{
    return (const int64_t *)(const void *)block;
}

static inline bool frames_pairs(const char *block)
{
    return rows_head(block)[ROWS_PAIR] > 0;
}

static inline void begin_row(Terms *t)
{
    t->texts = 0;
    t->e.count = 0;
}

// Add the tokens of a text of a row; false where memory is short.
static bool read_text(const char *block, const char *at, ptrdiff_t bytes, Terms *t)
{
    if (t->e.t == NULL) {
        t->tokenizer = tokenizer_view(block + rows_head(block)[ROWS_TOKENIZER]);
        t->e.t = &t->tokenizer;
    }
    const bool is_done = encode_text(&t->e, at, bytes, true);
    t->ends[t->texts++] = t->e.count;
    return is_done;
}

// Leave of two texts as many tokens as there is room for: of the longer one less.
static void keep_tokens(ptrdiff_t *first, ptrdiff_t *second, ptrdiff_t room)
{
    if (*first + *second <= room) {
        return;
    }
    ptrdiff_t *less = *first <= *second ? first : second, *more = *first <= *second ? second : first;
    *more = *less > room ? *less : *less > room - *less ? *less : room - *less;
    if (*less + *more > room) {
        *less = room / 2;
        *more = room - room / 2;
    }
}

// Add the numbers of a row; false where memory is short.
static bool end_row(const char *block, Terms *t)
{
    const int64_t *head = rows_head(block), *frame = head + ROWS_NUMBERS;
    const bool is_pair = t->texts > 1;
    const ptrdiff_t count = (ptrdiff_t)head[is_pair ? ROWS_PAIR : ROWS_SINGLE];
    frame += is_pair ? head[ROWS_SINGLE] : 0;
    const ptrdiff_t sizes[2] = {t->ends[0], is_pair ? t->ends[1] - t->ends[0] : 0};
    ptrdiff_t kept[2] = {sizes[0], sizes[1]};
    if (head[ROWS_MOST] > 0) {
        keep_tokens(&kept[0], &kept[1], (ptrdiff_t)head[ROWS_MOST] - count + t->texts);
    }
    if (!buffer_room(&t->rows, (count + kept[0] + kept[1]) * (ptrdiff_t)sizeof(int64_t))) {
        return false;
    }
    int64_t *to = (int64_t *)(void *)(t->rows.at + t->rows.bytes);
    for (ptrdiff_t i = 0; i < count; i++) {
        const uint32_t part = (uint32_t)frame[i];
        if (part != FIRST_TEXT && part != SECOND_TEXT) {
            *to++ = frame[i];
            continue;
        }
        const int which = part == SECOND_TEXT;
        const int32_t *tokens = t->e.tokens + (which != 0 ? t->ends[0] : 0);
        tokens += head[ROWS_CUT_BEGIN] != 0 ? sizes[which] - kept[which] : 0;
        for (ptrdiff_t k = 0; k < kept[which]; k++) {
            *to++ = (frame[i] - part) | tokens[k];
        }
    }
    t->rows.bytes = (char *)to - t->rows.at;
    return true;
}

static void free_terms(Terms *t)
{
    if (t->e.t != NULL) {
        free_encoding(&t->e);
    }
    free(t->e.tokens);
    free(t->rows.at);
}
