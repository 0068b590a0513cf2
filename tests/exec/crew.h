// SPDX-License-Identifier: Apache-2.0
/* A crew of ranks, each a thread, that runs lowered programs over chosen links: all of the
 * executor, without a communicator. Regions and outboxes are plain memory; messages go over `loop`.
 */
#ifndef KOLO_TESTS_CREW_H
#define KOLO_TESTS_CREW_H

#ifdef __cplusplus
extern "C" {
#endif

#include "exec/lower/extents.h"
#include "exec/lower/program.h"
#include "exec/reduce/reduce.h"

#include <stdbool.h>

enum crew_links { CREW_MAPPED, CREW_ARENA, CREW_MESSAGE, CREW_MIXED, CREW_LINKS };

struct crew;

struct crew_call { /* what one rank does in one call */
    const struct kolo_prog *prog;
    struct kolo_coll_args args; /* of which the counts matter */
    size_t elem;
    const void *in;
    void *out;
    kolo_reduce_fn *reduce;
    unsigned divisor;
    void (*hook)(void *arg, bool returned); /* in the rank's thread, before and after; or NULL */
    void *hook_arg;
};

const char *crew_links_name(enum crew_links links);
/* Bits of `me`'s link to `q`; both ends agree. Mixed: by seed, some pairs have messages only, some
 * ranks' IN or OUT is private. With an even seed, peers rely on it that the buffers of some ranks are
 * apart. */
bool crew_apart(enum crew_links links, unsigned seed, int rank);
uint8_t crew_bits(enum crew_links links, unsigned seed, int me, int q);
/* NULL when out of memory. Outbox slots of slot_bytes a tile, short ones of short_slot_bytes;
 * `phases` lines a rank. */
struct crew *crew_create(int nranks, enum crew_links links, unsigned seed, size_t slot_bytes,
                         size_t short_slot_bytes, int phases);
void crew_destroy(struct crew *crew);
/* Every rank runs its calls call[rank * ncalls ...] in order, in its own thread; the first error.
 * jitter != 0: random delays, by this seed, before every move and signal. */
kolo_status crew_run(struct crew *crew, int ncalls, const struct crew_call *call, unsigned jitter,
                     double timeout_ms);

#ifdef __cplusplus
}
#endif
#endif
