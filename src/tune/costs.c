// SPDX-License-Identifier: Apache-2.0
/* The costs that nobody measured: defaults, and KOLO_COSTS. See costs.h. */
#include "costs.h"

#include "tune.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* ---- defaults ---- */

/* Defaults beyond an L3.
 *
 * Latencies are round numbers between 35 ns and 215 ns. A flag took 35 ns within one L3, and 215 ns
 * after the cores of a virtual machine had been moved apart.
 *
 * Copies take about twice as long at the farthest. An all-reduce of 256 KiB took 8.7 us near and
 * 17 us on the moved cores. A broadcast of 1 MB took 115 us to the 24 ranks of a package and 206 us
 * to the 48 ranks of two (XHC, Cascade Lake). The values for the levels between are interpolated.
 */
static const struct far_default {
    double latency_us, copies; /* as long as near */
} far_defaults[] = {{0.1, 1.5}, {0.14, 1.75}, {0.22, 2}};

/* Between two packages. NCCL assumes 10 GB/s on Skylake, 16 on AMD, 22 on Sapphire Rapids. */
static const double CROSS_US_PER_BYTE = 5e-5;

/* Bytes that a message brought are added out of memory. An all-reduce of 2 MiB of 2 ranks over TCP
 * takes 745 us if each adds all of it (doubling), and 470 us if each adds one half (ring). */
#define NET_SUM_US_PER_BYTE 2.5e-4

/* Round numbers for a server whose two cores share no cache. */
const struct kolo_costs kolo_costs_default = {.size = sizeof(struct kolo_costs),
                                              .cores = 1,
                                              .latency_us = 0.2,
                                              .copy_us_per_byte = 5e-5,
                                              .reduce_us_per_byte = 2.5e-5,
                                              .step_us = 0.1,
                                              .switch_us = 1.0,
                                              .net = {30, 1e-3},
                                              .net_sum_us_per_byte = NET_SUM_US_PER_BYTE};

/* Keep a cost of at most `most`, else take the default. No machine needs more, so a larger value
 * was measured while other programs had the cores. */
static void bound_cost(double *cost, double most, double fallback)
{
    *cost = *cost > 0 && *cost <= most ? *cost : fallback;
}

void kolo_costs_keep_plausible(struct kolo_costs *costs)
{
    bound_cost(&costs->latency_us, 5, kolo_costs_default.latency_us);
    bound_cost(&costs->switch_us, 20, kolo_costs_default.switch_us);
    bound_cost(&costs->copy_us_per_byte, 1e-3, kolo_costs_default.copy_us_per_byte);
    bound_cost(&costs->reduce_us_per_byte, 1e-3, kolo_costs_default.reduce_us_per_byte);
}

void kolo_costs_complete(struct kolo_costs *costs)
{
    struct kolo_far near = {costs->latency_us, costs->copy_us_per_byte};
    for (size_t i = 0; i < KOLO_LENGTH(costs->far); i++) {
        struct kolo_far *far = &costs->far[i];
        bound_cost(&far->latency_us, 5, far_defaults[i].latency_us);
        bound_cost(&far->copy_us_per_byte, 1e-3, far_defaults[i].copies * costs->copy_us_per_byte);
        far->latency_us = far->latency_us > near.latency_us ? far->latency_us : near.latency_us;
        far->copy_us_per_byte = far->copy_us_per_byte > near.copy_us_per_byte
                                    ? far->copy_us_per_byte
                                    : near.copy_us_per_byte;
        near = *far;
    }
    bound_cost(&costs->cross_us_per_byte, 1e-3, CROSS_US_PER_BYTE);
}

/* ---- KOLO_COSTS ---- */

/* Parse a positive decimal number such as "0.2" or "1e-3", alike in every locale. */
static bool parse_number(const char *text, size_t len, double *out)
{
    double value = 0;
    double unit = 1;
    size_t i = 0;
    size_t digits = 0;
    bool fraction = false;
    for (; i < len && (text[i] == '.' || (text[i] >= '0' && text[i] <= '9')); i++) {
        if (text[i] == '.') {
            if (fraction) {
                return false;
            }
            fraction = true;
            continue;
        }
        unit = fraction ? unit / 10 : 1;
        value = fraction ? value + unit * (text[i] - '0') : value * 10 + (text[i] - '0');
        digits++;
    }
    if (i < len && text[i] == 'e') {
        char exponent[8] = {0};
        long power = 0;
        const size_t rest = len - i - 1;
        if (rest == 0 || rest >= sizeof exponent) {
            return false;
        }
        memcpy(exponent, text + i + 1, rest);
        if (!kolo_parse_int(exponent, -30, 30, &power)) {
            return false;
        }
        value *= pow(10, (double)power);
        i = len;
    }
    *out = value;
    return i == len && digits > 0 && value > 0 && value < 1e30;
}

struct cost_name {
    const char *name;
    size_t offset;
    bool gbs; /* 1e9 bytes a second, kept as us a byte */
};

static const struct cost_name cost_names[] = {
    {"latency_us", offsetof(struct kolo_costs, latency_us), false},
    {"copy_gbs", offsetof(struct kolo_costs, copy_us_per_byte), true},
    {"reduce_gbs", offsetof(struct kolo_costs, reduce_us_per_byte), true},
    {"step_us", offsetof(struct kolo_costs, step_us), false},
    {"switch_us", offsetof(struct kolo_costs, switch_us), false},
    {"numa_latency_us", offsetof(struct kolo_costs, far[0].latency_us), false},
    {"numa_gbs", offsetof(struct kolo_costs, far[0].copy_us_per_byte), true},
    {"package_latency_us", offsetof(struct kolo_costs, far[1].latency_us), false},
    {"package_gbs", offsetof(struct kolo_costs, far[1].copy_us_per_byte), true},
    {"host_latency_us", offsetof(struct kolo_costs, far[2].latency_us), false},
    {"host_gbs", offsetof(struct kolo_costs, far[2].copy_us_per_byte), true},
    {"cross_gbs", offsetof(struct kolo_costs, cross_us_per_byte), true},
    {"net_latency_us", offsetof(struct kolo_costs, net.latency_us), false},
    {"net_gbs", offsetof(struct kolo_costs, net.copy_us_per_byte), true},
    {"net_message_us", offsetof(struct kolo_costs, net_message_us), false},
    {"net_copy_gbs", offsetof(struct kolo_costs, net_copy_us_per_byte), true},
    {"net_sum_gbs", offsetof(struct kolo_costs, net_sum_us_per_byte), true},
    {"net_rendezvous_bytes", offsetof(struct kolo_costs, net_rendezvous_bytes), false},
};

/* Parse one "name=value". `seen` has a bit for each name. */
static bool parse_cost(const char *text, size_t len, unsigned *seen, struct kolo_costs *costs)
{
    const char *equals = memchr(text, '=', len);
    double value = 0;
    if (equals == NULL) {
        return false;
    }
    const size_t name_len = (size_t)(equals - text);
    if (!parse_number(equals + 1, len - name_len - 1, &value)) {
        return false;
    }
    unsigned bit = 0;
    for (; bit < KOLO_LENGTH(cost_names); bit++) {
        const char *name = cost_names[bit].name;
        if (strlen(name) == name_len && strncmp(name, text, name_len) == 0) {
            const double cost = cost_names[bit].gbs ? 1e-3 / value : value;
            memcpy((char *)costs + cost_names[bit].offset, &cost, sizeof cost);
            break;
        }
    }
    if (bit == KOLO_LENGTH(cost_names)) {
        const bool whole = value < 1e6 && value == floor(value);
        if (name_len != 5 || strncmp(text, "cores", 5) != 0 || !whole) {
            return false;
        }
        costs->cores = (int32_t)value;
    }
    const bool again = (*seen >> bit & 1) != 0;
    *seen |= 1u << bit;
    return !again;
}

bool kolo_costs_parse(const char *text, struct kolo_costs *out)
{
    struct kolo_costs costs = kolo_costs_default;
    unsigned seen = 0;
    for (const char *at = text;; at++) {
        const size_t len = strcspn(at, ",");
        if (!parse_cost(at, len, &seen, &costs)) {
            return false;
        }
        at += len;
        if (*at == '\0') {
            break;
        }
    }
    kolo_costs_complete(&costs);
    *out = costs;
    return true;
}
