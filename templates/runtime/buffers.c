// ------------------------------------------------------------------------------------------------------------ buffers
#pragma once

#include "runtime/shapes.c"

// Does a buffer hold numbers of one kind, in the machine's order of bytes?
static bool is_format(const char *format, ptrdiff_t itemsize, int dtype)
{
    if (format == NULL) {
        format = "B";
    }
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    if (*format == '<' || *format == '=' || *format == '@') {
#else
    if (*format == '>' || *format == '!' || *format == '=' || *format == '@') {
#endif
        format++;
    }
    const char *letter = DTYPES[dtype].letters;
    while (*letter != 0 && *letter != *format) {
        letter++;
    }
    return *letter != 0 && format[1] == 0 && itemsize == DTYPES[dtype].size;
}

// The kind of a buffer's numbers, or -1.
static int buffer_dtype(const Py_buffer *view)
{
    int dtype = DTYPE_COUNT - 1;
    while (dtype >= 0 && !is_format(view->format, view->itemsize, dtype)) {
        dtype--;
    }
    return dtype;
}

// "float64[10, 784]" for any buffer.
SELDOM static Words buffer_words(const Py_buffer *view)
{
    static const struct { char letter; const char *name; } NAMES[] = {
        {'e', "float"}, {'f', "float"}, {'d', "float"}, {'b', "int"},  {'h', "int"},  {'i', "int"},
        {'l', "int"},   {'q', "int"},   {'n', "int"},   {'B', "uint"}, {'H', "uint"}, {'I', "uint"},
        {'L', "uint"},  {'Q', "uint"},  {'N', "uint"},  {'?', "bool"},
    };
    const char *format = view->format != NULL ? view->format : "B";
    const bool has_order = *format != 0 && strchr("<>=@!", *format) != NULL;
    const bool is_big = *format == '>' || *format == '!', is_little = *format == '<';
    const bool native_big = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;
    const char *order = is_big && !native_big ? "big-endian " : is_little && native_big ? "little-endian " : "";
    const char *letter = format + has_order;
    char got[80];
    snprintf(got, sizeof got, "buffer format '%.40s'", format);
    for (size_t n = 0; n < sizeof NAMES / sizeof *NAMES; n++) {
        if (letter[0] == NAMES[n].letter && letter[1] == 0) {
            snprintf(got, sizeof got, "%s%s", order, NAMES[n].name);
            if (*letter != '?') {
                snprintf(got, sizeof got, "%s%s%d", order, NAMES[n].name, (int)(view->itemsize * 8));
            }
        }
    }
    return type_words(NULL, got, view->ndim, view->shape);
}
