// SPDX-License-Identifier: Apache-2.0
/* Entries, as their sender and their receiver see them. */
#ifndef KOLO_VERBS_ENTRY_H
#define KOLO_VERBS_ENTRY_H

#include "transports/verbs/wire.h"

struct kolo_verbs_entry { /* entry.c puts it into a slot, and takes it out */
    uint8_t kind;         /* enum kolo_verbs_kind */
    uint8_t channel;
    uint16_t len;           /* payload bytes */
    uint16_t zeros;         /* of a short message: bytes behind the payload that are 0 */
    uint16_t taken_blocks;  /* of the messages taken (window.h) */
    uint32_t number, taken; /* see struct kolo_verbs_head */
    uint64_t offset, total;
    struct kolo_call_sign call; /* the sender's: of READY, PLACED, and DATA of offset 0 */
};

/* The bytes of the heads of an entry: its payload begins there. trim() does not change them. */
size_t kolo_verbs_entry_heads(const struct kolo_verbs_entry *e);
/* Write the heads before the payload, which is in its place. Returns the bytes of the entry. */
size_t kolo_verbs_entry_write(char *slot, const struct kolo_verbs_entry *e);
/* The bytes of an entry that write() made. */
size_t kolo_verbs_entry_bytes(const char *slot);
/* Read the heads of an entry of `bytes` into *out. Returns its payload; NULL: it is no entry. */
const char *kolo_verbs_entry_read(const char *slot, size_t bytes, struct kolo_verbs_entry *out);
/* Leave out the zeros, in words of 8 bytes, at the end of a message of at most KOLO_VERBS_BRIEF
 * bytes. The headers of point-to-point messages, of 128 bytes, are mostly zeros. */
void kolo_verbs_entry_trim(struct kolo_verbs_entry *e, const char *payload);

#endif
