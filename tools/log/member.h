// SPDX-License-Identifier: Apache-2.0
/* Which member speaks in a line. Few lines name their communicator; the others are assigned by
 * host, process, thread, rank, and the order of the lines. */
#ifndef KOLO_TOOLS_LOG_MEMBER_H
#define KOLO_TOOLS_LOG_MEMBER_H

#include "tools/log/line.h"

enum kolo_log_about {
    KOLO_LOG_RING,  /* the order of a ring; rank 0 prints it */
    KOLO_LOG_PLACE, /* a rank's place in a ring */
    KOLO_LOG_TREE,  /* a rank's place in a tree */
    KOLO_LOG_TREES, /* all trees in one line */
    KOLO_LOG_EDGE,
    KOLO_LOG_PART, /* of the start, without a rank: "4 coll channels" */
    KOLO_LOG_BEGIN,
    KOLO_LOG_END,  /* of the start: Init COMPLETE */
    KOLO_LOG_GONE, /* Destroy COMPLETE */
    KOLO_LOG_NAMED
};

/* What a line tells of its communicator. 0 and, for ranks, -1: nothing. */
struct kolo_log_hint {
    enum kolo_log_about about;
    uint64_t comm, id;
    int rank, other; /* other: the rank may be this one, too; -1 none */
    int nranks, most, channel;
    uint64_t hash; /* of the text, to tell a repeated line from another one */
};

/* Find the member that says the line, or add it. Errors: SYSTEM. */
KOLO_CHECK kolo_status kolo_log_member_of(struct kolo_log *log, const struct kolo_log_line *l,
                                          const struct kolo_log_hint *hint, int *out);
void kolo_log_members_free(struct kolo_log *log);

#endif
