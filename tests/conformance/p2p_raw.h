// SPDX-License-Identifier: Apache-2.0
/* Behind the back of point-to-point: headers as no kolo writes them, and what a rank keeps. In C,
 * because the communicator's struct has members that C++ does not know. */
#ifndef KOLO_TESTS_P2P_RAW_H
#define KOLO_TESTS_P2P_RAW_H

#include <kolo/kolo.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { kRawMagic = 0x6b703270 };

struct RawHeader {
    uint32_t magic;
    uint16_t kind;
    int32_t tag;
    uint32_t freed;
    uint64_t bytes, id;
};

/* Send it to rank `to` on the control channel; returns when the transport has taken it. */
void RawSend(struct kolo_comm *comm, int to, const struct RawHeader *header);
/* What `comm` keeps of messages from rank `from`, with what a record costs; not while it runs. */
size_t RawKeptBytes(struct kolo_comm *comm, int from);
/* How many messages to rank `to` did not go at once, but were announced. */
uint64_t RawAnnounced(struct kolo_comm *comm, int to);

#ifdef __cplusplus
}
#endif
#endif
