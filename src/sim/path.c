// SPDX-License-Identifier: Apache-2.0
/* The critical path: from the op that ends last back over what each op waited for. */
#include "sim/report.h"

#include <math.h>

static const struct kolo_sim_op *op_of(const struct kolo_sim_result *r,
                                       const struct kolo_sim_moment *m)
{
    return &kolo_sim_prog_of(&r->set, m->rank)->op[m->op];
}

static enum kolo_sim_kind_of_time kind_of(const struct kolo_sim_op *op)
{
    if (op->code != KOLO_DO_MOVE) {
        return KOLO_SIM_SERVING;
    }
    return op->nsrc > 1 ? KOLO_SIM_ADDING : KOLO_SIM_COPYING;
}

static void pass_rank(struct kolo_sim_path *path, int rank)
{
    const int room = (int)KOLO_LENGTH(path->rank);
    const int newest = path->ranks < room ? path->ranks - 1 : room - 1;
    if (path->ranks > 0 && path->rank[newest] == rank && path->ranks <= room) {
        return;
    }
    if (path->ranks < room) {
        path->rank[path->ranks] = rank;
    }
    path->ranks++;
}

void kolo_sim_path_find(const struct kolo_sim_result *result, struct kolo_sim_path *out)
{
    *out = (struct kolo_sim_path){0};
    if (result->last < 0) { /* one rank may have nothing to do */
        out->total_us = out->us[KOLO_SIM_SERVING] = result->total_us;
    }
    for (int at = result->last; at >= 0; at = result->moment[at].cause) {
        const struct kolo_sim_moment *m = &result->moment[at];
        const struct kolo_sim_op *op = op_of(result, m);
        const double before_us = m->cause >= 0 ? result->moment[m->cause].end_us : m->ready_us;
        /* bytes may be on the wire while the sender's core, which counts, gives the others */
        const double carried_us = m->ready_us - before_us - m->latency_us;
        const double wire_us = fmax(0, fmin(m->wire_us, carried_us));
        const double rest_us = carried_us - wire_us;
        out->total_us = at == result->last ? m->end_us : out->total_us;
        out->us[KOLO_SIM_SERVING] += m->cause < 0 ? m->ready_us : 0;
        out->us[kind_of(op)] += m->end_us - m->begin_us;
        out->us[KOLO_SIM_QUEUEING] += m->begin_us - m->ready_us;
        out->us[KOLO_SIM_LATENCY] += m->latency_us;
        out->us[KOLO_SIM_BYTES] += wire_us;
        out->us[KOLO_SIM_SHARING] += rest_us > 0 ? rest_us : 0;
        out->messages += op->code == KOLO_DO_TAKEN && m->latency_us + m->wire_us > 0;
        out->lines += op->code == KOLO_DO_WAIT && m->latency_us > 0;
        pass_rank(out, m->rank);
    }
}

void kolo_sim_path_say(const struct kolo_sim_path *path, struct kolo_text *out)
{
    static const char *const words[KOLO_SIM_TIMES] = {
        "copies",          "additions",         "processor time of messages, lines and the call",
        "latency",         "bytes on the wire", "waits for other messages",
        "waits for a core"};
    bool told[KOLO_SIM_TIMES] = {false};
    const int room = (int)KOLO_LENGTH(path->rank);
    kolo_text_add(out, "Critical path: %.2f us, %d messages and %d lines.", path->total_us,
                  path->messages, path->lines);
    for (int i = 0; i < KOLO_SIM_TIMES; i++) {
        int best = -1;
        for (int k = 0; k < KOLO_SIM_TIMES; k++) {
            if (!told[k] && (best < 0 || path->us[k] > path->us[best])) {
                best = k;
            }
        }
        told[best] = true;
        if (path->us[best] > 0.0005 * path->total_us) {
            kolo_text_add(out, "%s %.1f %% %s (%.2f us)", i == 0 ? "" : ",",
                          100 * path->us[best] / path->total_us, words[best], path->us[best]);
        }
    }
    kolo_text_add(out, ". It ends on rank");
    for (int i = 0; i < path->ranks && i < room; i++) {
        kolo_text_add(out, "%s %d", i == 0 ? "" : ", which waited for", path->rank[i]);
    }
    kolo_text_add(out, "%s.\n", path->ranks > room ? ", and so on" : "");
}
