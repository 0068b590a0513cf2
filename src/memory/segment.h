// SPDX-License-Identifier: Apache-2.0
/* Memory of this process that other processes can map: sealed memfds.
 *
 * A memfd has no name in any file system and leaves nothing behind after SIGKILL. Pages are
 * reserved when they are handed out, those of kolo_segment_create() before their owner writes them.
 * So lack of memory is an error here and never a SIGBUS later.
 *
 * Requests below KOLO_SEGMENT_BIG share slabs. Larger ones get a segment of their own. Any thread
 * may call any function. A forked child starts with an empty store. Segments of the parent stay
 * mapped there, but kolo treats them as private memory. */
#ifndef KOLO_MEMORY_SEGMENT_H
#define KOLO_MEMORY_SEGMENT_H

#include "util/descriptor.h"
#include "util/util.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KOLO_SEGMENT_BIG  (1u << 20)
#define KOLO_SEGMENT_SLAB (16u << 20)

struct kolo_segment;

/* Zeroed memory, aligned to 4096 bytes. Errors: INVALID (0 bytes), SYSTEM. */
kolo_status kolo_segment_alloc(size_t bytes, void **out);
/* Gives the pages back to the system at once, even if a peer still maps them. */
void kolo_segment_free(void *ptr);
/* Replace the pages of [ptr, ptr+len) that lie in a segment by private pages with the same bytes.
 *
 * A peer that maps the segment keeps the old pages. This process no longer sees writes to them.
 * kolo_segment_find() no longer finds the range. Pages of a slab are not handed out again.
 * Errors: SYSTEM. */
kolo_status kolo_segment_part(void *ptr, size_t len);
/* Whether [ptr, ptr+len) lies in one segment. *id and *offset get the segment and the place. */
bool kolo_segment_find(const void *ptr, size_t len, uint32_t *id, uint64_t *offset);

/* Make a segment that is no slab. It is held once. No page is reserved yet. */
kolo_status kolo_segment_create(size_t len, struct kolo_segment **out);
/* The same with all of its pages reserved, and made. */
kolo_status kolo_segment_create_whole(size_t len, struct kolo_segment **out);
/* Reserve pages [at, at+len), zeroed if they are new. */
kolo_status kolo_segment_reserve(struct kolo_segment *segment, size_t at, size_t len);
/* Reserve the pages of [ptr, ptr+len), if the range lies in a segment of kolo_segment_create(). */
kolo_status kolo_segment_reserve_at(const void *ptr, size_t len);
uint32_t kolo_segment_id(const struct kolo_segment *segment);
void *kolo_segment_base(const struct kolo_segment *segment);
/* It stays the segment's. */
const struct kolo_own_fd *kolo_segment_file(const struct kolo_segment *segment);
/* Hold segment `id` of this process; NULL if there is none. It stays mapped until dropped. */
struct kolo_segment *kolo_segment_hold(uint32_t id, size_t *len);
void kolo_segment_drop(struct kolo_segment *segment);
/* A duplicate of the descriptor of segment `id`, which the caller closes. -1: there is none. */
int kolo_segment_descriptor(uint32_t id, uint64_t *len);
/* The number of segments that are mapped now, for tests and the log. */
int kolo_segment_count(void);

#ifdef __cplusplus
}
#endif

#endif
