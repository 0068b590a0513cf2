// SPDX-License-Identifier: Apache-2.0
/* The results of `kolo sim`: a table with the columns of nccl-tests, and JSON. */
#include "tools/sim/sim.h"
#include "tune/tune.h"

#include <string.h>

static double bus_factor(enum kolo_coll coll, int n)
{
    switch (coll) {
    case KOLO_COLL_ALL_REDUCE:
        return 2.0 * (n - 1) / n;
    case KOLO_COLL_REDUCE:
    case KOLO_COLL_BROADCAST:
    case KOLO_COLL_BARRIER:
        return 1;
    default:
        return (n - 1.0) / n;
    }
}

void sim_row_rate(const struct sim_sweep *sweep, struct sim_row *row)
{
    row->algbw = row->us > 0 ? (double)row->size / row->us * 1e-3 : 0;
    row->busbw = row->algbw * bus_factor(sweep->coll, sweep->nranks);
}

/* ---- the table ---- */

void sim_print_error(const struct kolo_sim_machine *machine, int nranks, FILE *out)
{
    if (machine->error == 0) {
        (void)fprintf(out, "# the error of this machine's times is not known\n");
        return;
    }
    (void)fprintf(out, "# times measured on up to %d ranks were %.0f %% off on average",
                  machine->error_ranks, machine->error);
    if (machine->error_95 > 0) {
        (void)fprintf(out, ", 95 of 100 at most %.0f %%", machine->error_95);
    }
    (void)fprintf(out, "%s\n", nranks > machine->error_ranks ? "; more ranks are a guess" : "");
}

static void print_number(FILE *out, double value, int width)
{
    char text[32];
    for (int decimals = 2; decimals >= 0; decimals--) {
        if (snprintf(text, sizeof text, "%.*f", decimals, value) <= width) {
            break;
        }
    }
    (void)fprintf(out, "  %*s", width, text);
}

static void print_half(FILE *out, const struct sim_row *row)
{
    print_number(out, row->us, 7);
    print_number(out, row->algbw, 6);
    print_number(out, row->busbw, 6);
    (void)fprintf(out, "  %6s", "N/A");
}

static void print_row(const struct sim_sweep *sweep, const struct sim_row *row, FILE *out)
{
    const bool reduces = kolo_coll_reduces(sweep->coll);
    (void)fprintf(out, "%12zu  %12zu  %8s  %6s  %6d", row->size, row->count, "float",
                  reduces ? "sum" : "none", kolo_coll_rooted(sweep->coll) ? sweep->root : -1);
    print_half(out, row); /* the model knows no difference in place */
    print_half(out, row);
    (void)fprintf(out, "\n");
}

static void print_header(FILE *out)
{
    (void)fprintf(out, "#%51s%11s%-22s%13s%-18s\n", "", "", "out-of-place", "", "in-place");
    (void)fprintf(out, "# %10s  %12s  %8s  %6s  %6s", "size", "count", "type", "redop", "root");
    for (int half = 0; half < 2; half++) {
        (void)fprintf(out, "  %7s  %6s  %6s  %6s", "time", "algbw", "busbw", "#wrong");
    }
    (void)fprintf(out, "\n# %10s  %12s  %8s  %6s  %6s", "(B)", "(elements)", "", "", "");
    for (int half = 0; half < 2; half++) {
        (void)fprintf(out, "  %7s  %6s  %6s  %6s", "(us)", "(GB/s)", "(GB/s)", "");
    }
    (void)fprintf(out, "\n");
}

/* How the time was found: the algorithm if `named`, and what was not simulated. */
static void add_way(const struct sim_sweep *sweep, const struct sim_row *row, bool named,
                    struct kolo_text *out)
{
    const struct kolo_sim_result *r = &row->result;
    kolo_text_add(out, "%s", named ? kolo_algo_word(row->algo) : "");
    if (r->simulated < sweep->nranks) {
        kolo_text_add(out, "%s%d ranks stand for all", out->len > 0 ? "; " : "", r->simulated);
    }
    if (r->walked < r->tiles) {
        kolo_text_add(out, "%s%u of %u tiles, the others in the steady state",
                      out->len > 0 ? "; " : "", r->walked, r->tiles);
    }
}

void sim_print_table(const struct sim_sweep *sweep, const struct kolo_algo *algo, FILE *out)
{
    print_header(out);
    for (int i = 0; i < sweep->nrows; i++) {
        const struct sim_row *row = &sweep->row[i];
        struct kolo_text way = {0};
        if (algo != NULL ? row->algo != algo : !row->chosen) {
            continue;
        }
        print_row(sweep, row, out);
        add_way(sweep, row, algo == NULL, &way);
        if (way.len > 0) {
            (void)fprintf(out, "# %s\n", way.chars);
        }
        kolo_text_free(&way);
    }
}

void sim_print_best(const struct sim_sweep *sweep, FILE *out)
{
    for (int i = 0; i < sweep->nrows; i++) {
        const struct sim_row *first = &sweep->row[i], *best = first, *chosen = NULL;
        bool seen = false;
        for (int k = 0; k < sweep->nrows; k++) {
            const struct sim_row *row = &sweep->row[k];
            seen = seen || (k < i && row->size == first->size);
            if (row->size == first->size) {
                best = row->us < best->us ? row : best;
                chosen = row->chosen ? row : chosen;
            }
        }
        if (seen) {
            continue;
        }
        (void)fprintf(out, "# %zu bytes: %s is the fastest, %.2f us", first->size,
                      kolo_algo_word(best->algo), best->us);
        if (chosen != NULL) {
            (void)fprintf(out, "; kolo would choose %s, %.2f us (+%.1f %%)",
                          kolo_algo_word(chosen->algo), chosen->us,
                          best->us > 0 ? 100 * (chosen->us / best->us - 1) : 0);
        }
        (void)fprintf(out, "\n");
    }
}

/* ---- JSON ---- */

/* A name of a file may hold anything. */
static void add_string(struct kolo_text *out, const char *text)
{
    kolo_text_add(out, "\"");
    for (; *text != '\0'; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\' || c < 0x20) {
            kolo_text_add(out, "\\u%04x", c);
        } else {
            kolo_text_add(out, "%c", c);
        }
    }
    kolo_text_add(out, "\"");
}

void sim_add_json(const struct sim_sweep *sweep, struct kolo_text *out)
{
    const struct kolo_sim_machine *m = sweep->values;
    const struct kolo_costs *c = &m->costs;
    kolo_text_add(out, "{\"collective\": \"%s\", \"ranks\": %d, \"root\": %d, \"machine\": ",
                  kolo_coll_name(sweep->coll), sweep->nranks, sweep->root);
    add_string(out, sweep->machine);
    kolo_text_add(out,
                  ", \"costs\": {\"cores\": %d, \"latency_us\": %g, \"step_us\": %g, "
                  "\"copy_gbs\": %.4g, \"reduce_gbs\": %.4g, \"net_latency_us\": %g, "
                  "\"net_gbs\": %.4g, \"net_message_us\": %g}",
                  c->cores, c->latency_us, c->step_us, 1e-3 / c->copy_us_per_byte,
                  1e-3 / c->reduce_us_per_byte, c->net.latency_us, 1e-3 / c->net.copy_us_per_byte,
                  c->net_message_us);
    if (m->error > 0) {
        kolo_text_add(out, ", \"error\": {\"mean\": %g, \"of_95_in_100\": %g, \"ranks\": %d}",
                      m->error, m->error_95, m->error_ranks);
    }
    kolo_text_add(out, ", \"results\": [");
    for (int i = 0; i < sweep->nrows; i++) {
        const struct sim_row *row = &sweep->row[i];
        const struct kolo_sim_result *r = &row->result;
        kolo_text_add(
            out,
            "%s\n {\"algorithm\": \"%s\", \"size\": %zu, \"count\": %zu, \"time\": %.9g, "
            "\"alg_bw\": %.6g, \"bus_bw\": %.6g, \"chosen\": %s, \"simulated_ranks\": %d, "
            "\"tiles\": %u, \"simulated_tiles\": %u, \"steps\": %zu, \"events\": %zu, "
            "\"busiest_core_us\": %.9g, \"busiest_nic_us\": %.9g}",
            i > 0 ? "," : "", row->algo->base.name, row->size, row->count, row->us, row->algbw,
            row->busbw, row->chosen ? "true" : "false", r->simulated, r->tiles, r->walked, r->steps,
            r->events, r->busiest_us, r->wire_us);
    }
    kolo_text_add(out, "\n]}\n");
}
