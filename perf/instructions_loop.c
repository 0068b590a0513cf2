// SPDX-License-Identifier: Apache-2.0
/* Calls of 8 bytes in a row, for instructions.py to count: instructions_loop COLLECTIVE CALLS. */
#include <kolo/kolo.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 2, RANKS_MAX = 64 };

static kolo_status call(const char *name, struct kolo_comm *c)
{
    static float in[COUNT * RANKS_MAX], out[COUNT * RANKS_MAX];
    if (strcmp(name, "all_reduce") == 0) {
        return kolo_all_reduce(in, out, COUNT, KOLO_FLOAT32, KOLO_SUM, c, NULL);
    } else if (strcmp(name, "reduce") == 0) {
        return kolo_reduce(in, out, COUNT, KOLO_FLOAT32, KOLO_SUM, 0, c, NULL);
    } else if (strcmp(name, "broadcast") == 0) {
        return kolo_broadcast(in, out, COUNT, KOLO_FLOAT32, 0, c, NULL);
    } else if (strcmp(name, "all_gather") == 0) {
        return kolo_all_gather(in, out, COUNT, KOLO_FLOAT32, c, NULL);
    } else if (strcmp(name, "reduce_scatter") == 0) {
        return kolo_reduce_scatter(in, out, COUNT, KOLO_FLOAT32, KOLO_SUM, c, NULL);
    } else if (strcmp(name, "all_to_all") == 0) {
        return kolo_all_to_all(in, out, COUNT, KOLO_FLOAT32, c, NULL);
    }
    return kolo_barrier(c, NULL);
}

int main(int argc, char **argv)
{
    struct kolo_comm *comm = NULL;
    kolo_status st = argc == 3 ? kolo_comm_create_env(NULL, &comm) : KOLO_ERR_INVALID;
    const long calls = argc == 3 ? strtol(argv[2], NULL, 10) : 0;
    if (st == KOLO_OK && kolo_comm_size(comm) > RANKS_MAX) {
        st = KOLO_ERR_UNSUPPORTED;
    }
    for (long i = 0; i < calls && st == KOLO_OK; i++) {
        st = call(argv[1], comm);
    }
    if (st != KOLO_OK) {
        fprintf(stderr, "instructions_loop: %s\n", kolo_error_text());
    }
    kolo_comm_destroy(comm);
    return st == KOLO_OK ? 0 : 1;
}
