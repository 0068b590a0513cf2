// SPDX-License-Identifier: Apache-2.0
/* A communicator, as one rank holds it.
 *
 * It owns everything that its calls use: transports' devices and links, the region and outbox that
 * peers map, plans, lowered and bound programs. Links to peers are made when first needed.
 * Calls take effect in call order: `queue` holds those that could not run at once; who holds `busy`
 * runs. Point-to-point operations live beside (p2p.h). */
#ifndef KOLO_CORE_COMM_H
#define KOLO_CORE_COMM_H

#include "boot/bootstrap.h"
#include "core/board/board.h"
#include "core/call/state.h"
#include "core/failure/state.h"
#include "core/health/state.h"
#include "core/layout.h"
#include "core/link/state.h"
#include "core/options.h"
#include "core/ranks.h"
#include "core/rendezvous.h"
#include "core/selection.h"
#include "util/threads.h"

enum {
    KOLO_SLOT_BYTES = 1 << 20,       /* outbox of one tile; made when first used */
    KOLO_SHORT_SLOT_BYTES = 4 << 10, /* of a tile of few bytes */
    KOLO_TURN_BYTES = 512 << 10, /* of a slot; the slots' parts together are larger than an L2 */
    KOLO_ENTRY_BYTES = 4 << 10,  /* calls of this size look at what memory is shared */
    KOLO_WHOLE_PLAN_RANKS = 64 /* larger communicators build one rank's plan: no facts, no stages */
};

struct kolo_member { /* a rank, as this one sees it */
    struct kolo_peer peer;
    struct kolo_place place;
    uint64_t gpu;              /* its bus address; KOLO_BUS_NONE: the rank is on none */
    struct kolo_inet reserved; /* where it can be met again; family 0: on this host only */
    const struct kolo_transport *transport; /* the one that reaches it best */
    struct kolo_endpoint *device;
    struct kolo_reach reach;
    struct kolo_link *link; /* NULL until first used; links.lock */
    /* The same for threads that hold nothing and only tell of a failure. */
    _Atomic(struct kolo_link *) abort_link;
    _Atomic(struct kolo_region *) abort_region;
    unsigned char region[KOLO_HANDLE_BYTES];
    bool maps;                      /* its region can be mapped here, and ours there */
    bool watched;                   /* the watchdog watches its process for this communicator */
    int slot;                       /* its slot on the board, -1: none */
    _Atomic bool lost;              /* its process is gone; core/health/watchdog.c */
    unsigned char life[16];         /* the socket that ends with its process: life.h */
    _Atomic int pid_here;           /* its process in this PID namespace; 0: not known, or none */
    uint32_t beats;                 /* of its slot, as last seen by the watchdog ... */
    _Atomic uint64_t beats_us;      /* ... and when they grew; 0: not yet */
    _Atomic uint64_t left_us;       /* when it was first seen to have left; 0: not yet */
    bool in_gossip;                 /* the link to it tells who is gone; core/health/gossip.c */
    _Atomic uint64_t word, word_us; /* what it said last, and when; 0: nothing */
    struct kolo_call_sign heard;    /* a call of it that this rank has not made yet; links.lock */
    bool in_slots;                  /* its outbox is mapped */
    _Atomic int end;                /* 1 + enum kolo_end, where it is known; 0: not */
    _Atomic bool calls_on;          /* it has connected to this rank, and waits for the same */
    _Atomic bool left_out;          /* agreements leave it out; core/agree */
};

struct kolo_p2p;
struct kolo_comm_path;
struct kolo_agree_links;

/* Nothing but parts: a file includes the header of each part that it uses. */
struct kolo_comm {
    struct kolo_ranks ranks;              /* who: fixed once it has come up */
    struct kolo_options options;          /* fixed */
    struct kolo_comm_layout layout;       /* rings, trees, groups: fixed */
    struct kolo_selection selection;      /* which algorithm: fixed */
    struct kolo_rendezvous rendezvous;    /* where parts and survivors meet again */
    struct kolo_joining joining;          /* while it comes up */
    struct kolo_member *member;           /* [nranks] each rank, as this one sees it */
    struct kolo_links links;              /* transports and mapped memory */
    struct kolo_call_queue queue;         /* collectives that could not run at once */
    struct kolo_programs programs;        /* caches of plans and programs */
    struct kolo_health health;            /* status board, watchdog */
    struct kolo_failure_state failure;    /* what ended it */
    struct kolo_agree_links *agree_links; /* where members share no board; NULL: they do */
    struct kolo_p2p *p2p;                 /* sends and receives; made when first used */
    struct kolo_comm_path *_Atomic path;  /* of a GPU; NULL: host memory alone */
};

/* What plans of this communicator are made for; it points into the communicator. */
struct kolo_shape kolo_comm_shape(const struct kolo_comm *comm, enum kolo_coll coll, int root);
/* Collectives begun: the number of the last one. */
static inline uint64_t kolo_comm_calls(const struct kolo_comm *c)
{
    return atomic_load_explicit(&c->health.slot->begun, memory_order_relaxed);
}
/* Rank q's slot, or NULL. */
static inline struct kolo_board_slot *kolo_comm_slot(const struct kolo_comm *c, int q)
{
    return c->health.board != NULL && q >= 0 && q < c->ranks.nranks && c->member[q].slot >= 0
               ? &c->health.board->slot[c->member[q].slot]
               : NULL;
}
/* A call failed whose output peers may write: unless they are dead or threads of this process,
 * `out` becomes memory of this process alone, so that who comes late does not change it. */
void kolo_mem_take_back(struct kolo_comm *c, void *out, size_t bytes);
/* How often memory of kolo_mem_alloc() came and went in this process. */
unsigned kolo_mem_allocs(void);
unsigned kolo_mem_frees(void);

#endif
