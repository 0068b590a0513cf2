// SPDX-License-Identifier: Apache-2.0
/* The hub in two parts: hub.c is a thread that reads connections and keeps the deadlines. hub_job.c
 * knows the ranks, and decides which frames they get.
 *
 *   accepted --HELLO--> challenged --PROVE--> joined --(all came)--> exchanges --> left
 *
 * A connection changes no state of the job before its proof. After the first error every rank, also
 * one that joins a little later, gets the same error text. */
#ifndef KOLO_BOOT_HUB_H
#define KOLO_BOOT_HUB_H

#include "boot/wire.h"
#include "util/descriptor.h"

/* The states of a connection. TOLD: it has its error, and its input is ignored. */
enum kolo_conn_state { KOLO_CONN_ACCEPTED, KOLO_CONN_CHALLENGED, KOLO_CONN_JOINED, KOLO_CONN_TOLD };
/* The states of a rank. OUT: nobody waits for it, as kolo_meet.absent says. */
enum kolo_rank_state {
    KOLO_RANK_ABSENT,
    KOLO_RANK_HERE,
    KOLO_RANK_LEFT,
    KOLO_RANK_DIED,
    KOLO_RANK_OUT
};

struct kolo_conn {
    int fd;                 /* -1: closed, to be swept */
    struct kolo_own_fd own; /* the same */
    enum kolo_conn_state state;
    pid_t pid;
    int rank;
    bool arrived;  /* contributed to the present exchange */
    bool said_bye; /* the rank sent BYE */
    bool told_bye; /* the hub answered BYE */
    double deadline_us;
    struct kolo_boot_hello hello;
    struct kolo_boot_guard guard;
    struct kolo_boot_header in;   /* the frame being read: only a sealed one is looked at */
    size_t got;                   /* bytes read of header and body */
    unsigned char *body;          /* the place of its body */
    struct kolo_boot_error error; /* the reason if it gives up */
    unsigned char *out;           /* bytes that the socket has not taken yet */
    size_t out_len, out_cap;
};

struct kolo_hub {
    struct kolo_meet meet;
    int listener[2];           /* on this host, and by TCP; -1: none */
    struct kolo_own_fd own[2]; /* the same */
    int reserved_fd; /* closed when no other is left, so that new ranks get the error; -1: closed */
    int host_rank;
    bool encrypts; /* KOLO_ENCRYPT */
    int nranks;    /* 0: no rank has joined */
    int first;     /* the rank that set nranks */
    int njoined, nleft;
    int nout; /* ranks that are waited for by nobody */
    bool complete, failed, exchanging;
    unsigned char *ranks; /* enum kolo_rank_state [nranks] */
    struct kolo_conn **conns;
    struct pollfd *polls;
    size_t nconns, cap;
    uint32_t seq; /* of the present or the next exchange */
    size_t bytes; /* its bytes for each rank, set by rank `bytes_from` */
    int bytes_from, narrived;
    bool spreading;     /* rank 0's bytes go to all ranks; the others send none */
    unsigned char *all; /* the answer to all ranks: nranks * bytes, or rank 0's bytes */
    size_t all_bytes;
    int nunproven; /* connections that named a rank but did not prove the secret */
    int unproven_rank;
    double linger_until_us;
    double warn_us; /* when to warn of the ranks for which the others wait */
    struct kolo_boot_error error;
    uint32_t ended; /* 1 + the rank whose end is the reason; 0: none is known */
};

/* Which ranks a list names: those that have not joined, those whose contribution to the exchange has
 * not come, those that have left or died. */
enum kolo_hub_pick { KOLO_HUB_ABSENT, KOLO_HUB_MISSING, KOLO_HUB_GONE };
enum { KOLO_HUB_LIST_CHARS = 264 };

/* "rank 3", "ranks 1, 4-7" or "ranks 1, 4-7 and 90 more". */
void kolo_hub_list(const struct kolo_hub *hub, enum kolo_hub_pick pick,
                   char out[KOLO_HUB_LIST_CHARS]);
/* The lowest of them; hub->nranks: there is none. */
int kolo_hub_first(const struct kolo_hub *hub, enum kolo_hub_pick pick);

/* HELLO came: send the challenge. */
void kolo_hub_challenge(struct kolo_hub *hub, struct kolo_conn *conn);
/* PROVE came: the rank joins, or gets its error. */
void kolo_hub_join(struct kolo_hub *hub, struct kolo_conn *conn);
/* The header of a contribution came: choose the place of its payload. False: it is refused. */
bool kolo_hub_begin(struct kolo_hub *hub, struct kolo_conn *conn);
/* The payload of a contribution is complete. The last one is answered to all ranks. */
void kolo_hub_end(struct kolo_hub *hub, struct kolo_conn *conn);
/* The rank gives up, and has sent its error. */
void kolo_hub_give_up(struct kolo_hub *hub, struct kolo_conn *conn);
/* The connection has ended, or must end. A job that cannot go on without it fails. */
void kolo_hub_lose(struct kolo_hub *hub, struct kolo_conn *conn);
/* The connection sent an invalid frame. A stranger is disconnected; a rank fails the job. */
void kolo_hub_refuse(struct kolo_hub *hub, struct kolo_conn *conn);
/* The deadline of the connection has passed. */
void kolo_hub_time_out(struct kolo_hub *hub, struct kolo_conn *conn);
/* Warn of the ranks for which the others wait. */
void kolo_hub_warn(struct kolo_hub *hub);
/* The job fails: every rank gets the error, now or when it joins. */
void kolo_hub_fail(struct kolo_hub *hub, kolo_status status, const char *format, ...)
    KOLO_PRINTF(3, 4);
/* Answer BYE to the ranks that wait for it once all output is delivered. */
void kolo_hub_part(struct kolo_hub *hub);
/* Write pending output to the socket. */
void kolo_hub_flush(struct kolo_conn *conn);

#endif
