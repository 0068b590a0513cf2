// SPDX-License-Identifier: Apache-2.0
/* A short job that uses a little of everything: what tests of limits and failures run.
 *
 * Prints "right", and ends with 0, or the error's status and text, and ends with 1; where a result
 * is wrong it ends with 3.
 *
 * usage: short_job [TIMEOUT_MS] */
#include <kolo/kolo.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { FEW = 2, MANY = 100 * 1000, SHARED = 20 * 1000 };

#define TRY(call)                                                                                  \
    do {                                                                                           \
        const kolo_status st_ = (call);                                                            \
        if (st_ != KOLO_OK) {                                                                      \
            return st_;                                                                            \
        }                                                                                          \
    } while (0)

static bool wrong;

/* The sum over all ranks of elements that differ by rank and place. */
static kolo_status sum(struct kolo_comm *comm, int *data, int count)
{
    const int n = kolo_comm_size(comm), me = kolo_comm_rank(comm);
    for (int i = 0; i < count; i++) {
        data[i] = i * (me + 1);
    }
    TRY(kolo_all_reduce(data, data, (size_t)count, KOLO_INT32, KOLO_SUM, comm, NULL));
    for (int i = 0; i < count; i++) {
        wrong = wrong || data[i] != i * (n * (n + 1) / 2);
    }
    return KOLO_OK;
}

static kolo_status pass_on(struct kolo_comm *comm, int *data, int count)
{
    const int n = kolo_comm_size(comm), me = kolo_comm_rank(comm), from = (me + n - 1) % n;
    for (int i = 0; i < count; i++) {
        data[i] = i + me;
    }
    TRY(kolo_group_begin());
    const kolo_status sent = kolo_send(data, (size_t)count, KOLO_INT32, (me + 1) % n, comm, NULL);
    const kolo_status received =
        kolo_recv(data + count, (size_t)count, KOLO_INT32, from, comm, NULL);
    TRY(kolo_group_end());
    TRY(sent);
    TRY(received);
    for (int i = 0; i < count; i++) {
        wrong = wrong || data[count + i] != i + from;
    }
    return KOLO_OK;
}

static kolo_status in_part(struct kolo_comm *comm, int *data)
{
    struct kolo_comm *part = NULL;
    TRY(kolo_comm_split(comm, kolo_comm_rank(comm) % 2, 0, NULL, &part));
    const kolo_status st = sum(part, data, FEW);
    kolo_comm_destroy(part);
    return st;
}

static kolo_status work(struct kolo_comm *comm, int *own, int *shared)
{
    TRY(sum(comm, own, FEW));
    TRY(sum(comm, own, MANY));
    TRY(sum(comm, shared, FEW));
    TRY(sum(comm, shared, SHARED));
    TRY(pass_on(comm, own, FEW));
    TRY(pass_on(comm, own, MANY / 2));
    TRY(in_part(comm, own));
    return kolo_barrier(comm, NULL);
}

static kolo_status run(int timeout_ms)
{
    struct kolo_comm *comm = NULL;
    struct kolo_config config = KOLO_CONFIG_INIT;
    static int own[MANY];
    void *shared = NULL;
    config.timeout_ms = timeout_ms;
    kolo_status st = kolo_comm_create_env(&config, &comm);
    if (st == KOLO_OK) {
        st = kolo_mem_alloc(SHARED * sizeof(int), &shared);
    }
    st = st == KOLO_OK ? work(comm, own, shared) : st;
    if (st == KOLO_OK) {
        (void)puts(wrong ? "wrong" : "right");
    } else { /* destroying it may fail, too, and say so */
        (void)printf("%s %s\n", kolo_status_name(st), kolo_error_text());
    }
    kolo_comm_destroy(comm);
    kolo_mem_free(shared);
    return st;
}

int main(int argc, char **argv)
{
    const kolo_status st = run(argc > 1 ? atoi(argv[1]) : 10000);
    return st != KOLO_OK ? 1 : wrong ? 3 : 0;
}
