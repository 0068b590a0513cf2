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
#include "exec/cpu/exec.h"
#include "plan/plan.h"
#include "topology/layout/groups.h"
#include "topology/layout/layout.h"
#include "topology/machine/graph.h"
#include "topology/machine/host.h"
#include "tune/tune.h"
#include "util/secret.h"

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
    KOLO_TRANSPORTS_MAX = 4
};

/* What joins GPUs, as NVML tells. */
enum kolo_gpu_link { KOLO_GPU_LINK_UNKNOWN, KOLO_GPU_PCIE, KOLO_GPU_NVLINK, KOLO_GPU_NVSWITCH };

struct kolo_member { /* a rank, as this one sees it */
    struct kolo_peer peer;
    struct kolo_place place;
    uint64_t gpu;           /* its bus address; KOLO_BUS_NONE: the rank is on none */
    struct kolo_inet spare; /* where it can be met again; family 0: on this host only */
    const struct kolo_transport *transport; /* the one that reaches it best */
    struct kolo_device *device;
    struct kolo_reach reach;
    struct kolo_link *link; /* NULL until first used; device_lock */
    /* The same for threads that hold nothing and only tell of a failure. */
    _Atomic(struct kolo_link *) told_link;
    _Atomic(struct kolo_region *) told_region;
    unsigned char region[KOLO_HANDLE_BYTES];
    bool maps;                      /* its region can be mapped here, and ours there */
    int seat;                       /* its post on the board, -1: none */
    _Atomic bool lost;              /* its process is gone; core/health/watchdog.c */
    _Atomic uint64_t left_us;       /* when it was first seen to have left; 0: not yet */
    bool in_mesh;                   /* the link to it tells who is gone; core/health/gossip.c */
    _Atomic uint64_t word, word_us; /* what it said last, and when; 0: nothing */
    bool in_slots;                  /* its outbox is mapped */
};

struct kolo_opened { /* a transport's device of this communicator */
    const struct kolo_transport *transport;
    struct kolo_device *device;
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

struct kolo_memo;
struct kolo_shared_memo;

struct kolo_queued;
struct kolo_p2p;
struct kolo_team;
struct kolo_relay;
struct kolo_direct;
struct kolo_peers;
struct kolo_layers;

struct kolo_comm {
    int rank, nranks;
    uint64_t id; /* equal on all ranks, differs between communicators */
    unsigned fork_generation;
    char name[32];
    int deterministic, timeout_ms, device;
    char *algo_text, *transport_text, *groups_text; /* groups_text "": as ranks are bound */
    unsigned splits; /* splits and shrinks so far: names their meeting points */
    struct kolo_meet meet;
    unsigned char secret[KOLO_SECRET_BYTES]; /* of its ranks alone */
    int spare_fd;                            /* holds the port of member[rank].spare; or -1 */
    char toward[KOLO_INET_TEXT];             /* an address that all hosts reach; or "" */

    struct kolo_member *member; /* [nranks] */
    unsigned char *addresses;
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
    /* One of these where `device` is a GPU, see gpu/path.h. The watcher looks at them. */
    struct kolo_team *_Atomic team;
    struct kolo_relay *_Atomic relay; /* once all have joined */
    struct kolo_direct *direct; /* of a relay's own communicator: lends its GPU; device_lock */
    /* Beside the relay, where kernels store to other GPUs; the watcher looks at it. */
    struct kolo_peers *_Atomic peers;
    struct kolo_layers *_Atomic layers; /* beside the relay, too: see gpu/hier/hier_path.h */
    struct kolo_comm *_Atomic above;    /* this one is a layer of that; or NULL */
    _Atomic int
        ranks_above;   /* which a verdict may name, too, behind the own: see gpu/hier/hier_path.c */
    _Atomic int error; /* the status that ended this communicator */
    pthread_mutex_t error_lock;
    char error_text[512];
    struct kolo_verdict verdict; /* the same, for kolo_comm_failure() */
    struct {
        _Atomic int rank, error; /* 1 + the first rank that a transport lost, 0: none; its errno */
        char what[200];          /* what it is, where error is EBADMSG; before `rank` */
        _Atomic int teller;      /* 1 + the first rank that told of a failure, 0: none */
        _Atomic int32_t reason;
    } heard;
    struct kolo_premulsum *premulsums;
};

/* INVALID for NULL, FORKED in a child process, the error that ended it; else OK. */
kolo_status kolo_comm_usable(const struct kolo_comm *comm);
/* End the communicator with `status` (its text: this thread's), and tell the ranks it reaches.
 * Returns the status that ended it first. */
kolo_status kolo_comm_fail(struct kolo_comm *comm, kolo_status status);
/* kolo_env.gone: a transport saw that rank `rank` is not there any more; told: that rank says that
 * it ended the communicator; reason: what is told so, a status and the rank at fault. What is
 * learned so ends the communicator at the next look: of a call that fails, or of the watcher. */
void kolo_comm_gone(void *comm, int rank, const char *what, int error);
void kolo_comm_told(void *comm, int rank, int32_t reason);
void kolo_comm_said(void *comm, int rank, uint64_t word); /* core/health/gossip.c */
int32_t kolo_comm_reason(void *comm);
/* End it for what was learned; false if nothing was. */
bool kolo_comm_learn(struct kolo_comm *comm);
/* The same about a rank that is at fault, -1: none in particular. */
kolo_status kolo_comm_fail_of(struct kolo_comm *comm, kolo_status status, int rank);
/* Link to rank q, made when first needed. device_lock is taken. */
kolo_status kolo_comm_connect(struct kolo_comm *comm, int q);
/* The same, and its region mapped where it can be. By who holds `busy`, device_lock taken. */
kolo_status kolo_comm_reach(struct kolo_comm *comm, int q);

/* What plans of this communicator are made for; it points into the communicator. */
struct kolo_shape kolo_comm_shape(const struct kolo_comm *comm, enum kolo_coll coll, int root);
/* Make this rank's outbox, and map rank q's once it is there (INPROGRESS until then). */
kolo_status kolo_comm_make_slots(struct kolo_comm *comm);
kolo_status kolo_comm_map_slots(struct kolo_comm *comm, int q);
/* Generation of forks: a communicator of another one belongs to the parent process. */
extern _Atomic unsigned kolo_forks;
static inline unsigned kolo_fork_generation(void)
{
    return atomic_load_explicit(&kolo_forks, memory_order_relaxed);
}
/* kolo_comm_usable(), by who holds `busy`, which nobody gets in a forked child: who fails says so
 * in its own region, too. */
static inline bool kolo_comm_is_usable(const struct kolo_comm *c)
{
    return atomic_load_explicit(&c->own->abort, memory_order_acquire) == KOLO_OK;
}
/* Collectives begun: the number of the last one. */
static inline uint64_t kolo_comm_calls(const struct kolo_comm *c)
{
    return atomic_load_explicit(&c->post->begun, memory_order_relaxed);
}
/* Rank q's post, or NULL. */
static inline struct kolo_post *kolo_comm_post(const struct kolo_comm *c, int q)
{
    return c->board != NULL && q >= 0 && q < c->nranks && c->member[q].seat >= 0
               ? &c->board->post[c->member[q].seat]
               : NULL;
}
/* A call failed whose output peers may write: unless they are dead or threads of this process,
 * `out` becomes memory of this process alone, so that who comes late does not change it. */
void kolo_mem_take_back(struct kolo_comm *c, void *out, size_t bytes);
/* How often memory of kolo_mem_alloc() came and went in this process. */
unsigned kolo_mem_allocs(void);
unsigned kolo_mem_frees(void);
/* Free memory of a GPU; false: it is no such memory of kolo's. */
bool kolo_mem_free_device(void *ptr);

#endif
