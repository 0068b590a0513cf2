// SPDX-License-Identifier: Apache-2.0
/* Moments as trace events. The format: "Trace Event Format", Google, 2016; Perfetto's viewer reads
 * it. */
#include "sim/report.h"

static const char *name_of(const struct kolo_sim_op *op)
{
    switch ((enum kolo_code)op->code) {
    case KOLO_DO_WAIT:
        return "wait for lines";
    case KOLO_DO_MOVE:
        return op->nsrc > 1 ? "reduce" : "copy";
    case KOLO_DO_SIGNAL:
        return "signal";
    case KOLO_DO_SEND:
        return "send";
    case KOLO_DO_TAKEN:
        return "receive";
    default:
        return "end of tile";
    }
}

struct writer {
    const struct kolo_sim_result *result;
    FILE *file;
    int per_host;
    bool began;
};

static void begin_event(struct writer *w, const char *phase, const struct kolo_sim_moment *m)
{
    (void)fprintf(w->file, "%s\n{\"ph\":\"%s\",\"pid\":%d,\"tid\":%d", w->began ? "," : "", phase,
                  m->rank / w->per_host, m->rank * KOLO_LANES + m->lane);
    w->began = true;
}

static void name_threads(struct writer *w)
{
    int host = -1;
    for (int r = 0; r < w->result->simulated; r++) {
        const struct kolo_sim_prog *p = kolo_sim_prog_of(&w->result->set, r);
        struct kolo_sim_moment m = {.rank = r};
        if (r / w->per_host != host) {
            host = r / w->per_host;
            begin_event(w, "M", &m);
            (void)fprintf(w->file, ",\"name\":\"process_name\",\"args\":{\"name\":\"host %d\"}}",
                          host);
        }
        for (m.lane = 0; m.lane < p->nlanes; m.lane++) {
            begin_event(w, "M", &m);
            (void)fprintf(w->file,
                          ",\"name\":\"thread_name\",\"args\":{\"name\":\"rank %d lane %d\"}}", r,
                          m.lane);
        }
    }
}

static void write_op(struct writer *w, const struct kolo_sim_moment *m)
{
    const struct kolo_sim_op *op = &kolo_sim_prog_of(&w->result->set, m->rank)->op[m->op];
    begin_event(w, "X", m);
    (void)fprintf(w->file,
                  ",\"name\":\"%s\",\"ts\":%.6f,\"dur\":%.6f,\"args\":{\"op\":%d,\"tile\":%u,"
                  "\"bytes\":%llu}}",
                  name_of(op), m->begin_us, m->end_us - m->begin_us, m->op, m->tile,
                  (unsigned long long)op->bytes);
}

/* An arrow from what the op waited for. */
static void write_arrow(struct writer *w, const struct kolo_sim_moment *m, int id)
{
    const struct kolo_sim_moment *from = m->cause >= 0 ? &w->result->moment[m->cause] : NULL;
    if (from == NULL || from->rank == m->rank) {
        return;
    }
    begin_event(w, "s", from);
    (void)fprintf(w->file, ",\"name\":\"message\",\"cat\":\"message\",\"id\":%d,\"ts\":%.6f}", id,
                  from->end_us);
    begin_event(w, "f", m);
    (void)fprintf(w->file,
                  ",\"bp\":\"e\",\"name\":\"message\",\"cat\":\"message\",\"id\":%d,\"ts\":%.6f}",
                  id, m->begin_us);
}

bool kolo_sim_trace_write(const struct kolo_sim_result *result,
                          const struct kolo_sim_options *options, FILE *file)
{
    const int given = options->machine->ranks_per_host;
    struct writer w = {
        .result = result, .file = file, .per_host = given > 0 ? given : options->nranks};
    (void)fprintf(file, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
    name_threads(&w);
    for (int i = 0; i < result->nmoments; i++) {
        write_op(&w, &result->moment[i]);
        write_arrow(&w, &result->moment[i], i);
    }
    (void)fprintf(file, "\n]}\n");
    return fflush(file) == 0 && ferror(file) == 0;
}
