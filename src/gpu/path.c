// SPDX-License-Identifier: Apache-2.0
/* See path.h. A buffer's kind is found from its pointer, so that one communicator serves both
 * kinds and the library's own small exchanges (as of kolo_comm_split()) stay on the host. */
#include "gpu/path.h"

#include "core/call/fast_path.h"
#include "core/call/parts.h"
#include "gpu/fused/fused_path.h"
#include "gpu/hier/hier_path.h"
#include "gpu/p2p/p2p_path.h"
#include "gpu/proxy/proxy.h"

#include <stdlib.h>
#include <string.h>

/* ---- coming up, and going down ---- */

struct intro { /* what a rank tells of its GPU */
    int32_t status, ordinal;
    uint32_t kernels; /* 1: kolo has some here */
    uint32_t opens;   /* 1: memory of other processes may be opened */
    uint32_t stores;  /* 1: to memory of other GPUs may be stored */
    uint32_t layers;  /* 1: calls may go in layers, */
    uint64_t least;   /* from so many bytes on */
    unsigned char uuid[16];
};

/* From where on two layers take less than one. Unmeasured: two low-latency kernels take 9 us (the
 * model of NCCL 2.30, src/sym_kernels.cc there, for 8 H100); a host that adds or copies some 10
 * GB/s a core saves that from about 64 KiB on. */
static uint64_t least_bytes(void)
{
    enum { LEAST = 64 << 10 };
    const char *text = kolo_env("KOLO_CUDA_LAYER_BYTES");
    size_t bytes = LEAST;
    if (text != NULL && !kolo_parse_bytes(text, &bytes)) {
        KOLO_LOG(WARN, INIT, "KOLO_CUDA_LAYER_BYTES is %s, which is no size; it is not used", text);
        bytes = LEAST;
    }
    return bytes;
}

static struct intro introduce(const struct kolo_comm *c, struct kolo_gpu *gpu)
{
    const char *ipc = kolo_env("KOLO_CUDA_IPC"), *p2p = kolo_env("KOLO_CUDA_P2P");
    const char *layers = kolo_env("KOLO_CUDA_LAYERS");
    struct intro intro = {.status = kolo_gpu_open(c->device, gpu), .ordinal = c->device};
    intro.kernels = kolo_gpu_has_kernels();
    intro.opens = ipc == NULL || strcmp(ipc, "0") != 0;
    intro.stores = intro.kernels && (p2p == NULL || strcmp(p2p, "0") != 0);
    intro.layers = intro.kernels && (layers == NULL || strcmp(layers, "0") != 0);
    intro.least = least_bytes();
    memcpy(intro.uuid, gpu->uuid, sizeof intro.uuid);
    return intro;
}

struct shared { /* by all ranks */
    bool gpu, process, opens;
    bool stores; /* all are on one host, on a GPU each, and may store to the others' */
};

static struct shared what_is_shared(const struct kolo_comm *c, const struct intro *all)
{
    struct shared shared = {true, true, true, c->nranks > 1 && c->nranks <= KOLO_PEER_RANKS};
    for (int q = 0; q < c->nranks; q++) {
        const struct kolo_peer *peer = &c->member[q].peer, *first = &c->member[0].peer;
        shared.gpu = shared.gpu && peer->host == first->host &&
                     memcmp(all[q].uuid, all[0].uuid, sizeof all[q].uuid) == 0;
        shared.process = shared.process && peer->process == first->process;
        shared.opens = shared.opens && all[q].opens;
        shared.stores = shared.stores && all[q].stores && peer->host == first->host;
        for (int r = 0; r < q; r++) {
            const bool other = memcmp(all[q].uuid, all[r].uuid, sizeof all[q].uuid) != 0;
            shared.stores = shared.stores && other;
        }
    }
    shared.stores = shared.stores && (shared.process || shared.opens);
    return shared;
}

/* A communicator of the same ranks on host memory, which sums in the order that kernels do: bits
 * do not depend on the way that a call takes. */
static kolo_status make_host(struct kolo_comm *c, struct kolo_comm **out)
{
    struct kolo_config config = KOLO_CONFIG_INIT;
    config.deterministic = 1;
    config.timeout_ms = c->timeout_ms;
    config.device = KOLO_HOST;
    config.name = c->name;
    config.algo = "";
    config.transport = c->transport_text;
    return kolo_comm_split(c, 0, c->rank, &config, out);
}

static kolo_status join_relay(struct kolo_comm *c, struct kolo_gpu *gpu, bool fuses)
{
    struct kolo_comm *host = NULL;
    if (fuses && c->rank == 0) {
        KOLO_TRY(kolo_gpu_enter(gpu));
        const kolo_status st = kolo_gpu_load(gpu);
        kolo_gpu_leave(gpu);
        KOLO_TRY(st);
    }
    struct kolo_relay *relay = NULL;
    KOLO_TRY(make_host(c, &host));
    KOLO_TRY(kolo_relay_open(c, host, gpu, fuses, &relay));
    c->relay = relay;
    return KOLO_OK;
}

static kolo_status join_team(struct kolo_comm *c)
{
    struct kolo_team *team = NULL;
    KOLO_TRY(kolo_team_join(c->id, c->nranks, c->rank, c->device, &team));
    c->team = team;
    return KOLO_OK;
}

static kolo_status join_peers(struct kolo_comm *c, struct kolo_gpu *gpu, const struct intro *all)
{
    unsigned char uuid[KOLO_PEER_RANKS][16];
    for (int q = 0; q < c->nranks; q++) {
        memcpy(uuid[q], all[q].uuid, sizeof uuid[q]);
    }
    struct kolo_peers *peers = NULL;
    KOLO_TRY(kolo_peers_open(c, gpu, (const unsigned char(*)[16])uuid, &peers));
    c->peers = peers;
    return KOLO_OK;
}

struct ranks { /* what relations look at */
    const struct kolo_comm *comm;
    const struct intro *intro;
};

static bool are_on_one_host(const void *who, int q, int r)
{
    const struct ranks *all = who;
    const struct kolo_peer *a = &all->comm->member[q].peer, *b = &all->comm->member[r].peer;
    const struct intro *x = &all->intro[q], *y = &all->intro[r];
    return a->host == b->host && memcmp(x->uuid, y->uuid, sizeof x->uuid) != 0 && x->stores != 0 &&
           y->stores != 0 && (a->process == b->process || (x->opens != 0 && y->opens != 0));
}

static bool are_on_one_gpu(const void *who, int q, int r)
{
    const struct ranks *all = who;
    const struct kolo_peer *a = &all->comm->member[q].peer, *b = &all->comm->member[r].peer;
    return a->host == b->host && a->process == b->process &&
           memcmp(all->intro[q].uuid, all->intro[r].uuid, sizeof all->intro[q].uuid) == 0;
}

/* NULL: calls go in one layer. */
static kolo_status join_layers(struct kolo_comm *c, struct kolo_gpu *gpu, const struct intro *all,
                               struct kolo_layers **out)
{
    const struct ranks who = {c, all};
    bool may = c->nranks > 1;
    size_t least = 0;
    for (int q = 0; q < c->nranks; q++) {
        may = may && all[q].layers != 0;
        least = kolo_max(least, all[q].least);
    }
    int *group = calloc((size_t)c->nranks, sizeof *group);
    if (group == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", c->nranks);
    }
    may = may && (kolo_layers_cut(c->nranks, KOLO_PEER_RANKS, are_on_one_host, &who, group) ||
                  kolo_layers_cut(c->nranks, KOLO_FUSED_RANKS, are_on_one_gpu, &who, group));
    const kolo_status st = may ? kolo_layers_open(c, gpu, group, least, out) : KOLO_OK;
    free(group);
    return st;
}

static kolo_status join_with(struct kolo_comm *c, struct kolo_gpu *gpu, const struct intro *all)
{
    const struct shared shared = what_is_shared(c, all);
    const bool fuses = shared.gpu && c->nranks <= KOLO_FUSED_RANKS && all[0].kernels;
    for (int q = 0; q < c->nranks; q++) {
        if (all[q].status != KOLO_OK) {
            return kolo_fail(KOLO_ERR_UNSUPPORTED, "rank %d cannot use its GPU %d: %s", q,
                             all[q].ordinal, kolo_status_name((kolo_status)all[q].status));
        }
    }
    if (fuses && shared.process) {
        kolo_gpu_close(gpu);
        KOLO_LOG(INFO, INIT, "GPU %d: %d ranks, a kernel a call", c->device, c->nranks);
        return join_team(c);
    }
    if (shared.stores) {
        KOLO_TRY(join_peers(c, gpu, all));
    }
    if (c->peers != NULL) {
        return join_relay(c, gpu, false); /* for messages, and v-forms that not all ranks know */
    }
    struct kolo_layers *layers = NULL;
    if (!(fuses && shared.opens)) {
        KOLO_TRY(join_layers(c, gpu, all, &layers));
    }
    KOLO_LOG(INFO, INIT, "GPU %d: %s%s", c->device, layers != NULL ? "other " : "",
             fuses && shared.opens ? "rank 0 opens the others' memory, a kernel a call"
             : all[0].kernels      ? "calls go through host memory"
                                   : "calls go through host memory; kolo was built without nvcc, "
                                     "so without kernels for GPUs");
    const kolo_status st = join_relay(c, gpu, fuses && shared.opens);
    if (layers != NULL && st == KOLO_OK) {
        kolo_layers_join(layers);
    } else if (layers != NULL) {
        kolo_layers_drop(layers, gpu);
    }
    return st;
}

kolo_status kolo_device_join(struct kolo_comm *c)
{
    struct kolo_gpu gpu = {.context = NULL};
    if (c->device == KOLO_HOST) {
        return KOLO_OK;
    }
    struct intro *all = calloc((size_t)c->nranks, sizeof *all);
    if (all == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", c->nranks);
    }
    const struct intro mine = introduce(c, &gpu);
    kolo_status st = kolo_all_gather(&mine, all, sizeof mine, KOLO_UINT8, c, NULL);
    st = mine.status != KOLO_OK ? (kolo_status)mine.status
         : st == KOLO_OK        ? join_with(c, &gpu, all)
                                : st;
    free(all);
    if (c->relay == NULL) {
        kolo_gpu_close(&gpu);
    }
    if (atomic_load(&c->error) != KOLO_OK) { /* before these were there to be ended */
        kolo_device_abort(c);
    }
    return st;
}

kolo_status kolo_device_join_local(struct kolo_comm *c)
{
    return c->device == KOLO_HOST ? KOLO_OK : join_team(c);
}

void kolo_device_leave(struct kolo_comm *c)
{
    if (c->team != NULL) {
        kolo_team_leave(c->team, c->rank, c->timeout_ms);
    }
    if (c->peers != NULL) {
        kolo_peers_close(c->peers, c->timeout_ms);
    }
    if (c->layers != NULL) {
        kolo_layers_close(c->layers, c->timeout_ms);
    }
    if (c->relay != NULL) {
        kolo_relay_close(c->relay, c->timeout_ms);
    }
    c->layers = NULL;
    c->team = NULL;
    c->relay = NULL;
    c->peers = NULL;
}

void kolo_device_abort(struct kolo_comm *c)
{
    if (c->team != NULL) {
        kolo_team_abort(c->team);
    }
    if (c->peers != NULL) {
        kolo_peers_abort(c->peers);
    }
    if (c->layers != NULL) {
        kolo_layers_abort(c->layers);
    }
    if (c->relay != NULL) {
        kolo_relay_abort(c->relay);
    }
}

bool kolo_device_learn(struct kolo_comm *c)
{
    int rank = -1;
    const kolo_status st = c->peers != NULL ? kolo_peers_learn(c->peers, &rank) : KOLO_OK;
    if (st != KOLO_OK) {
        (void)kolo_comm_fail_of(c, st, rank);
    }
    return st != KOLO_OK;
}

/* ---- whose memory ---- */

static kolo_status find_place(const struct kolo_comm *c, const void *ptr,
                              struct kolo_cuda_place *out)
{
    const struct kolo_gpu *gpu =
        c->team != NULL ? kolo_team_gpu(c->team) : kolo_relay_gpu(c->relay);
    KOLO_TRY(kolo_gpu_enter(gpu));
    const kolo_status st = kolo_cuda_find(gpu->cuda, ptr, out);
    kolo_gpu_leave(gpu);
    return st;
}

static kolo_status check_place(const struct kolo_comm *c, const struct kolo_cuda_place *place,
                               const char *name, const void *ptr)
{
    char text[32];
    if (place->kind == KOLO_CUDA_KIND_MANAGED ||
        (place->kind == KOLO_CUDA_KIND_DEVICE && place->ordinal == c->device)) {
        return KOLO_OK;
    }
    kolo_cuda_say_place(place, text, sizeof text);
    return kolo_fail(KOLO_ERR_INVALID, "%s (%p) is %s; the communicator's device is GPU %d", name,
                     ptr, text, c->device);
}

/* Of the buffers that count; *host_out: all of them are host memory. */
static kolo_status find_places(const struct kolo_call *call, bool *host_out)
{
    const struct kolo_comm *c = call->base.comm;
    const void *const ptr[2] = {call->extent.has_in ? call->args.in : NULL,
                                call->extent.has_out ? call->args.out : NULL};
    static const char *const name[2] = {"send", "recv"};
    struct kolo_cuda_place place[2];
    char text[2][32];
    int host = 0, there = 0;
    for (int i = 0; i < 2; i++) {
        if (ptr[i] != NULL) {
            KOLO_TRY(find_place(c, ptr[i], &place[i]));
            kolo_cuda_say_place(&place[i], text[i], sizeof text[i]);
            host += place[i].kind == KOLO_CUDA_KIND_HOST;
            there++;
        }
    }
    if (host == 1 && there == 2) {
        return kolo_fail(KOLO_ERR_INVALID, "send (%p) is %s, recv (%p) is %s; both must be one",
                         ptr[0], text[0], ptr[1], text[1]);
    }
    for (int i = 0; i < 2 && host == 0; i++) {
        if (ptr[i] != NULL) {
            KOLO_TRY(check_place(c, &place[i], name[i], ptr[i]));
        }
    }
    *host_out = host > 0;
    return KOLO_OK;
}

/* ---- calls ---- */

struct pending { /* a call of a group */
    struct pending *next;
    struct kolo_comm *comm;
    struct kolo_counts v; /* owned */
    struct kolo_gpu_call call;
};
static _Thread_local struct pending *pending;

static struct kolo_gpu_call describe(const struct kolo_call *call, kolo_stream stream)
{
    const bool scales = call->extent.reduces && call->args.op >= KOLO_OPS;
    const size_t n = (size_t)call->base.comm->nranks;
    return (struct kolo_gpu_call){.coll = call->args.coll,
                                  .in = call->args.in,
                                  .out = call->args.out,
                                  .count = call->args.count,
                                  .type = call->args.type,
                                  .op = scales ? KOLO_OPS : call->args.op,
                                  .root = call->args.root,
                                  .factor = call->args.factor,
                                  .counts = call->args.v.all,
                                  .displs = call->args.v.all != NULL ? call->args.v.all + n : NULL,
                                  .stream = stream};
}

static kolo_status ended(struct kolo_comm *c, kolo_status st)
{
    return st <= KOLO_ERR_MISMATCH ? kolo_comm_fail(c, st) : st;
}

static kolo_status add_pending(struct kolo_call *call, const struct kolo_gpu_call *what)
{
    struct pending *kept = malloc(sizeof *kept);
    struct pending **at = &pending;
    if (kept == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a call");
    }
    while (*at != NULL) {
        at = &(*at)->next;
    }
    *kept = (struct pending){.comm = call->base.comm, .v = call->args.v, .call = *what};
    call->args.v.all = NULL;
    *at = kept;
    return KOLO_OK;
}

kolo_status kolo_device_enqueue(struct kolo_comm *c, const struct kolo_gpu_call *what,
                                struct kolo_counts *v)
{
    if (c->team != NULL) {
        return kolo_team_enqueue(c->team, c->rank, what);
    }
    if (c->peers != NULL && !kolo_gpu_call_by_messages(what)) {
        return kolo_device_learn(c) ? kolo_comm_usable(c) : kolo_peers_enqueue(c->peers, what);
    }
    if (c->layers != NULL && kolo_layers_take(c->layers, what)) {
        return kolo_layers_enqueue(c->layers, what);
    }
    KOLO_TRY(kolo_peers_follow(c->peers, what->stream));
    KOLO_TRY(kolo_relay_enqueue(c->relay, what, v));
    return kolo_peers_note(c->peers, what->stream);
}

static kolo_status relay_messages(struct kolo_comm *c, const struct kolo_message *m, int n,
                                  kolo_stream stream)
{
    KOLO_TRY(kolo_peers_follow(c->peers, stream));
    KOLO_TRY(kolo_relay_enqueue_messages(c->relay, m, n, stream));
    return kolo_peers_note(c->peers, stream);
}

static kolo_status take(struct kolo_call *call, kolo_stream stream)
{
    const struct kolo_gpu_call what = describe(call, stream);
    if (kolo_group_depth > 0) {
        return add_pending(call, &what);
    }
    return kolo_device_enqueue(call->base.comm, &what, &call->args.v);
}

bool kolo_device_takes(struct kolo_call *call, kolo_stream stream, kolo_status *out)
{
    bool host = stream == NULL;
    kolo_status st = KOLO_OK;
    if (!kolo_device_is_up(call->base.comm)) {
        return false;
    }
    if (call->args.coll != KOLO_COLL_BARRIER) {
        st = find_places(call, &host);
    }
    if (st == KOLO_OK && host && stream != NULL) {
        st = kolo_fail(KOLO_ERR_INVALID,
                       "stream is %p and the buffers are host memory; on a communicator of a GPU "
                       "such calls take no stream",
                       stream);
    }
    if (st == KOLO_OK && host) {
        return false;
    }
    *out = ended(call->base.comm, st == KOLO_OK ? take(call, stream) : st);
    kolo_call_close(call);
    return true;
}

/* ---- messages ---- */

struct posted { /* a message of a group */
    struct posted *next;
    struct kolo_comm *comm;
    struct kolo_message message;
    kolo_stream stream;
};
static _Thread_local struct posted *posted;

static kolo_status post(struct kolo_comm *c, const struct kolo_message *m, kolo_stream stream)
{
    struct posted *made = malloc(sizeof *made);
    struct posted **at = &posted;
    if (made == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a message");
    }
    while (*at != NULL) {
        at = &(*at)->next;
    }
    *made = (struct posted){.comm = c, .message = *m, .stream = stream};
    *at = made;
    return KOLO_OK;
}

static kolo_status enqueue_message(struct kolo_comm *c, const struct kolo_message *m,
                                   kolo_stream stream)
{
    struct kolo_letter letter = {.rank = c->rank, .m = *m, .stream = stream};
    return c->team != NULL ? kolo_team_enqueue_letters(c->team, &letter, 1)
                           : relay_messages(c, m, 1, stream);
}

bool kolo_device_takes_message(struct kolo_comm *c, const struct kolo_message *m,
                               kolo_stream stream, kolo_status *out)
{
    struct kolo_cuda_place place = {stream != NULL ? KOLO_CUDA_KIND_MANAGED : KOLO_CUDA_KIND_HOST,
                                    -1}; /* of no buffer: by its stream */
    if (!kolo_device_is_up(c)) {
        return false;
    }
    kolo_status st = m->buf != NULL ? find_place(c, m->buf, &place) : KOLO_OK;
    const bool host = place.kind == KOLO_CUDA_KIND_HOST;
    if (st == KOLO_OK && host && stream == NULL) {
        return false;
    }
    if (st == KOLO_OK && host) {
        st = kolo_fail(KOLO_ERR_INVALID,
                       "stream is %p and buf is host memory; on a communicator of a GPU such calls "
                       "take no stream",
                       stream);
    }
    st = st == KOLO_OK ? check_place(c, &place, "buf", m->buf) : st;
    if (st == KOLO_OK) {
        st = kolo_group_depth > 0 ? post(c, m, stream) : enqueue_message(c, m, stream);
    }
    *out = ended(c, st);
    return true;
}

/* Those that go together with the first: of its communicator, or of its team's ranks. */
static bool goes_with(const struct posted *first, const struct posted *p)
{
    return p->comm == first->comm || (p->comm->team != NULL && p->comm->team == first->comm->team);
}

/* Take them off the list. */
static struct posted *take_together(int *n_out)
{
    struct posted *taken = NULL, **end = &taken, *first = posted;
    for (struct posted **at = &posted; *at != NULL;) {
        struct posted *p = *at;
        if (!goes_with(first, p)) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        *end = p;
        end = &p->next;
        (*n_out)++;
    }
    *end = NULL;
    return taken;
}

static kolo_status check_posted(const struct posted *all)
{
    for (const struct posted *p = all; p != NULL; p = p->next) {
        KOLO_TRY(kolo_comm_usable(p->comm));
        for (const struct posted *q = all; q != p; q = q->next) {
            if (q->comm == p->comm && q->stream != p->stream) {
                return kolo_fail(KOLO_ERR_UNSUPPORTED, "the messages of a group are of GPU memory "
                                                       "and on several streams; they must be on "
                                                       "one");
            }
        }
    }
    return KOLO_OK;
}

static kolo_status enqueue_posted(const struct posted *all, int n)
{
    struct kolo_comm *c = all->comm;
    struct kolo_letter *letter = calloc((size_t)n, sizeof *letter);
    struct kolo_message *message = malloc((size_t)n * sizeof *message);
    kolo_status st = letter != NULL && message != NULL
                         ? KOLO_OK
                         : kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d messages", n);
    for (int i = 0; i < n && st == KOLO_OK; all = all->next, i++) {
        message[i] = all->message;
        letter[i] =
            (struct kolo_letter){.rank = all->comm->rank, .m = all->message, .stream = all->stream};
    }
    if (st == KOLO_OK) {
        st = c->team != NULL ? kolo_team_enqueue_letters(c->team, letter, (size_t)n)
                             : relay_messages(c, message, n, letter[0].stream);
    }
    free(letter);
    free(message);
    return st;
}

static kolo_status issue_messages(void)
{
    int n = 0;
    struct posted *all = take_together(&n);
    kolo_status st = check_posted(all);
    st = st == KOLO_OK ? enqueue_posted(all, n) : st;
    while (all != NULL) {
        struct posted *p = all;
        all = p->next;
        (void)ended(p->comm, st);
        free(p);
    }
    return st;
}

/* ---- groups ---- */

/* How many calls of rank r of this team the group has; *first: the first of them, from `from` on.
 */
static int calls_of(struct pending *from, const struct kolo_team *team, int rank,
                    struct pending **first_out)
{
    int count = 0;
    for (struct pending *p = from; p != NULL; p = p->next) {
        if (p->comm->team == team && p->comm->rank == rank) {
            *first_out = count++ == 0 ? p : *first_out;
        }
    }
    return count;
}

/* Take the first call off the list, with those of the other ranks if the group has all of them. */
static kolo_status issue_first(void)
{
    struct pending *of[KOLO_FUSED_RANKS];
    const struct kolo_gpu_call *call[KOLO_FUSED_RANKS];
    struct pending *head = pending;
    struct kolo_comm *c = head->comm;
    const int mine = c->team != NULL ? calls_of(head, c->team, c->rank, &of[c->rank]) : 0;
    bool all = c->team != NULL;
    for (int r = 0; r < c->nranks && all; r++) {
        all = all && calls_of(head, c->team, r, &of[r]) == mine;
        call[r] = all ? &of[r]->call : NULL;
    }
    const kolo_status st =
        all ? kolo_team_enqueue_all(c->team, call) : kolo_device_enqueue(c, &head->call, &head->v);
    for (int r = 0; r < c->nranks; r++) {
        struct pending *done = all ? of[r] : r == c->rank ? head : NULL;
        for (struct pending **at = &pending; done != NULL && *at != NULL;) {
            if (*at == done) {
                *at = done->next;
                break;
            }
            at = &(*at)->next;
        }
        if (done != NULL) {
            (void)ended(done->comm, st);
            free(done->v.all);
            free(done);
        }
    }
    return st;
}

kolo_status kolo_device_group_end(void)
{
    kolo_status first = KOLO_OK;
    while (pending != NULL) {
        struct kolo_comm *c = pending->comm;
        const kolo_status usable = kolo_comm_usable(c);
        if (usable != KOLO_OK) { /* drop it */
            struct pending *dropped = pending;
            pending = dropped->next;
            free(dropped->v.all);
            free(dropped);
        }
        const kolo_status st = usable == KOLO_OK ? issue_first() : usable;
        first = first == KOLO_OK ? st : first;
    }
    while (posted != NULL) { /* after collectives on every rank */
        const kolo_status st = issue_messages();
        first = first == KOLO_OK ? st : first;
    }
    return first;
}
