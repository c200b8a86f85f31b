// --------------------------------------------------------------------------------------------------------------- text
// The text of a Model: its tokens, and how the entry reads them.
#pragma once

#include "runtime/model.c"
#include "runtime/sample.c"

#if HAS_TEXT
// What the state keeps of a text: how many of its tokens were read, how many it has, and all of these.
typedef struct {
    int64_t *place, *length;
    int32_t *tokens;
} Page;

static Page page_of(const Model *self)
{
    const Text *text = TABLE_OF(self)->text;
    return (Page){
        (int64_t *)(void *)(self->state + text->place_at),
        (int64_t *)(void *)(self->state + text->length_at),
        (int32_t *)(void *)(self->state + text->tokens_at),
    };
}

// Tell whether a page is unchanged since the last call: anyone can write to its buffers.
static bool is_whole(const Page *page, const Text *text)
{
    if (*page->place < 0 || *page->place > *page->length || *page->length > text->context) {
        return false;
    }
    for (int64_t i = 0; i < *page->length; i++) {
        if (page->tokens[i] < 0 || page->tokens[i] >= text->tokens) {
            return false;
        }
    }
    return true;
}

SELDOM static PyObject *refuse_page(const char *function)
{
    return PyErr_Format(PyExc_ValueError, "%s: the buffers place, length and text do not describe a text; rewind(0)"
                        " begins a new one", function);
}

// Weights have changed: what they made of the text is nothing to go by. It has to be read anew; with the lock.
static void forget_reading(const Model *self)
{
    if (TABLE_OF(self)->text != NULL) {
        *page_of(self).place = 0;
    }
}

// Put a token behind a page, which has room or slides: then its latter half is all that is kept, to be read anew.
static void append_token(const Page *page, const Text *text, int32_t token)
{
    if (*page->length == text->context) {
        const ptrdiff_t kept = text->context / 2;
        memmove(page->tokens, page->tokens + text->context - kept, (size_t)kept * sizeof *page->tokens);
        *page->length = kept;
        *page->place = 0;
    }
    page->tokens[(*page->length)++] = token;
}

// Tell the entry how many tokens the text has, including those that it reads now.
static void set_seen(const Text *text, ptrdiff_t seen, ptrdiff_t *dim)
{
    if (text->seen >= 0) {
        dim[text->seen] = seen;
    }
}

// Run an entry that reads, where one of its dims is `count` and it sees so much; with the lock of the state. -1 where
// memory is short.
static int run_reading(Model *self, const Entry *entry, int counted, ptrdiff_t count, ptrdiff_t seen, int64_t *tokens,
                       float *scores)
{
    ptrdiff_t dim[DIMS];
    for (int k = 0; k < DIMS; k++) {
        dim[k] = 1;
    }
    dim[counted] = count;
    set_seen(TABLE_OF(self)->text, seen, dim);
    const int128 bytes = entry->workspace(dim);
    if (bytes > MAX_BYTES) {
        return -1;
    }
    Workspace *workspace = workspace_lease(self, (ptrdiff_t)bytes);
    if (workspace == NULL) {
        return -1;
    }
    char *p[MAX_INPUTS + MAX_OUTPUTS + 4] = {(char *)tokens, (char *)scores};
    char **rest = p + behind_ports(entry);
    rest[0] = self->state;
    rest[1] = (char *)weights_at(self, 0);
    rest[2] = workspace->memory;
    run_kernel(self, entry, 0, entry->work(dim), p, dim);
    workspace_return(self, workspace);
    return 0;
}

// Read what has not been read, or the last token once more, or all, for the scores of what follows; with the lock of
// the state. `room` has a place for each token of a text. -1 where memory is short.
static int read_page(Model *self, const Page *page, int64_t *room, float *scores)
{
    const Text *text = TABLE_OF(self)->text;
    const Entry *entry = &TABLE_OF(self)->entries[text->entry];
    if (*page->place == *page->length) {
        *page->place = text->rereads ? 0 : *page->length - 1;
    }
    const ptrdiff_t count = (ptrdiff_t)(*page->length - *page->place);
    for (ptrdiff_t i = 0; i < count; i++) {
        room[i] = page->tokens[*page->place + i];
    }
    return run_reading(self, entry, -1 - entry->ports[0].shape[0], count, (ptrdiff_t)*page->length, room, scores);
}
#endif
