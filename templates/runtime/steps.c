// --------------------------------------------------------------------------------------------------------------- steps
// What is made of the strings and images of a call before the kernel runs, and after it: columns of places, or of
// numbers.
#pragma once

#include "runtime/inputs.c"

#if HAS_STEPS
#include "runtime/pieces.c"

#define MOST_CELLS ((ptrdiff_t)1 << 28)  // of an array that is as wide as the longest of its rows

// What a step works with: the strings of the call so far, and room for what it makes.
typedef struct {
    Call *call;
    const Strings *known;
    const char *name;  // of the port, for messages
    PyObject *further;  // a list of bytes, or NULL
    Buffer text, pieces, spare;
} Making;

SELDOM static bool refuse_strings(const Making *m, const char *expected)
{
    if (PyErr_Occurred() == NULL) {
        PyErr_Format(PyExc_ValueError, "%s: %s: %s", m->call->function, m->name, expected);
    }
    return false;
}

static bool no_memory(void)
{
    PyErr_NoMemory();
    return false;
}

static ptrdiff_t count_of(const Column *column)
{
    ptrdiff_t count = 1;
    for (int d = 0; d < column->rank; d++) {
        count *= column->shape[d];
    }
    return count;
}

static void like_column(Column *to, const Column *from)
{
    to->rank = from->rank;
    memcpy(to->shape, from->shape, sizeof to->shape);
}

static inline int64_t place_in(const Column *column, ptrdiff_t i)
{
    int64_t place;
    memcpy(&place, column->data.at + i * 8, sizeof place);
    return place;
}

// The text at a place; false with an error where there is none.
static bool text_at(const Making *m, int64_t place, Piece *text)
{
    if (place >= 0 && place < m->known->count) {
        const int32_t *at = m->known->at + place;
        *text = (Piece){m->known->text + at[0], at[1] - at[0]};
        return true;
    }
    const int64_t count = m->further == NULL ? 0 : PyList_Size(m->further);
    PyObject *found = NULL;
    if (place >= 0 && place - m->known->count < count) {
        found = PyList_GetItem(m->further, (Py_ssize_t)(place - m->known->count));
    }
    if (found == NULL || found == Py_None) {
        return refuse_strings(m, "expected strings, got one that is missing");
    }
    *text = (Piece){PyBytes_AsString(found), PyBytes_Size(found)};
    return true;
}

// Add the place of a text.
static bool add_text_place(const Making *m, Piece text, Buffer *places)
{
    const char *at = text.bytes == 0 ? "" : text.at;  // a buffer without bytes lies nowhere
    int64_t place = place_of(m->known, at, text.bytes);
    if (place == m->known->count) {
        PyObject *key = PyBytes_FromStringAndSize(at, text.bytes);
        place = key == NULL ? -1 : further_place(&m->call->further, key, m->known->count);
        release(key);
    }
    if (place < 0) {
        return false;
    }
    return buffer_add(places, (const char *)&place, sizeof place) || no_memory();
}

static bool make_constant(const Making *m, const TextBlock *b, Column *to)
{
    to->rank = (int)b->numbers[0];
    for (int d = 0; d < to->rank; d++) {
        to->shape[d] = (ptrdiff_t)b->numbers[1 + d];
    }
    for (int64_t i = 0; i < b->text_count; i++) {
        if (!add_text_place(m, text_of_block(b, i), &to->data)) {
            return false;
        }
    }
    return true;
}

static bool make_cased(Making *m, const TextBlock *b, bool lower, Piece text, Column *to)
{
    if (!is_utf8(text)) {
        return refuse_strings(m, "expected strings in UTF-8, got other bytes");
    }
    m->text.bytes = 0;
    if (!change_case(b, lower, text, &m->text)) {
        return no_memory();
    }
    return add_text_place(m, (Piece){m->text.at, m->text.bytes}, &to->data);
}

// Strings but for those that are compared and found among the block's.
static bool make_without(Making *m, const TextBlock *b, const Column *from, const Column *compared, Column *to)
{
    const Strings dropped = {(int)b->text_count, b->at, b->order, b->text};
    const ptrdiff_t count = count_of(from);
    for (ptrdiff_t i = 0; i < count; i++) {
        Piece text;
        if (!text_at(m, place_in(compared, i), &text)) {
            return false;
        }
        if (place_of(&dropped, text.at, text.bytes) == dropped.count &&
            !buffer_add(&to->data, from->data.at + i * 8, 8)) {
            return no_memory();
        }
    }
    if (to->data.bytes == 0 && !add_text_place(m, (Piece){"", 0}, &to->data)) {
        return false;
    }
    to->rank = (int)b->numbers[0];
    for (int d = 0; d < to->rank; d++) {
        to->shape[d] = d == to->rank - 1 ? to->data.bytes / 8 : 1;
    }
    return true;
}

// The element of a column that is broadcast to a shape.
static ptrdiff_t element_of(const Column *column, const Column *to, ptrdiff_t i)
{
    ptrdiff_t at = 0, size = 1;
    for (int d = to->rank - 1, own = column->rank - 1; own >= 0; d--, own--) {
        at += column->shape[own] == 1 ? 0 : i % to->shape[d] * size;
        size *= column->shape[own];
        i /= to->shape[d];
    }
    return at;
}

static bool make_concat(Making *m, const Column *first, const Column *second, Column *to)
{
    like_column(to, first->rank >= second->rank ? first : second);
    for (int d = 1; d <= first->rank && d <= second->rank; d++) {
        const ptrdiff_t a = first->shape[first->rank - d], b = second->shape[second->rank - d];
        if (a != b && a != 1 && b != 1) {
            return refuse_strings(m, "expected arrays of strings that go together");
        }
        to->shape[to->rank - d] = a == 1 ? b : a;
    }
    const ptrdiff_t count = count_of(to);
    for (ptrdiff_t i = 0; i < count; i++) {
        Piece a, b;
        if (!text_at(m, place_in(first, element_of(first, to, i)), &a) ||
            !text_at(m, place_in(second, element_of(second, to, i)), &b)) {
            return false;
        }
        m->text.bytes = 0;
        if (a.bytes > INT32_MAX - b.bytes || !buffer_room(&m->text, 1) || !buffer_add(&m->text, a.at, a.bytes) || !buffer_add(&m->text, b.at, b.bytes)) {
            return no_memory();
        }
        if (!add_text_place(m, (Piece){m->text.at, m->text.bytes}, &to->data)) {
            return false;
        }
    }
    return true;
}

// Lay rows out as wide as the longest, or as the block says: `counts` has the length of each, `places` all of them.
static bool lay_rows(Making *m, int64_t width, Piece pad, const Buffer *places, const Buffer *counts, Column *to)
{
    const ptrdiff_t rows = counts->bytes / (ptrdiff_t)sizeof(ptrdiff_t);
    const ptrdiff_t *count = (const ptrdiff_t *)(const void *)counts->at;
    ptrdiff_t longest = 0;
    for (ptrdiff_t i = 0; i < rows; i++) {
        longest = count[i] > longest ? count[i] : longest;
    }
    if (width >= 0 && longest > width) {
        PyErr_Format(PyExc_ValueError, "%s: %s: expected strings of at most %lld pieces, got one of %zd",
                     m->call->function, m->name, (long long)width, longest);
        return false;
    }
    longest = width >= 0 ? (ptrdiff_t)width : longest;
    if (to->rank == COLUMN_RANK) {
        return no_memory();
    }
    to->shape[to->rank++] = longest;
    if (longest > 0 && rows > MOST_CELLS / longest) {
        return no_memory();
    }
    const char *from = places->at;
    Buffer filling = {0};
    bool is_done = true;
    for (ptrdiff_t i = 0; is_done && i < rows; i++) {
        is_done = buffer_add(&to->data, from, count[i] * 8) || no_memory();
        from += count[i] * 8;
        if (is_done && count[i] < longest && filling.bytes == 0) {
            is_done = add_text_place(m, pad, &filling);
        }
        for (ptrdiff_t k = count[i]; is_done && k < longest; k++) {
            is_done = buffer_add(&to->data, filling.at, 8) || no_memory();
        }
    }
    free(filling.at);
    return is_done;
}

// The pieces of each text in a row.
static bool make_rows(Making *m, const TextBlock *b, bool tokens, const Column *from, Column *to)
{
    const ptrdiff_t rows = count_of(from);
    Buffer places = {0}, counts = {0};
    bool is_done = true, has_any = false;
    for (ptrdiff_t i = 0; is_done && i < rows; i++) {
        Piece text;
        m->pieces.bytes = 0;
        is_done = text_at(m, place_in(from, i), &text);
        if (is_done && tokens && !is_utf8(text)) {
            is_done = refuse_strings(m, "expected strings in UTF-8, got other bytes");
        }
        if (is_done) {
            is_done = (tokens ? tokens_of_text(b, text, &m->pieces, &m->spare) : cut_text(b, text, &m->pieces)) ||
                      no_memory();
        }
        ptrdiff_t count = m->pieces.bytes / (ptrdiff_t)sizeof(Piece);
        has_any = has_any || count > 0;
        const bool marks = tokens && b->numbers[0] != 0;
        is_done = is_done && (!marks || add_text_place(m, (Piece){"\2", 1}, &places));
        for (ptrdiff_t k = 0; is_done && k < count; k++) {
            Piece piece;
            memcpy(&piece, m->pieces.at + k * (ptrdiff_t)sizeof piece, sizeof piece);
            is_done = add_text_place(m, piece, &places);
        }
        is_done = is_done && (!marks || add_text_place(m, (Piece){"\3", 1}, &places));
        count += marks ? 2 : 0;
        is_done = is_done && (buffer_add(&counts, (const char *)&count, sizeof count) || no_memory());
    }
    if (is_done && !has_any) {  // there are no marks around nothing
        memset(counts.at == NULL ? (char *)&(ptrdiff_t){0} : counts.at, 0, (size_t)counts.bytes);
    }
    const Piece pad = tokens ? text_of_block(b, 0) : (Piece){"", 0};
    is_done = is_done && lay_rows(m, b->numbers[tokens ? 3 : 1], pad, &places, &counts, to);
    free(places.at);
    free(counts.at);
    return is_done;
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

// The number that a text is, in a dtype; an integer may have a fraction, which is left out.
static bool make_number(Making *m, int dtype, Piece text, char *to)
{
    const char *at = text.at, *end = at + text.bytes;
    while (at < end && is_blank(*at)) {
        at++;
    }
    while (end > at && is_blank(end[-1])) {
        end--;
    }
    if (DTYPES[dtype].kind == 'f') {
        m->text.bytes = 0;
        if (!buffer_add(&m->text, at, end - at) || !buffer_add(&m->text, "", 1)) {
            return no_memory();
        }
        const bool is_whole = at < end && memchr(at, 0, (size_t)(end - at)) == NULL;
        const double value = is_whole ? PyOS_string_to_double(m->text.at, NULL, NULL) : -1;
        if (!is_whole || (value == -1 && PyErr_Occurred() != NULL)) {
            PyErr_Clear();
            return refuse_strings(m, "expected numbers as strings, got another");
        }
        float_set(dtype, to, value);
        return true;
    }
    const bool is_negative = at < end && *at == '-', has_sign = at < end && (*at == '-' || *at == '+');
    at += has_sign;
    uint64_t value = 0;
    bool is_right = at < end && *at != '.', is_large = false;
    for (; at < end && *at >= '0' && *at <= '9'; at++) {
        const uint64_t digit = (uint64_t)(*at - '0');
        is_large = is_large || value > (UINT64_MAX - digit) / 10;
        value = value * 10 + digit;
    }
    if (at < end && *at == '.') {
        for (at++; at < end && *at >= '0' && *at <= '9';) {
            at++;
        }
    }
    is_right = is_right && at == end;
    if (!is_right) {
        return refuse_strings(m, "expected integers as strings, got another");
    }
    if (DTYPES[dtype].kind == 'b') {
        *to = value != 0 || is_large;
        return true;
    }
    const bool is_signed = DTYPES[dtype].kind == 'i';
    const uint64_t most = UINT64_MAX >> (64 - 8 * DTYPES[dtype].size + is_signed);
    if (is_large || value > (is_negative ? (is_signed ? most + 1 : 0) : most)) {
        return refuse_strings(m, "expected integers that fit as strings, got another");
    }
    integer_set(dtype, to, is_negative ? 0 - value : value);
    return true;
}

// A number as a text: of eight digits if it is no integer.
static bool make_text(const Making *m, int dtype, const char *from, Column *to)
{
    char text[32];
    const double value = DTYPES[dtype].kind == 'f' ? float_get(dtype, from) : 0;
    if (value != value) {
        snprintf(text, sizeof text, "NaN");
    } else if (__builtin_isinf(value)) {
        snprintf(text, sizeof text, value > 0 ? "INF" : "-INF");
    } else if (DTYPES[dtype].kind == 'f') {
        char *made = PyOS_double_to_string(value, 'g', 8, 0, NULL);
        if (made == NULL) {
            return false;
        }
        snprintf(text, sizeof text, "%s", made);
        PyMem_Free(made);
    } else if (DTYPES[dtype].kind == 'i') {
        snprintf(text, sizeof text, "%lld", (long long)integer_get(dtype, from));
    } else {
        snprintf(text, sizeof text, "%llu", (unsigned long long)integer_get(dtype, from));
    }
    return add_text_place(m, (Piece){text, (ptrdiff_t)strlen(text)}, &to->data);
}

// What a step makes of each element apart.
static bool make_each(Making *m, const TextBlock *b, const Step *step, const Column *from, Column *to)
{
    const ptrdiff_t count = count_of(from);
    like_column(to, from);
    for (ptrdiff_t i = 0; i < count; i++) {
        _Alignas(8) char number[8];
        Piece text = {0};
        bool is_done = step->kind == TEXT_OF_NUMBER || text_at(m, place_in(from, i), &text);
        ptrdiff_t size = DTYPES[step->dtype].size;
        switch (is_done ? step->kind : -1) {
        case TEXT_LOWER:
        case TEXT_UPPER:
            is_done = make_cased(m, b, step->kind == TEXT_LOWER, text, to);
            size = 0;
            break;
        case TEXT_OF_NUMBER:
            is_done = make_text(m, step->dtype, from->data.at + i * size, to);
            size = 0;
            break;
        case TEXT_COUNTS:
            m->pieces.bytes = 0;
            is_done = cut_text(b, text, &m->pieces) || no_memory();
            integer_set(I64, number, (uint64_t)(m->pieces.bytes / (ptrdiff_t)sizeof(Piece)));
            break;
        case TEXT_MATCH:
            number[0] = matches(b, text);
            break;
        case TEXT_NUMBER:
            is_done = make_number(m, step->dtype, text, number);
            break;
        default:
            break;
        }
        if (!is_done || (size > 0 && !buffer_add(&to->data, number, size) && !no_memory())) {
            return false;
        }
    }
    return true;
}

// The error of Pillow's that an image is none, as one of ours.
SELDOM static bool refuse_image(const Making *m)
{
    PyObject *type, *value, *trace;
    if (PyErr_ExceptionMatches(PyExc_MemoryError) != 0 || PyErr_ExceptionMatches(PyExc_Exception) == 0) {
        return false;
    }
    PyErr_Fetch(&type, &value, &trace);
    PyErr_Format(PyExc_ValueError, "%s: %s: expected an image; Pillow says: %S", m->call->function, m->name,
                 value == NULL ? type : value);
    release(type);
    release(value);
    release(trace);
    return false;
}

// Take the pixels of an image, whose mode has so many bytes each.
SELDOM static bool take_pixels(PyObject *image, const char *order, ptrdiff_t channels, Column *to)
{
    PyObject *height = PyObject_GetAttrString(image, "height"), *width = PyObject_GetAttrString(image, "width");
    PyObject *pixels = PyObject_CallMethod(image, "tobytes", "ss", "raw", order);
    to->rank = 3;
    to->shape[0] = height == NULL ? -1 : (ptrdiff_t)PyLong_AsLongLong(height);
    to->shape[1] = width == NULL ? -1 : (ptrdiff_t)PyLong_AsLongLong(width);
    to->shape[2] = channels;
    bool is_done = pixels != NULL && PyErr_Occurred() == NULL;
    if (is_done) {
        const char *bytes = PyBytes_AsString(pixels);
        is_done = bytes != NULL && (buffer_add(&to->data, bytes, PyBytes_Size(pixels)) || no_memory());
    }
    release(height);
    release(width);
    release(pixels);
    return is_done;
}

// Decode an image with Pillow, as mlaot/tokenizers/text_steps.py does.
SELDOM static bool make_image(const Making *m, const TextBlock *b, const Column *from, Column *to)
{
    static const char *const PIXELS[][2] = {{"RGB", "RGB"}, {"RGB", "BGR"}, {"L", "L"}};
    const char *const *pixels = PIXELS[b->numbers[0]];
    PyObject *io = PyImport_ImportModule("io"), *pillow = io == NULL ? NULL : PyImport_ImportModule("PIL.Image");
    if (pillow == NULL && PyErr_ExceptionMatches(PyExc_ImportError) != 0) {
        PyErr_SetString(PyExc_ImportError,
                        "an image is decoded by Pillow, which cannot be imported: pip install pillow");
    }
    PyObject *bytes = pillow == NULL ? NULL : PyBytes_FromStringAndSize(from->data.at, from->data.bytes);
    PyObject *file = bytes == NULL ? NULL : PyObject_CallMethod(io, "BytesIO", "(O)", bytes);
    PyObject *opened = file == NULL ? NULL
                                    : PyObject_CallMethod(pillow, "open", "Os(sssssss)", file, "r", "BMP", "JPEG",
                                                          "JPEG2000", "PNG", "PPM", "TIFF", "WEBP");
    PyObject *image = opened == NULL ? NULL : PyObject_CallMethod(opened, "convert", "s", pixels[0]);
    bool is_done = image != NULL && take_pixels(image, pixels[1], (ptrdiff_t)strlen(pixels[0]), to);
    is_done = is_done || (file != NULL && refuse_image(m));
    release(image);
    release(opened);
    release(file);
    release(bytes);
    release(pillow);
    release(io);
    return is_done && (to->data.bytes == count_of(to) || refuse_strings(m, "expected an image, got none"));
}

static bool make_column(Making *m, const Step *step, const Column *const *from, Column *to)
{
    const TextBlock block = text_block(weights_at(m->call->model, step->at)), *b = &block;
    switch (step->kind) {
    case TEXT_CONSTANT:
        return make_constant(m, b, to);
    case TEXT_WITHOUT:
        return make_without(m, b, from[0], from[1], to);
    case TEXT_VALUES:  // which are an input's as they are
        return true;
    case TEXT_JOIN:
        to->rank = 1;
        to->shape[0] = count_of(from[0]) + count_of(from[1]);
        return (buffer_add(&to->data, from[0]->data.at, from[0]->data.bytes) &&
                buffer_add(&to->data, from[1]->data.at, from[1]->data.bytes)) || no_memory();
    case TEXT_IMAGE:
        return make_image(m, b, from[0], to);
    case TEXT_CONCAT:
        return make_concat(m, from[0], from[1], to);
    case TEXT_PIECES:
    case TEXT_TOKENS:
        like_column(to, from[0]);
        return make_rows(m, b, step->kind == TEXT_TOKENS, from[0], to);
    default:
        return make_each(m, b, step, from[0], to);
    }
}

// Run some steps of an entry; `given` has the columns that they take of others.
static int run_steps(Call *call, int begin, int end, const Strings *known, const Column *given)
{
    const Entry *entry = call->entry;
    int status = 0;
    for (int s = begin; status == 0 && s < end; s++) {
        const Step *step = &entry->steps[s];
        const Column *from[2] = {NULL, NULL};
        for (int k = 0; k < 2; k++) {
            const int of = step->of[k];
            from[k] = of == NO_COLUMN ? NULL : of < 0 ? &call->columns[-1 - of] : &given[of];
        }
        Making m = {.call = call, .known = known, .name = entry->ports[step->port].name};
        m.further = call->further == NULL ? NULL : PyDict_Keys(call->further);
        if (PyErr_Occurred() != NULL || !make_column(&m, step, from, &call->columns[s])) {
            status = -1;
        }
        release(m.further);
        free(m.text.at);
        free(m.pieces.at);
        free(m.spare.at);
    }
    return status;
}

// Take an input as a column, dense and of the port's numbers, which no other thread can change.
static int take_column(Call *call, int i, Column *column)
{
    Input *input = &call->inputs[i];
    const Port *port = &call->entry->ports[i];
    column->rank = input->rank;
    for (int d = 0; d < input->rank; d++) {
        column->shape[d] = input->shape[d];
    }
    if (input->bytes > MAX_BYTES || !buffer_room(&column->data, input->bytes + 8)) {
        PyErr_NoMemory();
        return -1;
    }
    char *to = column->data.at;
    ptrdiff_t strides[MAX_RANK];
    column->data.bytes = input->bytes;
    if (input->list != NULL) {
        if (fill_list(call, i, input->list, input->rank, input->shape, &to) < 0) {
            return -1;
        }
        input->list = NULL;
    } else if (input->dtype != port->dtype) {
        return refuse_input(call, i, PyExc_TypeError, DTYPES[input->dtype].name);
    } else if (input->rank == 0) {
        memcpy(to, input->data, (size_t)input->bytes);
    } else if (input->bytes > 0) {
        dense_strides(port->dtype, input->rank, input->shape, strides);
        copy_strided(port->dtype, input->rank, input->shape, to, strides, input->data, input->strides);
    }
    input->copy = false;
    input->data = column->data.at;
    return 0;
}

// Make the inputs that callers do not pass.
static int make_inputs(Call *call)
{
    const Entry *entry = call->entry;
    call->columns = calloc((size_t)(entry->step_count + entry->asked + 1), sizeof *call->columns);
    if (call->columns == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    Column *given = call->columns + entry->step_count;
    for (int s = 0; s < entry->before; s++) {
        for (int k = 0; k < 2; k++) {
            const int of = entry->steps[s].of[k];
            if (of >= 0 && of != NO_COLUMN && given[of].data.at == NULL && take_column(call, of, &given[of]) < 0) {
                return -1;
            }
        }
    }
    if (entry->before > 0 && run_steps(call, 0, entry->before, entry->known, given) < 0) {
        return -1;
    }
    for (int i = entry->asked; i < entry->inputs; i++) {
        const Column *column = &call->columns[entry->ports[i].step_end - 1];
        Input *input = &call->inputs[i];
        begin_input(call, i);
        const Step *step = &entry->steps[entry->ports[i].step_end - 1];
        if (step->kind == TEXT_VALUES) {
            if (see_list(call, i, call->inputs[step->of[0]].values) < 0) {
                return -1;
            }
            continue;
        }
        input->rank = column->rank;
        input->shape = column->shape;
        input->data = column->data.at == NULL ? input->number : column->data.at;
        input->bytes = column->data.bytes;
        if (match_shape(call, i, dtype_words(&entry->ports[i])) < 0) {
            return -1;
        }
    }
    return 0;
}

// The strings that are made of an output.
static PyObject *made_strings(Call *call, const Port *port, const Array *array)
{
    Column given[MOST_COLUMNS];
    const int columns = port->columns, rank = array->rank - (columns > 1);
    const ptrdiff_t size = DTYPES[port->dtype].size, count = array_size(array) / columns;
    PyObject *strings = NULL;
    int status = 0;
    memset(given, 0, sizeof given);
    for (int k = 0; status == 0 && k < columns; k++) {
        given[k].rank = rank;
        memcpy(given[k].shape, array->shape, sizeof(ptrdiff_t) * (size_t)rank);
        if (!buffer_room(&given[k].data, count * size + 8)) {
            PyErr_NoMemory();
            status = -1;
        }
        for (ptrdiff_t i = 0; status == 0 && i < count; i++) {
            memcpy(given[k].data.at + i * size, array->data + (i * columns + k) * size, (size_t)size);
        }
        given[k].data.bytes = count * size;
    }
    if (status == 0 && run_steps(call, port->step_begin, port->step_end, port->strings, given) == 0) {
        const Column *made = &call->columns[port->step_end - 1];
        PyObject *further = call->further == NULL ? NULL : PyDict_Keys(call->further);
        PyObject *places = array_new(call->model->array_type, I64, made->rank, made->shape);
        if (places != NULL && PyErr_Occurred() == NULL) {
            const Array *body = PY_BODY(places);
            memcpy(body->data, made->data.at == NULL ? "" : made->data.at, (size_t)made->data.bytes);
            strings = strings_from(port->strings, further, body, 0, body->data);
        }
        release(places);
        release(further);
    }
    for (int k = 0; k < columns; k++) {
        free(given[k].data.at);
    }
    return strings;
}

static void free_columns(Call *call)
{
    for (int s = 0; call->columns != NULL && s < call->entry->step_count + call->entry->asked; s++) {
        free(call->columns[s].data.at);
    }
    free(call->columns);
    call->columns = NULL;
}
#endif
