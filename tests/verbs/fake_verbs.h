// SPDX-License-Identifier: Apache-2.0
/* A libibverbs in memory, for ranks that are threads of one process: reliable queue pairs whose
 * work requests are carried out a step at a time, by chance in any order between queue pairs,
 * whenever somebody polls. Each part of it that can fail does so as asked. One seed makes one run,
 * where one thread drives all ranks. */
#ifndef KOLO_TESTS_FAKE_VERBS_H
#define KOLO_TESTS_FAKE_VERBS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fake_verbs_rules {
    uint64_t seed;
    int devices;            /* of one port each */
    int apart;              /* 1: each device is on a subnet of its own */
    int crossed;            /* 1: who opens devices as the second finds the subnets reversed */
    uint32_t inline_bytes;  /* the most that goes inline */
    uint32_t message_bytes; /* the largest work request */
    int entries;            /* the most in a completion queue */
    /* Chances in a million, for each step. */
    uint32_t not_ready; /* the receiver has none posted, it seems */
    uint32_t part;      /* only some of the bytes are written yet */
    uint32_t broken;    /* the queue pair fails */
    uint32_t lost;      /* it fails after the bytes came, before the sender knows */
    uint32_t flap;      /* a port goes down, or comes back */
    uint32_t twice;     /* the receiver is told twice of a write, as if a packet's retry were new */
    size_t locked;      /* bytes that may be registered; 0: any */
    int refuse_dma_buf; /* the errno of its registration; 0: it works */
    int refuse_host;    /* the same of other memory */
    int stuck;          /* this device, counted from 1, carries nothing; 0: none */
    int late_ms; /* who polls soon after fake_verbs_break() sees nothing for that long; 0: never */
};

struct fake_verbs_counts {
    uint64_t writes, parts, not_ready, broken, lost, flaps, twice; /* how often it was so */
    int contexts, pds, cqs, qps, mrs, channels;                    /* that are there now */
    size_t registered;                                             /* bytes */
    int unseen;                                                    /* completions in queues */
    uint64_t dma_bufs, direct; /* registered so far; bytes that went from or to them */
};

/* As before the first call: two devices, no faults. */
void fake_verbs_reset(void);
void fake_verbs_rule(const struct fake_verbs_rules *rules);
struct fake_verbs_rules fake_verbs_rules_of(void);
struct fake_verbs_counts fake_verbs_count(void);
/* Take a device's port down, or up again. */
void fake_verbs_port(int device, int up);
/* Fail all queue pairs that are on a device's port, or with -1 all there are. */
void fake_verbs_break(int device);

#ifdef __cplusplus
}
#endif
#endif
