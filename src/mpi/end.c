// SPDX-License-Identifier: Apache-2.0
/* The begin and the end that all calls that move data share. */
#include "shim.h"

bool kmpi_items_look(const struct kmpi_side *side, int blocks, struct kmpi_items *out)
{
    *out = (struct kmpi_items){.user = (char *)(uintptr_t)side->buf, .count = side->count * blocks};
    if (side->count < 0 || !kmpi_type_of(side->type, &out->type)) {
        return false;
    }
    out->block = (size_t)side->count * out->type.bytes;
    return true;
}

static bool raise_error(struct kmpi_comm *c, int error, int *out)
{
    *out = kmpi_ended(error);
    (void)PMPI_Comm_call_errhandler(c->comm, error);
    return true;
}

bool kmpi_no_memory(struct kmpi_comm *c, int *out)
{
    kolo_comm_abort(
        c->kolo); /* the other ranks are in the call, or will be, and wait for this one */
    kmpi_log(c, "out of memory");
    return raise_error(c, MPI_ERR_NO_MEM, out);
}

bool kmpi_end(struct kmpi_comm *c, bool packed, kolo_status st, int *out)
{
    if (!packed && st == KOLO_OK) {
        return kmpi_no_memory(c, out);
    }
    *out = kmpi_result(c, st);
    return true;
}

bool kmpi_truncated(struct kmpi_comm *c, int *out)
{
    return raise_error(c, MPI_ERR_TRUNCATE, out);
}
