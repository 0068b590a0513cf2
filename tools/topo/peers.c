// SPDX-License-Identifier: Apache-2.0
/* Tries peer-to-peer between GPUs with data. A child process tries pair after pair, and reports
 * each by a pipe.
 *
 * A pair that fails or does not answer is the last pair of its child, because the driver's state in
 * that child cannot be trusted. Another child then continues with the next pair. A driver that does
 * not answer at all is not asked again. */
#include "tools/topo/peers.h"

#include "cuda/peer_access.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    BYTES = 16 << 20,
    TIMEOUT_MS = 5000,
    /* Drivers need seconds to start and to make contexts, and a minute on machines with many GPUs.
     */
    PATIENCE_MS = 90000
};

_Static_assert(sizeof(struct kolo_probed) <= PIPE_BUF, "arrives whole");

/* ---- the child ---- */

static bool tell_parent(int fd, const struct kolo_probed *pair)
{
    return write(fd, pair, sizeof *pair) == (ssize_t)sizeof *pair;
}

/* Try one pair and report it. False: the child must end. */
static bool try_pair(const struct kolo_cuda *cuda, struct kolo_probed *pair, int fd)
{
    for (int i = 0; i < 2; i++) {
        if (kolo_cuda_bus(cuda, pair->gpu[i], pair->bus[i], sizeof pair->bus[i]) < 0) {
            pair->bus[i][0] = '\0';
        }
    }
    pair->status = KOLO_INPROGRESS;
    if (!tell_parent(fd, pair)) {
        return false;
    }
    pair->status = kolo_peer_access_try(cuda, pair->gpu, BYTES, TIMEOUT_MS, &pair->gbs);
    if (pair->status != KOLO_OK) {
        (void)snprintf(pair->error, sizeof pair->error, "%s", kolo_error_text());
    }
    return tell_parent(fd, pair) &&
           (pair->status == KOLO_OK || pair->status == KOLO_ERR_UNSUPPORTED);
}

static void try_pairs(int first, int fd)
{
    const struct kolo_cuda *cuda = NULL;
    int count = 0, number = 0;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (kolo_cuda_open(&cuda) != KOLO_OK || cuda->device_get_count(&count) != KOLO_CUDA_OK) {
        return;
    }
    for (int a = 0; a < count; a++) {
        for (int b = a + 1; b < count; b++, number++) {
            struct kolo_probed pair = {.number = number, .gpu = {a, b}};
            if (number >= first && !try_pair(cuda, &pair, fd)) {
                return;
            }
        }
    }
}

/* ---- the parent ---- */

struct probe_listener {
    void (*tell)(void *arg, const struct kolo_probed *pair);
    void *arg;
    bool silent; /* the driver did not answer at all */
};

/* Kill a child and wait for its end, for at most 2 s: a process that hangs in the kernel dies only
 * when the driver lets it. */
static void reap_child(pid_t child)
{
    const struct timespec nap = {0, 10000000};
    (void)kill(child, SIGKILL);
    for (int i = 0; i < 200 && waitpid(child, NULL, WNOHANG) == 0; i++) {
        (void)nanosleep(&nap, NULL);
    }
}

/* Read a child's answer. Returns 1: an answer; 0: no answer in PATIENCE_MS; -1: the child has ended
 * its output. */
static int read_answer(int fd, struct kolo_probed *pair)
{
    struct pollfd ready = {fd, POLLIN, 0};
    struct kolo_probed heard;
    int polled = 0;
    do {
        polled = poll(&ready, 1, PATIENCE_MS);
    } while (polled < 0 && errno == EINTR);
    if (polled <= 0) {
        return polled;
    }
    if (read(fd, &heard, sizeof heard) != (ssize_t)sizeof heard) {
        return -1;
    }
    *pair = heard;
    return 1;
}

/* Let a child try the pairs from `first` on. Returns the pair to continue with; -1: no more. */
static int listen_from(struct probe_listener *l, int first)
{
    struct kolo_probed pair = {.status = KOLO_OK};
    int ends[2];
    if (pipe(ends) != 0) {
        return -1;
    }
    const pid_t child = fork();
    if (child == 0) {
        (void)close(ends[0]);
        try_pairs(first, ends[1]);
        _exit(0);
    }
    (void)close(ends[1]);
    int heard = child > 0 ? 1 : -1;
    while (heard > 0 && (heard = read_answer(ends[0], &pair)) > 0) {
        if (pair.status != KOLO_INPROGRESS) {
            l->tell(l->arg, &pair);
        }
    }
    if (pair.status == KOLO_INPROGRESS) {
        (void)snprintf(pair.error, sizeof pair.error, "the driver %s",
                       heard == 0 ? "does not answer, no more pairs are tried"
                                  : "has ended the process");
        pair.status = KOLO_ERR_TIMEOUT;
        l->tell(l->arg, &pair);
    } else if (heard == 0) {
        l->silent = true;
    }
    (void)close(ends[0]);
    if (child > 0) {
        reap_child(child);
    }
    const bool tried_all = pair.status == KOLO_OK || pair.status == KOLO_ERR_UNSUPPORTED;
    return heard == 0 || tried_all ? -1 : pair.number + 1;
}

bool kolo_probe_pairs(void (*tell)(void *arg, const struct kolo_probed *pair), void *arg)
{
    struct probe_listener listener = {tell, arg, false};
    for (int next = 0; next >= 0;) {
        next = listen_from(&listener, next);
    }
    return !listener.silent;
}
