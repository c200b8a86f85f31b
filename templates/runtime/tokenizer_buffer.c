// ------------------------------------------------------------------------------------------ tokenizers: bytes that grow
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// Bytes that grow.
typedef struct {
    char *at;
    ptrdiff_t bytes, room;
} Buffer;

// Make room for some more bytes; false where memory is short.
static inline bool buffer_room(Buffer *buffer, ptrdiff_t more)
{
    if (more <= buffer->room - buffer->bytes) {
        return true;
    }
    if (more > PTRDIFF_MAX / 4 || buffer->room > PTRDIFF_MAX / 4) {
        return false;
    }
    const ptrdiff_t room = 2 * buffer->room + more + 64;
    char *at = realloc(buffer->at, (size_t)room);
    if (at == NULL) {
        return false;
    }
    buffer->at = at;
    buffer->room = room;
    return true;
}

static inline bool buffer_add(Buffer *buffer, const char *from, ptrdiff_t bytes)
{
    if (!buffer_room(buffer, bytes)) {
        return false;
    }
    if (bytes > 0) {
        memcpy(buffer->at + buffer->bytes, from, (size_t)bytes);
        buffer->bytes += bytes;
    }
    return true;
}

static inline bool buffer_add_code(Buffer *buffer, uint32_t code)
{
    if (!buffer_room(buffer, 4)) {
        return false;
    }
    char *at = buffer->at + buffer->bytes;
    if (code < 0x80) {
        at[0] = (char)code;
        buffer->bytes += 1;
    } else if (code < 0x800) {
        at[0] = (char)(0xC0 | code >> 6);
        at[1] = (char)(0x80 | (code & 63));
        buffer->bytes += 2;
    } else if (code < 0x10000) {
        at[0] = (char)(0xE0 | code >> 12);
        at[1] = (char)(0x80 | (code >> 6 & 63));
        at[2] = (char)(0x80 | (code & 63));
        buffer->bytes += 3;
    } else {
        at[0] = (char)(0xF0 | code >> 18);
        at[1] = (char)(0x80 | (code >> 12 & 63));
        at[2] = (char)(0x80 | (code >> 6 & 63));
        at[3] = (char)(0x80 | (code & 63));
        buffer->bytes += 4;
    }
    return true;
}
