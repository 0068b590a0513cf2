// SPDX-License-Identifier: Apache-2.0
/* The start of a job: how long ranks take to launch, to meet at the hub of rank 0, to make a
 * communicator, and to make their first call.
 *
 * The hub is one thread that handles each message of each rank in turn (boot/hub.c). In a round it
 * gets a rank's bytes and sends those of all ranks to each, so its bytes grow with the square of the
 * ranks. To ranks of its own host it gives a long answer as memory, written once (boot/share.c). The
 * ranks of a host share its cores. The constants start_... of a machine are fitted by
 * perf/sim_start.py.
 */
#ifndef KOLO_SIM_START_H
#define KOLO_SIM_START_H

#include "sim/machine.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KOLO_SIM_START_STEPS = 8 };

/* A frame's header (boot/wire.h), and what a rank tells in the three rounds: struct kolo_hello,
 * kolo_address and kolo_ready of core/setup. tests/sim/sizes.c compares them. */
enum {
    KOLO_SIM_HEADER_BYTES = 48,
    KOLO_SIM_HELLO_BYTES = 184,
    KOLO_SIM_ADDRESS_BYTES = 532,
    KOLO_SIM_READY_BYTES = 312,
    KOLO_SIM_SHARE_BYTES = 32 << 10 /* a long answer: KOLO_BOOT_SHARE_BYTES */
};

struct kolo_sim_start_step {
    const char *name;
    int trips;              /* to the hub and back, one after the other */
    double messages, bytes; /* of all ranks, in and out of the hub */
    double us;
};

struct kolo_sim_start {
    struct kolo_sim_start_step step[KOLO_SIM_START_STEPS];
    int nsteps;
    double create_us; /* from the launched processes to communicators, without the first call */
    double total_us;
};

/* The start of `nranks` ranks. Pure. */
void kolo_sim_start(const struct kolo_sim_machine *machine, int nranks, struct kolo_sim_start *out);

#ifdef __cplusplus
}
#endif
#endif
