// SPDX-License-Identifier: Apache-2.0
/* Communicators: the kolo communicator that each carries as an attribute.
 *
 * The first collective makes it. The id with its secret goes over MPI. While a helper thread joins,
 * this thread keeps MPI's messages moving: another rank may need one of them before it comes.
 *
 * Nothing happens in MPI_Init() and MPI_Finalize(), because Fortran's wrappers of some libraries do
 * not call the C functions. The first collective opens the layer. An attribute of MPI_COMM_SELF
 * closes it: MPI_Finalize() deletes that attribute first. */
#include "shim.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum layer { UNOPENED, OPEN, CLOSED };

static struct {
    pthread_mutex_t lock;
    _Atomic int state; /* enum layer */
    int comm_key, self_key;
    MPI_Comm quiet;      /* a copy of MPI_COMM_SELF, on which no message ever comes */
    MPI_Request waiting; /* a receive there, to ask for: MPI moves all messages then */
    char byte;
    atomic_flag asking;
    _Atomic bool is_behind;   /* a collective was served, and no message could move since */
    _Atomic int64_t moved_ns; /* when messages last could move */
    struct kmpi_comm *first;  /* of the communicators that are alive */
    int error_class;
    _Atomic unsigned generation; /* of attributes: a deletion begins the next one */
} layer = {.lock = PTHREAD_MUTEX_INITIALIZER,
           .comm_key = MPI_KEYVAL_INVALID,
           .self_key = MPI_KEYVAL_INVALID,
           .asking = ATOMIC_FLAG_INIT};

int64_t kmpi_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void kmpi_progress(void *unused)
{
    int flag = 0;
    (void)unused;
    if (!atomic_flag_test_and_set_explicit(&layer.asking, memory_order_acquire)) {
        atomic_store_explicit(&layer.is_behind, false, memory_order_relaxed);
        (void)PMPI_Test(&layer.waiting, &flag, MPI_STATUS_IGNORE);
        atomic_store_explicit(&layer.moved_ns, kmpi_now_ns(), memory_order_relaxed);
        atomic_flag_clear_explicit(&layer.asking, memory_order_release);
    }
}

void kmpi_catch_up(void)
{
    if (atomic_load_explicit(&layer.is_behind, memory_order_relaxed)) {
        kmpi_progress(NULL);
    }
}

/* After a served call. MPI's look for messages takes longer than a small call of kolo's. So messages
 * move only every 50 us, or when the program looks for one, and the clock is read now and then. */
static void fall_behind(struct kmpi_comm *c)
{
    enum { CALLS = 8, MOST_NS = 50 * 1000 };
    atomic_store_explicit(&layer.is_behind, true, memory_order_relaxed);
    if (++c->calls % CALLS == 0 &&
        kmpi_now_ns() - atomic_load_explicit(&layer.moved_ns, memory_order_relaxed) > MOST_NS) {
        kmpi_progress(NULL);
    }
}

/* ---- the end ---- */

static void forget(struct kmpi_comm *c)
{
    pthread_mutex_lock(&layer.lock);
    for (struct kmpi_comm **at = &layer.first; *at != NULL; at = &(*at)->next) {
        if (*at == c) {
            *at = c->next;
            break;
        }
    }
    pthread_mutex_unlock(&layer.lock);
    atomic_fetch_add(&layer.generation, 1);
}

/* The state of communicators on a rank that had no memory for a state of their own. */
static struct kmpi_comm no_state = {.name = "a communicator", .why = KMPI_NO_COMM};

static int on_comm_deleted(MPI_Comm comm, int key, void *value, void *unused)
{
    struct kmpi_comm *c = value;
    (void)comm;
    (void)key;
    (void)unused;
    if (c == &no_state) {
        atomic_fetch_add(&layer.generation, 1);
        return MPI_SUCCESS;
    }
    forget(c);
    kolo_comm_destroy(c->kolo);
    free(c);
    return MPI_SUCCESS;
}

/* MPI_Finalize() has begun, on all ranks: from now on all calls go to PMPI. */
static int on_self_deleted(MPI_Comm comm, int key, void *value, void *unused)
{
    (void)comm;
    (void)key;
    (void)value;
    (void)unused;
    atomic_store(&layer.state, CLOSED);
    atomic_fetch_add(&layer.generation, 1);
    kmpi_log_totals();
    for (struct kmpi_comm *c = layer.first; c != NULL; c = c->next) {
        kolo_comm_destroy(c->kolo); /* the attribute's deletion frees the rest, if MPI deletes it */
        c->kolo = NULL;
        c->why = KMPI_OFF;
    }
    atomic_store(&layer.is_behind, false);
    (void)PMPI_Cancel(&layer.waiting);
    (void)PMPI_Wait(&layer.waiting, MPI_STATUS_IGNORE);
    (void)PMPI_Comm_free(&layer.quiet);
    return MPI_SUCCESS;
}

/* ---- the begin ---- */

/* This rank cannot note what all ranks decide, and would decide otherwise than they do. */
static _Noreturn void give_up(const char *what)
{
    (void)fprintf(stderr, "kolo: MPI refused %s; the ranks could no longer decide alike\n", what);
    (void)PMPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    abort();
}

/* Errors of what is asked here are answers, not ends of the program. */
static bool open_quietly(void)
{
    int provided = MPI_THREAD_SINGLE;
    return PMPI_Query_thread(&provided) == MPI_SUCCESS && kmpi_types_open() &&
           PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_comm_deleted, &layer.comm_key, NULL) ==
               MPI_SUCCESS &&
           PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_self_deleted, &layer.self_key, NULL) ==
               MPI_SUCCESS &&
           PMPI_Comm_dup(MPI_COMM_SELF, &layer.quiet) == MPI_SUCCESS &&
           PMPI_Irecv(&layer.byte, 1, MPI_BYTE, 0, 0, layer.quiet, &layer.waiting) == MPI_SUCCESS &&
           PMPI_Add_error_class(&layer.error_class) == MPI_SUCCESS &&
           PMPI_Comm_set_attr(MPI_COMM_SELF, layer.self_key, &layer) == MPI_SUCCESS;
}

static void open_layer(void)
{
    MPI_Errhandler self, world;
    if (PMPI_Comm_get_errhandler(MPI_COMM_SELF, &self) != MPI_SUCCESS ||
        PMPI_Comm_get_errhandler(MPI_COMM_WORLD, &world) != MPI_SUCCESS) {
        give_up("an error handler");
    }
    (void)PMPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    (void)PMPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (!open_quietly()) {
        give_up("keys of attributes");
    }
    (void)PMPI_Comm_set_errhandler(MPI_COMM_SELF, self);
    (void)PMPI_Comm_set_errhandler(MPI_COMM_WORLD, world);
    (void)PMPI_Errhandler_free(&self);
    (void)PMPI_Errhandler_free(&world);
    atomic_store(&layer.state, OPEN);
}

/* Whether the layer is open. A program that uses sessions only does without it. */
static bool is_open(void)
{
    int begun = 0, ended = 0;
    if (atomic_load_explicit(&layer.state, memory_order_acquire) == UNOPENED &&
        PMPI_Initialized(&begun) == MPI_SUCCESS && begun && PMPI_Finalized(&ended) == MPI_SUCCESS &&
        !ended) {
        pthread_mutex_lock(&layer.lock);
        if (atomic_load(&layer.state) == UNOPENED) {
            open_layer();
        }
        pthread_mutex_unlock(&layer.lock);
    }
    return atomic_load(&layer.state) == OPEN;
}

/* ---- joining ---- */

struct joining {
    struct kmpi_comm *c;
    struct kolo_id id;
    kolo_status st;
    char why[256];
    _Atomic bool done;
};

static void *run_join(void *arg)
{
    struct joining *j = arg;
    struct kolo_config config = KOLO_CONFIG_INIT;
    config.name = j->c->name;
    config.progress = kmpi_progress;
    j->st = kolo_comm_create(&j->id, j->c->nranks, j->c->rank, &config, &j->c->kolo);
    if (j->st != KOLO_OK) {
        (void)snprintf(j->why, sizeof j->why, "%s", kolo_error_text());
    }
    atomic_store(&j->done, true);
    return NULL;
}

static void join(struct joining *j)
{
    const struct timespec nap = {0, 20 * 1000};
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_join, j) != 0) {
        (void)run_join(j);
        return;
    }
    while (!atomic_load(&j->done)) {
        kmpi_progress(NULL);
        nanosleep(&nap, NULL);
    }
    pthread_join(thread, NULL);
}

/* Whether all ranks say yes. */
static bool all_agree(const struct kmpi_comm *c, bool yes)
{
    int word = yes;
    return PMPI_Allreduce(MPI_IN_PLACE, &word, 1, MPI_INT, MPI_MIN, c->comm) == MPI_SUCCESS &&
           word != 0;
}

static bool is_set_to(const char *word)
{
    const char *text = getenv("KOLO_MPI");
    return text != NULL && strcmp(text, word) == 0;
}

/* `able`: this rank has memory for a state. The ranks agree on everything that one of them may lack. */
static void make_kolo(struct kmpi_comm *c, bool able)
{
    struct joining j = {.c = c};
    struct {
        int made;
        struct kolo_id id;
    } told = {0};
    c->why = KMPI_OFF;
    if (!all_agree(c, !is_set_to("off"))) {
        return;
    }
    c->serves_all = all_agree(c, is_set_to("all"));
    c->why = KMPI_NO_COMM;
    if (!all_agree(c, able)) {
        kmpi_log(c, "no kolo communicator: a rank is out of memory");
        return;
    }
    if (c->rank == 0) {
        told.made = kolo_id_create(&told.id) == KOLO_OK;
    }
    if (PMPI_Bcast(&told, (int)sizeof told, MPI_BYTE, 0, c->comm) != MPI_SUCCESS || !told.made) {
        return;
    }
    j.id = told.id;
    join(&j);
    if (all_agree(c, j.st == KOLO_OK)) {
        c->why = KMPI_SERVED;
        return;
    }
    kmpi_log(c, "no kolo communicator: %s", j.st == KOLO_OK ? "another rank failed" : j.why);
    if (j.st == KOLO_OK) {
        kolo_comm_abort(c->kolo);
        kolo_comm_destroy(c->kolo);
    }
    c->kolo = NULL;
}

/* A rank without memory takes part all the same: else it would be alone in calling PMPI. */
static struct kmpi_comm *make_state(MPI_Comm comm)
{
    int is_inter = 0, len = 0;
    char name[MPI_MAX_OBJECT_NAME] = "";
    struct kmpi_comm now = {.comm = comm};
    if (PMPI_Comm_test_inter(comm, &is_inter) != MPI_SUCCESS ||
        PMPI_Comm_size(comm, &now.nranks) != MPI_SUCCESS ||
        PMPI_Comm_rank(comm, &now.rank) != MPI_SUCCESS) {
        return NULL; /* no communicator: PMPI says so */
    }
    (void)PMPI_Comm_get_name(comm, name, &len);
    (void)snprintf(now.name, sizeof now.name, "%.*s", (int)sizeof now.name - 1,
                   name[0] != '\0' ? name : "MPI");
    now.why = is_inter ? KMPI_INTERCOMM : KMPI_ONE_RANK;
    struct kmpi_comm *const own = malloc(sizeof *own), *const c = own != NULL ? own : &no_state;
    if (PMPI_Comm_set_attr(comm, layer.comm_key, c) != MPI_SUCCESS) {
        give_up("an attribute of a communicator");
    }
    if (!is_inter && now.nranks > 1) {
        make_kolo(&now, own != NULL);
    }
    if (own != NULL) {
        *own = now;
        pthread_mutex_lock(&layer.lock);
        own->next = layer.first;
        layer.first = own;
        pthread_mutex_unlock(&layer.lock);
    }
    return c;
}

/* ---- a call ---- */

/* The communicator of this thread's last call: most programs use one at a time. */
static __attribute__((tls_model("initial-exec"))) _Thread_local struct {
    MPI_Comm comm;
    unsigned generation;
    struct kmpi_comm *state; /* NULL: none yet */
} last;

static struct kmpi_comm *state_of(MPI_Comm comm)
{
    void *found = NULL;
    int flag = 0;
    const unsigned generation = atomic_load_explicit(&layer.generation, memory_order_acquire);
    if (last.state != NULL && last.comm == comm && last.generation == generation) {
        return last.state;
    }
    if (!is_open() || comm == MPI_COMM_NULL ||
        PMPI_Comm_get_attr(comm, layer.comm_key, &found, &flag) != MPI_SUCCESS) {
        return NULL;
    }
    struct kmpi_comm *c = flag ? found : make_state(comm);
    last.comm = comm;
    last.generation = generation;
    last.state = c;
    return c;
}

struct kmpi_comm *kmpi_enter(enum kmpi_coll coll, MPI_Comm comm)
{
    struct kmpi_comm *c = state_of(comm);
    if (c != NULL && c->kolo == NULL) {
        (void)kmpi_note(c, coll, c->why);
        return NULL;
    }
    return c;
}

int kmpi_result(struct kmpi_comm *c, kolo_status st)
{
    if (st == KOLO_OK) {
        fall_behind(c);
        return kmpi_ended(MPI_SUCCESS);
    }
    char text[MPI_MAX_ERROR_STRING];
    (void)snprintf(text, sizeof text, "kolo: %.200s", kolo_error_text());
    (void)PMPI_Add_error_string(layer.error_class, text);
    kmpi_log(c, "%s", text);
    (void)kmpi_ended(layer.error_class);
    (void)PMPI_Comm_call_errhandler(c->comm, layer.error_class);
    return layer.error_class;
}
