// SPDX-License-Identifier: Apache-2.0
// covers: src/mpi
/* Random mixtures of messages and collectives: the first are MPI's, the second mostly kolo's.
 *
 * Every rank draws the same numbers, so all know the whole order. A message begins in one round and
 * ends in a later one. Its receive may be posted only at its end. Between, the ranks call collectives
 * and begin other messages. MPI promises that each such order ends. All data is checked.
 *
 * usage: mixture SEED ROUNDS. Prints "right". */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 6, ROOM = 1 << 18, MOST = 20000 };

static uint64_t state;
static int rank, size, wrong;
static MPI_Comm comms[3]; /* all ranks; a copy; the ranks of even or of odd number */

static unsigned draw(unsigned below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % below;
}

static void check(int right, const char *what, int round)
{
    if (!right && wrong++ < 5) {
        printf("wrong: %s in round %d on rank %d of %d\n", what, round, rank, size);
    }
}

/* ---- messages ---- */

static struct message {
    int is_open, from, to, bytes, tag;
    int receives_late; /* the receive is posted when the message ends */
    int asks;          /* its ranks call MPI_Test() until it has ended */
    MPI_Request request;
    unsigned char data[ROOM];
} messages[SLOTS];

static unsigned char byte_of(const struct message *m, int i)
{
    return (unsigned char)(m->tag * 31 + i * 7 + m->from);
}

static void begin(struct message *m, int round)
{
    m->is_open = 1;
    m->from = (int)draw((unsigned)size);
    m->to = (m->from + 1 + (int)draw((unsigned)size - 1)) % size;
    m->bytes = draw(2) ? (int)draw(64) : (int)draw(ROOM);
    m->tag = round % 30000;
    m->receives_late = draw(3) > 0;
    m->asks = (int)draw(2);
    const int is_synchronous = draw(4) == 0;
    m->request = MPI_REQUEST_NULL;
    if (rank == m->from) {
        for (int i = 0; i < m->bytes; i++) {
            m->data[i] = byte_of(m, i);
        }
        (is_synchronous ? MPI_Issend : MPI_Isend)(m->data, m->bytes, MPI_BYTE, m->to, m->tag,
                                                  MPI_COMM_WORLD, &m->request);
    } else if (rank == m->to && !m->receives_late) {
        MPI_Irecv(m->data, m->bytes, MPI_BYTE, m->from, m->tag, MPI_COMM_WORLD, &m->request);
    }
}

static void end(struct message *m, int round)
{
    int done = 0, right = 1;
    m->is_open = 0;
    if (rank == m->to && m->receives_late) {
        MPI_Recv(m->data, m->bytes, MPI_BYTE, m->from, m->tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    while (m->asks && !done) {
        MPI_Test(&m->request, &done, MPI_STATUS_IGNORE);
    }
    MPI_Wait(&m->request, MPI_STATUS_IGNORE);
    for (int i = 0; i < m->bytes && rank == m->to; i++) {
        right = right && m->data[i] == byte_of(m, i);
    }
    check(right, "a message", round);
}

/* ---- collectives ---- */

static int in[MOST], out[MOST * 8];

/* A sum that MPI makes while other calls run. */
static struct {
    MPI_Request request;
    int value, sum;
} background = {.request = MPI_REQUEST_NULL};

static void turn_background(int round)
{
    if (background.request != MPI_REQUEST_NULL) {
        MPI_Wait(&background.request, MPI_STATUS_IGNORE);
        check(background.sum == size * (size - 1) / 2, "a sum in the background", round);
        return;
    }
    background.value = rank;
    background.sum = -1;
    MPI_Iallreduce(&background.value, &background.sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD,
                   &background.request);
}

static void collective(int round)
{
    const MPI_Comm comm = comms[draw(3)];
    const unsigned which = draw(7), first = draw(1 << 20);
    int me = 0, n = 0, right = 1;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &n);
    const int count = draw(3) ? (int)draw(16) + 1 : (int)draw(MOST / 8) + 1;
    const int root = (int)(first % (unsigned)n);
    for (int i = 0; i < count; i++) {
        in[i] = me + i;
    }
    switch (which) {
    case 0:
        MPI_Barrier(comm);
        return;
    case 1:
        MPI_Allreduce(in, out, count, MPI_INT, MPI_SUM, comm);
        right = out[count - 1] == n * (n - 1) / 2 + n * (count - 1);
        break;
    case 2:
        MPI_Bcast(in, count, MPI_INT, root, comm);
        right = in[count - 1] == root + count - 1;
        break;
    case 3:
        MPI_Reduce(in, out, count, MPI_INT, MPI_MAX, root, comm);
        right = me != root || out[count - 1] == n - 1 + count - 1;
        break;
    case 4:
        MPI_Allgather(in, count, MPI_INT, out, count, MPI_INT, comm);
        for (int i = 0; i < n; i++) {
            right = right && out[(i + 1) * count - 1] == i + count - 1;
        }
        break;
    case 5:
        MPI_Gather(in, count, MPI_INT, out, count, MPI_INT, root, comm);
        right = me != root || out[n * count - 1] == n - 1 + count - 1;
        break;
    default:
        for (int i = 0; i < n * 4; i++) {
            in[i] = me * 100 + i / 4;
        }
        MPI_Alltoall(in, 4, MPI_INT, out, 4, MPI_INT, comm);
        right = out[4 * n - 1] == (n - 1) * 100 + me;
        break;
    }
    check(right, "a collective", round);
}

static void do_round(int round)
{
    struct message *m = &messages[draw(SLOTS)];
    switch (draw(8)) {
    case 0:
        turn_background(round);
        break;
    case 1:
    case 2:
    case 3:
        if (m->is_open) {
            end(m, round);
        } else {
            begin(m, round);
        }
        break;
    default:
        collective(round);
        break;
    }
}

int main(int argc, char **argv)
{
    int all = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    state = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    const int rounds = argc > 2 ? atoi(argv[2]) : 200;
    if (size < 2 || size > 8) {
        fprintf(stderr, "mixture: 2 to 8 ranks\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    comms[0] = MPI_COMM_WORLD;
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &comms[2]);
    /* The halves may have different sizes: what is drawn depends on no size but the world's. */
    for (int round = 0; round < rounds; round++) {
        do_round(round);
    }
    for (int i = 0; i < SLOTS; i++) {
        if (messages[i].is_open) {
            end(&messages[i], rounds);
        }
    }
    if (background.request != MPI_REQUEST_NULL) {
        turn_background(rounds);
    }
    MPI_Reduce(&wrong, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        puts(all == 0 ? "right" : "wrong");
    }
    MPI_Comm_free(&comms[1]);
    MPI_Comm_free(&comms[2]);
    MPI_Finalize();
    return rank == 0 && all != 0;
}
