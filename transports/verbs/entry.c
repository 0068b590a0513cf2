// SPDX-License-Identifier: Apache-2.0
/* Entries as they are on the wire: the heads that an entry needs, and no others. A message of a few
 * bytes takes a few bytes more. This matters where a device copies a short entry into its queue. */
#include "transports/verbs/entry.h"

#include <string.h>

static size_t heads_of(uint8_t kind)
{
    return sizeof(struct kolo_verbs_head) +
           ((kind & KOLO_VERBS_PART) != 0 ? sizeof(struct kolo_verbs_part) : 0) +
           ((kind & KOLO_VERBS_CALL) != 0 ? sizeof(struct kolo_call_sign) : 0);
}

static uint8_t kind_of(const struct kolo_verbs_entry *e)
{
    const bool whole = e->offset == 0 && e->total == (uint64_t)e->len + e->zeros;
    return (uint8_t)(e->kind | (whole ? 0 : KOLO_VERBS_PART) |
                     (e->call.number != 0 ? KOLO_VERBS_CALL : 0));
}

size_t kolo_verbs_entry_heads(const struct kolo_verbs_entry *e)
{
    return heads_of(kind_of(e));
}

size_t kolo_verbs_entry_write(char *slot, const struct kolo_verbs_entry *e)
{
    const struct kolo_verbs_head head = {.len = e->len,
                                         .kind = kind_of(e),
                                         .channel = e->channel,
                                         .zeros = e->zeros,
                                         .taken_blocks = e->taken_blocks,
                                         .number = e->number,
                                         .taken = e->taken};
    char *at = slot + sizeof head;
    memcpy(slot, &head, sizeof head);
    if ((head.kind & KOLO_VERBS_PART) != 0) {
        const struct kolo_verbs_part part = {e->offset, e->total};
        memcpy(at, &part, sizeof part);
        at += sizeof part;
    }
    if ((head.kind & KOLO_VERBS_CALL) != 0) {
        memcpy(at, &e->call, sizeof e->call);
        at += sizeof e->call;
    }
    return (size_t)(at - slot) + e->len;
}

size_t kolo_verbs_entry_bytes(const char *slot)
{
    struct kolo_verbs_head head;
    memcpy(&head, slot, sizeof head);
    return heads_of(head.kind) + head.len;
}

const char *kolo_verbs_entry_read(const char *slot, size_t bytes, struct kolo_verbs_entry *out)
{
    struct kolo_verbs_head head; /* a copy: the peer can write to the slot at any time */
    memcpy(&head, slot, sizeof head);
    const size_t heads = heads_of(head.kind);
    const char *at = slot + sizeof head;
    *out = (struct kolo_verbs_entry){.len = head.len,
                                     .kind = head.kind & KOLO_VERBS_KINDS,
                                     .channel = head.channel,
                                     .zeros = head.zeros,
                                     .taken_blocks = head.taken_blocks,
                                     .number = head.number,
                                     .taken = head.taken,
                                     .total = (uint64_t)head.len + head.zeros};
    if ((head.kind & KOLO_VERBS_PART) != 0) {
        struct kolo_verbs_part part;
        memcpy(&part, at, sizeof part);
        at += sizeof part;
        out->offset = part.offset;
        out->total = part.total;
    }
    if ((head.kind & KOLO_VERBS_CALL) != 0) {
        memcpy(&out->call, at, sizeof out->call);
    }
    const bool fits = heads + head.len == bytes && head.len <= KOLO_VERBS_PIECE;
    const bool brief = head.zeros == 0 || (out->kind == KOLO_VERBS_DATA && out->offset == 0 &&
                                           out->total == (uint64_t)head.len + head.zeros &&
                                           out->total <= KOLO_VERBS_BRIEF);
    return fits && brief && (head.kind >> 6) == 0 ? slot + heads : NULL;
}

void kolo_verbs_entry_trim(struct kolo_verbs_entry *e, const char *payload)
{
    const uint16_t len = e->len;
    uint64_t word = 0;
    while (e->len >= sizeof word) {
        memcpy(&word, payload + e->len - sizeof word, sizeof word);
        if (word != 0) {
            break;
        }
        e->len = (uint16_t)(e->len - sizeof word);
    }
    e->zeros = (uint16_t)(len - e->len);
}
