// SPDX-License-Identifier: Apache-2.0
/* See registry.h. */
#include "gpu/ipc/registry.h"

#include "cuda/ipc.h"
#include "exec/gpu/program/program_layout.h"
#include "gpu/ipc/unix_socket.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum {
    PIECES = 32,  /* allocations that one buffer may lie in */
    LOANS = 1024, /* of a rank, at a time */
    SWEEP_MS = 1000
};

enum kind { LEND, LENT, BACK };
struct message {
    uint32_t kind, by_fd;
    uint32_t piece, pieces; /* LEND: which of how many, */
    uint64_t number;
    uint64_t offset, bytes, total; /* where in the buffer's memory, and of how much */
    uint64_t at;                   /* LENT: where it lies there; 0: it cannot be mapped */
    struct kolo_cuda_ipc handle;
};
_Static_assert(sizeof(struct message) <= KOLO_FDS_BYTES, "one message");

struct letter { /* a message that came while another one was sent */
    struct letter *next;
    struct message message;
    int rank, fd;
};

enum state { NEW, ASKED, THERE, REFUSED };
struct loan { /* made by calls, ended by the thread */
    struct loan *next;
    uint64_t number, bytes;
    enum state state;
    int answers;
    uint64_t there[KOLO_PROGRAM_RANKS];
    unsigned pieces;
    struct kolo_lent piece[]; /* one after the other in memory */
};

struct mapping { /* of another rank's memory; the thread's alone */
    struct mapping *next;
    int rank;
    uint64_t number, total;
    bool by_fd;
    kolo_cuda_address at; /* 0: it could not be mapped */
    unsigned pieces;
    uint64_t offset[PIECES], bytes[PIECES];
};

struct kolo_loans {
    struct kolo_comm *comm;
    const struct kolo_gpu *gpu;
    struct kolo_fds fds;
    int wake; /* an eventfd */
    atomic_bool stop;
    pthread_t thread;
    struct mapping *mappings;    /* the thread's, */
    struct letter *inbox, **end; /* and these */
    double swept_us;

    pthread_mutex_t lock; /* of all below, and of loans' states; not held in calls that wait */
    struct loan *loans;
    int count;
    uint64_t numbers;
    bool told, impatient;
};

static void nap(void)
{
    const struct timespec time = {0, 50 * 1000};
    nanosleep(&time, NULL);
}

static void wake(const struct kolo_loans *l)
{
    const uint64_t one = 1;
    while (write(l->wake, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

/* ---- loans, in calls ---- */

/* Not what a pointer says in this process, where legacy handles cannot be opened. */
static bool is_asked(const struct kolo_loans *l, const struct loan *loan, int q)
{
    const struct kolo_member *member = l->comm->member;
    const int me = l->comm->rank;
    return q != me && (member[q].peer.process != member[me].peer.process || loan->piece[0].by_fd);
}

/* Whether a piece is what it was; where the driver has no answer, it is. */
static bool is_alive(const struct kolo_loans *l, const struct kolo_lent *piece)
{
    unsigned long long id = 0;
    const int error = l->gpu->cuda->pointer_get_attribute(&id, KOLO_CUDA_POINTER_ID, piece->base);
    return error == KOLO_CUDA_OK ? id == piece->id : error != KOLO_CUDA_INVALID_VALUE;
}

static bool are_alive(const struct kolo_loans *l, const struct loan *loan)
{
    bool alive = true;
    for (unsigned i = 0; i < loan->pieces; i++) {
        alive = alive && is_alive(l, &loan->piece[i]);
    }
    return alive;
}

/* `id`: of the memory at `at` now. */
static struct loan *find_loan(const struct kolo_loans *l, uint64_t id, uint64_t at, size_t bytes)
{
    for (struct loan *loan = l->loans; loan != NULL; loan = loan->next) {
        const uint64_t base = loan->piece[0].base;
        bool known = false;
        for (unsigned i = 0; i < loan->pieces; i++) {
            known = known || loan->piece[i].id == id;
        }
        if (known && at >= base && at + bytes <= base + loan->bytes &&
            (loan->pieces == 1 || are_alive(l, loan))) {
            return loan;
        }
    }
    return NULL;
}

/* The allocations that a buffer lies in; 0: they cannot be lent. */
static unsigned find_pieces(const struct kolo_loans *l, uint64_t at, size_t bytes,
                            struct kolo_lent *out)
{
    const struct kolo_cuda *cuda = l->gpu->cuda;
    const enum kolo_lent_way way = kolo_lent_way(cuda, at);
    unsigned count = 0;
    uint64_t next = at;
    do {
        const unsigned most = way == KOLO_LENT_BY_FD ? PIECES : way == KOLO_LENT_BY_HANDLE ? 1 : 0;
        if (count == most || (count > 0 && kolo_lent_way(cuda, next) != way) ||
            !kolo_lent_find(cuda, next, way, &out[count])) {
            return 0;
        }
        next = out[count].base + out[count].bytes;
        count++;
    } while (next < at + bytes);
    return count;
}

static struct loan *begin(struct kolo_loans *l, uint64_t at, size_t bytes)
{
    struct kolo_lent piece[PIECES] = {{.at = 0}};
    const unsigned count = find_pieces(l, at, bytes, piece);
    struct loan *loan =
        count > 0 && l->count < LOANS ? calloc(1, sizeof *loan + count * sizeof *piece) : NULL;
    if (loan == NULL) {
        if (!l->told) {
            KOLO_LOG(INFO, INIT, "GPU %d: %s; calls on it go through slots", l->gpu->ordinal,
                     count > 0 ? "more memory than other processes may map here"
                               : "memory that other processes cannot map (of cudaMallocAsync, "
                                 "managed, or not exportable)");
        }
        l->told = true;
        return NULL;
    }
    memcpy(loan->piece, piece, count * sizeof *piece);
    loan->pieces = count;
    for (unsigned i = 0; i < count; i++) {
        loan->bytes += piece[i].bytes;
    }
    for (int q = 0; q < l->comm->nranks; q++) {
        loan->there[q] = piece[0].base;
    }
    loan->number = ++l->numbers;
    loan->next = l->loans;
    l->loans = loan;
    l->count++;
    wake(l);
    return loan;
}

static bool is_under_way(const struct loan *loan)
{
    return loan != NULL && (loan->state == NEW || loan->state == ASKED);
}

/* Returns what has become of the loan: NULL, it is gone. */
static struct loan *wait_for(struct kolo_loans *l, uint64_t id, uint64_t at, size_t bytes)
{
    const double end_us = kolo_now_us() + KOLO_FDS_MS * 1e3;
    struct loan *loan = NULL;
    while (is_under_way(loan = find_loan(l, id, at, bytes)) && !l->impatient) {
        l->impatient = kolo_now_us() > end_us; /* once is enough */
        pthread_mutex_unlock(&l->lock);
        nap();
        pthread_mutex_lock(&l->lock);
    }
    return loan;
}

bool kolo_loans_find(struct kolo_loans *l, const void *ptr, size_t bytes, bool wait,
                     uint64_t *shift_out)
{
    const kolo_cuda_address at = (uintptr_t)ptr;
    unsigned long long id = 0;
    if (l->gpu->cuda->pointer_get_attribute(&id, KOLO_CUDA_POINTER_ID, at) != KOLO_CUDA_OK) {
        return false;
    }
    pthread_mutex_lock(&l->lock);
    struct loan *loan = find_loan(l, id, at, bytes);
    loan = loan != NULL ? loan : begin(l, at, bytes);
    loan = wait && is_under_way(loan) ? wait_for(l, id, at, bytes) : loan;
    const bool there = loan != NULL && loan->state == THERE;
    for (int q = 0; q < l->comm->nranks && there; q++) {
        shift_out[q] = loan->there[q] - loan->piece[0].base;
    }
    pthread_mutex_unlock(&l->lock);
    return there;
}

/* ---- messages ---- */

static bool keep_one(struct kolo_loans *l)
{
    struct letter *letter = malloc(sizeof *letter);
    if (letter == NULL || !kolo_fds_take(&l->fds, &letter->rank, &letter->message,
                                         sizeof letter->message, &letter->fd)) {
        free(letter);
        return false;
    }
    letter->next = NULL;
    *l->end = letter;
    l->end = &letter->next;
    return true;
}

/* While the receiver has to take others first, which may wait for this rank to take one. */
static bool post(struct kolo_loans *l, int q, const struct message *message, int fd)
{
    const double end_us = kolo_now_us() + KOLO_FDS_MS * 1e3;
    while (!kolo_fds_try(&l->fds, q, message, sizeof *message, fd)) {
        if ((errno != EAGAIN && errno != EINTR && errno != ENOBUFS) || kolo_now_us() > end_us ||
            atomic_load(&l->stop)) {
            return false;
        }
        if (!keep_one(l)) {
            nap();
        }
    }
    return true;
}

/* ---- lending ---- */

static bool lend_piece(struct kolo_loans *l, struct loan *loan, unsigned i)
{
    const struct kolo_lent *piece = &loan->piece[i];
    struct message m = {.kind = LEND,
                        .by_fd = (uint32_t)piece->by_fd,
                        .piece = i,
                        .pieces = loan->pieces,
                        .number = loan->number,
                        .offset = piece->base - loan->piece[0].base,
                        .bytes = piece->bytes,
                        .total = loan->bytes};
    const int fd = piece->by_fd ? kolo_lent_export(l->gpu->cuda, piece) : -1;
    bool lent = piece->by_fd
                    ? fd >= 0
                    : l->gpu->cuda->ipc_get_mem_handle(&m.handle, piece->base) == KOLO_CUDA_OK;
    for (int q = 0; q < l->comm->nranks && lent; q++) {
        lent = !is_asked(l, loan, q) || post(l, q, &m, fd);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return lent;
}

static void take_back(struct kolo_loans *l, const struct loan *loan)
{
    const struct message m = {.kind = BACK, .number = loan->number};
    for (int q = 0; q < l->comm->nranks; q++) {
        if (is_asked(l, loan, q)) {
            (void)post(l, q, &m, -1); /* who does not hear it ends, and with it the mapping */
        }
    }
}

static void refuse(struct kolo_loans *l, struct loan *loan, const char *why, int rank)
{
    pthread_mutex_lock(&l->lock);
    loan->state = REFUSED;
    pthread_mutex_unlock(&l->lock);
    KOLO_LOG(INFO, INIT, "GPU %d: %s rank %d; calls on %zu bytes of memory go through slots",
             l->gpu->ordinal, why, rank, (size_t)loan->bytes);
}

/* The oldest that nobody was asked for. */
static struct loan *next_new(struct kolo_loans *l)
{
    struct loan *found = NULL;
    pthread_mutex_lock(&l->lock);
    for (struct loan *loan = l->loans; loan != NULL; loan = loan->next) {
        found = loan->state == NEW ? loan : found;
    }
    if (found != NULL) {
        found->state = ASKED;
    }
    pthread_mutex_unlock(&l->lock);
    return found;
}

static void lend_new(struct kolo_loans *l)
{
    for (struct loan *loan; (loan = next_new(l)) != NULL;) {
        bool lent = true;
        for (unsigned i = 0; i < loan->pieces && lent; i++) {
            lent = lend_piece(l, loan, i);
        }
        if (!lent) {
            refuse(l, loan, "no handle for the others from", l->comm->rank);
            take_back(l, loan);
        }
    }
}

static void hear(struct kolo_loans *l, int q, const struct message *m)
{
    bool refused = false;
    struct loan *loan = NULL;
    int asked = 0;
    pthread_mutex_lock(&l->lock);
    for (loan = l->loans; loan != NULL && loan->number != m->number;) {
        loan = loan->next;
    }
    for (int r = 0; r < l->comm->nranks && loan != NULL; r++) {
        asked += is_asked(l, loan, r);
    }
    if (loan != NULL && loan->state == ASKED) {
        refused = m->at == 0;
        loan->there[q] = m->at;
        loan->state = ++loan->answers == asked && !refused ? THERE : ASKED;
    }
    pthread_mutex_unlock(&l->lock);
    if (refused) {
        refuse(l, loan, "it is not mapped by", q);
        take_back(l, loan); /* who has mapped it need not */
    }
}

static bool is_time_to_sweep(const struct kolo_loans *l)
{
    bool new = false;
    for (const struct loan *loan = l->loans; loan != NULL; loan = loan->next) {
        new = new || loan->state == NEW;
    }
    return new || kolo_now_us() > l->swept_us + SWEEP_MS * 1e3;
}

/* Loans of memory that is gone; before new ones are made, which may lie there. */
static void sweep(struct kolo_loans *l)
{
    struct loan *gone = NULL;
    pthread_mutex_lock(&l->lock);
    if (!is_time_to_sweep(l)) {
        pthread_mutex_unlock(&l->lock);
        return;
    }
    l->swept_us = kolo_now_us();
    for (struct loan **at = &l->loans; *at != NULL;) {
        struct loan *loan = *at;
        if (loan->state == NEW || are_alive(l, loan)) {
            at = &loan->next;
            continue;
        }
        *at = loan->next;
        l->count--;
        loan->next = gone;
        gone = loan;
    }
    pthread_mutex_unlock(&l->lock);
    while (gone != NULL) {
        struct loan *loan = gone;
        gone = loan->next;
        take_back(l, loan);
        free(loan);
    }
}

/* ---- borrowing ---- */

static void unmap(const struct kolo_loans *l, struct mapping *m)
{
    const struct kolo_cuda *cuda = l->gpu->cuda;
    if (m->at == 0) {
        return;
    }
    if (m->by_fd) {
        for (unsigned i = 0; i < m->pieces; i++) {
            (void)cuda->mem_unmap(m->at + m->offset[i], m->bytes[i]);
        }
        (void)cuda->mem_address_free(m->at, m->total);
    } else {
        (void)cuda->ipc_close_mem_handle(m->at);
    }
    m->at = 0;
    m->pieces = 0;
}

static struct mapping **find_mapping(struct kolo_loans *l, int q, uint64_t number)
{
    struct mapping **at = &l->mappings;
    while (*at != NULL && ((*at)->rank != q || (*at)->number != number)) {
        at = &(*at)->next;
    }
    return at;
}

static void give_back(struct kolo_loans *l, struct mapping **at)
{
    struct mapping *m = *at;
    if (m != NULL) {
        *at = m->next;
        unmap(l, m);
        free(m);
    }
}

/* Its first piece. */
static void start_mapping(const struct kolo_loans *l, struct mapping *map, const struct message *m)
{
    if (!map->by_fd) {
        map->at = kolo_lent_open(l->gpu->cuda, &m->handle);
    } else if (l->gpu->cuda->mem_address_reserve(&map->at, m->total, 0, 0, 0) != KOLO_CUDA_OK) {
        map->at = 0;
    }
}

static void map_piece(const struct kolo_loans *l, struct mapping *map, const struct message *m,
                      int fd)
{
    if (m->piece == 0) {
        start_mapping(l, map, m);
    }
    if (map->at == 0 || !map->by_fd) {
        return;
    }
    if (map->pieces == PIECES || fd < 0 || m->offset + m->bytes > map->total ||
        !kolo_lent_map(l->gpu->cuda, l->gpu->device, fd, map->at + m->offset, m->bytes)) {
        unmap(l, map);
        return;
    }
    map->offset[map->pieces] = m->offset;
    map->bytes[map->pieces++] = m->bytes;
}

static void borrow(struct kolo_loans *l, int q, const struct message *m, int fd)
{
    struct message answer = {.kind = LENT, .number = m->number};
    struct mapping *map = *find_mapping(l, q, m->number);
    if (map == NULL && m->piece == 0) {
        map = calloc(1, sizeof *map);
    }
    if (map != NULL && m->piece == 0) {
        *map = (struct mapping){
            .next = l->mappings, .rank = q, .number = m->number, .total = m->total};
        map->by_fd = m->by_fd != 0;
        l->mappings = map;
    }
    if (map != NULL) {
        map_piece(l, map, m, fd);
    }
    if (m->piece + 1 < m->pieces) {
        return;
    }
    answer.at = map != NULL ? map->at : 0;
    if (answer.at == 0) {
        give_back(l, find_mapping(l, q, m->number));
    } else {
        KOLO_LOG(INFO, INIT, "GPU %d: %zu bytes of rank %d's memory via P2P/%s", l->gpu->ordinal,
                 (size_t)m->total, q, m->by_fd ? "CUMEM" : "IPC");
    }
    (void)post(l, q, &answer, -1);
}

/* ---- the thread ---- */

static bool next_letter(struct kolo_loans *l, struct letter *out)
{
    struct letter *first = l->inbox;
    if (first == NULL) {
        return kolo_fds_take(&l->fds, &out->rank, &out->message, sizeof out->message, &out->fd);
    }
    *out = *first;
    l->inbox = first->next;
    l->end = l->inbox == NULL ? &l->inbox : l->end;
    free(first);
    return true;
}

static void serve(struct kolo_loans *l, const struct letter *letter)
{
    const struct message *m = &letter->message;
    switch (m->kind) {
    case LEND:
        borrow(l, letter->rank, m, letter->fd);
        break;
    case LENT:
        hear(l, letter->rank, m);
        break;
    default:
        give_back(l, find_mapping(l, letter->rank, m->number));
        break;
    }
    if (letter->fd >= 0) {
        (void)close(letter->fd);
    }
}

static void wait_for_work(struct kolo_loans *l)
{
    struct pollfd ready[] = {{.fd = l->fds.socket, .events = POLLIN},
                             {.fd = l->wake, .events = POLLIN}};
    uint64_t count = 0;
    pthread_mutex_lock(&l->lock);
    const int timeout_ms = l->count > 0 ? SWEEP_MS : -1;
    pthread_mutex_unlock(&l->lock);
    (void)poll(ready, KOLO_LENGTH(ready), l->inbox != NULL ? 0 : timeout_ms);
    if ((ready[1].revents & POLLIN) != 0) {
        (void)!read(l->wake, &count, sizeof count);
    }
}

static void *run(void *arg)
{
    struct kolo_loans *l = arg;
    int mode = 2; /* CU_STREAM_CAPTURE_MODE_RELAXED: another thread's capture is not this one's */
    (void)l->gpu->cuda->thread_exchange_stream_capture_mode(&mode);
    const bool entered = kolo_gpu_enter(l->gpu) == KOLO_OK; /* else all that is asked for fails */
    while (!atomic_load(&l->stop)) {
        struct letter letter;
        wait_for_work(l);
        while (!atomic_load(&l->stop) && next_letter(l, &letter)) {
            serve(l, &letter);
        }
        sweep(l);
        lend_new(l);
    }
    if (entered) {
        kolo_gpu_leave(l->gpu);
    }
    return NULL;
}

/* ---- coming up, and going down ---- */

static void loans_free(struct kolo_loans *l)
{
    while (l->loans != NULL) {
        struct loan *loan = l->loans;
        l->loans = loan->next;
        free(loan);
    }
    while (l->inbox != NULL) {
        struct letter letter;
        if (next_letter(l, &letter) && letter.fd >= 0) {
            (void)close(letter.fd);
        }
    }
    while (l->mappings != NULL) {
        struct mapping *m = l->mappings;
        l->mappings = m->next;
        free(m);
    }
    kolo_fds_close(&l->fds);
    if (l->wake >= 0) {
        (void)close(l->wake);
    }
    pthread_mutex_destroy(&l->lock);
    free(l);
}

void kolo_loans_close(struct kolo_loans *l, bool over)
{
    if (l == NULL) {
        return;
    }
    atomic_store(&l->stop, true);
    wake(l);
    pthread_join(l->thread, NULL);
    for (struct mapping *m = l->mappings; over && m != NULL; m = m->next) {
        unmap(l, m);
    }
    loans_free(l);
}

static kolo_status meet(struct kolo_loans *l, bool *up_out)
{
    uint8_t runs = 0, all_run = 0;
    KOLO_TRY(kolo_fds_open(l->comm, &l->fds));
    runs = l->fds.works && l->wake >= 0 && pthread_create(&l->thread, NULL, run, l) == 0;
    *up_out = runs != 0;
    KOLO_TRY(kolo_all_reduce(&runs, &all_run, 1, KOLO_UINT8, KOLO_MIN, l->comm, NULL));
    return all_run != 0 ? KOLO_OK : KOLO_ERR_UNSUPPORTED;
}

kolo_status kolo_loans_open(struct kolo_comm *comm, const struct kolo_gpu *gpu,
                            struct kolo_loans **out)
{
    struct kolo_loans *l = calloc(1, sizeof *l);
    bool runs = false;
    if (l == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for buffers of %d ranks", comm->nranks);
    }
    l->comm = comm;
    l->gpu = gpu;
    l->fds.socket = -1;
    l->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    l->end = &l->inbox;
    pthread_mutex_init(&l->lock, NULL);
    const kolo_status st = meet(l, &runs);
    if (st == KOLO_OK) {
        *out = l;
        return KOLO_OK;
    }
    if (runs) {
        kolo_loans_close(l, true);
    } else {
        loans_free(l);
    }
    return st == KOLO_ERR_UNSUPPORTED ? KOLO_OK : st;
}
