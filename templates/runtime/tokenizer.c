// ------------------------------------------------------------------------- tokenizers: from texts to tokens, and back
#pragma once

#include "runtime/tokenizer_parts.c"
#include "runtime/tokenizer_unigram.c"
#include "runtime/tokenizer_words.c"

// Add the tokens of a part that nothing cuts any more.
static bool add_last(Encoding *e, const char *at, const char *end)
{
    if ((e->t->bits & TOKENIZER_BYTE_LEVEL) != 0) {
        return add_part(e, at, end);
    }
    e->follows = false;
    if ((e->t->bits & TOKENIZER_UNIGRAM) != 0) {
        return add_unigram(e, at, end);
    }
    return (e->t->bits & TOKENIZER_WORD_PIECES) != 0 ? add_word_pieces(e, at, end) : add_stretches(e, at, end);
}

// Whether a span goes to the part before it, which ends with a matched one or another.
static inline bool span_joins(int64_t behavior, bool last, bool matched)
{
    switch (behavior) {
    case CUT_CONTIGUOUS:
        return last == matched;
    case CUT_WITH_PREVIOUS:
        return matched && !last;
    default:
        return behavior == CUT_WITH_NEXT && last && !matched;
    }
}

// Add the matches that a text begins with, each a part that nothing cuts any more, as most texts are cut; the end of
// those that are found at once.
static const char *add_matches(Encoding *e, Automaton a, const char *at, const char *end, bool *is_done)
{
    while (at < end && *is_done) {
        bool is_far = false;
        const char *next = quick_end(&a, a.width, at, end, &is_far);
        if (next == at || is_far) {
            break;
        }
        *is_done = add_part(e, at, next);
        at = next;
    }
    return at;
}

static bool add_spans(Encoding *e, ptrdiff_t step, const char *at, const char *end, bool first)
{
    const TokenizerStep *cut = &e->t->steps[step];
    const int64_t behavior = cut->flags & 7;
    bool is_done = true;
    if (behavior == CUT_ISOLATED && step + 1 == e->t->step_count && (e->t->bits & TOKENIZER_BYTE_LEVEL) != 0) {
        at = add_matches(e, automaton_view(e->t->parts + cut->place), at, end, &is_done);
    }
    TextSearch search = search_of(e->t->parts + cut->place, at, end);
    TextSpan span = {at, at, false}, part = span;
    while (is_done && next_span(&search, &span)) {
        span.matched ^= (cut->flags & CUT_INVERTED) != 0;
        if (part.begin < part.end && !span_joins(behavior, part.matched, span.matched)) {
            is_done = (behavior == CUT_REMOVED && part.matched) ||
                      add_cuts(e, step + 1, part.begin, part.end, first && part.begin == at);
            part.begin = span.begin;
        }
        part.end = span.end;
        part.matched = span.matched;
    }
    is_done = is_done && ((behavior == CUT_REMOVED && part.matched) || part.begin == part.end ||
                          add_cuts(e, step + 1, part.begin, part.end, first && part.begin == at));
    return search_ends(&search) && is_done;
}

// Put a space in front of a part that has none, in place of marks as well.
static bool add_prefixed(Encoding *e, ptrdiff_t step, const char *at, const char *end, bool first)
{
    const int64_t flags = e->t->steps[step].flags;
    const bool has_marks = (flags & 4) != 0 && memchr(at, '\xE2', (size_t)(end - at)) != NULL;
    const bool is_spaced = *at == ' ' || ((flags & 4) != 0 && is_mark(at, end));
    const bool puts = (flags & 1) != 0 && (first || (flags & 2) == 0) && !is_spaced;
    if (!has_marks && !puts) {
        return add_cuts(e, step + 1, at, end, first);
    }
    Buffer *to = &e->made_of[step - e->t->changes];
    to->bytes = 0;
    if (!buffer_room(to, end - at + 1) || (puts && !buffer_add(to, " ", 1)) || !add_unmarked(has_marks, at, end, to)) {
        return false;
    }
    const char *limit = e->limit;
    e->limit = to->at + to->bytes;
    const bool is_done = add_cuts(e, step + 1, to->at, e->limit, first);
    e->limit = limit;
    return is_done;
}

// Add the tokens of a part that has some bytes, and goes through the steps from one on. `first`: it begins the text.
static bool add_cuts(Encoding *e, ptrdiff_t step, const char *at, const char *end, bool first)
{
    if (step == e->t->step_count) {
        return add_last(e, at, end);
    }
    return e->t->steps[step].kind == STEP_CUT ? add_spans(e, step, at, end, first)
                                              : add_prefixed(e, step, at, end, first);
}

static bool add_parts(Encoding *e, const char *text, ptrdiff_t bytes, bool special, bool first, bool later);

// Add the tokens of a text between added tokens; `later`: also between those of normalized texts.
static bool add_text(Encoding *e, const char *text, ptrdiff_t bytes, bool special, bool first, bool later)
{
    if (later) {
        return add_cuts(e, e->t->changes, text, text + bytes, first);
    }
    if (e->t->word_pages != NULL) {
        return add_words(e, text, text + bytes);
    }
    if (!normalize(e->t, &text, &bytes, &e->text, &e->spare)) {
        return false;
    }
    e->limit = text + bytes;
    return bytes == 0 || add_parts(e, text, bytes, special, first, true);
}

// Whether a word's character ends or begins where an added token does.
static bool is_next_to_word(const Tokenizer *t, const char *begin, const char *at, const char *stop, const char *end)
{
    const char *before = at > begin ? character_before(begin, at) : at;
    const char *behind = stop < end ? stop + utf8_size(stop, end) : stop;
    TextSearch left = search_of(t->words_of, before, at), right = search_of(t->words_of, stop, behind);
    return left.match > before || right.match > stop;  // both are too short to need memory
}

// Add the tokens of a text, with added ones.
static bool add_parts(Encoding *e, const char *text, ptrdiff_t bytes, bool special, bool first, bool later)
{
    const Tokenizer *t = e->t;
    const TrieNode *added = later ? t->added_later : t->added;
    const char *at = text, *end = text + bytes, *begin = text;
    while (added != NULL && (at = trie_skip(added, at, end)) < end) {
        uint32_t token = 0;
        const ptrdiff_t size = trie_longest(added, at, end, &token);
        const char *stop = at + size;
        const uint8_t flags = size > 0 ? t->flags[token] : 0;
        if (size == 0 || (!special && (flags & TOKEN_SPECIAL) != 0) ||
            ((flags & TOKEN_ALONE) != 0 && is_next_to_word(t, text, at, stop, end))) {
            at += size > 0 ? size : 1;
            continue;
        }
        const char *start = (flags & TOKEN_LEFT) != 0 && begin < at ? blanks_begin(begin, at) : at;
        stop = (flags & TOKEN_RIGHT) != 0 ? blanks_end(stop, end) : stop;
        if (begin < start && !add_text(e, begin, start - begin, special, first && begin == text, later)) {
            return false;
        }
        if (!add_token(e, token)) {
            return false;
        }
        at = begin = stop;
    }
    return begin == end || add_text(e, begin, end - begin, special, first && begin == text, later);
}

// Add the tokens of a text, with what the encoding of another one has made already.
static bool encode_text(Encoding *e, const char *text, ptrdiff_t bytes, bool special)
{
    const Tokenizer *t = e->t;
    bool is_done = tokens_room(e, bytes / 2 + 16);
    ptrdiff_t places = e->seen_places;
    while (t->pair_places > 0 && places < MOST_SEEN && places < bytes / BYTES_A_SEEN) {
        places = places > 0 ? 2 * places : 1;
    }
    if (is_done && places > e->seen_places) {
        free(e->seen);
        e->seen = calloc((size_t)places, sizeof *e->seen);
        is_done = e->seen != NULL;
        e->seen_places = is_done ? places : 0;
    }
    if (is_done && (t->bits & TOKENIZER_UNUSES) != 0 && e->made == NULL) {
        e->made = malloc((size_t)t->symbols * sizeof *e->made);
        is_done = e->made != NULL;
    }
    if (is_done && e->made != NULL) {
        memset(e->made, -1, (size_t)t->symbols * sizeof *e->made);
    }
    return is_done && add_parts(e, text, bytes, special, true, false);
}

// Give back all memory but that of the tokens.
static void free_encoding(Encoding *e)
{
    free(e->text.at);
    free(e->spare.at);
    free(e->symbols.at);
    free(e->path.at);
    for (ptrdiff_t i = 0; i < e->t->step_count - e->t->changes; i++) {
        free(e->made_of[i].at);
    }
    free(e->seen);
    free(e->made);
}

// Give the tokens of a text, which is UTF-8, in memory that the caller frees, and return how many there are. `special`:
// texts of special tokens are these tokens. `begin`, `end`: the tokens that stand in front of a text come first, and
// those behind one that is whole come last. -1: memory is short;
// -2 - i: the character at byte i has no token, of a tokenizer of characters.
static ptrdiff_t tokenizer_encode(const Tokenizer *t, const char *text, ptrdiff_t bytes, bool special, bool begin,
                                  bool end, int32_t **tokens)
{
    Encoding e = {.t = t};
    bool is_done = true;
    for (ptrdiff_t i = 0; is_done && begin && i < t->begin_count; i++) {
        is_done = add_token(&e, t->begin[i]);
    }
    is_done = is_done && encode_text(&e, text, bytes, special);
    for (ptrdiff_t i = 0; is_done && end && i < t->closing_count; i++) {
        is_done = add_token(&e, t->closing[i]);
    }
    free_encoding(&e);
    if (!is_done || e.stranger != NULL) {
        free(e.tokens);
        *tokens = NULL;
        return is_done ? -2 - (e.stranger - text) : -1;
    }
    *tokens = e.tokens;
    return e.count;
}

// How a token is written; NULL: as it is found.
static const Written *written_of(const Tokenizer *t, uint32_t token)
{
    ptrdiff_t low = 0, high = t->written_count;
    while (low < high) {
        const ptrdiff_t middle = (low + high) / 2;
        if (t->written[middle].token < token) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < t->written_count && t->written[low].token == token ? &t->written[low] : NULL;
}

// The bytes that a token adds to a text. `first`: only hidden tokens stand before it, as at the beginning.
static ptrdiff_t tokenizer_piece(const Tokenizer *t, int32_t token, bool first, const char **piece)
{
    *piece = t->bytes;
    if (token < 0 || token >= t->tokens || (t->flags[token] & TOKEN_SILENT) != 0) {
        return 0;
    }
    const Written *written = written_of(t, (uint32_t)token);
    const uint32_t symbol = written == NULL ? (uint32_t)token : first ? written->first : written->symbol;
    const char *begin = t->bytes + t->ends[symbol];
    ptrdiff_t bytes = t->ends[symbol + 1] - t->ends[symbol];
    if (first && written == NULL && (t->bits & TOKENIZER_DROPS_SPACE) != 0 && bytes > 0 && *begin == ' ') {
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
