// SPDX-License-Identifier: Apache-2.0
/* See p2p.h. */
#include "gpu/fused/p2p.h"

#include "gpu/stream_ops.h"

#include <stdlib.h>

struct kolo_mail_post {
    struct kolo_mail_post *next; /* the order of the calls */
    uint64_t number;
    struct kolo_letter end;      /* a copy; its words are the post's */
    struct kolo_letter *matched; /* the end itself, while its group is being matched */
};

struct words { /* of a rank, on the GPU: the number of its last post, and what is told of each */
    uint64_t came, taken[KOLO_MAIL_POSTS];
};
struct flags { /* of a message in a graph, on the GPU */
    uint32_t came, taken;
};

struct kolo_mail {
    const struct kolo_gpu *gpu;
    int nranks;
    kolo_cuda_address words, flags; /* struct words[nranks], struct flags[KOLO_MAIL_GRAPHS] */

    pthread_mutex_t lock; /* of all below; not held in calls that enqueue */
    struct kolo_mail_post *first;
    uint64_t posts, posts_of[KOLO_FUSED_RANKS];
    size_t graphs; /* flags taken */
};

/* ---- coming up, and going down ---- */

kolo_status kolo_mail_open(const struct kolo_gpu *gpu, int nranks, struct kolo_mail **out)
{
    const size_t words = (size_t)nranks * sizeof(struct words);
    const size_t bytes = words + KOLO_MAIL_GRAPHS * sizeof(struct flags);
    kolo_cuda_address at = 0;
    KOLO_TRY(KOLO_CUDA(gpu, "cuMemAlloc", mem_alloc(&at, bytes)));
    kolo_status st = KOLO_CUDA(gpu, "cuMemsetD8", memset_d8(at, 0, bytes));
    struct kolo_mail *mail = st == KOLO_OK ? malloc(sizeof *mail) : NULL;
    if (mail == NULL) {
        (void)gpu->cuda->mem_free(at);
        return st != KOLO_OK ? st : kolo_fail(KOLO_ERR_SYSTEM, "out of memory for messages");
    }
    *mail = (struct kolo_mail){.gpu = gpu, .nranks = nranks, .words = at, .flags = at + words};
    pthread_mutex_init(&mail->lock, NULL);
    *out = mail;
    return KOLO_OK;
}

void kolo_mail_close(struct kolo_mail *mail)
{
    if (mail == NULL) {
        return;
    }
    (void)mail->gpu->cuda->mem_free(mail->words);
    while (mail->first != NULL) {
        struct kolo_mail_post *post = mail->first;
        mail->first = post->next;
        free(post);
    }
    pthread_mutex_destroy(&mail->lock);
    free(mail);
}

/* ---- collectives as letters ---- */

struct side { /* what a rank does with its buffer in a collective */
    const struct kolo_gpu_call *call;
    int rank;
    bool is_send;
    const size_t *counts, *displs; /* displs NULL: one block, at the start */
};

static struct kolo_letter block_of(const struct side *side, int peer)
{
    const struct kolo_gpu_call *call = side->call;
    const int q = side->displs != NULL ? peer : side->rank;
    const size_t at = side->displs != NULL ? side->displs[q] * kolo_type_bytes(call->type) : 0;
    char *buf = side->is_send ? (char *)(uintptr_t)call->in : call->out;
    return (struct kolo_letter){.rank = side->rank,
                                .m = {.buf = buf + at,
                                      .count = side->counts[q],
                                      .type = call->type,
                                      .peer = peer,
                                      .tag = KOLO_MAIL_BLOCK,
                                      .is_send = side->is_send},
                                .stream = call->stream};
}

size_t kolo_mail_blocks(const struct kolo_gpu_call *call, int rank, int nranks,
                        struct kolo_letter *out)
{
    const size_t *all = call->counts, *displs = all + nranks;
    const bool root = rank == call->root, to_all = call->coll == KOLO_COLL_ALL_TO_ALL;
    const bool gathers = call->coll == KOLO_COLL_GATHER;
    struct side one = {call, rank, gathers, all, NULL};
    struct side sends = {call, rank, true, all, displs}, recvs = {call, rank, false, all, displs};
    size_t n = 0;
    if (to_all) {
        recvs.counts = all + 2 * nranks;
        recvs.displs = all + 3 * nranks;
    } else {
        out[n++] = block_of(&one, call->root);
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

static size_t bytes_of(const struct kolo_letter *letter)
{
    return letter->m.count * kolo_type_bytes(letter->m.type);
}

static bool fits(const struct kolo_letter *recv, const struct kolo_letter *send)
{
    const bool tag =
        recv->m.tag == send->m.tag || (recv->m.tag == KOLO_ANY_TAG && send->m.tag >= 0);
    return tag && send->m.peer == recv->rank &&
           (recv->m.peer == send->rank || recv->m.peer == KOLO_ANY_SOURCE);
}

static struct kolo_mail_post **find(struct kolo_mail *mail, const struct kolo_letter *letter)
{
    struct kolo_mail_post **at = &mail->first;
    for (; *at != NULL; at = &(*at)->next) {
        const struct kolo_letter *end = &(*at)->end;
        if (end->m.is_send != letter->m.is_send &&
            fits(letter->m.is_send ? end : letter, letter->m.is_send ? letter : end)) {
            break;
        }
    }
    return at;
}

static void put(struct kolo_mail *mail, struct kolo_mail_post *post)
{
    struct kolo_mail_post **at = &mail->first;
    while (*at != NULL && (*at)->number < post->number) {
        at = &(*at)->next;
    }
    post->next = *at;
    *at = post;
}

static void choose_words(struct kolo_mail *mail, struct kolo_letter *letter)
{
    if (letter->captured) {
        letter->came = mail->flags + mail->graphs++ * sizeof(struct flags);
        letter->taken = letter->came + offsetof(struct flags, taken);
        letter->value = 1;
        return;
    }
    letter->value = ++mail->posts_of[letter->rank];
    letter->came = mail->words + (size_t)letter->rank * sizeof(struct words);
    letter->taken = letter->came + offsetof(struct words, taken) +
                    letter->value % KOLO_MAIL_POSTS * sizeof(uint64_t);
}

static kolo_status post(struct kolo_mail *mail, struct kolo_letter *letter)
{
    if (letter->captured && mail->graphs == KOLO_MAIL_GRAPHS) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED,
                         "the graphs of this communicator hold %d messages already, which is all",
                         KOLO_MAIL_GRAPHS);
    }
    struct kolo_mail_post *made = malloc(sizeof *made);
    if (made == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a message");
    }
    choose_words(mail, letter);
    letter->part = KOLO_LETTER_WAITS;
    letter->apart = true;
    *made = (struct kolo_mail_post){.number = ++mail->posts, .end = *letter, .matched = letter};
    put(mail, made);
    return KOLO_OK;
}

static kolo_status check_pair(const struct kolo_letter *letter, const struct kolo_letter *other)
{
    const struct kolo_letter *send = letter->m.is_send ? letter : other;
    const struct kolo_letter *recv = letter->m.is_send ? other : letter;
    const size_t bytes = bytes_of(send), room = bytes_of(recv);
    if (letter->captured != other->captured) {
        return kolo_fail(KOLO_ERR_INVALID,
                         "a graph holds one end of a message from rank %d to rank %d and not the "
                         "other; both or none must be captured",
                         send->rank, recv->rank);
    }
    if (bytes > room || (send->m.tag == KOLO_MAIL_BLOCK && bytes != room)) {
        return kolo_fail(letter == recv && send->m.tag != KOLO_MAIL_BLOCK ? KOLO_ERR_INVALID
                                                                          : KOLO_ERR_MISMATCH,
                         "rank %d sends %zu bytes to rank %d, which has room for %zu", send->rank,
                         bytes, recv->rank, room);
    }
    return KOLO_OK;
}

static kolo_status match(struct kolo_mail *mail, struct kolo_letter *letter)
{
    struct kolo_mail_post **at = find(mail, letter), *other = *at;
    if (other == NULL) {
        return post(mail, letter);
    }
    const bool same_stream = other->end.stream == letter->stream;
    KOLO_TRY(check_pair(letter, &other->end));
    if (same_stream && other->matched == NULL) {
        return kolo_fail(KOLO_ERR_INVALID,
                         "stream %p waits for this message of rank %d already; ranks need streams "
                         "of their own, or both ends in one group",
                         letter->stream, other->end.rank);
    }
    *at = other->next;
    letter->part = KOLO_LETTER_COPIES;
    letter->other = other;
    letter->apart = !same_stream;
    letter->came = other->end.came;
    letter->taken = other->end.taken;
    letter->value = other->end.value;
    if (same_stream) {
        other->matched->part = KOLO_LETTER_NONE;
    }
    return KOLO_OK;
}

/* Words of a group's posts differ, and no wait is of a stream that waits for all others. */
static kolo_status check_waits(const struct kolo_letter *letter, size_t n)
{
    size_t posts[KOLO_FUSED_RANKS] = {0};
    for (size_t i = 0; i < n; i++) {
        const struct kolo_letter *l = &letter[i];
        if (l->part != KOLO_LETTER_NONE && l->apart && (uintptr_t)l->stream <= 1) {
            return kolo_fail(KOLO_ERR_INVALID,
                             "stream is the default stream, which waits for all others; give each "
                             "rank one of its own (cudaStreamNonBlocking), or both ends of a "
                             "message in one group");
        }
        posts[l->rank] += l->part != KOLO_LETTER_COPIES;
        if (posts[l->rank] > KOLO_MAIL_POSTS) {
            return kolo_fail(KOLO_ERR_UNSUPPORTED,
                             "a group has more than %d messages of GPU memory of rank %d",
                             KOLO_MAIL_POSTS, l->rank);
        }
    }
    return KOLO_OK;
}

static void unmatch(struct kolo_mail *mail, struct kolo_letter *letter, size_t n)
{
    for (size_t i = 0; i < n; i++) { /* posts of others go back, own ones go */
        if (letter[i].other != NULL) {
            put(mail, letter[i].other);
            letter[i].other = NULL;
        }
    }
    for (struct kolo_mail_post **at = &mail->first; *at != NULL;) {
        struct kolo_mail_post *p = *at;
        if (p->matched == NULL) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        free(p);
    }
}

static void tell(const struct kolo_letter *send, const struct kolo_letter *recv)
{
    if (recv->m.info != NULL) {
        recv->m.info->source = send->rank;
        recv->m.info->tag = send->m.tag;
        recv->m.info->bytes = bytes_of(send);
    }
}

static kolo_status match_all(struct kolo_mail *mail, struct kolo_letter *letter, size_t n)
{
    kolo_status st = KOLO_OK;
    for (size_t i = 0; i < n && st == KOLO_OK; i++) {
        st = match(mail, &letter[i]);
    }
    st = st == KOLO_OK ? check_waits(letter, n) : st;
    if (st != KOLO_OK) {
        unmatch(mail, letter, n);
        return st;
    }
    for (size_t i = 0; i < n; i++) {
        if (letter[i].other != NULL) {
            struct kolo_mail_post *other = letter[i].other;
            tell(letter[i].m.is_send ? &letter[i] : &other->end,
                 letter[i].m.is_send ? &other->end : &letter[i]);
            other->matched = NULL;
        }
    }
    for (struct kolo_mail_post *p = mail->first; p != NULL; p = p->next) {
        p->matched = NULL;
    }
    return KOLO_OK;
}

/* ---- enqueueing ---- */

static void say(struct kolo_stream_ops *ops, const struct kolo_letter *l, kolo_cuda_address at)
{
    kolo_stream_ops_add(ops, l->stream, l->captured ? KOLO_CUDA_WRITE_32 : KOLO_CUDA_WRITE_64, at,
                        l->value);
}

static void await(struct kolo_stream_ops *ops, const struct kolo_letter *l, kolo_cuda_address at)
{
    kolo_stream_ops_add(ops, l->stream, l->captured ? KOLO_CUDA_WAIT_32 : KOLO_CUDA_WAIT_64, at,
                        l->value);
    if (l->captured) {
        kolo_stream_ops_add(ops, l->stream, KOLO_CUDA_WRITE_32, at, 0);
    }
}

static kolo_status copy(const struct kolo_mail *mail, struct kolo_stream_ops *ops,
                        const struct kolo_letter *l)
{
    const struct kolo_letter *other = &l->other->end;
    const struct kolo_letter *from = l->m.is_send ? l : other, *to = l->m.is_send ? other : l;
    if (l->apart) {
        await(ops, l, l->came);
    }
    KOLO_TRY(kolo_stream_ops_flush(ops));
    if (bytes_of(from) > 0 && from->m.buf != to->m.buf) {
        KOLO_TRY(KOLO_CUDA(mail->gpu, "cuMemcpyDtoDAsync",
                           memcpy_dtod_async((uintptr_t)to->m.buf, (uintptr_t)from->m.buf,
                                             bytes_of(from), l->stream)));
    }
    if (l->apart) {
        say(ops, l, l->taken);
    }
    return KOLO_OK;
}

static kolo_status enqueue_all(const struct kolo_mail *mail, const struct kolo_letter *letter,
                               size_t n)
{
    struct kolo_stream_ops ops = {.cuda = mail->gpu->cuda};
    for (size_t i = 0; i < n; i++) {
        if (letter[i].part == KOLO_LETTER_WAITS) {
            say(&ops, &letter[i], letter[i].came);
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (letter[i].part == KOLO_LETTER_COPIES) {
            KOLO_TRY(copy(mail, &ops, &letter[i]));
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (letter[i].part == KOLO_LETTER_WAITS) {
            await(&ops, &letter[i], letter[i].taken);
        }
    }
    return kolo_stream_ops_flush(&ops);
}

kolo_status kolo_mail_enqueue(struct kolo_mail *mail, struct kolo_letter *letter, size_t n)
{
    pthread_mutex_lock(&mail->lock);
    kolo_status st = match_all(mail, letter, n);
    pthread_mutex_unlock(&mail->lock);
    KOLO_TRY(st);
    st = enqueue_all(mail, letter, n);
    pthread_mutex_lock(&mail->lock);
    for (size_t i = 0; i < n; i++) {
        if (letter[i].other != NULL && st == KOLO_OK) {
            free(letter[i].other);
        } else if (letter[i].other != NULL) { /* nobody may tell it but kolo_mail_release() */
            put(mail, letter[i].other);
        }
    }
    pthread_mutex_unlock(&mail->lock);
    return st;
}

/* ---- giving up ---- */

kolo_status kolo_mail_release(struct kolo_mail *mail, kolo_cuda_stream stream)
{
    struct kolo_stream_ops ops = {.cuda = mail->gpu->cuda};
    pthread_mutex_lock(&mail->lock);
    for (int r = 0; r < mail->nranks; r++) {
        kolo_stream_ops_add(&ops, stream, KOLO_CUDA_WRITE_64,
                            mail->words + (size_t)r * sizeof(struct words), INT64_MAX);
    }
    for (size_t i = 0; i < 2 * mail->graphs; i++) {
        kolo_stream_ops_add(&ops, stream, KOLO_CUDA_WRITE_32, mail->flags + i * sizeof(uint32_t),
                            1);
    }
    for (const struct kolo_mail_post *p = mail->first; p != NULL; p = p->next) {
        if (!p->end.captured) {
            kolo_stream_ops_add(&ops, stream, KOLO_CUDA_WRITE_64, p->end.taken, p->end.value);
        }
    }
    pthread_mutex_unlock(&mail->lock);
    return kolo_stream_ops_flush(&ops);
}
