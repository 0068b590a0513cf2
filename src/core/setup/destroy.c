// SPDX-License-Identifier: Apache-2.0
/* How a communicator goes down: calls are drained first, then each part frees what it holds. */
#include "core/call/parts.h"
#include "core/health/watchdog.h"
#include "core/link/open.h"
#include "core/link/region.h"
#include "core/path.h"
#include "core/setup/join.h"
#include "memory/segment.h"

#include <stdlib.h>
#include <unistd.h>

void kolo_comm_destroy(struct kolo_comm *c)
{
    if (c == NULL) {
        return;
    }
    if (c->fork_generation != kolo_fork_generation()) {
        return; /* the parent's; nothing of it may be touched here */
    }
    if (c->chooser != NULL) {
        kolo_call_drain(c);
        KOLO_LOG(INFO, INIT, "comm %p rank %d nranks %d - Destroy COMPLETE", (void *)c, c->rank,
                 c->nranks);
    }
    kolo_board_leave(c);
    kolo_watchdog_remove(c);
    if (c->path != NULL) {
        c->path->ops->leave(c->path, c->timeout_ms);
        c->path = NULL;
    }
    kolo_p2p_close(c);
    kolo_call_forget(c);
    if (c->reserved_fd >= 0) {
        close(c->reserved_fd);
    }
    kolo_links_close(c);
    if (c->own_board != NULL) {
        kolo_segment_drop(c->own_board);
    }
    free(c->own_post);
    kolo_region_free(&c->wires);
    kolo_chooser_destroy(c->chooser);
    kolo_rules_destroy(c->rules);
    kolo_table_destroy(c->table);
    free(c->table_text);
    if (c->tuner != NULL && c->tuner_self != NULL) {
        c->tuner->close(c->tuner_self);
    }
    pthread_mutex_destroy(&c->device_lock);
    pthread_mutex_destroy(&c->queue_lock);
    pthread_mutex_destroy(&c->error_lock);
    free(c->member);
    free(c->addresses);
    free(c->order);
    free(c->tree);
    kolo_host_destroy(c->host);
    kolo_graph_destroy(c->machine);
    free(c->place);
    free(c->host_of);
    kolo_groups_free(&c->groups);
    free(c->algo_text);
    free(c->transport_text);
    free(c->groups_text);
    free(c);
}
