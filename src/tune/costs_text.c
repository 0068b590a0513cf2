// SPDX-License-Identifier: Apache-2.0
/* KOLO_COSTS: the costs of a machine as text. */
#include "costs.h"
#include "tune.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

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
