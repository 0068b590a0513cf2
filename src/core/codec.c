// SPDX-License-Identifier: Apache-2.0
/* Compressed calls. The program runs on units of a codec, as on elements of a type. The input is
 * encoded before it starts, and the output is decoded when it has ended. */
#include "core/call/parts.h"

#include <stdlib.h>

kolo_status kolo_call_check_codec(const struct kolo_call *call)
{
    const struct kolo_coll_args *a = &call->args;
    if ((unsigned)a->codec >= KOLO_CODECS) {
        return kolo_fail(KOLO_ERR_INVALID, "codec is %d; it must be 0 to %d", (int)a->codec,
                         KOLO_CODECS - 1);
    }
    if (a->type != KOLO_FLOAT32) {
        return kolo_fail(KOLO_ERR_INVALID, "codec %s encodes float32; type is %s",
                         kolo_codec_name(a->codec), kolo_type_name(a->type));
    }
    if (call->extent.reduces && a->op != KOLO_SUM && a->op != KOLO_AVG) {
        return kolo_fail(KOLO_ERR_INVALID, "codec %s goes with sum and avg; op is %s",
                         kolo_codec_name(a->codec), kolo_op_name(a->op));
    }
    if (call->base.comm->options.cuda_ordinal != KOLO_HOST) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED,
                         "codec %s is for communicators of host memory; this one has device %d",
                         kolo_codec_name(a->codec), call->base.comm->options.cuda_ordinal);
    }
    return KOLO_OK;
}

kolo_status kolo_call_choose_codec(struct kolo_call *call, const struct kolo_pick *plain)
{
    struct kolo_comm *c = call->base.comm;
    const enum kolo_codec codec = call->args.codec;
    const struct kolo_coded_call about = {
        .coll = call->args.coll,
        .codec = codec,
        .rule = c->options.codec_rule,
        .bytes = call->extent.bytes,
        .coded_bytes = kolo_codec_units(codec, call->args.count) * kolo_codec_bytes(codec),
        .worked_bytes = (call->extent.in_elems + call->extent.out_elems) * sizeof(float)};
    struct kolo_coded_pick pick;
    KOLO_TRY(kolo_choose_coded(c->selection.chooser, &about, plain, &pick));
    if (pick.fresh && c->ranks.rank == 0 && kolo_log_on(KOLO_LEVEL_INFO, KOLO_SUB_TUNE)) {
        struct kolo_text text = {0};
        kolo_coded_line(&about, &pick, &text);
        KOLO_LOG(INFO, TUNE, "%s", text.chars != NULL ? text.chars : "");
        kolo_text_free(&text);
    }
    if (pick.pays) {
        call->codec = codec;
        call->algo = pick.algo;
        call->tile_bytes = pick.tile_bytes;
        call->run_elem = kolo_codec_bytes(codec);
    }
    return KOLO_OK;
}

kolo_status kolo_call_encode(struct kolo_call *call)
{
    const size_t count = call->args.count, elems = call->extent.in_elems;
    const size_t block = kolo_codec_units(call->codec, count) * call->run_elem;
    const size_t nin = kolo_call_run_elems(call, elems) * call->run_elem;
    const size_t nout = kolo_call_run_elems(call, call->extent.out_elems) * call->run_elem;
    const float *in = call->args.in;
    call->wide_in = aligned_alloc(64, kolo_round_up(nin, 64));
    call->wide_out = aligned_alloc(64, kolo_round_up(nout, 64));
    if (call->wide_in == NULL || call->wide_out == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %zu encoded bytes", nin + nout);
    }
    for (size_t i = 0; i < elems / count; i++) {
        kolo_encode(call->codec, (char *)call->wide_in + i * block, in + i * count, count);
    }
    return KOLO_OK;
}

void kolo_call_decode(const struct kolo_call *call)
{
    const size_t count = call->args.count;
    const size_t block = kolo_codec_units(call->codec, count) * call->run_elem;
    float *out = call->args.out;
    for (size_t i = 0; i < call->extent.out_elems / count; i++) {
        kolo_decode(call->codec, out + i * count, (const char *)call->wide_out + i * block, count);
    }
}

kolo_status kolo_comm_codec_bound(const struct kolo_comm *comm, enum kolo_codec codec, int reduces,
                                  struct kolo_codec_bound *out)
{
    if (comm == NULL || out == NULL) {
        return kolo_fail(KOLO_ERR_INVALID, "%s is NULL", comm == NULL ? "comm" : "out");
    }
    if ((unsigned)codec >= KOLO_CODECS) {
        return kolo_fail(KOLO_ERR_INVALID, "codec is %d; it must be 0 to %d", (int)codec,
                         KOLO_CODECS - 1);
    }
    if (out->size < sizeof *out) { /* a later version's is longer: its rest stays as it is */
        return kolo_fail(KOLO_ERR_INVALID, "out->size is %u; it must be at least %zu", out->size,
                         sizeof *out);
    }
    const enum kolo_coll coll = reduces ? KOLO_COLL_ALL_REDUCE : KOLO_COLL_ALL_GATHER;
    const int encodings = codec != KOLO_CODEC_NONE ? kolo_codec_encodings(coll) : 0;
    kolo_codec_bound_of(codec, encodings, reduces ? comm->ranks.nranks : 1, out);
    return KOLO_OK;
}

/* Whether the bound allows the error at this sum of magnitudes. */
static bool is_within(const struct kolo_codec_bound *bound, double total, double absolute,
                      double relative)
{
    const double allowed = relative * total > absolute ? relative * total : absolute;
    return bound->factor * total + bound->floor <= allowed;
}

static double bytes_per_number(enum kolo_codec codec)
{
    return (double)kolo_codec_bytes(codec) / (double)kolo_codec_numbers(codec);
}

/* The least of a relative error is asked for where `total` is least: that of an average. */
kolo_status kolo_comm_codec_within(const struct kolo_comm *comm, int reduces, double total,
                                   double absolute, double relative, enum kolo_codec *out)
{
    struct kolo_codec_bound bound = {.size = sizeof bound};
    enum kolo_codec best = KOLO_CODEC_NONE;
    double least = 0;
    if (comm == NULL || out == NULL) {
        return kolo_fail(KOLO_ERR_INVALID, "%s is NULL", comm == NULL ? "comm" : "out");
    }
    if (!(total >= 0) || !(absolute >= 0) || !(relative >= 0)) {
        return kolo_fail(KOLO_ERR_INVALID,
                         "total is %g, absolute %g, relative %g; none may be negative", total,
                         absolute, relative);
    }
    const double share = reduces ? total / comm->ranks.nranks : total;
    for (int i = KOLO_CODEC_NONE + 1; i < KOLO_CODECS; i++) {
        const enum kolo_codec codec = (enum kolo_codec)i;
        KOLO_TRY(kolo_comm_codec_bound(comm, codec, reduces, &bound));
        const double bytes = bytes_per_number(codec);
        const bool shorter = bytes < bytes_per_number(best) ||
                             (bytes <= bytes_per_number(best) && bound.factor < least);
        if (shorter && is_within(&bound, total, absolute, relative) &&
            is_within(&bound, share, absolute, relative)) {
            best = codec;
            least = bound.factor;
        }
    }
    *out = best;
    return KOLO_OK;
}
