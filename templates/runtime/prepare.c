// ------------------------------------------------------------------------------------------------------------- prepare
#pragma once

#include "runtime/model.c"

#if HAS_PREPARED
// Let a model read what the module makes of its weights: in memory, once, for the first model.
static int prepare(Model *self, Workspace *_Atomic *prepared)
{
    const Table *table = TABLE_OF(self);
    if (table->prepare < 0) {
        return 0;
    }
    if (*prepared == NULL) {
        const Entry *entry = &table->entries[table->prepare];
        const ptrdiff_t dim[DIMS] = {0};
        Workspace *made = workspace_new(table->prepared_bytes), *kept = NULL;
        if (made == NULL) {
            return -1;
        }
        char *p[4] = {made->memory, (char *)weights_at(self, 0), NULL, NULL};
        run_kernel(self, entry, 0, entry->work(dim), p, dim);
        if (!atomic_compare_exchange_strong(prepared, &kept, made)) {  // another thread was faster
            PyMem_Free(made);
        }
    }
    self->state = (*prepared)->memory;
    return 0;
}
#endif
