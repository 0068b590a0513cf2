// SPDX-License-Identifier: Apache-2.0
/* Memory of this process that other processes can map: sealed memfds, with no name in any file
 * system and nothing left behind after SIGKILL. Pages are reserved when they are handed out, so
 * lack of memory is an error here and never a SIGBUS later.
 *
 * Requests below KOLO_SEGMENT_BIG share slabs, larger ones get a segment of their own. All
 * functions may be called by any thread. A forked child starts with an empty store: what it
 * inherited stays mapped, but is private memory as far as kolo is concerned. */
#ifndef KOLO_MEMORY_SEGMENT_H
#define KOLO_MEMORY_SEGMENT_H

#include "util/util.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KOLO_SEGMENT_BIG  (1u << 20)
#define KOLO_SEGMENT_SLAB (16u << 20)

struct kolo_segment;

/* Zeroed memory, aligned to 4096 bytes. Errors: INVALID (0 bytes), SYSTEM. */
kolo_status kolo_segment_alloc(size_t bytes, void **out);
/* Gives the pages back to the system at once, even where a peer still has them mapped. */
void kolo_segment_free(void *ptr);
/* Give [ptr, ptr+len), as far as it is in a segment, and the rest of its pages, memory that is this
 * process's alone, with the same bytes: who has it mapped keeps the old pages, and whatever is
 * written there is not seen here any more. kolo_segment_find() does not find it from now on, and
 * pages of a slab are not given to anybody else. Errors: SYSTEM. */
kolo_status kolo_segment_part(void *ptr, size_t len);
/* Whether [ptr, ptr+len) lies in one segment; which one, and where in it. */
bool kolo_segment_find(const void *ptr, size_t len, uint32_t *id, uint64_t *offset);

/* A segment of its own, of which nothing is reserved yet. It is held once. */
kolo_status kolo_segment_create(size_t len, struct kolo_segment **out);
/* The same with all of its pages reserved. */
kolo_status kolo_segment_create_whole(size_t len, struct kolo_segment **out);
/* Reserve pages [at, at+len), zeroed if they are new. */
kolo_status kolo_segment_reserve(struct kolo_segment *segment, size_t at, size_t len);
uint32_t kolo_segment_id(const struct kolo_segment *segment);
void *kolo_segment_base(const struct kolo_segment *segment);
/* Hold segment `id` of this process; NULL if there is none. It stays mapped until dropped. */
struct kolo_segment *kolo_segment_hold(uint32_t id, size_t *len);
void kolo_segment_drop(struct kolo_segment *segment);
/* A duplicate of its descriptor, to be closed by the caller; -1 if there is none. */
int kolo_segment_descriptor(uint32_t id, uint64_t *len);
/* Segments that are mapped now, for tests and the log. */
int kolo_segment_count(void);

#ifdef __cplusplus
}
#endif

#endif
