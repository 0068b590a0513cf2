// SPDX-License-Identifier: Apache-2.0
/* Types and operations of MPI, as kolo knows them.
 *
 * Predefined types stand in a table. Another type carries as an attribute whether it is one run of
 * bytes. The attribute goes with the handle, so a handle that is used again tells no lie. */
#include "shim.h"

#include <assert.h>
#include <string.h>

enum kmpi_kind { INTEGER, FLOAT, COMPLEX, TRUTH, BYTES, PAIR, MOVED }; /* MOVED: never reduced */

struct known {
    MPI_Datatype handle;
    enum kmpi_kind kind;
    enum kolo_type type;
    size_t bytes; /* that the type must have */
    size_t elem;  /* bytes of `type` */
    struct kmpi_type lies;
    bool used;
};

enum { TABLE = 256, TABLE_SHIFT = 56 };
static struct known table[TABLE]; /* by the handle; a place that is taken leads to the next */
static int run_key = MPI_KEYVAL_INVALID;

static size_t place_of(MPI_Datatype type)
{
    return (size_t)(((uint64_t)(uintptr_t)type * 0x9E3779B97F4A7C15u) >> TABLE_SHIFT);
}

static const struct known *find(MPI_Datatype type)
{
    for (size_t at = place_of(type); table[at].used; at = (at + 1) % TABLE) {
        if (table[at].handle == type) {
            return &table[at];
        }
    }
    return NULL;
}

/* ---- what MPI says of a type ---- */

static bool ask_sizes(MPI_Datatype type, struct kmpi_type *out)
{
    MPI_Count bytes = 0, lb = 0, extent = 0;
#if KMPI_HAS_WIDE
    const bool told = PMPI_Type_size_c(type, &bytes) == MPI_SUCCESS &&
                      PMPI_Type_get_extent_c(type, &lb, &extent) == MPI_SUCCESS;
#else
    const bool told = PMPI_Type_size_x(type, &bytes) == MPI_SUCCESS &&
                      PMPI_Type_get_extent_x(type, &lb, &extent) == MPI_SUCCESS;
#endif
    if (!told || bytes < 0 || bytes == MPI_UNDEFINED) {
        return false;
    }
    *out = (struct kmpi_type){.handle = type,
                              .bytes = (size_t)bytes,
                              .extent = (ptrdiff_t)extent,
                              .is_run = lb == 0 && extent == bytes};
    return true;
}

struct envelope {
    int combiner;
    bool has_one_type; /* and hardly more */
    MPI_Count ints, counts;
};

static bool ask_envelope(MPI_Datatype type, struct envelope *out)
{
#if KMPI_HAS_WIDE
    MPI_Count ints = 0, addresses = 0, counts = 0, types = 0;
    const int rc =
        PMPI_Type_get_envelope_c(type, &ints, &addresses, &counts, &types, &out->combiner);
#else
    int ints = 0, addresses = 0, counts = 0, types = 0;
    const int rc = PMPI_Type_get_envelope(type, &ints, &addresses, &types, &out->combiner);
#endif
    out->ints = ints;
    out->counts = counts;
    out->has_one_type = ints <= 1 && addresses == 0 && counts <= 1 && types == 1;
    return rc == MPI_SUCCESS;
}

/* The type that a copy or a repetition is made of. */
static bool ask_inner(MPI_Datatype type, const struct envelope *e, MPI_Datatype *out)
{
    int whole[1];
    MPI_Aint none[1];
#if KMPI_HAS_WIDE
    MPI_Count wide[1];
    return PMPI_Type_get_contents_c(type, e->ints, 0, e->counts, 1, whole, none, wide, out) ==
           MPI_SUCCESS;
#else
    return PMPI_Type_get_contents(type, (int)e->ints, 0, 1, whole, none, out) == MPI_SUCCESS;
#endif
}

/* Whether a type is a predefined type, its copy, or a repetition of a run. Equal size and extent do
 * not suffice: the blocks of an indexed type may lie in another order. */
static bool is_one_run(MPI_Datatype type)
{
    for (bool is_ours = false;; is_ours = true) {
        struct kmpi_type lies;
        struct envelope e;
        MPI_Datatype inner = MPI_DATATYPE_NULL;
        if (!ask_sizes(type, &lies) || !ask_envelope(type, &e)) {
            return false;
        }
        const bool is_named = e.combiner == MPI_COMBINER_NAMED;
        const bool goes_on =
            (e.combiner == MPI_COMBINER_DUP || e.combiner == MPI_COMBINER_CONTIGUOUS) &&
            lies.is_run && e.has_one_type && ask_inner(type, &e, &inner);
        if (is_ours && !is_named) {
            (void)PMPI_Type_free(&type);
        }
        if (!goes_on) {
            return is_named && lies.is_run;
        }
        type = inner;
    }
}

static char is_run_mark, has_gaps_mark; /* their addresses are the attribute's values */

bool kmpi_type_of(MPI_Datatype type, struct kmpi_type *out)
{
    const struct known *known = find(type);
    void *mark = NULL;
    int found = 0;
    if (known != NULL) {
        *out = known->lies;
        return true;
    }
    if (type == MPI_DATATYPE_NULL || !ask_sizes(type, out)) {
        return false;
    }
    if (PMPI_Type_get_attr(type, run_key, &mark, &found) != MPI_SUCCESS || !found) {
        mark = out->is_run && is_one_run(type) ? &is_run_mark : &has_gaps_mark;
        (void)PMPI_Type_set_attr(type, run_key, mark);
    }
    out->is_run = mark == &is_run_mark;
    return true;
}

/* ---- predefined types ---- */

static void add(MPI_Datatype handle, enum kmpi_kind kind, enum kolo_type type, size_t bytes)
{
    struct known row = {.handle = handle,
                        .kind = kind,
                        .type = type,
                        .bytes = bytes,
                        .elem = kolo_type_bytes(type),
                        .used = true};
    if (handle == MPI_DATATYPE_NULL || find(handle) != NULL || !ask_sizes(handle, &row.lies) ||
        row.lies.bytes != bytes) {
        return; /* this MPI has no such type, or it is another one here: PMPI serves it */
    }
    size_t at = place_of(handle);
    while (table[at].used) {
        at = (at + 1) % TABLE;
    }
    table[at] = row;
}

static void add_integer(MPI_Datatype handle, size_t bytes, bool is_signed)
{
    const enum kolo_type type = bytes == 1   ? KOLO_INT8
                                : bytes == 2 ? KOLO_INT16
                                : bytes == 4 ? KOLO_INT32
                                             : KOLO_INT64;
    add(handle, INTEGER, (enum kolo_type)((int)type + !is_signed), bytes);
}

static void add_integers(void)
{
    add_integer(MPI_SIGNED_CHAR, 1, true);
    add_integer(MPI_UNSIGNED_CHAR, 1, false);
    add_integer(MPI_SHORT, sizeof(short), true);
    add_integer(MPI_UNSIGNED_SHORT, sizeof(short), false);
    add_integer(MPI_INT, sizeof(int), true);
    add_integer(MPI_UNSIGNED, sizeof(int), false);
    add_integer(MPI_LONG, sizeof(long), true);
    add_integer(MPI_UNSIGNED_LONG, sizeof(long), false);
    add_integer(MPI_LONG_LONG_INT, sizeof(long long), true);
    add_integer(MPI_UNSIGNED_LONG_LONG, sizeof(long long), false);
    add_integer(MPI_INT8_T, 1, true);
    add_integer(MPI_UINT8_T, 1, false);
    add_integer(MPI_INT16_T, 2, true);
    add_integer(MPI_UINT16_T, 2, false);
    add_integer(MPI_INT32_T, 4, true);
    add_integer(MPI_UINT32_T, 4, false);
    add_integer(MPI_INT64_T, 8, true);
    add_integer(MPI_UINT64_T, 8, false);
    add_integer(MPI_AINT, sizeof(MPI_Aint), true);
    add_integer(MPI_COUNT, sizeof(MPI_Count), true);
    add_integer(MPI_OFFSET, sizeof(MPI_Offset), true);
    add_integer(MPI_INTEGER, 4, true);
}

static void add_others(void)
{
    add(MPI_FLOAT, FLOAT, KOLO_FLOAT32, 4);
    add(MPI_DOUBLE, FLOAT, KOLO_FLOAT64, 8);
    add(MPI_REAL, FLOAT, KOLO_FLOAT32, 4);
    add(MPI_DOUBLE_PRECISION, FLOAT, KOLO_FLOAT64, 8);
    add(MPI_C_FLOAT_COMPLEX, COMPLEX, KOLO_FLOAT32, 8);
    add(MPI_C_DOUBLE_COMPLEX, COMPLEX, KOLO_FLOAT64, 16);
    add(MPI_COMPLEX, COMPLEX, KOLO_FLOAT32, 8);
    add(MPI_DOUBLE_COMPLEX, COMPLEX, KOLO_FLOAT64, 16);
    add(MPI_C_BOOL, TRUTH, KOLO_BOOL, 1);
    add(MPI_BYTE, BYTES, KOLO_UINT8, 1);
    add(MPI_2INT, PAIR, KOLO_INT32_INT32, 8);
    add(MPI_FLOAT_INT, PAIR, KOLO_FLOAT32_INT32, 8);
    add(MPI_DOUBLE_INT, PAIR, KOLO_FLOAT64_INT32, 12);
    add(MPI_CHAR, MOVED, KOLO_UINT8, 1);
    add(MPI_CHARACTER, MOVED, KOLO_UINT8, 1);
    add(MPI_WCHAR, MOVED, KOLO_UINT8, sizeof(wchar_t));
    add(MPI_LOGICAL, MOVED, KOLO_UINT8, 4);
    add(MPI_LONG_DOUBLE, MOVED, KOLO_UINT8, sizeof(long double));
}

/* ---- reductions ---- */

struct operation {
    MPI_Op handle;
    kolo_op op;
    unsigned kinds; /* bits of enum kind: the types on which MPI and kolo mean the same */
};

#define BIT(kind) (1u << (kind))

/* Filled once: the handles of some MPI libraries are no constants. The usual ones come first. */
static struct operation operations[12];

static void add_operations(void)
{
    const unsigned numbers = BIT(INTEGER) | BIT(FLOAT), truths = BIT(INTEGER) | BIT(TRUTH),
                   bits = BIT(INTEGER) | BIT(BYTES);
    const struct operation rows[] = {
        {MPI_SUM, KOLO_SUM, numbers | BIT(COMPLEX)}, /* a complex sum is two sums */
        {MPI_MAX, KOLO_MAX, numbers},
        {MPI_MIN, KOLO_MIN, numbers},
        {MPI_PROD, KOLO_PROD, numbers},
        {MPI_LAND, KOLO_LAND, truths},
        {MPI_LOR, KOLO_LOR, truths},
        {MPI_LXOR, KOLO_LXOR, truths},
        {MPI_BAND, KOLO_BAND, bits},
        {MPI_BOR, KOLO_BOR, bits},
        {MPI_BXOR, KOLO_BXOR, bits},
        {MPI_MINLOC, KOLO_MINLOC, BIT(PAIR)},
        {MPI_MAXLOC, KOLO_MAXLOC, BIT(PAIR)},
    };
    static_assert(sizeof rows == sizeof operations, "a place for each row");
    memcpy(operations, rows, sizeof rows);
}

static const struct operation *operation_of(MPI_Op op)
{
    for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++) {
        if (operations[i].handle == op) {
            return &operations[i];
        }
    }
    return NULL;
}

bool kmpi_reduction_of(MPI_Datatype type, MPI_Op op, struct kmpi_reduction *out)
{
    const struct known *known = find(type);
    const struct operation *operation = operation_of(op);
    if (known == NULL || operation == NULL || (operation->kinds & BIT(known->kind)) == 0) {
        return false;
    }
    *out = (struct kmpi_reduction){.type = known->type,
                                   .op = operation->op,
                                   .per_item = known->kind == COMPLEX ? 2 : 1,
                                   .elem = known->elem};
    return true;
}

/* ---- begin and end ---- */

bool kmpi_types_open(void)
{
    if (PMPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, MPI_TYPE_NULL_DELETE_FN, &run_key, NULL) !=
        MPI_SUCCESS) {
        return false;
    }
    add_integers();
    add_others();
    add_operations();
    return true;
}

void kmpi_types_close(void)
{
    (void)PMPI_Type_free_keyval(&run_key);
}
