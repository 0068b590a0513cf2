// SPDX-License-Identifier: Apache-2.0
/* Connections to the reserved ports of other hosts' ranks, closed as soon as they are up.
 *
 * The kernel of a host answers for its processes: it accepts a connection to a port where one
 * listens, also if that one is stopped or busy, and refuses it where none does. So a refusal means
 * that the rank has left, or that its process has ended. No answer means nothing: the network or
 * the host may be down. Source: connect(2), ECONNREFUSED; RFC 9293, section 3.5.2. */
#include "core/setup/probe.h"

#include "core/health/gone.h"
#include "util/net.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

/* A meeting that succeeds takes less than FIRST_US, so it costs no probe. */
enum { FIRST_US = 100 * 1000, SWEEP_US = 500 * 1000, ANSWER_US = 1000 * 1000 };

static void take_answer(struct kolo_comm *c, int q, int error)
{
    if (error == ECONNREFUSED) {
        KOLO_LOG(INFO, NET, "comm %p rank %d: rank %d has closed its reserved port", (void *)c,
                 c->ranks.rank, q);
        kolo_gone_note(c, q);
    }
}

static void take_answers(struct kolo_probe *probe, struct kolo_comm *c, double now_us)
{
    int kept = 0;
    for (int i = 0; i < probe->ntries; i++) {
        const struct kolo_probe_try t = probe->tries[i];
        const int error = kolo_net_connected(t.fd, 0);
        if (error == EINPROGRESS && now_us - t.since_us < ANSWER_US) {
            probe->tries[kept++] = t;
        } else {
            close(t.fd);
            take_answer(c, t.rank, error);
        }
    }
    probe->ntries = kept;
}

/* The watchdog sees the ends of processes of this host. */
static bool is_elsewhere(const struct kolo_comm *c, int q)
{
    return q >= 0 && c->ranks.host_of[q] != c->ranks.host_of[c->ranks.rank] &&
           c->member[q].reserved.family != 0 && !kolo_gone_is(c, q);
}

static void ask(struct kolo_probe *probe, struct kolo_comm *c, int q, double now_us)
{
    const int fd = kolo_net_connect(&c->member[q].reserved, NULL);
    if (fd >= 0) {
        probe->tries[probe->ntries++] = (struct kolo_probe_try){fd, q, now_us};
    } else {
        take_answer(c, q, errno);
    }
}

void kolo_probe_step(struct kolo_probe *probe, struct kolo_comm *c, const int *ranks, int nranks)
{
    const double now_us = kolo_now_us();
    if (probe->sweep_us == 0) {
        probe->sweep_us = now_us + FIRST_US;
        probe->next = nranks;
    }
    take_answers(probe, c, now_us);
    if (probe->next >= nranks && now_us >= probe->sweep_us) {
        probe->next = 0;
        probe->sweep_us = now_us + SWEEP_US;
    }
    for (; probe->next < nranks && probe->ntries < KOLO_PROBES; probe->next++) {
        if (is_elsewhere(c, ranks[probe->next])) {
            ask(probe, c, ranks[probe->next], now_us);
        }
    }
}

void kolo_probe_end(struct kolo_probe *probe)
{
    for (int i = 0; i < probe->ntries; i++) {
        close(probe->tries[i].fd);
    }
    probe->ntries = 0;
}
