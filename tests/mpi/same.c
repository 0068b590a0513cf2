// SPDX-License-Identifier: Apache-2.0
// covers: src/mpi
/* Random collectives over kolo give what MPI's own give.
 *
 * Every call is made twice: by its MPI name, which kolo may serve, and by its PMPI name (an all-gather
 * by messages). The bytes of all ranks' results must be equal. Values are small whole numbers, so that
 * sums are exact in any order. Ranks draw the arguments from the same numbers; types of equal
 * signature differ by rank.
 *
 * usage: same SEED ROUNDS */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 3000, ROOM = 1 << 20, MAX_RANKS = 16 };

static char send[ROOM], mine[ROOM], theirs[ROOM];
static uint64_t state;
static MPI_Comm comm;
static int rank, size, wrong;

static unsigned draw(unsigned below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % below;
}

/* ---- types ---- */

struct kind {
    MPI_Datatype type;
    size_t bytes;
    int is_float, is_pair;
};

static struct kind kinds[24];
static int nkinds;

static void add(MPI_Datatype type, size_t bytes, int is_float, int is_pair)
{
    kinds[nkinds++] = (struct kind){type, bytes, is_float, is_pair};
}

static void list_kinds(void)
{
    add(MPI_INT, sizeof(int), 0, 0);
    add(MPI_DOUBLE, sizeof(double), 1, 0);
    add(MPI_FLOAT, sizeof(float), 1, 0);
    add(MPI_SIGNED_CHAR, 1, 0, 0);
    add(MPI_UNSIGNED_CHAR, 1, 0, 0);
    add(MPI_SHORT, sizeof(short), 0, 0);
    add(MPI_UNSIGNED_SHORT, sizeof(short), 0, 0);
    add(MPI_UNSIGNED, sizeof(unsigned), 0, 0);
    add(MPI_LONG, sizeof(long), 0, 0);
    add(MPI_UNSIGNED_LONG, sizeof(long), 0, 0);
    add(MPI_LONG_LONG_INT, sizeof(long long), 0, 0);
    add(MPI_INT64_T, 8, 0, 0);
    add(MPI_UINT16_T, 2, 0, 0);
    add(MPI_C_FLOAT_COMPLEX, 2 * sizeof(float), 1, 0);
    add(MPI_2INT, 2 * sizeof(int), 0, 1);
    add(MPI_FLOAT_INT, sizeof(struct {
            float value;
            int index;
        }),
        1, 1);
    add(MPI_DOUBLE_INT, sizeof(struct {
            double value;
            int index;
        }),
        1, 1);
}

/* `count` elements of small numbers; gaps keep the bytes that they had. */
static void fill(char *at, const struct kind *kind, size_t count)
{
    for (size_t i = 0; i < count; i++, at += kind->bytes) {
        const int value = (int)draw(4);
        if (kind->is_pair) {
            const int index = (int)draw(5);
            if (kind->type == MPI_DOUBLE_INT) {
                *(double *)(void *)at = value;
                ((int *)(void *)at)[2] = index;
            } else {
                if (kind->is_float) {
                    *(float *)(void *)at = (float)value;
                } else {
                    *(int *)(void *)at = value;
                }
                ((int *)(void *)at)[1] = index;
            }
        } else if (kind->is_float) {
            const size_t unit = kind->type == MPI_DOUBLE ? sizeof(double) : sizeof(float);
            for (size_t j = 0; j < kind->bytes / unit; j++) {
                if (unit == sizeof(double)) {
                    ((double *)(void *)at)[j] = value;
                } else {
                    ((float *)(void *)at)[j] = (float)(value + (int)j);
                }
            }
        } else {
            memset(at, 0, kind->bytes);
            at[0] = (char)value;
        }
    }
}

/* Ranks draw different data, and go on with the same numbers. */
static void fill_own(char *at, const struct kind *kind, size_t count)
{
    const uint64_t kept = state;
    state += (uint64_t)(rank + 1) * 0x9E3779B97F4A7C15u;
    fill(at, kind, count);
    state = kept;
}

/* ---- layouts: types of the same bytes ---- */

struct layout {
    MPI_Datatype type;
    int count;
    int is_made;
};

/* `n` ints, as this rank likes to describe them. `form` 0: as they are. */
static struct layout layout_of(int n, unsigned form)
{
    struct layout l = {MPI_INT, n, 0};
    switch (form % 5) {
    case 1:
        if (n > 0) {
            MPI_Type_contiguous(n, MPI_INT, &l.type);
            l.count = 1;
            l.is_made = 1;
        }
        break;
    case 2: /* with gaps */
        MPI_Type_create_resized(MPI_INT, 0, 3 * (MPI_Aint)sizeof(int), &l.type);
        l.is_made = 1;
        break;
    case 3: /* as many bytes as its extent, but in another order */
        if (n % 2 == 0) {
            const int lengths[] = {1, 1}, places[] = {1, 0};
            MPI_Type_indexed(2, lengths, places, MPI_INT, &l.type);
            l.count = n / 2;
            l.is_made = 1;
        }
        break;
    case 4:
        if (n % 3 == 0) {
            MPI_Type_vector(3, 1, 2, MPI_INT, &l.type);
            l.count = n / 3;
            l.is_made = 1;
        }
        break;
    default:
        break;
    }
    if (l.is_made) {
        MPI_Type_commit(&l.type);
    }
    return l;
}

/* About `n` ints' bytes of a type that only moves: no reduction takes it. */
static struct layout moved_layout(int n, unsigned which)
{
    const struct layout layouts[] = {
        {MPI_CHAR, 4 * n, 0}, {MPI_WCHAR, n, 0}, {MPI_LONG_DOUBLE, n / 4, 0}, {MPI_BYTE, 4 * n, 0}};
    return layouts[which % 4];
}

static void free_layout(struct layout *l)
{
    if (l->is_made) {
        MPI_Type_free(&l->type);
    }
}

/* ---- comparison ---- */

static void begin(void)
{
    memset(mine, 0x5a, ROOM);
    memset(theirs, 0x5a, ROOM);
}

static void compare(const char *what, int rc, int pmpi_rc)
{
    if (rc != pmpi_rc || memcmp(mine, theirs, ROOM) != 0) {
        size_t at = 0;
        while (at < ROOM && mine[at] == theirs[at]) {
            at++;
        }
        wrong++;
        if (wrong < 5) {
            printf("wrong: %s on rank %d of %d: result %d, not %d; byte %zu is %d, not %d\n", what,
                   rank, size, rc, pmpi_rc, at, at < ROOM ? mine[at] : 0,
                   at < ROOM ? theirs[at] : 0);
        }
    }
}

/* ---- reductions ---- */

static MPI_Op draw_op(const struct kind *kind)
{
    static int turn;
    turn++;
    if (kind->is_pair) {
        return draw(2) ? MPI_MINLOC : MPI_MAXLOC;
    }
    if (kind->type == MPI_C_FLOAT_COMPLEX) {
        return MPI_SUM;
    }
    switch (draw(kind->is_float ? 4 : 10)) {
    case 0:
        return MPI_SUM;
    case 1:
        return MPI_MAX;
    case 2:
        return MPI_MIN;
    case 3:
        return MPI_PROD;
    case 4:
        return MPI_LAND;
    case 5:
        return MPI_LOR;
    case 6:
        return MPI_LXOR;
    case 7:
        return MPI_BAND;
    case 8:
        return MPI_BOR;
    default:
        return MPI_BXOR;
    }
}

/* A pair of {double, int} has bytes that no rank writes: they are of no account. */
static void clear_gaps(const struct kind *kind)
{
    for (size_t i = 0; kind->type == MPI_DOUBLE_INT && i + 16 <= ROOM; i += 16) {
        memset(mine + i + 12, 0, 4);
        memset(theirs + i + 12, 0, 4);
    }
}

static void reduction(void)
{
    const struct kind *kind = &kinds[draw((unsigned)nkinds)];
    const int in_place = (int)draw(2), which = (int)draw(4), root = (int)draw((unsigned)size);
    const int n = (int)(draw(4) ? draw(40) : draw(MOST));
    const size_t off = draw(4) == 0 && kind->bytes < 9 && !kind->is_pair ? draw(2) : 0;
    const MPI_Op op = draw_op(kind);
    int counts[MAX_RANKS], total = 0, a = 0, b = 0;
    begin();
    for (int i = 0; i < size; i++) {
        counts[i] = which == 2 ? n : (int)draw(50);
        total += counts[i];
    }
    const int all = which >= 2 ? total : n;
    fill_own(send, kind, (size_t)all);
    char *const m = mine + (rank == 0 ? off : 0), *const t = theirs + (rank == 0 ? off : 0);
    if (in_place) {
        memcpy(m, send, (size_t)all * kind->bytes);
        memcpy(t, send, (size_t)all * kind->bytes);
    }
    const void *const from = in_place ? MPI_IN_PLACE : (const void *)send;
    const void *const root_from = in_place && rank == root ? MPI_IN_PLACE : (const void *)send;
    switch (which) {
    case 0:
        a = MPI_Allreduce(from, m, n, kind->type, op, comm);
        b = PMPI_Allreduce(from, t, n, kind->type, op, comm);
        break;
    case 1:
        a = MPI_Reduce(root_from, m, n, kind->type, op, root, comm);
        b = PMPI_Reduce(root_from, t, n, kind->type, op, root, comm);
        break;
    case 2:
        a = MPI_Reduce_scatter_block(from, m, n, kind->type, op, comm);
        b = PMPI_Reduce_scatter_block(from, t, n, kind->type, op, comm);
        break;
    default:
        a = MPI_Reduce_scatter(from, m, counts, kind->type, op, comm);
        b = PMPI_Reduce_scatter(from, t, counts, kind->type, op, comm);
        break;
    }
    if (in_place && which >= 2) { /* behind the result the input may be anything */
        const size_t block = (size_t)(which == 2 ? n : counts[rank]) * kind->bytes;
        memset(m + block, 0, (size_t)all * kind->bytes - block);
        memset(t + block, 0, (size_t)all * kind->bytes - block);
    }
    if (off == 0) {
        clear_gaps(kind);
    }
    static const char *const names[] = {"Allreduce", "Reduce", "Reduce_scatter_block",
                                        "Reduce_scatter"};
    compare(names[which], a, b);
}

/* ---- moves ---- */

static void fill_bytes(char *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        at[i] = (char)draw(256);
    }
}

/* An all-gather of MPI's messages. Intel MPI 2021.19's own is wrong on some processors if the ranks
 * describe their bytes by different types, of which one has another order. */
static int allgather_by_messages(const void *from, const struct layout *in,
                                 const struct layout *out)
{
    MPI_Aint lb = 0, extent = 0;
    int rc = MPI_Type_get_extent(out->type, &lb, &extent);
    for (int i = 0; i < size && from != MPI_IN_PLACE && rc == MPI_SUCCESS; i++) {
        const int to = (rank + i) % size, source = (rank + size - i) % size;
        rc = MPI_Sendrecv(from, in->count, in->type, to, 0, theirs + extent * out->count * source,
                          out->count, out->type, source, 0, comm, MPI_STATUS_IGNORE);
    }
    return from == MPI_IN_PLACE
               ? PMPI_Allgather(from, 0, MPI_INT, theirs, out->count, out->type, comm)
               : rc;
}

static void move(void)
{
    const int n = 6 * (int)(draw(3) ? draw(20) : draw(600)), root = (int)draw((unsigned)size);
    const int which = (int)draw(5), in_place = (int)draw(3) == 0;
    const unsigned forms = draw(4) ? 0 : draw(1000) + 1; /* 0: all ranks have the same types */
    const unsigned in_form = forms == 0 ? 0 : (forms + (unsigned)rank) % 5;
    const unsigned out_form = forms == 0 ? 0 : (forms + 3 * (unsigned)rank + 2) % 5;
    struct layout in = layout_of(n, in_form), out = layout_of(n, out_form);
    if (forms == 0 && draw(2) == 0) {
        in = out = moved_layout(n, draw(4));
    }
    const uint64_t kept = state;
    int a = 0, b = 0;
    begin();
    state += (uint64_t)(rank + 7) * 0x9E3779B97F4A7C15u;
    fill_bytes(send, sizeof send / 4);
    if (in_place || which == 0) {
        fill_bytes(mine, ROOM / 4);
        memcpy(theirs, mine, ROOM / 4);
    }
    state = kept;
    const void *const from = in_place ? MPI_IN_PLACE : (const void *)send;
    const void *const root_from = in_place && rank == root ? MPI_IN_PLACE : (const void *)send;
    void *const root_m = in_place && rank == root ? MPI_IN_PLACE : (void *)mine;
    void *const root_t = in_place && rank == root ? MPI_IN_PLACE : (void *)theirs;
    switch (which) {
    case 0:
        a = MPI_Bcast(mine, out.count, out.type, root, comm);
        b = PMPI_Bcast(theirs, out.count, out.type, root, comm);
        break;
    case 1:
        a = MPI_Allgather(from, in.count, in.type, mine, out.count, out.type, comm);
        b = allgather_by_messages(from, &in, &out);
        break;
    case 2: /* what does not count is senseless */
        a = MPI_Gather(root_from, in.count, in.type, rank == root ? mine : NULL,
                       rank == root ? out.count : -1, rank == root ? out.type : MPI_DATATYPE_NULL,
                       root, comm);
        b = PMPI_Gather(root_from, in.count, in.type, rank == root ? theirs : NULL,
                        rank == root ? out.count : -1, rank == root ? out.type : MPI_DATATYPE_NULL,
                        root, comm);
        break;
    case 3:
        a = MPI_Scatter(send, in.count, in.type, root_m, out.count, out.type, root, comm);
        b = PMPI_Scatter(send, in.count, in.type, root_t, out.count, out.type, root, comm);
        break;
    default:
        if (in_place) { /* some MPI libraries want one type everywhere then */
            a = MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, mine, n, MPI_INT, comm);
            b = PMPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, theirs, n, MPI_INT, comm);
        } else {
            a = MPI_Alltoall(send, in.count, in.type, mine, out.count, out.type, comm);
            b = PMPI_Alltoall(send, in.count, in.type, theirs, out.count, out.type, comm);
        }
        break;
    }
    static const char *const names[] = {"Bcast", "Allgather", "Gather", "Scatter", "Alltoall"};
    compare(names[which], a, b);
    free_layout(&in);
    free_layout(&out);
}

/* Counts of every pair of ranks, the same on all; displacements of this rank alone. */
static int counts_of[MAX_RANKS][MAX_RANKS];

static void draw_counts(int most)
{
    const int are_equal = draw(3) == 0, one = 1 + (int)draw((unsigned)most - 1);
    for (int i = 0; i < size; i++) {
        for (int j = 0; j < size; j++) {
            const int each = draw(4) ? (int)draw((unsigned)most) : 0;
            counts_of[i][j] = are_equal ? one : each;
        }
    }
}

/* Blocks in a mixed order, with gaps, or one after another. */
static void place(const int *counts, int *displs, int dense, int step)
{
    int next = 0;
    for (int i = 0; i < size; i++) {
        const int r = dense ? i : (i + rank) % size;
        displs[r] = next;
        next += counts[r] * step + (dense ? 0 : (r * 7 + rank) % 4);
    }
}

static void move_v(void)
{
    int mine_counts[MAX_RANKS], in_displs[MAX_RANKS], out_counts[MAX_RANKS], out_displs[MAX_RANKS];
    const int which = (int)draw(4), root = (int)draw((unsigned)size);
    const int denser = (int)draw(3), dense = denser == 0 || (denser == 1 && rank % 2 == 0);
    const int in_place = (int)draw(4) == 0, gaps = draw(4) == 0;
    const uint64_t own = draw(1 << 20);
    MPI_Datatype type = MPI_INT, wide;
    int a = 0, b = 0;
    MPI_Type_create_resized(MPI_INT, 0, 2 * (MPI_Aint)sizeof(int), &wide);
    MPI_Type_commit(&wide);
    type = gaps && rank % 2 == 0 ? wide : MPI_INT;
    draw_counts(draw(3) ? 30 : 1500);
    if (in_place && which == 3) { /* then counts are symmetric */
        for (int i = 0; i < size; i++) {
            for (int j = 0; j < i; j++) {
                counts_of[i][j] = counts_of[j][i];
            }
        }
        type = MPI_INT;
    }
    const uint64_t kept = state;
    begin();
    state = own + (uint64_t)(rank + 3) * 0x9E3779B97F4A7C15u;
    fill_bytes(send, sizeof send / 8);
    if (in_place) {
        fill_bytes(mine, ROOM / 8);
        memcpy(theirs, mine, ROOM / 8);
    }
    state = kept;
    for (int i = 0; i < size; i++) {
        mine_counts[i] = which == 3 ? counts_of[rank][i] : counts_of[0][i];
        out_counts[i] = which == 3 ? counts_of[i][rank] : counts_of[0][i];
    }
    place(mine_counts, in_displs, dense, 1);
    place(out_counts, out_displs, dense, 1);
    const void *const from = in_place ? MPI_IN_PLACE : (const void *)send;
    const void *const root_from = in_place && rank == root ? MPI_IN_PLACE : (const void *)send;
    void *const root_m = in_place && rank == root ? MPI_IN_PLACE : (void *)mine;
    void *const root_t = in_place && rank == root ? MPI_IN_PLACE : (void *)theirs;
    const int n = counts_of[0][rank];
    switch (which) {
    case 0:
        a = MPI_Allgatherv(from, n, MPI_INT, mine, out_counts, out_displs, type, comm);
        b = PMPI_Allgatherv(from, n, MPI_INT, theirs, out_counts, out_displs, type, comm);
        break;
    case 1:
        a = MPI_Gatherv(root_from, n, MPI_INT, mine, out_counts, out_displs, type, root, comm);
        b = PMPI_Gatherv(root_from, n, MPI_INT, theirs, out_counts, out_displs, type, root, comm);
        break;
    case 2:
        a = MPI_Scatterv(send, mine_counts, in_displs, type, root_m, n, MPI_INT, root, comm);
        b = PMPI_Scatterv(send, mine_counts, in_displs, type, root_t, n, MPI_INT, root, comm);
        break;
    default:
        a = MPI_Alltoallv(from, mine_counts, in_displs, type, mine, out_counts, out_displs, type,
                          comm);
        b = PMPI_Alltoallv(from, mine_counts, in_displs, type, theirs, out_counts, out_displs, type,
                           comm);
        break;
    }
    static const char *const names[] = {"Allgatherv", "Gatherv", "Scatterv", "Alltoallv"};
    compare(names[which], a, b);
    MPI_Type_free(&wide);
}

/* ---- communicators ---- */

static void rounds(MPI_Comm on, int count)
{
    if (on == MPI_COMM_NULL) {
        return;
    }
    comm = on;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (int i = 0; i < count; i++) {
        switch (draw(5)) {
        case 0:
        case 1:
            reduction();
            break;
        case 2:
            move();
            break;
        case 3:
            move_v();
            break;
        default:
            MPI_Barrier(comm);
            break;
        }
    }
}

static void user_sum(void *in, void *inout, int *n, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *n; i++) {
        ((int *)inout)[i] += ((int *)in)[i] + 1;
    }
}

/* What falls to MPI, between calls that do not. */
static void others(void)
{
    MPI_Op op;
    MPI_Comm half, inter;
    int world_rank = 0, world_size = 0, one = 1, sum = 0, expected = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    MPI_Op_create(user_sum, 1, &op);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, op, MPI_COMM_WORLD);
    expected = 2 * world_size - 1;
    wrong += sum != expected;
    MPI_Op_free(&op);
    if (world_size < 2) {
        return;
    }
    MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, 0, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, world_rank % 2 == 0, 1, &inter);
    MPI_Allreduce(&world_rank, &sum, 1, MPI_INT, MPI_MIN, inter);
    wrong += sum != (world_rank % 2 == 0);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
}

int main(int argc, char **argv)
{
    int provided = 0, world_rank = 0, all_wrong = 0;
    MPI_Comm copy, part;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    state = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    const int count = argc > 2 ? atoi(argv[2]) : 100;
    list_kinds();
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    rounds(MPI_COMM_WORLD, count);
    others();
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    rounds(copy, count / 4);
    MPI_Comm_split(copy, world_rank == 0 ? MPI_UNDEFINED : 1, -world_rank, &part);
    rounds(part, count / 4);
    if (part != MPI_COMM_NULL) {
        MPI_Comm_free(&part);
    }
    state = 5;
    rounds(MPI_COMM_SELF, 4);
    MPI_Comm_free(&copy); /* its handle may come back for another communicator */
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    state = 6;
    rounds(copy, count / 4); /* and is alive at the end */
    PMPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (world_rank == 0) {
        puts(all_wrong == 0 ? "same" : "different");
    }
    MPI_Finalize();
    return all_wrong != 0;
}
