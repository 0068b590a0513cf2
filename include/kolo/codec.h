// SPDX-License-Identifier: Apache-2.0
/* Compressed collectives: float32 travels in fewer bytes, and the error has a bound that is known
 * before the call.
 *
 * kolo/kolo.h includes this file.
 *
 * A compressed call encodes its input, moves the codes by a plan, and decodes the result. In a
 * reduction the inputs of an element are decoded, added in float32, and the sum is encoded once, by
 * one rank for all or by each rank in the same order; all ranks decode the same codes. So a number is
 * encoded once in an all-gather and twice in a reduction, whatever the number of ranks is. Only plans
 * of which this is proved run compressed.
 *
 * Encoding pays where links are slow. A call for which it does not pay goes uncompressed, by the
 * predicted times of both. KOLO_CODEC=always or never takes precedence; KOLO_DEBUG=INFO logs the
 * choice. The bound holds either way. A communicator of one rank never compresses.
 *
 * The codec is one of the facts in which ranks must agree: see MISMATCH in kolo.h. */
#ifndef KOLO_CODEC_H
#define KOLO_CODEC_H

#include "kolo.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How float32 travels. A block is numbered from the first element of the buffer, or, if the buffer
 * has a part for each rank, from the first element of the part; the last one may be short.
 *
 *   INT8   8-bit integers of one scale in blocks of 60 elements, 64 bytes each. An infinity or NaN
 *          makes its block NaN, so that it is never hidden; so does a sum that overflows
 *   INT4   4-bit integers of one scale in blocks of 120 elements, 64 bytes each. Else as INT8
 *   FP8    8-bit floats (E4M3) of one scale in blocks of 60 elements, 64 bytes each. A number much
 *          smaller than the largest of its block keeps 3 bits behind the leading one, which INT8 does
 *          not give it; the bound, which is for the largest, is wider. Else as INT8
 *   BF16   bfloat16; blocks of 1 element. Infinities and NaNs stay
 *
 * Values are never renumbered. */
enum kolo_codec {
    KOLO_CODEC_NONE = 0,
    KOLO_CODEC_INT8 = 1,
    KOLO_CODEC_BF16 = 2,
    KOLO_CODEC_INT4 = 3,
    KOLO_CODEC_FP8 = 4,
    KOLO_CODECS = 5
};

/* The bound on the error of an element of a result. Let A be the largest magnitude in the element's
 * block of a rank's input. With `total` the sum of A over all ranks (all-gather: A of the rank that
 * gave the element):
 *
 *   |result - exact| <= factor * total + floor     (AVG: factor * total is divided by the number of ranks)
 *
 * It holds where all inputs of the block are finite and `total` is below 2^126. */
struct kolo_codec_bound {
    uint32_t size; /* set to sizeof(struct kolo_codec_bound) by the caller */
    int block;     /* elements of a block */
    int encodings; /* how often an element is encoded on its way */
    double factor, floor;
};

/* The name of a codec: "int8" and so on; "none", or "unknown" for an unknown codec. */
KOLO_EXPORT
const char *kolo_codec_name(enum kolo_codec codec);
/* Tell the bound of calls on `comm` before they are made: of the reductions if `reduces` is not 0,
 * else of the all-gather. The caller sets out->size. For CODEC_NONE it is that of float32 sums.
 * Errors: INVALID. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_comm_codec_bound(const struct kolo_comm *comm, enum kolo_codec codec,
                                             int reduces, struct kolo_codec_bound *out);

/* The codec of the fewest bytes whose bound, for blocks of which `total` (see struct kolo_codec_bound)
 * is at most the one given, is within an error: `absolute`, or `relative` * total, whichever is
 * larger. 0: no error of that kind is allowed. It holds for sums, and for averages with total divided by
 * the number of ranks. Blocks of a smaller total have at most the error `absolute`, or `relative` *
 * their total + the bound's floor. CODEC_NONE if no codec is within. All ranks must ask alike to get the
 * same codec. `reduces` is as for kolo_comm_codec_bound(). Errors: INVALID. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_comm_codec_within(const struct kolo_comm *comm, int reduces,
                                              double total, double absolute, double relative,
                                              enum kolo_codec *out);

/* kolo_all_reduce() with a codec. send[count], recv[count]; `type` is FLOAT32, `op` SUM or AVG;
 * any type and operation if `codec` is NONE. Errors: INVALID; UNSUPPORTED (a communicator of a CUDA
 * device). */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_all_reduce_codec(const void *send, void *recv, size_t count,
                                             enum kolo_type type, kolo_op op, enum kolo_codec codec,
                                             struct kolo_comm *comm, kolo_stream stream);
/* kolo_all_gather() with a codec. recv[nranks*count]; every block of recv is decoded, this rank's
 * own too, so that all ranks get the same bits. Else as kolo_all_reduce_codec(). */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_all_gather_codec(const void *send, void *recv, size_t count,
                                             enum kolo_type type, enum kolo_codec codec,
                                             struct kolo_comm *comm, kolo_stream stream);
/* kolo_reduce_scatter() with a codec. send[nranks*count], recv[count]. Else as
 * kolo_all_reduce_codec(). */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_reduce_scatter_codec(const void *send, void *recv, size_t count,
                                                 enum kolo_type type, kolo_op op,
                                                 enum kolo_codec codec, struct kolo_comm *comm,
                                                 kolo_stream stream);

#ifdef __cplusplus
}
#endif
#endif
