// SPDX-License-Identifier: Apache-2.0
/* A rank that is stopped while it writes to another's memory, and goes on when that one has long
 * got its buffer back.
 *
 * Rank 0 broadcasts for ever into memory that both share, and is stopped by late_test.py. Rank 1
 * fails at its time-out, fills its buffer and says so; once told that rank 0 runs again, and has
 * ended, it looks at every byte; and at those of a new buffer, in case its pages were given out
 * again.
 *
 * usage: late KILOBYTES TIMEOUT_MS */
#include <kolo/kolo.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool holds(const unsigned char *at, int byte, size_t bytes)
{
    size_t i = 0;
    while (i < bytes && at[i] == byte) {
        i++;
    }
    return i == bytes;
}

static void say(const char *what)
{
    (void)puts(what);
    (void)fflush(stdout);
}

static int look_after(unsigned char *buffer, size_t bytes)
{
    unsigned char *other = NULL;
    memset(buffer, 0x5a, bytes);
    if (kolo_mem_alloc(bytes, (void **)&other) != KOLO_OK) {
        return 1;
    }
    memset(other, 0x3c, bytes);
    say("mine");
    (void)getchar(); /* rank 0 has gone on, and ended */
    const bool same = holds(buffer, 0x5a, bytes) && holds(other, 0x3c, bytes);
    kolo_mem_free(buffer);
    kolo_mem_free(other);
    say(same ? "unchanged" : "changed");
    return same ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct kolo_comm *comm = NULL;
    struct kolo_config config = KOLO_CONFIG_INIT;
    unsigned char *buffer = NULL;
    const size_t bytes = (size_t)(argc > 1 ? atoi(argv[1]) : 64) << 10;
    config.timeout_ms = argc > 2 ? atoi(argv[2]) : 300;
    if (kolo_comm_create_env(&config, &comm) != KOLO_OK ||
        kolo_mem_alloc(bytes, (void **)&buffer) != KOLO_OK) {
        (void)fprintf(stderr, "%s\n", kolo_error_text());
        return 2;
    }
    kolo_status st = KOLO_OK;
    for (int i = 0; st == KOLO_OK; i++) {
        memset(buffer, kolo_comm_rank(comm) == 0 ? i : 0, 64);
        st = kolo_broadcast(buffer, buffer, bytes, KOLO_UINT8, 0, comm, NULL);
        if (i == 20) {
            say("works");
        }
    }
    const int result = kolo_comm_rank(comm) == 1 ? look_after(buffer, bytes) : 0;
    kolo_comm_destroy(comm);
    return result;
}
