// SPDX-License-Identifier: Apache-2.0
/* Begin, end, and communicators. XLA makes a communicator for each set of processes that its program
 * joins, by a split of the world. */
#include "trampoline.h"

#include <stdio.h>
#include <stdlib.h>

static enum { BEFORE, OPEN, AFTER } phase;
static pthread_t main_thread; /* that called MPI_Init() */
static struct tramp_comm world;
static struct tramp_comm *alive; /* of splits */
/* Of `alive`: XLA runs collectives in other threads than the one that makes communicators. */
static pthread_mutex_t alive_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    struct kolo_id id;
    int nranks; /* 0: the launcher tells */
    int rank;
} meeting;

void kolo_mpitrampoline_join(const struct kolo_id *id, int nranks, int rank)
{
    meeting.id = *id;
    meeting.nranks = nranks;
    meeting.rank = rank;
}

static void init_comm(struct tramp_comm *c, struct kolo_comm *kolo)
{
    c->kolo = kolo;
    c->rank = kolo_comm_rank(kolo);
    c->size = kolo == NULL ? 0 : kolo_comm_size(kolo);
    c->last = &c->first;
    (void)pthread_mutex_init(&c->lock, NULL);
}

/* XLA knows the number of its processes, and does not tell it. A job of one rank that no launcher has
 * started is a process that would take its own data for the data of all. */
static bool is_launched(void)
{
    static const char *const sizes[] = {"KOLO_NRANKS", "WORLD_SIZE",   "OMPI_COMM_WORLD_SIZE",
                                        "PMI_SIZE",    "SLURM_NTASKS", "PMIX_RANK"};
    bool found = false;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        found = found || getenv(sizes[i]) != NULL;
    }
    return found;
}

static kolo_status create_world(struct kolo_comm **out)
{
    struct kolo_config config = KOLO_CONFIG_INIT;
    config.name = "MPI_COMM_WORLD";
    if (meeting.nranks != 0) {
        return kolo_comm_create(&meeting.id, meeting.nranks, meeting.rank, &config, out);
    }
    if (!is_launched()) {
        tramp_end(
            1,
            "MPI_Init: no launcher has started this process. Start it by kolo run, mpirun, srun or "
            "torchrun, or call kolo.jax.join() after jax.distributed.initialize()");
    }
    return kolo_comm_create_env(&config, out);
}

int MPIABI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    (void)argc;
    (void)argv;
    (void)required;
    struct kolo_comm *kolo = NULL;
    if (phase != BEFORE) {
        tramp_end(1, "MPI_Init was called twice");
    }
    if (create_world(&kolo) != KOLO_OK) {
        tramp_end(1, "MPI_Init: %s", kolo_error_text());
    }
    init_comm(&world, kolo);
    main_thread = pthread_self();
    phase = OPEN;
    return MPIABI_Query_thread(provided);
}

int MPIABI_Init(int *argc, char ***argv)
{
    int provided;
    return MPIABI_Init_thread(argc, argv, TRAMP_THREAD_SINGLE, &provided);
}

int MPIABI_Initialized(int *flag)
{
    *flag = phase != BEFORE;
    return TRAMP_SUCCESS;
}

int MPIABI_Finalized(int *flag)
{
    *flag = phase == AFTER;
    return TRAMP_SUCCESS;
}

int MPIABI_Query_thread(int *provided)
{
    *provided = TRAMP_THREAD_SERIALIZED;
    return TRAMP_SUCCESS;
}

/* XLA makes communicators only where this is true. It would otherwise split the world for two devices
 * of a process, which are no two ranks. */
int MPIABI_Is_thread_main(int *flag)
{
    *flag = phase == OPEN && pthread_equal(pthread_self(), main_thread) != 0;
    return TRAMP_SUCCESS;
}

static void destroy(struct tramp_comm *c)
{
    kolo_comm_destroy(c->kolo);
    (void)pthread_mutex_destroy(&c->lock);
}

/* XLA may free communicators after this, so their memory stays. */
int MPIABI_Finalize(void)
{
    if (phase == OPEN) {
        phase = AFTER;
        for (struct tramp_comm *c = alive; c != NULL; c = c->next) {
            destroy(c);
        }
        destroy(&world);
    }
    return TRAMP_SUCCESS;
}

static struct tramp_comm *find(tramp_handle comm)
{
    if (comm == TRAMP_COMM_WORLD) {
        return &world;
    }
    (void)pthread_mutex_lock(&alive_lock);
    struct tramp_comm *c = alive;
    while (c != NULL && (tramp_handle)c != comm) {
        c = c->next;
    }
    (void)pthread_mutex_unlock(&alive_lock);
    return c;
}

struct tramp_comm *tramp_enter(tramp_handle comm)
{
    struct tramp_comm *c = phase == OPEN ? find(comm) : NULL;
    if (c == NULL) {
        (void)tramp_fail(phase == OPEN ? "kolo: no such communicator"
                                       : "kolo: a call before MPI_Init or after MPI_Finalize");
    } else if (c->kolo == NULL) {
        (void)tramp_fail("%s", c->why);
        c = NULL;
    }
    return c;
}

/* Also of a communicator whose split failed: -1 and 0, with which XLA does nothing by itself. */
int MPIABI_Comm_rank(tramp_handle comm, int *rank)
{
    const struct tramp_comm *c = find(comm);
    *rank = c == NULL ? -1 : c->rank;
    return c == NULL ? tramp_fail("kolo: no such communicator") : TRAMP_SUCCESS;
}

int MPIABI_Comm_size(tramp_handle comm, int *size)
{
    const struct tramp_comm *c = find(comm);
    *size = c == NULL ? 0 : c->size;
    return c == NULL ? tramp_fail("kolo: no such communicator") : TRAMP_SUCCESS;
}

int MPIABI_Comm_split(tramp_handle comm, int color, int key, tramp_handle *out)
{
    *out = TRAMP_COMM_NULL;
    const struct tramp_comm *parent = tramp_enter(comm);
    if (parent == NULL) {
        return TRAMP_ERR_OTHER;
    }
    struct tramp_comm *c = calloc(1, sizeof *c);
    if (c == NULL) {
        tramp_end(1, "MPI_Comm_split: out of memory");
    }
    struct kolo_comm *kolo = NULL;
    const kolo_status st = kolo_comm_split(
        parent->kolo, color == TRAMP_UNDEFINED ? KOLO_NO_COLOR : color, key, NULL, &kolo);
    if (st == KOLO_OK && kolo == NULL) {
        free(c);
        return TRAMP_SUCCESS;
    }
    init_comm(c, kolo);
    (void)snprintf(c->why, sizeof c->why, "kolo: %s", st == KOLO_OK ? "" : kolo_error_text());
    (void)pthread_mutex_lock(&alive_lock);
    c->next = alive;
    alive = c;
    (void)pthread_mutex_unlock(&alive_lock);
    *out = (tramp_handle)c;
    return st == KOLO_OK ? TRAMP_SUCCESS : tramp_fail("%s", c->why);
}

/* Takes a communicator out of those that are alive. NULL: it is none. */
static struct tramp_comm *forget(tramp_handle comm)
{
    (void)pthread_mutex_lock(&alive_lock);
    struct tramp_comm **at = &alive;
    while (*at != NULL && (tramp_handle)*at != comm) {
        at = &(*at)->next;
    }
    struct tramp_comm *c = *at;
    if (c != NULL) {
        *at = c->next;
    }
    (void)pthread_mutex_unlock(&alive_lock);
    return c;
}

int MPIABI_Comm_free(tramp_handle *comm)
{
    struct tramp_comm *c = phase == OPEN ? forget(*comm) : NULL;
    if (c != NULL) {
        destroy(c);
        free(c);
    }
    *comm = TRAMP_COMM_NULL;
    return TRAMP_SUCCESS;
}
