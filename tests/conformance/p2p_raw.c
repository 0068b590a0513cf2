// SPDX-License-Identifier: Apache-2.0
#include "p2p_raw.h"

#include "core/link/links.h"
#include "core/p2p/inner.h"

#include <sched.h>
#include <stdlib.h>

static_assert((int)kRawMagic == (int)KOLO_P2P_MAGIC, "the tests know the magic number");

void RawSend(struct kolo_comm *comm, int to, const struct RawHeader *raw)
{
    struct kolo_p2p_header header = {.magic = raw->magic,
                                     .kind = raw->kind,
                                     .tag = raw->tag,
                                     .freed = raw->freed,
                                     .bytes = raw->bytes,
                                     .id = raw->id};
    const struct kolo_bytes data = {&header, sizeof header, 1, sizeof header};
    struct kolo_req req = {.channel = KOLO_P2P_CONTROL};
    pthread_mutex_lock(&comm->links.lock);
    const struct kolo_member *member = &comm->member[to];
    if (kolo_links_connect(comm, to) != KOLO_OK ||
        member->transport->send(member->link, &data, &req) != KOLO_OK) {
        abort();
    }
    while (req.status == KOLO_INPROGRESS) {
        (void)member->transport->progress(member->device, 16);
        sched_yield();
    }
    pthread_mutex_unlock(&comm->links.lock);
}

size_t RawKeptBytes(struct kolo_comm *comm, int from)
{
    size_t bytes = 0;
    pthread_mutex_lock(&comm->links.lock);
    const struct kolo_p2p_kept *kept = comm->p2p->peer[from]->kept;
    for (; kept != NULL; kept = kept->next) {
        bytes += kept->ready ? 0 : KOLO_P2P_RECORD + kept->bytes;
    }
    pthread_mutex_unlock(&comm->links.lock);
    return bytes;
}

uint64_t RawAnnounced(struct kolo_comm *comm, int to)
{
    pthread_mutex_lock(&comm->links.lock);
    const uint64_t announced = comm->p2p->peer[to]->ids;
    pthread_mutex_unlock(&comm->links.lock);
    return announced;
}
