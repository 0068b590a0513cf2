// SPDX-License-Identifier: Apache-2.0
/* Binding turns a short call into the launch of an LL kernel. */
#include "exec/gpu/ll/ll.h"

#include "exec/gpu/fused/fused.h"
#include "plan/plan.h"
#include "util/util.h"

#include <stdio.h>
#include <string.h>

/* ---- who sends what to whom ---- */

/* Set the whole difference between the collectives: the targets and sources of data, and whether
 * each rank gets or brings its own block. */
static bool set_sides(const struct kolo_coll_args *args, uint64_t block, struct kolo_ll_launch *l)
{
    const uint32_t all = (uint32_t)((UINT64_C(1) << l->nranks) - 1);
    const uint32_t root = UINT32_C(1) << args->root;
    const bool is_root = l->me == (uint32_t)args->root;
    l->to = l->from = all;
    switch (args->coll) {
    case KOLO_COLL_ALL_REDUCE:
        break;
    case KOLO_COLL_REDUCE:
        l->to = root;
        l->from = is_root ? all : 0;
        break;
    case KOLO_COLL_REDUCE_SCATTER:
        l->in_stride = block;
        break;
    case KOLO_COLL_BROADCAST:
        l->to = is_root ? all : 0;
        l->from = root;
        break;
    case KOLO_COLL_SCATTER:
        l->to = is_root ? all : 0;
        l->from = root;
        l->in_stride = block;
        break;
    case KOLO_COLL_GATHER:
        l->to = root;
        l->from = is_root ? all : 0;
        l->out_stride = block;
        break;
    case KOLO_COLL_ALL_GATHER:
        l->out_stride = block;
        break;
    case KOLO_COLL_ALL_TO_ALL:
        l->in_stride = l->out_stride = block;
        break;
    default:
        return false;
    }
    return true;
}

/* ---- kernels ---- */

/* Find the kernel's type and operation from the name of the fused kernel,
 * "kolo_fused_<operation>_<type>". Types that share a kernel have the same name there. */
static void split_name(enum kolo_coll coll, enum kolo_type type, kolo_op op, const char **type_out,
                       unsigned *op_out)
{
    static const char *const verb[] = {
        [KOLO_LL_SUM] = "sum",   [KOLO_LL_PROD] = "prod",    [KOLO_LL_MIN] = "min",
        [KOLO_LL_MAX] = "max",   [KOLO_LL_BAND] = "band",    [KOLO_LL_BOR] = "bor",
        [KOLO_LL_BXOR] = "bxor", [KOLO_LL_LAND] = "land",    [KOLO_LL_LOR] = "lor",
        [KOLO_LL_LXOR] = "lxor", [KOLO_LL_SCALED] = "scaled"};
    static _Thread_local char name[KOLO_FUSED_NAME];
    kolo_fused_name(coll, type, op, name);
    char *begin = name + strlen("kolo_fused_"), *end = strchr(begin, '_');
    *end = '\0';
    *type_out = end + 1;
    *op_out = strcmp(begin, "minloc") == 0 ? KOLO_LL_MIN : KOLO_LL_MAX;
    for (unsigned i = 0; i < KOLO_LENGTH(verb); i++) {
        *op_out = strcmp(begin, verb[i]) == 0 ? i : *op_out;
    }
}

void kolo_ll_name(enum kolo_coll coll, enum kolo_type type, kolo_op op, char out[KOLO_PROGRAM_NAME])
{
    const char *of = "copy";
    unsigned unused;
    if (kolo_coll_reduces(coll)) {
        split_name(coll, type, op, &of, &unused);
    }
    (void)snprintf(out, KOLO_PROGRAM_NAME, "kolo_ll_%s", of);
}

/* ---- binding ---- */

size_t kolo_ll_bytes(const struct kolo_coll_args *args, int nranks)
{
    return args->count * kolo_type_bytes(args->type) * (size_t)(nranks - 1);
}

bool kolo_ll_bind(const struct kolo_coll_args *args, int me, const struct kolo_program_room *room,
                  unsigned slices, struct kolo_ll_launch *out, struct kolo_ll_grid *grid_out)
{
    /* A block issues its stores itself, and each goes to all ranks: 2 KiB are four warps. */
    enum { SLICE_BYTES = 2 << 10, ALIGN = 128, WARP = 32 };
    const size_t bytes = args->count * kolo_type_bytes(args->type);
    const size_t blocks = kolo_max(1, kolo_min((bytes + SLICE_BYTES - 1) / SLICE_BYTES, slices));
    const size_t part = kolo_round_up(kolo_max((bytes + blocks - 1) / blocks, 1), ALIGN);
    const char *unused;
    *out = (struct kolo_ll_launch){.nranks = room->nranks,
                                   .me = (uint32_t)me,
                                   .bytes = bytes,
                                   .part = part,
                                   .slots = kolo_program_ll_at(room)};
    if (part > KOLO_LL_BYTES || !set_sides(args, bytes, out)) {
        return false;
    }
    if (kolo_coll_reduces(args->coll)) {
        split_name(args->coll, args->type, args->op, &unused, &out->op);
        out->divisor = args->op == KOLO_AVG ? room->nranks : 0;
    }
    *grid_out =
        (struct kolo_ll_grid){(unsigned)blocks, (unsigned)kolo_round_up(part / KOLO_LL_PACK, WARP)};
    return true;
}
