// SPDX-License-Identifier: Apache-2.0
/* How a communicator goes down: calls are drained first, then each part frees what it holds. */
#include "core/agree/links.h"
#include "core/call/parts.h"
#include "core/health/life.h"
#include "core/health/watchdog.h"
#include "core/link/open.h"
#include "core/link/region.h"
#include "core/path.h"
#include "core/setup/join.h"
#include "memory/segment.h"
#include "topology/machine/graph.h"

#include <stdlib.h>
#include <unistd.h>

void kolo_comm_destroy(struct kolo_comm *c)
{
    KOLO_UNCANCELLED;
    if (c == NULL) {
        return;
    }
    if (c->ranks.fork_generation != kolo_fork_generation()) {
        return; /* the parent's; nothing of it may be touched here */
    }
    if (kolo_group_leave(c, kolo_comm_destroy)) {
        return;
    }
    if (c->selection.chooser != NULL) {
        kolo_call_drain(c);
        KOLO_LOG(INFO, INIT, "comm %p rank %d nranks %d - Destroy COMPLETE", (void *)c,
                 c->ranks.rank, c->ranks.nranks);
    }
    kolo_board_leave(c);
    kolo_watchdog_remove(c);
    if (c->path != NULL) {
        const int depth = kolo_group_suspend();
        c->path->ops->leave(c->path, c->options.timeout_ms);
        kolo_group_resume(depth);
        c->path = NULL;
    }
    kolo_p2p_close(c);
    kolo_call_forget(c);
    kolo_own_fd_close(&c->rendezvous.reserved_fd);
    kolo_agree_links_close(c);
    kolo_links_close(c);
    if (c->health.own_board != NULL) {
        kolo_segment_drop(c->health.own_board);
    }
    free(c->health.own_slot);
    if (c->health.lives) {
        kolo_life_end();
    }
    kolo_region_free(&c->links.exec_env);
    kolo_chooser_destroy(c->selection.chooser);
    kolo_rules_destroy(c->selection.rules);
    kolo_table_destroy(c->selection.table);
    free(c->joining.table_text);
    if (c->selection.tuner != NULL && c->selection.tuner_self != NULL) {
        c->selection.tuner->close(c->selection.tuner_self);
    }
    pthread_mutex_destroy(&c->links.lock);
    pthread_mutex_destroy(&c->queue.lock);
    pthread_mutex_destroy(&c->failure.lock);
    free(c->member);
    free(c->links.addresses);
    free(c->layout.order);
    free(c->layout.tree);
    kolo_host_destroy(c->joining.host);
    kolo_graph_destroy(c->joining.machine);
    free(c->ranks.place);
    free(c->ranks.host_of);
    kolo_groups_free(&c->layout.groups);
    free(c->options.algo_text);
    free(c->options.transport_text);
    free(c->options.groups_text);
    free(c);
}
