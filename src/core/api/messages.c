// SPDX-License-Identifier: Apache-2.0
/* The public sends and receives. */
#include "core/call/call.h"
#include "core/path.h"

#include <stdlib.h>

static kolo_status check_message(const struct kolo_message *m, const struct kolo_comm *comm)
{
    const size_t elem = kolo_type_bytes(m->type);
    KOLO_TRY(kolo_p2p_check(comm, m->is_send, m->peer, m->tag));
    if (elem == 0) {
        return kolo_fail(KOLO_ERR_INVALID, "type is %d; it must be 0 to %d", (int)m->type,
                         KOLO_TYPES - 1);
    }
    if (m->count > (size_t)PTRDIFF_MAX / elem) {
        return kolo_fail(KOLO_ERR_INVALID, "count is %zu; so many %s overflow (at most %zu)",
                         m->count, kolo_type_name(m->type), (size_t)PTRDIFF_MAX / elem);
    }
    if (m->buf == NULL && m->count > 0) {
        return kolo_fail(KOLO_ERR_INVALID, "buf is NULL; count is %zu", m->count);
    }
    if (m->info != NULL && m->info->size < sizeof(struct kolo_recv_info)) {
        return kolo_fail(KOLO_ERR_INVALID,
                         "out->size is %u; set it to sizeof(struct kolo_recv_info)", m->info->size);
    }
    return KOLO_OK;
}

kolo_status kolo_message_run(const struct kolo_message *m, struct kolo_comm *comm,
                             kolo_stream stream)
{
    KOLO_UNCANCELLED;
    KOLO_TRY(check_message(m, comm));
    kolo_status taken = KOLO_OK;
    if (kolo_path_take_message(m, comm, stream, &taken)) {
        return taken;
    }
    struct kolo_message_call call = {.base = {.kind = KOLO_QUEUED_MESSAGE, .comm = comm},
                                     .info = m->info};
    call.op = malloc(sizeof *call.op);
    if (call.op == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a message");
    }
    *call.op = (struct kolo_p2p_op){.comm = comm,
                                    .is_send = m->is_send,
                                    .buf = m->buf,
                                    .bytes = m->count * kolo_type_bytes(m->type),
                                    .gdr = m->gdr,
                                    .peer = m->peer,
                                    .tag = m->tag};
    return kolo_message_submit(&call, stream);
}

kolo_status kolo_send(const void *buf, size_t count, enum kolo_type type, int peer,
                      struct kolo_comm *comm, kolo_stream stream)
{
    const struct kolo_message m = {(void *)(uintptr_t)buf, count, type, peer,
                                   KOLO_UNTAGGED,          true,  NULL, NULL};
    return kolo_message_run(&m, comm, stream);
}

kolo_status kolo_recv(void *buf, size_t count, enum kolo_type type, int peer,
                      struct kolo_comm *comm, kolo_stream stream)
{
    const struct kolo_message m = {buf, count, type, peer, KOLO_UNTAGGED, false, NULL, NULL};
    return kolo_message_run(&m, comm, stream);
}

kolo_status kolo_send_tag(const void *buf, size_t count, enum kolo_type type, int peer, int tag,
                          struct kolo_comm *comm, kolo_stream stream)
{
    if (tag < 0) {
        return kolo_fail(KOLO_ERR_INVALID, "tag is %d; it must be 0 or more", tag);
    }
    const struct kolo_message m = {
        (void *)(uintptr_t)buf, count, type, peer, tag, true, NULL, NULL};
    return kolo_message_run(&m, comm, stream);
}

kolo_status kolo_recv_tag(void *buf, size_t count, enum kolo_type type, int peer, int tag,
                          struct kolo_recv_info *out, struct kolo_comm *comm, kolo_stream stream)
{
    if (tag < 0 && tag != KOLO_ANY_TAG) {
        return kolo_fail(KOLO_ERR_INVALID, "tag is %d; it must be 0 or more, or KOLO_ANY_TAG", tag);
    }
    const struct kolo_message m = {buf, count, type, peer, tag, false, out, NULL};
    return kolo_message_run(&m, comm, stream);
}
