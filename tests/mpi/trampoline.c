// SPDX-License-Identifier: Apache-2.0
/* What XLA calls, as XLA calls it, on three ranks or more. Prints "right" on each rank. */
#include "mpi/trampoline/trampoline.h"

#include <complex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 8, COUNT = 5, LONG_BYTES = 100000 };

static int rank, size;
static tramp_handle comm;

static void expect(bool is_right, const char *what)
{
    if (!is_right) {
        (void)printf("rank %d: %s is wrong\n", rank, what);
        exit(1);
    }
}

/* The first half of the ranks, and the others: the order is turned round. */
static void splits(void)
{
    tramp_handle half, none;
    int own, others;
    const int first = size / 2;
    expect(MPIABI_Comm_split(TRAMP_COMM_WORLD, rank < first, -rank, &half) == 0, "a split");
    (void)MPIABI_Comm_rank(half, &own);
    (void)MPIABI_Comm_size(half, &others);
    expect(others == (rank < first ? first : size - first), "the size of a part");
    expect(own == (rank < first ? first : size) - 1 - rank, "the order of a part");
    (void)MPIABI_Comm_free(&half);
    expect(MPIABI_Comm_split(TRAMP_COMM_WORLD, TRAMP_UNDEFINED, 0, &none) == 0 &&
               none == TRAMP_COMM_NULL,
           "a split without a color");
}

static void reductions(void)
{
    int32_t in[COUNT], out[COUNT];
    for (int i = 0; i < COUNT; i++) {
        in[i] = rank + i;
    }
    expect(MPIABI_Allreduce(in, out, COUNT, TRAMP_INT32_T, TRAMP_MAX, comm) == 0 &&
               out[COUNT - 1] == size + COUNT - 2,
           "a maximum");
    expect(MPIABI_Allreduce((void *)TRAMP_IN_PLACE, in, COUNT, TRAMP_INT32_T, TRAMP_SUM, comm) ==
                   0 &&
               in[1] == size * (size + 1) / 2,
           "a sum in place");
}

/* i times i is -1: products of numbers, not of their parts. */
static void complex_products(void)
{
    double complex in[MAX_RANKS], out[MAX_RANKS], product = 1;
    int counts[MAX_RANKS];
    for (int q = 0; q < size; q++) {
        in[q] = (double)q + (double)rank * I;
        counts[q] = 1;
    }
    for (int q = 0; q < size; q++) {
        product *= (double)rank + (double)q * I;
    }
    expect(MPIABI_Reduce_scatter(in, out, counts, TRAMP_C_DOUBLE_COMPLEX, TRAMP_PROD, comm) == 0 &&
               out[0] == product,
           "a scattered product");
    expect(MPIABI_Allreduce(in, out, size, TRAMP_C_DOUBLE_COMPLEX, TRAMP_PROD, comm) == 0 &&
               out[rank] == product,
           "a product");
}

static void gathers(void)
{
    int16_t in[COUNT], out[MAX_RANKS * COUNT];
    for (int i = 0; i < COUNT; i++) {
        in[i] = (int16_t)(100 * rank + i);
    }
    expect(MPIABI_Allgather(in, COUNT, TRAMP_INT16_T, out, COUNT, TRAMP_INT16_T, comm) == 0,
           "a gather");
    for (int i = 0; i < size * COUNT; i++) {
        expect(out[i] == 100 * (i / COUNT) + i % COUNT, "a gathered element");
    }
}

/* Everybody sends to all others, and waits in the order of the requests. */
static void messages(int bytes)
{
    static char in[MAX_RANKS][LONG_BYTES], out[LONG_BYTES];
    tramp_handle requests[2 * MAX_RANKS];
    int n = 0;
    memset(out, rank + 1, sizeof out);
    for (int q = 0; q < size; q++) {
        if (q != rank) {
            expect(MPIABI_Irecv(in[q], bytes, TRAMP_BYTE, q, 0, comm, &requests[n++]) == 0 &&
                       MPIABI_Isend(out, bytes, TRAMP_BYTE, q, 0, comm, &requests[n++]) == 0,
                   "a request");
        }
    }
    for (int i = 0; i < n; i++) {
        expect(MPIABI_Wait(&requests[i], NULL) == 0 && requests[i] == TRAMP_REQUEST_NULL, "a wait");
    }
    for (int q = 0; q < size; q++) {
        expect(q == rank || (in[q][0] == q + 1 && in[q][bytes - 1] == q + 1), "a message");
    }
    const int next = (rank + 1) % size, last = (rank + size - 1) % size;
    struct tramp_status status;
    memset(in, 0, sizeof in);
    expect(MPIABI_Sendrecv(out, bytes, TRAMP_BYTE, next, 0, in[0], bytes, TRAMP_BYTE, last, 0, comm,
                           &status) == 0 &&
               in[0][bytes - 1] == last + 1 && status.source == last,
           "an exchange");
}

static void errors(void)
{
    char text[1024] = "";
    int length;
    const int code = MPIABI_Allreduce(text, text, 1, TRAMP_LOGICAL, TRAMP_SUM, comm);
    (void)MPIABI_Error_string(code, text, &length);
    expect(code != TRAMP_SUCCESS && strstr(text, "is not one that JAX gives") != NULL,
           "the error of a type");
}

int main(void)
{
    int flag;
    (void)MPIABI_Init(NULL, NULL);
    (void)MPIABI_Comm_rank(TRAMP_COMM_WORLD, &rank);
    (void)MPIABI_Comm_size(TRAMP_COMM_WORLD, &size);
    expect(MPIABI_Is_thread_main(&flag) == 0 && flag, "the main thread");
    expect(MPIABI_Comm_split(TRAMP_COMM_WORLD, 1, rank, &comm) == 0, "a copy of the world");
    splits();
    reductions();
    complex_products();
    gathers();
    messages(64);
    messages(LONG_BYTES);
    errors();
    (void)MPIABI_Finalize();
    (void)MPIABI_Comm_free(&comm); /* as XLA does */
    (void)printf("right\n");
    return 0;
}
