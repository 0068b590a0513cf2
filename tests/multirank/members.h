// SPDX-License-Identifier: Apache-2.0
/* A trial of members.c: its plan, and what its ranks report. */
#ifndef KOLO_TESTS_MEMBERS_H
#define KOLO_TESTS_MEMBERS_H

#include <kolo/kolo.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { MOST_OLD = 8, MOST_NEW = 2, MOST = MOST_OLD + MOST_NEW, STEPS = 40, TEXT = 300 };

enum operation { START, CALLS, IDLE, AGREE, SHRINK, GROW, RECONFIGURE, DESTROY, OPERATIONS };
extern const char *const operation_names[]; /* [OPERATIONS] */
enum fault { KILL, STOP, PAUSE }; /* a pause is a stop that ends long before the time-out */

struct trial {
    enum operation operation;
    enum fault fault;
    int timeout_ms;
    uint64_t seed; /* of the calls */
    bool tcp;      /* also where shared memory is possible */
    int nold, nnew, nmembers;
    int members[MOST];   /* of reconfigure: ranks, -1 */
    int victim_us[MOST]; /* when it is hit; -1: it is no victim */
    int host[MOST];
};

struct step { /* an agreement that a rank got the result of */
    int epoch;
    uint64_t word, failed;
};

struct report {
    _Atomic int nsteps;
    struct step step[STEPS];
    kolo_status changed, last; /* of the operation; of all that followed */
    int size, epoch;
    bool wrong; /* a result was */
    char text[TEXT];
    /* What ended the first communicator. -1: no rank is named; -2: it has not failed. */
    kolo_status failed;
    int named;
    /* When the operation began; the rank was hit; a call first failed; a sum of the survivors was
     * right; a sum of old and new ranks was. 0: never. */
    double begun_ms, hit_ms, failed_ms, back_ms, grown_ms;
};

struct shared {
    _Atomic int started; /* old ranks; by then there is an id */
    struct kolo_id id;
    struct report report[MOST];
};

extern struct shared *shared;
extern struct trial trial;

double now_ms(void);

/* Whether the rank is among those that carry out the operation. */
bool takes_part(int rank);

/* Be this rank of the trial, and write what happens into its report. Old ranks come first. */
void run_rank(int rank);

/* ---- what is found, over all trials ---- */

/* Compare the reports of a trial that all have ended. */
void check_trial(int number);
/* No rank may be running any more, and some are. */
void complain_of_hang(int number);
/* Print lines of times, "ms to WHAT: TIME ...", and a line of counts, "NUMBER WHAT, ...". Returns
 * how many complaints there were. */
int print_findings(int trials);

#endif
