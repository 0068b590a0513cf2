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
#include "exec/cpu/region.h"
#include "exec/cpu/wires.h"
#include "plan/plan.h"
#include "topology/layout/groups.h"
#include "topology/layout/layout.h"
#include "topology/machine/graph.h"
#include "topology/machine/host.h"
#include "tune/tune.h"
#include "util/fork.h"
#include "util/secret.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

enum {
    KOLO_SLOT_BYTES = 1 << 20,       /* outbox of one tile; made when first used */
    KOLO_SHORT_SLOT_BYTES = 4 << 10, /* of a tile of few bytes */
    KOLO_ENTRY_BYTES = 4 << 10,      /* calls of this size look at what memory is shared */
    KOLO_WHOLE_PLAN_RANKS =
        64, /* larger communicators build one rank's plan: no facts, no stages */
    KOLO_BOUND_CACHE = 128,
    KOLO_MEMOS = 64,
    KOLO_TRANSPORTS_MAX = 4,
    KOLO_OBSERVERS = 4
};

/* What joins GPUs, as NVML tells. */
enum kolo_gpu_link { KOLO_GPU_LINK_UNKNOWN, KOLO_GPU_PCIE, KOLO_GPU_NVLINK, KOLO_GPU_NVSWITCH };

struct kolo_member { /* a rank, as this one sees it */
    struct kolo_peer peer;
    struct kolo_place place;
    uint64_t gpu;              /* its bus address; KOLO_BUS_NONE: the rank is on none */
    struct kolo_inet reserved; /* where it can be met again; family 0: on this host only */
    const struct kolo_transport *transport; /* the one that reaches it best */
    struct kolo_endpoint *device;
    struct kolo_reach reach;
    struct kolo_link *link; /* NULL until first used; device_lock */
    /* The same for threads that hold nothing and only tell of a failure. */
    _Atomic(struct kolo_link *) abort_link;
    _Atomic(struct kolo_region *) abort_region;
    unsigned char region[KOLO_HANDLE_BYTES];
    bool maps;                      /* its region can be mapped here, and ours there */
    int slot;                       /* its post on the board, -1: none */
    _Atomic bool lost;              /* its process is gone; core/health/watchdog.c */
    _Atomic uint64_t left_us;       /* when it was first seen to have left; 0: not yet */
    bool in_gossip;                 /* the link to it tells who is gone; core/health/gossip.c */
    _Atomic uint64_t word, word_us; /* what it said last, and when; 0: nothing */
    bool in_slots;                  /* its outbox is mapped */
};

struct kolo_observer { /* see core/failure/failure.h */
    void (*ended)(void *owner, const struct kolo_verdict *why);
    void *owner;
};

struct kolo_opened { /* a transport's endpoint of this communicator */
    const struct kolo_transport *transport;
    struct kolo_endpoint *device;
};

struct kolo_cached_plan {
    struct kolo_cached_plan *next;
    const struct kolo_algo *algo;
    int root;
    struct kolo_plan *plan;
};
struct kolo_cached_prog {
    struct kolo_cached_prog *next;
    const struct kolo_plan *plan;
    uint64_t links; /* hash of the link bits it was lowered for */
    struct kolo_prog *prog;
};
struct kolo_cached_bound {
    const struct kolo_prog *prog;
    size_t count, elem, tile_bytes;
    uint64_t used;
    struct kolo_bound *bound;
};

struct kolo_device_memory;
struct kolo_link_address;
struct kolo_memo;
struct kolo_shared_memo;

struct kolo_queued;
struct kolo_p2p;
struct kolo_comm_path;

/* Whether some thread holds the mutex; for assertions. */
#define KOLO_IS_HELD(mutex) (pthread_mutex_trylock(mutex) == EBUSY)

struct kolo_comm {
    int rank, nranks;
    uint64_t id; /* equal on all ranks, differs between communicators */
    unsigned fork_generation;
    char name[32];
    int deterministic, timeout_ms, device;
    char *algo_text, *transport_text, *groups_text; /* groups_text "": as ranks are bound */
    unsigned splits; /* splits and shrinks so far: names their meeting points */
    struct kolo_meet rendezvous;
    unsigned char secret[KOLO_SECRET_BYTES]; /* of its ranks alone */
    int reserved_fd;                         /* holds the port of member[rank].reserved; or -1 */
    char toward[KOLO_INET_TEXT];             /* an address that all hosts reach; or "" */

    struct kolo_member *member;          /* [nranks] */
    struct kolo_link_address *addresses; /* [nranks] */
    struct kolo_opened opened[KOLO_TRANSPORTS_MAX];
    int nopened;
    char unused[224];           /* which transport cannot be used, and why */
    struct kolo_opened *mapper; /* whose map() gave the region */
    struct kolo_env env;
    struct kolo_mem region, slots;
    struct kolo_wires wires;
    struct kolo_head *own;       /* the head of this rank's region */
    pthread_mutex_t device_lock; /* every call into a device but from open and close */
    int *order;                  /* [nrings * nranks] */
    int nrings;
    int *tree; /* [ntrees * nranks] parents, as in struct kolo_shape */
    int ntrees;
    struct kolo_tree branch[KOLO_LANES]; /* this rank's place in each */
    struct kolo_host *host;              /* while the communicator comes up */
    struct kolo_graph *machine;  /* of KOLO_TOPO_FILE, until the order is known; NULL: none */
    enum kolo_gpu_link gpu_link; /* the slowest between two GPUs of a host */
    struct kolo_place *place;    /* [nranks] */
    struct kolo_groups groups;
    int *host_of; /* [nranks], hosts numbered as they come */
    int nhosts, local_rank, local_size;
    bool by_messages; /* no rank maps another's memory */

    struct kolo_rules *rules;
    struct kolo_table *table;
    char *table_text; /* until all have it */
    struct kolo_chooser *chooser;
    const struct kolo_tuner *tuner;
    void *tuner_self;
    struct kolo_costs costs;

    struct kolo_cached_plan *plans;
    struct kolo_cached_prog *progs;
    struct kolo_cached_bound bounds[KOLO_BOUND_CACHE];
    struct kolo_memo *memo; /* [KOLO_MEMOS] calls seen before, see core/call/fast_path.h */
    struct kolo_shared_memo *shared_memo; /* [KOLO_MEMOS] */
    uint64_t uses;
    bool sharing;   /* large calls look at what memory is shared; alike on all ranks */
    bool announced; /* this rank has said from when on */
    bool logs_calls;
    bool threads; /* other members are threads of this process */

    _Atomic int busy;                   /* one thread runs calls */
    pthread_mutex_t queue_lock;         /* of head, tail */
    _Atomic(struct kolo_queued *) head; /* written under queue_lock */
    struct kolo_queued *tail;

    struct kolo_board *board; /* of this host's members; NULL: none */
    struct kolo_segment *own_board;
    struct kolo_post *post, *own_post; /* this rank's; its own where there is no board */
    struct kolo_comm *watched_next;    /* core/health/watchdog.c */
    bool watched;
    uint64_t seen_calls; /* of all members when the watcher last compared their calls */
    uint64_t warned;     /* number of the last call of which a straggler was told */

    struct kolo_p2p *p2p;
    struct kolo_comm_path *_Atomic path;   /* of `device`; NULL: host memory alone */
    const struct kolo_device_memory *lent; /* core/link/links.h; device_lock */
    _Atomic int
        ranks_above; /* of the communicator above that a verdict may name, behind this one's own */
    _Atomic int error; /* the status that ended this communicator */
    pthread_mutex_t error_lock;
    char error_text[512];
    struct kolo_observer observer[KOLO_OBSERVERS]; /* told in this order; error_lock */
    int nobservers;
    _Atomic bool is_part;        /* of another communicator, which records the failure of both */
    struct kolo_verdict verdict; /* the same, for kolo_comm_failure() */
    struct {
        _Atomic int rank, error; /* 1 + the first rank that a transport lost, 0: none; its errno */
        char what[200];          /* what it is, where error is EBADMSG; before `rank` */
        _Atomic int teller;      /* 1 + the first rank that told of a failure, 0: none */
        _Atomic int32_t reason;
    } evidence;
    struct kolo_premulsum *premulsums;
};

/* What plans of this communicator are made for; it points into the communicator. */
struct kolo_shape kolo_comm_shape(const struct kolo_comm *comm, enum kolo_coll coll, int root);
/* Collectives begun: the number of the last one. */
static inline uint64_t kolo_comm_calls(const struct kolo_comm *c)
{
    return atomic_load_explicit(&c->post->begun, memory_order_relaxed);
}
/* Rank q's post, or NULL. */
static inline struct kolo_post *kolo_comm_post(const struct kolo_comm *c, int q)
{
    return c->board != NULL && q >= 0 && q < c->nranks && c->member[q].slot >= 0
               ? &c->board->post[c->member[q].slot]
               : NULL;
}
/* A call failed whose output peers may write: unless they are dead or threads of this process,
 * `out` becomes memory of this process alone, so that who comes late does not change it. */
void kolo_mem_take_back(struct kolo_comm *c, void *out, size_t bytes);
/* How often memory of kolo_mem_alloc() came and went in this process. */
unsigned kolo_mem_allocs(void);
unsigned kolo_mem_frees(void);

#endif
