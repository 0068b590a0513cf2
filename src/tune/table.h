// SPDX-License-Identifier: Apache-2.0
/* A table of measured choices is a text file that `kolo tune` writes and a communicator reads.
 *
 *   kolo-table 1
 *   machine 91f6c0a2b4e87d35 1 package, 2 cores, 2 PUs, L3 32 MiB shared by 2, 1 NUMA node, ...
 *   # collective ranks bytes algorithm tile buffers, then what was measured
 *   allreduce 2 [32k,256k) direct default private us=12.3 default_us=15.1 gain=18.5% sigma=1.2%
 *   broadcast 3-8 * chain 64k any
 *
 * The two head lines come first. '#' begins a comment. The first row that fits a call decides.
 * Blanks separate the words of a row:
 *   ranks      a number, lo-hi (both included) or *
 *   bytes      per rank as in struct kolo_query: [lo,hi) excludes hi, [lo,) has no end, or *
 *   algorithm  without the collective's prefix
 *   tile       bytes over all chunks of a tile, or default
 *   buffers    private, shared (every rank's buffers lie in memory that its peers map) or any
 *   measured   us= is the time of this choice, default_us= the time of the choice without a table;
 *              gain= is the gain, sigma= its uncertainty. A row for several sizes has the numbers
 *              of the size that gains least.
 * `machine any` fits every machine. The reader refuses a file with any word that it does not
 * understand, and names the place of the word.
 */
#ifndef KOLO_TUNE_TABLE_H
#define KOLO_TUNE_TABLE_H

#include "util/util.h"

#include <kolo/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { KOLO_TABLE_VERSION = 1, KOLO_TABLE_BYTES = 64 << 10, KOLO_TABLE_ROWS = 512 };

enum kolo_buffers { KOLO_BUFFERS_PRIVATE, KOLO_BUFFERS_SHARED, KOLO_BUFFERS_ANY };

struct kolo_row {
    enum kolo_coll coll;
    int ranks_low, ranks_high; /* both included */
    size_t low, high;          /* low <= bytes < high; SIZE_MAX has no end */
    const struct kolo_algo *algo;
    size_t tile_bytes; /* 0: the default */
    enum kolo_buffers buffers;
    double us, default_us, gain, sigma; /* gain and sigma as parts of 1; us 0: not in the file */
};

struct kolo_table;

struct kolo_table_source {
    const char *name; /* of the file, for messages */
    int (*algo_count)(void);
    const struct kolo_algo *(*algo_at)(int index);
};

/* Errors: INVALID ("FILE:line:column: "word" ..." and the allowed words), SYSTEM. */
KOLO_CHECK kolo_status kolo_table_parse(const char *text, const struct kolo_table_source *source,
                                        struct kolo_table **out);
void kolo_table_destroy(struct kolo_table *table);
/* The words after `machine`: "any", or a hash and a description. */
const char *kolo_table_machine(const struct kolo_table *table);
/* Whether the table was made on this machine or fits any. `machine` is the text of
 * kolo_host_fingerprint(), of which only the hash counts. */
bool kolo_table_fits(const struct kolo_table *table, const char *machine);
int kolo_table_rows(const struct kolo_table *table);
const struct kolo_row *kolo_table_row(const struct kolo_table *table, int index);
/* The first row from place *at on that fits the call; NULL: none. `table` may be NULL. */
const struct kolo_row *kolo_table_next(const struct kolo_table *table, enum kolo_coll coll,
                                       int nranks, size_t bytes, bool mapped, int *at);

/* Write the two head lines, and a row, in the form that kolo_table_parse() reads. */
void kolo_table_write_head(const char *machine, struct kolo_text *out);
void kolo_table_write_row(const struct kolo_row *row, struct kolo_text *out);

#ifdef __cplusplus
}
#endif

#endif
