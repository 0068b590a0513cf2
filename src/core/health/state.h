// SPDX-License-Identifier: Apache-2.0
/* The status board as this rank sees it, and what the watchdog has seen there. */
#ifndef KOLO_CORE_HEALTH_STATE_H
#define KOLO_CORE_HEALTH_STATE_H

#include <kolo/plugin.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct kolo_board;
struct kolo_board_slot;
struct kolo_lone_slot;
struct kolo_segment;
struct kolo_comm;

enum { KOLO_AWAITED = 16, KOLO_RING_WATCHED = 8 };

struct kolo_ring { /* ring.h; under the watchdog's lock */
    int rank[KOLO_RING_WATCHED];
    int count;
    int walked; /* ranks behind this one that were looked at */
};

struct kolo_health {
    struct kolo_board_slot *slot; /* this rank's; its own where there is no board */
    struct kolo_board *board;     /* of this host's members; NULL: none */
    struct kolo_segment *own_board;
    struct kolo_lone_slot *own_slot;
    struct kolo_comm *next; /* in the watchdog's list */
    bool watched;
    bool sees_all; /* this process sees those of all members on the board in /proc */
    struct kolo_ring ring;
    _Atomic uint32_t ends; /* times that a member's `lost` or `end` was set; grows after it */
    uint32_t seen_fates;   /* of the board; under the watchdog's lock */
    uint64_t seen_calls;   /* of all members when the watchdog last compared their calls */
    uint64_t told_calls;   /* of this rank, when it last told other hosts */
    _Atomic int differs;   /* 1 + the rank whose call differs from this rank's; 0: none */
    struct kolo_call_sign differing; /* that call; before `differs` */
    uint64_t warned;                 /* number of the last call of which a straggler was told */
    /* Of a wait for rank q, at q % KOLO_AWAITED: 1 + the rank that the wait depends on in the end,
     * and the time since when it is this rank. */
    _Atomic int awaited[KOLO_AWAITED];
    _Atomic uint64_t awaited_us[KOLO_AWAITED];
    _Atomic bool contacts;   /* some rank has connected to this one first (kolo_member.calls_on) */
    double connect_asked_us; /* when a wait inside connect() last looked around; links.lock */
    void (*serve)(struct kolo_comm *comm); /* called at each look, also after a failure; or NULL */
    bool lives;                            /* it uses the socket of core/health/life.h */
};

#endif
