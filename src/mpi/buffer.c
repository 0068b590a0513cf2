// SPDX-License-Identifier: Apache-2.0
/* Buffers of calls that move data, as bytes without gaps. A type that is one run of bytes needs no
 * copy. Others are packed: MPI_Pack() writes the bytes of a type in the order of its signature, which
 * is all that ranks agree on. */
#include "shim.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Pack or unpack at most this many bytes at once: counts of MPI_Pack() are int. */
enum { AT_ONCE = 1 << 30 };

static bool pack_part(char *user, int count, const struct kmpi_type *t, char *bytes, bool unpack,
                      MPI_Comm comm)
{
    const int room = (int)((size_t)count * t->bytes);
    int at = 0;
    const int rc = unpack ? PMPI_Unpack(bytes, room, &at, user, count, t->handle, comm)
                          : PMPI_Pack(user, count, t->handle, bytes, room, &at, comm);
    return rc == MPI_SUCCESS && at == room;
}

static bool pack(char *user, MPI_Count count, const struct kmpi_type *t, char *bytes, bool unpack,
                 MPI_Comm comm)
{
    if (t->bytes == 0 || t->bytes > AT_ONCE) {
        return t->bytes == 0;
    }
    const MPI_Count most = (MPI_Count)(AT_ONCE / t->bytes);
    for (MPI_Count done = 0; done < count;) {
        const MPI_Count part = count - done < most ? count - done : most;
        if (!pack_part((char *)((uintptr_t)user + (uintptr_t)(done * t->extent)), (int)part, t,
                       bytes + (size_t)done * t->bytes, unpack, comm)) {
            return false;
        }
        done += part;
    }
    return true;
}

bool kmpi_items_pack(struct kmpi_items *items, bool filled, MPI_Comm comm)
{
    items->bytes = items->own = malloc((size_t)items->count * items->type.bytes + 1);
    return items->own != NULL &&
           (!filled || pack(items->user, items->count, &items->type, items->own, false, comm));
}

bool kmpi_items_unpack(struct kmpi_items *items, bool changed, MPI_Comm comm)
{
    const bool done =
        !changed || pack(items->user, items->count, &items->type, items->own, true, comm);
    free(items->own);
    items->own = NULL;
    return done;
}

/* ---- v-forms ---- */

/* Whether kolo can have the blocks where they lie. */
static bool lie_well(const struct kmpi_blocks *b, enum kmpi_form form)
{
    ptrdiff_t next = 0;
    if (!b->type.is_run || form == KMPI_COPIED) {
        return false;
    }
    for (int i = 0; i < b->n; i++) {
        const ptrdiff_t at = kmpi_displ_at(b->displs, i);
        if (at < 0 || (form == KMPI_DENSE && at != next)) {
            return false;
        }
        next = at + (ptrdiff_t)kmpi_count_at(b->counts, i);
    }
    return true;
}

bool kmpi_blocks_meet(const struct kmpi_blocks *b, const void *other, size_t bytes)
{
    uintptr_t low = UINTPTR_MAX, high = 0;
    for (int i = 0; i < b->n; i++) {
        if (b->count[i] > 0) {
            const uintptr_t at = (uintptr_t)b->bytes + b->displ[i];
            low = at < low ? at : low;
            high = at + b->count[i] > high ? at + b->count[i] : high;
        }
    }
    return bytes > 0 && low < (uintptr_t)other + bytes && (uintptr_t)other < high;
}

static char *user_block(const struct kmpi_blocks *b, int i)
{
    return (char *)((uintptr_t)b->user + (uintptr_t)(kmpi_displ_at(b->displs, i) * b->type.extent));
}

static bool copy_block(const struct kmpi_blocks *b, int i, bool unpack, MPI_Comm comm)
{
    char *own = b->own + b->displ[i];
    if (!b->type.is_run) {
        return pack(user_block(b, i), kmpi_count_at(b->counts, i), &b->type, own, unpack, comm);
    }
    if (b->count[i] > 0) {
        memcpy(unpack ? user_block(b, i) : own, unpack ? own : user_block(b, i), b->count[i]);
    }
    return true;
}

bool kmpi_blocks_open(struct kmpi_blocks *b, enum kmpi_form form, bool filled, MPI_Comm comm)
{
    const bool as_is = lie_well(b, form);
    size_t next = 0;
    bool done = true;
    b->own = NULL;
    b->bytes = b->user;
    b->count = malloc(2 * (size_t)b->n * sizeof *b->count);
    if (b->count == NULL) {
        return false;
    }
    b->displ = b->count + b->n;
    for (int i = 0; i < b->n; i++) {
        b->count[i] = (size_t)kmpi_count_at(b->counts, i) * b->type.bytes;
        b->displ[i] = as_is ? (size_t)kmpi_displ_at(b->displs, i) * b->type.bytes : next;
        if (b->count[i] == 0 && form == KMPI_AS_THEY_LIE) {
            b->displ[i] = 0; /* no bytes are anywhere */
        }
        next += b->count[i];
    }
    if (as_is) {
        return true;
    }
    b->bytes = b->own = malloc(next + 1);
    for (int i = 0; i < b->n && filled && b->own != NULL && done; i++) {
        done = copy_block(b, i, false, comm);
    }
    return b->own != NULL && done;
}

bool kmpi_blocks_close(struct kmpi_blocks *b, bool changed, MPI_Comm comm)
{
    bool done = true;
    for (int i = 0; i < b->n && changed && b->own != NULL && done; i++) {
        done = copy_block(b, i, true, comm);
    }
    free(b->own);
    free(b->count);
    b->own = NULL;
    b->count = NULL;
    return done;
}
