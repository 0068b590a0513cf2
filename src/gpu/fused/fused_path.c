// SPDX-License-Identifier: Apache-2.0
/* Teams: see fused_path.h. */
#include "gpu/fused/fused_path.h"

#include "gpu/stream_ops.h"
#include "gpu/stream_order.h"
#include "plan/plan.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { RECENT = 64 };

struct part { /* a rank's */
    bool here;
    uint64_t calls;
    kolo_cuda_stream stream; /* of its last call outside graphs, */
    kolo_cuda_event event;   /* which is recorded after it */
    kolo_cuda_event joint;   /* of calls that one thread brings; in graphs, too */
    pthread_mutex_t lock;    /* of all above, while a call of the rank is enqueued */
    bool recorded;
};

struct recent { /* a call that some rank made, to compare the others' with */
    uint64_t number;
    uint64_t what;
    int rank;
    enum kolo_coll coll;
    enum kolo_type type;
    size_t count;
    uint64_t shared_by; /* ranks that made it, and their streams */
    kolo_stream stream[KOLO_FUSED_RANKS];
};

struct kolo_team {
    struct kolo_team *next;
    uint64_t comm;
    int nranks, members;
    struct kolo_gpu gpu;
    kolo_cuda_address table; /* struct kolo_fused_table */
    struct kolo_mail *mail;

    struct part part[KOLO_FUSED_RANKS];
    /* Of all below. Not held in calls that enqueue: those may wait until a stream has room, which
     * may wait for another rank's call. */
    pthread_mutex_t lock;
    struct recent recent[RECENT]; /* call k in [k % RECENT] */
    bool aborted, releasing, stop;
    pthread_t releaser;
};

static struct kolo_team *teams;
static pthread_mutex_t teams_lock = PTHREAD_MUTEX_INITIALIZER; /* of the list, and of members */

#define CHECK(team, name, call) KOLO_CUDA(&(team)->gpu, name, call)

/* ---- coming up, and going down ---- */

static kolo_status make_parts(struct kolo_team *team)
{
    const size_t bytes = sizeof(struct kolo_fused_table);
    KOLO_TRY(kolo_gpu_load(&team->gpu));
    KOLO_TRY(CHECK(team, "cuMemAlloc", mem_alloc(&team->table, bytes)));
    KOLO_TRY(CHECK(team, "cuMemsetD8", memset_d8(team->table, 0, bytes)));
    KOLO_TRY(kolo_mail_open(&team->gpu, team->nranks, &team->mail));
    for (int r = 0; r < team->nranks; r++) {
        KOLO_TRY(CHECK(team, "cuEventCreate",
                       event_create(&team->part[r].event, KOLO_CUDA_DISABLE_TIMING)));
        KOLO_TRY(CHECK(team, "cuEventCreate",
                       event_create(&team->part[r].joint, KOLO_CUDA_DISABLE_TIMING)));
    }
    return KOLO_OK;
}

static void team_free(struct kolo_team *team)
{
    const struct kolo_cuda *cuda = team->gpu.cuda;
    if (team->gpu.context != NULL && kolo_gpu_enter(&team->gpu) == KOLO_OK) {
        for (int r = 0; r < team->nranks; r++) {
            if (team->part[r].event != NULL) {
                (void)cuda->event_destroy(team->part[r].event);
            }
            if (team->part[r].joint != NULL) {
                (void)cuda->event_destroy(team->part[r].joint);
            }
        }
        if (team->table != 0) {
            (void)cuda->mem_free(team->table);
        }
        kolo_mail_close(team->mail);
        kolo_gpu_leave(&team->gpu);
    }
    kolo_gpu_close(&team->gpu);
    for (int r = 0; r < team->nranks; r++) {
        pthread_mutex_destroy(&team->part[r].lock);
    }
    pthread_mutex_destroy(&team->lock);
    free(team);
}

static kolo_status team_new(uint64_t comm, int nranks, int ordinal, struct kolo_team **out)
{
    struct kolo_team *team = calloc(1, sizeof *team);
    if (team == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for the ranks of GPU %d", ordinal);
    }
    team->comm = comm;
    team->nranks = nranks;
    pthread_mutex_init(&team->lock, NULL);
    for (int r = 0; r < nranks; r++) {
        pthread_mutex_init(&team->part[r].lock, NULL);
    }
    kolo_status st = kolo_gpu_open(ordinal, &team->gpu);
    st = st == KOLO_OK ? kolo_gpu_enter(&team->gpu) : st;
    if (st == KOLO_OK) {
        st = make_parts(team);
        kolo_gpu_leave(&team->gpu);
    }
    if (st != KOLO_OK) {
        team_free(team);
        return st;
    }
    *out = team;
    return KOLO_OK;
}

static kolo_status join_locked(uint64_t comm, int nranks, int rank, int ordinal,
                               struct kolo_team **out)
{
    struct kolo_team *team = teams;
    while (team != NULL && team->comm != comm) {
        team = team->next;
    }
    if (team == NULL) {
        KOLO_TRY(team_new(comm, nranks, ordinal, &team));
        team->next = teams;
        teams = team;
    }
    if (team->gpu.ordinal != ordinal) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED,
                         "rank %d is on GPU %d, others are on GPU %d; ranks on several GPUs are "
                         "not there yet",
                         rank, ordinal, team->gpu.ordinal);
    }
    team->part[rank].here = true;
    team->members++;
    *out = team;
    return KOLO_OK;
}

kolo_status kolo_team_join(uint64_t comm, int nranks, int rank, int ordinal, struct kolo_team **out)
{
    if (nranks > KOLO_FUSED_RANKS) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED, "%d ranks on one GPU; at most %d share it", nranks,
                         KOLO_FUSED_RANKS);
    }
    pthread_mutex_lock(&teams_lock);
    const kolo_status st = join_locked(comm, nranks, rank, ordinal, out);
    pthread_mutex_unlock(&teams_lock);
    return st;
}

static void nap(void)
{
    const struct timespec time = {0, 100 * 1000};
    nanosleep(&time, NULL);
}

static bool is_over(struct kolo_team *team, int rank)
{
    struct part *part = &team->part[rank];
    pthread_mutex_lock(&part->lock);
    const bool over =
        !part->recorded || team->gpu.cuda->event_query(part->event) != KOLO_CUDA_NOT_READY;
    pthread_mutex_unlock(&part->lock);
    return over;
}

/* What waits for a rank that never comes is released by force, which takes a moment. */
static void drain(struct kolo_team *team, int rank, int timeout_ms)
{
    const double end = kolo_now_us() + timeout_ms * 1e3;
    if (kolo_gpu_enter(&team->gpu) != KOLO_OK) {
        return;
    }
    while (!is_over(team, rank) && kolo_now_us() < end) {
        nap();
    }
    if (!is_over(team, rank)) {
        kolo_team_abort(team);
        while (!is_over(team, rank) && kolo_now_us() < end + 10e6) {
            nap();
        }
    }
    kolo_gpu_leave(&team->gpu);
}

void kolo_team_leave(struct kolo_team *team, int rank, int timeout_ms)
{
    drain(team, rank, timeout_ms);
    pthread_mutex_lock(&teams_lock);
    const bool last = --team->members == 0;
    for (struct kolo_team **at = &teams; last && *at != NULL; at = &(*at)->next) {
        if (*at == team) {
            *at = team->next;
            break;
        }
    }
    pthread_mutex_unlock(&teams_lock);
    if (!last) {
        return;
    }
    pthread_mutex_lock(&team->lock);
    team->stop = true;
    const bool releasing = team->releasing;
    pthread_mutex_unlock(&team->lock);
    if (releasing) {
        pthread_join(team->releaser, NULL);
    }
    team_free(team);
}

/* ---- operations of streams ---- */

static kolo_cuda_address field(const struct kolo_team *team, int rank, size_t offset)
{
    return team->table + offsetof(struct kolo_fused_table, rank) +
           (size_t)rank * sizeof(struct kolo_fused_rank) + offset;
}
#define FIELD(team, r, member) field(team, r, offsetof(struct kolo_fused_rank, member))

static void add_addresses(const struct kolo_team *team, int rank, const struct kolo_gpu_call *call,
                          struct kolo_stream_ops *ops)
{
    kolo_stream_ops_add(ops, call->stream, KOLO_CUDA_WRITE_64, FIELD(team, rank, in),
                        (uintptr_t)call->in);
    kolo_stream_ops_add(ops, call->stream, KOLO_CUDA_WRITE_64, FIELD(team, rank, out),
                        (uintptr_t)call->out);
    kolo_stream_ops_add(ops, call->stream, KOLO_CUDA_WRITE_64, FIELD(team, rank, factor),
                        call->factor);
}

/* ---- order of a rank's calls on different streams ---- */

/* Calls take effect in their order, whatever their streams. What a graph holds is ordered by where
 * it is launched. */
static kolo_status follow(const struct kolo_team *team, int rank, kolo_stream stream)
{
    const struct part *part = &team->part[rank];
    bool capturing = false;
    if (!part->recorded || part->stream == stream) {
        return KOLO_OK;
    }
    KOLO_TRY(kolo_gpu_is_capturing(&team->gpu, stream, &capturing));
    return capturing ? KOLO_OK
                     : CHECK(team, "cuStreamWaitEvent", stream_wait_event(stream, part->event, 0));
}

static kolo_status note_end(struct kolo_team *team, int rank, kolo_stream stream)
{
    struct part *part = &team->part[rank];
    bool capturing = false;
    KOLO_TRY(kolo_gpu_is_capturing(&team->gpu, stream, &capturing));
    if (capturing) {
        return KOLO_OK;
    }
    part->stream = stream;
    part->recorded = true;
    return CHECK(team, "cuEventRecord", event_record(part->event, stream));
}

/* ---- whether all ranks make the same call ---- */

static kolo_status check_same(const struct recent *r, const struct kolo_gpu_call *call, int rank,
                              uint64_t what)
{
    if (r->what == what) {
        return KOLO_OK;
    }
    return kolo_fail(KOLO_ERR_MISMATCH,
                     "ranks %d and %d are in different calls: call %llu of GPU memory is %s of %zu "
                     "%s on rank %d, %s of %zu %s on rank %d",
                     r->rank, rank, (unsigned long long)r->number + 1, kolo_coll_name(r->coll),
                     r->count, kolo_type_name(r->type), r->rank, kolo_coll_name(call->coll),
                     call->count, kolo_type_name(call->type), rank);
}

/* The call is the rank's next one; nothing is enqueued of it yet. */
static kolo_status compare(struct kolo_team *team, int rank, const struct kolo_gpu_call *call)
{
    const uint64_t number = team->part[rank].calls, what = kolo_gpu_call_what(call, team->nranks);
    struct recent *r = &team->recent[number % RECENT];
    if (r->shared_by == 0 || r->number < number) {
        *r = (struct recent){.number = number,
                             .what = what,
                             .rank = rank,
                             .coll = call->coll,
                             .type = call->type,
                             .count = call->count};
    }
    if (r->number != number) { /* the others are far ahead */
        return KOLO_OK;
    }
    for (int q = 0; q < team->nranks; q++) {
        if (q != rank && (r->shared_by >> q & 1) != 0 && r->stream[q] == call->stream) {
            return kolo_fail(KOLO_ERR_INVALID,
                             "stream %p is rank %d's in this call, too; ranks need streams of "
                             "their own, or a group with the calls of all of them",
                             call->stream, q);
        }
    }
    KOLO_TRY(check_same(r, call, rank, what));
    r->shared_by |= UINT64_C(1) << rank;
    r->stream[rank] = call->stream;
    return KOLO_OK;
}

/* ---- enqueueing ---- */

/* Rank 0 waits for all, runs the kernel, tells all. */
static kolo_status lead(struct kolo_team *team, const struct kolo_gpu_call *call)
{
    struct kolo_stream_ops ops = {.cuda = team->gpu.cuda};
    struct kolo_fused_launch argument = {.table = team->table};
    add_addresses(team, 0, call, &ops);
    for (int q = 1; q < team->nranks; q++) {
        kolo_stream_ops_add(&ops, call->stream, KOLO_CUDA_WAIT_32, FIELD(team, q, arrived), 1);
        kolo_stream_ops_add(&ops, call->stream, KOLO_CUDA_WRITE_32, FIELD(team, q, arrived), 0);
    }
    KOLO_TRY(kolo_stream_ops_flush(&ops));
    KOLO_TRY(kolo_gpu_launch(&team->gpu, team->nranks, call, &argument));
    for (int q = 1; q < team->nranks; q++) {
        kolo_stream_ops_add(&ops, call->stream, KOLO_CUDA_WRITE_32, FIELD(team, q, done), 1);
    }
    return kolo_stream_ops_flush(&ops);
}

static kolo_status attend(struct kolo_team *team, int rank, const struct kolo_gpu_call *call)
{
    struct kolo_stream_ops ops = {.cuda = team->gpu.cuda};
    add_addresses(team, rank, call, &ops);
    kolo_stream_ops_add(&ops, call->stream, KOLO_CUDA_WRITE_32, FIELD(team, rank, arrived), 1);
    kolo_stream_ops_add(&ops, call->stream, KOLO_CUDA_WAIT_32, FIELD(team, rank, done), 1);
    kolo_stream_ops_add(&ops, call->stream, KOLO_CUDA_WRITE_32, FIELD(team, rank, done), 0);
    return kolo_stream_ops_flush(&ops);
}

static kolo_status send_letters(struct kolo_team *team, struct kolo_letter *letter, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        KOLO_TRY(kolo_gpu_is_capturing(&team->gpu, letter[i].stream, &letter[i].captured));
    }
    return kolo_mail_enqueue(team->mail, letter, n);
}

/* The parts of ranks [first, first + n), call[i] of the i-th of them. */
static kolo_status send_blocks(struct kolo_team *team, const struct kolo_gpu_call *const *call,
                               int first, int n)
{
    struct kolo_letter *letter = calloc((size_t)(2 * team->nranks * n), sizeof *letter);
    size_t letters = 0;
    if (letter == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for blocks of %d ranks", team->nranks);
    }
    for (int i = 0; i < n; i++) {
        letters += kolo_mail_blocks(call[i], first + i, team->nranks, letter + letters);
    }
    const kolo_status st = send_letters(team, letter, letters);
    free(letter);
    return st;
}

static bool is_aborted(struct kolo_team *team)
{
    pthread_mutex_lock(&team->lock);
    const bool aborted = team->aborted;
    pthread_mutex_unlock(&team->lock);
    return aborted;
}

static kolo_status enqueue_locked(struct kolo_team *team, int rank,
                                  const struct kolo_gpu_call *call)
{
    const uintptr_t stream = (uintptr_t)call->stream;
    if (is_aborted(team)) {
        return kolo_fail(KOLO_ERR_ABORTED, "the communicator was ended");
    }
    if (stream <= 1) { /* the default stream, by either of its names */
        return kolo_fail(KOLO_ERR_INVALID,
                         "stream is the default stream, which waits for all others; give each rank "
                         "one of its own (cudaStreamNonBlocking), or the calls of all ranks in one "
                         "group");
    }
    pthread_mutex_lock(&team->lock);
    const kolo_status same = compare(team, rank, call);
    pthread_mutex_unlock(&team->lock);
    KOLO_TRY(same);
    KOLO_TRY(follow(team, rank, call->stream));
    KOLO_TRY(kolo_gpu_call_by_messages(call) ? send_blocks(team, &call, rank, 1)
             : rank == 0                     ? lead(team, call)
                                             : attend(team, rank, call));
    KOLO_TRY(note_end(team, rank, call->stream));
    team->part[rank].calls++;
    return KOLO_OK;
}

kolo_status kolo_team_enqueue(struct kolo_team *team, int rank, const struct kolo_gpu_call *call)
{
    if (team->nranks == 1) {
        return kolo_team_enqueue_all(team, &call);
    }
    KOLO_TRY(kolo_gpu_enter(&team->gpu));
    pthread_mutex_lock(&team->part[rank].lock);
    const kolo_status st = enqueue_locked(team, rank, call);
    pthread_mutex_unlock(&team->part[rank].lock);
    kolo_gpu_leave(&team->gpu);
    return st;
}

/* The first rank that gave this one's stream. */
static int first_on(const struct kolo_gpu_call *const *call, int rank)
{
    int q = 0;
    while (call[q]->stream != call[rank]->stream) {
        q++;
    }
    return q;
}

static kolo_status follow_all(const struct kolo_team *team, const struct kolo_gpu_call *const *call)
{
    for (int r = 0; r < team->nranks; r++) {
        KOLO_TRY(follow(team, r, call[r]->stream));
    }
    return KOLO_OK;
}

/* Streams of other ranks join rank 0's before the kernel, and go on after it. */
static kolo_status join_streams(struct kolo_team *team, const struct kolo_gpu_call *const *call)
{
    KOLO_TRY(follow_all(team, call));
    for (int r = 1; r < team->nranks; r++) {
        if (first_on(call, r) == r) {
            KOLO_TRY(
                CHECK(team, "cuEventRecord", event_record(team->part[r].joint, call[r]->stream)));
            KOLO_TRY(CHECK(team, "cuStreamWaitEvent",
                           stream_wait_event(call[0]->stream, team->part[r].joint, 0)));
        }
    }
    return KOLO_OK;
}

static kolo_status fork_streams(struct kolo_team *team, const struct kolo_gpu_call *const *call)
{
    bool several = false;
    for (int r = 1; r < team->nranks; r++) {
        several = several || first_on(call, r) == r;
    }
    if (several) {
        KOLO_TRY(CHECK(team, "cuEventRecord", event_record(team->part[0].joint, call[0]->stream)));
    }
    for (int r = 1; r < team->nranks; r++) {
        if (first_on(call, r) == r) {
            KOLO_TRY(CHECK(team, "cuStreamWaitEvent",
                           stream_wait_event(call[r]->stream, team->part[0].joint, 0)));
        }
    }
    return KOLO_OK;
}

static kolo_status enqueue_all_locked(struct kolo_team *team,
                                      const struct kolo_gpu_call *const *call)
{
    struct kolo_fused_launch argument = {.table = 0};
    const uint64_t what = kolo_gpu_call_what(call[0], team->nranks);
    const struct recent first = {.number = team->part[0].calls,
                                 .what = what,
                                 .coll = call[0]->coll,
                                 .type = call[0]->type,
                                 .count = call[0]->count};
    if (is_aborted(team)) {
        return kolo_fail(KOLO_ERR_ABORTED, "the communicator was ended");
    }
    for (int r = 0; r < team->nranks; r++) {
        KOLO_TRY(check_same(&first, call[r], r, kolo_gpu_call_what(call[r], team->nranks)));
        argument.rank[r] = (struct kolo_fused_rank){.in = (uintptr_t)call[r]->in,
                                                    .out = (uintptr_t)call[r]->out,
                                                    .factor = call[r]->factor};
    }
    if (kolo_gpu_call_by_messages(call[0])) {
        KOLO_TRY(follow_all(team, call));
        KOLO_TRY(send_blocks(team, call, 0, team->nranks));
    } else {
        KOLO_TRY(join_streams(team, call));
        KOLO_TRY(kolo_gpu_launch(&team->gpu, team->nranks, call[0], &argument));
        KOLO_TRY(fork_streams(team, call));
    }
    for (int r = 0; r < team->nranks; r++) {
        KOLO_TRY(note_end(team, r, call[r]->stream));
        team->part[r].calls++;
    }
    return KOLO_OK;
}

kolo_status kolo_team_enqueue_all(struct kolo_team *team, const struct kolo_gpu_call *const *call)
{
    KOLO_TRY(kolo_gpu_enter(&team->gpu));
    for (int r = 0; r < team->nranks; r++) { /* in one order */
        pthread_mutex_lock(&team->part[r].lock);
    }
    const kolo_status st = enqueue_all_locked(team, call);
    for (int r = 0; r < team->nranks; r++) {
        pthread_mutex_unlock(&team->part[r].lock);
    }
    kolo_gpu_leave(&team->gpu);
    return st;
}

/* ---- messages ---- */

struct on { /* a rank of a group, and its stream there */
    bool is_there;
    kolo_stream stream;
};

static kolo_status enqueue_letters_locked(struct kolo_team *team, const struct on *on,
                                          struct kolo_letter *letter, size_t n)
{
    if (is_aborted(team)) {
        return kolo_fail(KOLO_ERR_ABORTED, "the communicator was ended");
    }
    for (int r = 0; r < team->nranks; r++) {
        KOLO_TRY(on[r].is_there ? follow(team, r, on[r].stream) : KOLO_OK);
    }
    KOLO_TRY(send_letters(team, letter, n));
    for (int r = 0; r < team->nranks; r++) {
        KOLO_TRY(on[r].is_there ? note_end(team, r, on[r].stream) : KOLO_OK);
    }
    return KOLO_OK;
}

kolo_status kolo_team_enqueue_letters(struct kolo_team *team, struct kolo_letter *letter, size_t n)
{
    struct on on[KOLO_FUSED_RANKS] = {{false, NULL}};
    for (size_t i = 0; i < n; i++) {
        on[letter[i].rank] = (struct on){true, letter[i].stream};
    }
    KOLO_TRY(kolo_gpu_enter(&team->gpu));
    for (int r = 0; r < team->nranks; r++) { /* in one order */
        if (on[r].is_there) {
            pthread_mutex_lock(&team->part[r].lock);
        }
    }
    const kolo_status st = enqueue_letters_locked(team, on, letter, n);
    for (int r = 0; r < team->nranks; r++) {
        if (on[r].is_there) {
            pthread_mutex_unlock(&team->part[r].lock);
        }
    }
    kolo_gpu_leave(&team->gpu);
    return st;
}

/* ---- giving up ---- */

/* A stream that waits writes 0 to its flag when it goes on, and may then wait again for its next
 * call: so the flags are set until nobody is left. `aborted` comes first, so that no kernel runs on
 * addresses of an earlier call. */
static void release_once(struct kolo_team *team, kolo_cuda_stream stream)
{
    struct kolo_stream_ops ops = {.cuda = team->gpu.cuda};
    kolo_stream_ops_add(&ops, stream, KOLO_CUDA_WRITE_32,
                        team->table + offsetof(struct kolo_fused_table, aborted), 1);
    for (int q = 0; q < team->nranks; q++) {
        kolo_stream_ops_add(&ops, stream, KOLO_CUDA_WRITE_32, FIELD(team, q, arrived), 1);
        kolo_stream_ops_add(&ops, stream, KOLO_CUDA_WRITE_32, FIELD(team, q, done), 1);
    }
    if (kolo_stream_ops_flush(&ops) == KOLO_OK &&
        kolo_mail_release(team->mail, stream) == KOLO_OK) {
        (void)team->gpu.cuda->stream_synchronize(stream);
    }
}

static void *release(void *arg)
{
    struct kolo_team *team = arg;
    kolo_cuda_stream stream = NULL;
    bool stop = false;
    if (kolo_gpu_enter(&team->gpu) != KOLO_OK) {
        return NULL;
    }
    if (CHECK(team, "cuStreamCreate", stream_create(&stream, KOLO_CUDA_NON_BLOCKING)) == KOLO_OK) {
        while (!stop) {
            release_once(team, stream);
            nap();
            pthread_mutex_lock(&team->lock);
            stop = team->stop;
            pthread_mutex_unlock(&team->lock);
        }
        (void)team->gpu.cuda->stream_destroy(stream);
    }
    kolo_gpu_leave(&team->gpu);
    return NULL;
}

void kolo_team_abort(struct kolo_team *team)
{
    pthread_mutex_lock(&team->lock);
    if (!team->aborted) {
        team->aborted = true;
        team->releasing = pthread_create(&team->releaser, NULL, release, team) == 0;
    }
    pthread_mutex_unlock(&team->lock);
}

const struct kolo_gpu *kolo_team_gpu(const struct kolo_team *team)
{
    return &team->gpu;
}
