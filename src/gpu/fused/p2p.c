// SPDX-License-Identifier: Apache-2.0
/* Matching the ends of messages on the host, and enqueueing the copies. A post is the first end of
 * a message; it stays in a list until the second end comes. */
#include "gpu/fused/p2p.h"

#include "gpu/context/stream_ops.h"

#include <stdlib.h>

struct kolo_gpu_p2p_pending {
    struct kolo_gpu_p2p_pending *next; /* the order of the calls */
    uint64_t number;
    struct kolo_gpu_message end; /* a copy of the end; `came` and `taken` are the post's words */
    struct kolo_gpu_message *matched; /* the end itself, while its group is being matched */
};

struct
    words { /* of a rank, in pinned memory: the number of its last post, and the answers to posts */
    uint64_t came, taken[KOLO_GPU_P2P_POSTS];
};
struct flags { /* of a message in a graph, in pinned memory */
    uint32_t came, taken;
};

struct kolo_gpu_p2p {
    const struct kolo_gpu *gpu;
    int nranks;
    char *host;                     /* of the words, for the CPU */
    kolo_cuda_address words, flags; /* struct words[nranks], struct flags[KOLO_GPU_P2P_GRAPHS] */

    pthread_mutex_t lock; /* of the members below; never held while something is enqueued */
    struct kolo_gpu_p2p_pending *first;
    uint64_t posts, posts_of[KOLO_FUSED_RANKS];
    size_t graphs; /* flags taken */
};

/* ---- opening and closing ---- */

size_t kolo_gpu_p2p_bytes(int nranks)
{
    return (size_t)nranks * sizeof(struct words) + KOLO_GPU_P2P_GRAPHS * sizeof(struct flags);
}

kolo_status kolo_gpu_p2p_open(const struct kolo_gpu *gpu, int nranks, void *host,
                              kolo_cuda_address at, struct kolo_gpu_p2p **out)
{
    struct kolo_gpu_p2p *p2p = malloc(sizeof *p2p);
    if (p2p == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for messages");
    }
    *p2p = (struct kolo_gpu_p2p){.gpu = gpu,
                                 .nranks = nranks,
                                 .host = host,
                                 .words = at,
                                 .flags = at + (size_t)nranks * sizeof(struct words)};
    pthread_mutex_init(&p2p->lock, NULL);
    *out = p2p;
    return KOLO_OK;
}

void kolo_gpu_p2p_close(struct kolo_gpu_p2p *p2p)
{
    if (p2p == NULL) {
        return;
    }
    while (p2p->first != NULL) {
        struct kolo_gpu_p2p_pending *post = p2p->first;
        p2p->first = post->next;
        free(post);
    }
    pthread_mutex_destroy(&p2p->lock);
    free(p2p);
}

/* ---- collectives as messages ---- */

struct side { /* what a rank does with its buffer in a collective */
    const struct kolo_gpu_call *call;
    int rank;
    bool is_send;
    const size_t *counts, *displs; /* displs NULL: one block, at the start */
};

static struct kolo_gpu_message block_of(const struct side *side, int peer)
{
    const struct kolo_gpu_call *call = side->call;
    const int q = side->displs != NULL ? peer : side->rank;
    const size_t at = side->displs != NULL ? side->displs[q] * kolo_type_bytes(call->args.type) : 0;
    char *buf = side->is_send ? (char *)(uintptr_t)call->args.in : call->args.out;
    return (struct kolo_gpu_message){.rank = side->rank,
                                     .m = {.buf = buf + at,
                                           .count = side->counts[q],
                                           .type = call->args.type,
                                           .peer = peer,
                                           .tag = KOLO_GPU_P2P_BLOCK,
                                           .is_send = side->is_send},
                                     .stream = call->stream};
}

size_t kolo_gpu_p2p_blocks(const struct kolo_gpu_call *call, int rank, int nranks,
                           struct kolo_gpu_message *out)
{
    const size_t *all = call->args.v.all, *displs = all + nranks;
    const bool root = rank == call->args.root, to_all = call->args.coll == KOLO_COLL_ALL_TO_ALL;
    const bool gathers = call->args.coll == KOLO_COLL_GATHER;
    struct side one = {call, rank, gathers, all, NULL};
    struct side sends = {call, rank, true, all, displs}, recvs = {call, rank, false, all, displs};
    size_t n = 0;
    if (to_all) {
        recvs.counts = all + 2 * nranks;
        recvs.displs = all + 3 * nranks;
    } else {
        out[n++] = block_of(&one, call->args.root);
    }
    for (int q = 0; q < nranks; q++) {
        if (to_all || (root && !gathers)) {
            out[n++] = block_of(&sends, q);
        }
        if (to_all || (root && gathers)) {
            out[n++] = block_of(&recvs, q);
        }
    }
    return n;
}

/* ---- matching ---- */

static size_t bytes_of(const struct kolo_gpu_message *message)
{
    return message->m.count * kolo_type_bytes(message->m.type);
}

static bool fits(const struct kolo_gpu_message *recv, const struct kolo_gpu_message *send)
{
    const bool tag =
        recv->m.tag == send->m.tag || (recv->m.tag == KOLO_ANY_TAG && send->m.tag >= 0);
    return tag && send->m.peer == recv->rank &&
           (recv->m.peer == send->rank || recv->m.peer == KOLO_ANY_SOURCE);
}

static struct kolo_gpu_p2p_pending **find_match(struct kolo_gpu_p2p *p2p,
                                                const struct kolo_gpu_message *message)
{
    struct kolo_gpu_p2p_pending **at = &p2p->first;
    for (; *at != NULL; at = &(*at)->next) {
        const struct kolo_gpu_message *end = &(*at)->end;
        if (end->m.is_send != message->m.is_send &&
            fits(message->m.is_send ? end : message, message->m.is_send ? message : end)) {
            break;
        }
    }
    return at;
}

static void insert_post(struct kolo_gpu_p2p *p2p, struct kolo_gpu_p2p_pending *post)
{
    struct kolo_gpu_p2p_pending **at = &p2p->first;
    while (*at != NULL && (*at)->number < post->number) {
        at = &(*at)->next;
    }
    post->next = *at;
    *at = post;
}

static void choose_words(struct kolo_gpu_p2p *p2p, struct kolo_gpu_message *message)
{
    if (message->captured) {
        message->came = p2p->flags + p2p->graphs++ * sizeof(struct flags);
        message->taken = message->came + offsetof(struct flags, taken);
        message->value = 1;
        return;
    }
    message->value = ++p2p->posts_of[message->rank];
    message->came = p2p->words + (size_t)message->rank * sizeof(struct words);
    message->taken = message->came + offsetof(struct words, taken) +
                     message->value % KOLO_GPU_P2P_POSTS * sizeof(uint64_t);
}

static kolo_status add_post(struct kolo_gpu_p2p *p2p, struct kolo_gpu_message *message)
{
    if (message->captured && p2p->graphs == KOLO_GPU_P2P_GRAPHS) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED,
                         "the graphs of this communicator already hold %d messages, the maximum",
                         KOLO_GPU_P2P_GRAPHS);
    }
    struct kolo_gpu_p2p_pending *made = malloc(sizeof *made);
    if (made == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a message");
    }
    choose_words(p2p, message);
    message->part = KOLO_GPU_MESSAGE_WAITS;
    message->apart = true;
    *made =
        (struct kolo_gpu_p2p_pending){.number = ++p2p->posts, .end = *message, .matched = message};
    insert_post(p2p, made);
    return KOLO_OK;
}

static kolo_status check_pair(const struct kolo_gpu_message *message,
                              const struct kolo_gpu_message *other)
{
    const struct kolo_gpu_message *send = message->m.is_send ? message : other;
    const struct kolo_gpu_message *recv = message->m.is_send ? other : message;
    const size_t bytes = bytes_of(send), room = bytes_of(recv);
    if (message->captured != other->captured) {
        return kolo_fail(KOLO_ERR_INVALID,
                         "a graph holds one end of a message from rank %d to rank %d and not the "
                         "other; both or none must be captured",
                         send->rank, recv->rank);
    }
    if (bytes > room || (send->m.tag == KOLO_GPU_P2P_BLOCK && bytes != room)) {
        return kolo_fail(message == recv && send->m.tag != KOLO_GPU_P2P_BLOCK ? KOLO_ERR_INVALID
                                                                              : KOLO_ERR_MISMATCH,
                         "rank %d sends %zu bytes to rank %d, which has room for %zu", send->rank,
                         bytes, recv->rank, room);
    }
    return KOLO_OK;
}

static kolo_status match_message(struct kolo_gpu_p2p *p2p, struct kolo_gpu_message *message)
{
    struct kolo_gpu_p2p_pending **at = find_match(p2p, message), *other = *at;
    if (other == NULL) {
        return add_post(p2p, message);
    }
    const bool same_stream = other->end.stream == message->stream;
    KOLO_TRY(check_pair(message, &other->end));
    if (same_stream && other->matched == NULL) {
        return kolo_fail(KOLO_ERR_INVALID,
                         "stream %p waits for this message of rank %d already; ranks need streams "
                         "of their own, or both ends in one group",
                         message->stream, other->end.rank);
    }
    *at = other->next;
    message->part = KOLO_GPU_MESSAGE_COPIES;
    message->other = other;
    message->apart = !same_stream;
    message->came = other->end.came;
    message->taken = other->end.taken;
    message->value = other->end.value;
    if (same_stream) {
        other->matched->part = KOLO_GPU_MESSAGE_NONE;
    }
    return KOLO_OK;
}

/* Check that all posts of a group have words of their own, and that no stream that waits for all
 * other streams would wait for a message. */
static kolo_status check_waits(const struct kolo_gpu_message *message, size_t n)
{
    size_t posts[KOLO_FUSED_RANKS] = {0};
    for (size_t i = 0; i < n; i++) {
        const struct kolo_gpu_message *l = &message[i];
        if (l->part != KOLO_GPU_MESSAGE_NONE && l->apart && (uintptr_t)l->stream <= 1) {
            return kolo_fail(KOLO_ERR_INVALID,
                             "stream is the default stream, which waits for all others; give each "
                             "rank one of its own (cudaStreamNonBlocking), or both ends of a "
                             "message in one group");
        }
        posts[l->rank] += l->part != KOLO_GPU_MESSAGE_COPIES;
        if (posts[l->rank] > KOLO_GPU_P2P_POSTS) {
            return kolo_fail(KOLO_ERR_UNSUPPORTED,
                             "a group has more than %d messages of GPU memory of rank %d",
                             KOLO_GPU_P2P_POSTS, l->rank);
        }
    }
    return KOLO_OK;
}

static void undo_matches(struct kolo_gpu_p2p *p2p, struct kolo_gpu_message *message, size_t n)
{
    /* Put back the posts of other ranks, and drop the group's own. */
    for (size_t i = 0; i < n; i++) {
        if (message[i].other != NULL) {
            insert_post(p2p, message[i].other);
            message[i].other = NULL;
        }
    }
    for (struct kolo_gpu_p2p_pending **at = &p2p->first; *at != NULL;) {
        struct kolo_gpu_p2p_pending *p = *at;
        if (p->matched == NULL) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        free(p);
    }
}

static void fill_info(const struct kolo_gpu_message *send, const struct kolo_gpu_message *recv)
{
    if (recv->m.info != NULL) {
        recv->m.info->source = send->rank;
        recv->m.info->tag = send->m.tag;
        recv->m.info->bytes = bytes_of(send);
    }
}

static kolo_status match_all(struct kolo_gpu_p2p *p2p, struct kolo_gpu_message *message, size_t n)
{
    kolo_status st = KOLO_OK;
    for (size_t i = 0; i < n && st == KOLO_OK; i++) {
        st = match_message(p2p, &message[i]);
    }
    st = st == KOLO_OK ? check_waits(message, n) : st;
    if (st != KOLO_OK) {
        undo_matches(p2p, message, n);
        return st;
    }
    for (size_t i = 0; i < n; i++) {
        if (message[i].other != NULL) {
            struct kolo_gpu_p2p_pending *other = message[i].other;
            fill_info(message[i].m.is_send ? &message[i] : &other->end,
                      message[i].m.is_send ? &other->end : &message[i]);
            other->matched = NULL;
        }
    }
    for (struct kolo_gpu_p2p_pending *p = p2p->first; p != NULL; p = p->next) {
        p->matched = NULL;
    }
    return KOLO_OK;
}

/* ---- enqueueing ---- */

static void add_write(struct kolo_stream_ops *ops, const struct kolo_gpu_message *l,
                      kolo_cuda_address at)
{
    kolo_stream_ops_add(ops, l->stream, l->captured ? KOLO_CUDA_WRITE_32 : KOLO_CUDA_WRITE_64, at,
                        l->value);
}

static void add_wait(struct kolo_stream_ops *ops, const struct kolo_gpu_message *l,
                     kolo_cuda_address at)
{
    kolo_stream_ops_add(ops, l->stream, l->captured ? KOLO_CUDA_WAIT_32 : KOLO_CUDA_WAIT_64, at,
                        l->value);
    if (l->captured) {
        kolo_stream_ops_add(ops, l->stream, KOLO_CUDA_WRITE_32, at, 0);
    }
}

static kolo_status add_copy(const struct kolo_gpu_p2p *p2p, struct kolo_stream_ops *ops,
                            const struct kolo_gpu_message *l)
{
    const struct kolo_gpu_message *other = &l->other->end;
    const struct kolo_gpu_message *from = l->m.is_send ? l : other, *to = l->m.is_send ? other : l;
    if (l->apart) {
        add_wait(ops, l, l->came);
    }
    KOLO_TRY(kolo_stream_ops_flush(ops));
    if (bytes_of(from) > 0 && from->m.buf != to->m.buf) {
        KOLO_TRY(KOLO_CUDA(p2p->gpu, "cuMemcpyDtoDAsync",
                           memcpy_dtod_async((uintptr_t)to->m.buf, (uintptr_t)from->m.buf,
                                             bytes_of(from), l->stream)));
    }
    if (l->apart) {
        add_write(ops, l, l->taken);
    }
    return KOLO_OK;
}

static kolo_status enqueue_all(const struct kolo_gpu_p2p *p2p,
                               const struct kolo_gpu_message *message, size_t n)
{
    struct kolo_stream_ops ops = {.cuda = p2p->gpu->cuda};
    for (size_t i = 0; i < n; i++) {
        if (message[i].part == KOLO_GPU_MESSAGE_WAITS) {
            add_write(&ops, &message[i], message[i].came);
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (message[i].part == KOLO_GPU_MESSAGE_COPIES) {
            KOLO_TRY(add_copy(p2p, &ops, &message[i]));
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (message[i].part == KOLO_GPU_MESSAGE_WAITS) {
            add_wait(&ops, &message[i], message[i].taken);
        }
    }
    return kolo_stream_ops_flush(&ops);
}

kolo_status kolo_gpu_p2p_enqueue(struct kolo_gpu_p2p *p2p, struct kolo_gpu_message *message,
                                 size_t n)
{
    pthread_mutex_lock(&p2p->lock);
    kolo_status st = match_all(p2p, message, n);
    pthread_mutex_unlock(&p2p->lock);
    KOLO_TRY(st);
    st = enqueue_all(p2p, message, n);
    pthread_mutex_lock(&p2p->lock);
    for (size_t i = 0; i < n; i++) {
        if (message[i].other != NULL && st == KOLO_OK) {
            free(message[i].other);
        } else if (message[i].other != NULL) {
            /* Only kolo_gpu_p2p_release() may release its stream. */
            insert_post(p2p, message[i].other);
        }
    }
    pthread_mutex_unlock(&p2p->lock);
    return st;
}

/* ---- abort ---- */

static void store_64(const struct kolo_gpu_p2p *p2p, kolo_cuda_address at, uint64_t value)
{
    __atomic_store_n((uint64_t *)(void *)(p2p->host + (at - p2p->words)), value, __ATOMIC_RELEASE);
}

void kolo_gpu_p2p_release(struct kolo_gpu_p2p *p2p)
{
    uint32_t *flag = (uint32_t *)(void *)(p2p->host + (p2p->flags - p2p->words));
    pthread_mutex_lock(&p2p->lock);
    for (int r = 0; r < p2p->nranks; r++) {
        store_64(p2p, p2p->words + (size_t)r * sizeof(struct words), INT64_MAX);
    }
    for (size_t i = 0; i < 2 * p2p->graphs; i++) {
        __atomic_store_n(&flag[i], 1, __ATOMIC_RELEASE);
    }
    for (const struct kolo_gpu_p2p_pending *p = p2p->first; p != NULL; p = p->next) {
        if (!p->end.captured) {
            store_64(p2p, p->end.taken, p->end.value);
        }
    }
    pthread_mutex_unlock(&p2p->lock);
}
