// SPDX-License-Identifier: Apache-2.0
/* The values of options as text: numbers, sizes, types, operations, roots. */
#include "perf.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <strings.h>

bool perf_whole_of(const char *text, long lo, long hi, long *out)
{
    char *end = NULL;
    errno = 0;
    const long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < lo || value > hi) {
        return false;
    }
    *out = value;
    return true;
}

/* A number with or without a fraction, and K, M or G for powers of 1024. B or iB may follow these;
 * nccl-tests takes any letters there. */
bool perf_bytes_of(const char *text, size_t *out)
{
    static const char suffixes[] = "KMG";
    char *end = NULL;
    if (*text < '0' || *text > '9') {
        return false;
    }
    double value = strtod(text, &end);
    for (unsigned s = 0; s < 3; s++) {
        if (strncasecmp(end, &suffixes[s], 1) == 0) {
            value *= (double)(1ull << 10 * (s + 1));
            end++;
            end += strcasecmp(end, "iB") == 0 ? 2 : strcasecmp(end, "B") == 0 ? 1 : 0;
            break;
        }
    }
    /* 2^50 bytes are enough, and let sums of sizes not overflow. */
    if (*end != '\0' || !(value <= (double)(1ull << 50))) {
        return false;
    }
    *out = (size_t)value;
    return true;
}

bool perf_real_of(const char *text, long lo, long hi, double *out)
{
    char *end = NULL;
    const double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= (double)lo && value <= (double)hi)) {
        return false;
    }
    *out = value;
    return true;
}

bool perf_types_of(const char *text, uint32_t *out)
{
    enum kolo_type type = KOLO_INT8;
    if (strcasecmp(text, "all") == 0) {
        *out = PERF_ALL_TYPES;
        return true;
    }
    if (!perf_type_find(text, &type)) {
        return false;
    }
    *out = 1u << type;
    return true;
}

bool perf_ops_of(const char *text, uint32_t *out)
{
    uint32_t op = 0;
    if (strcasecmp(text, "all") == 0) {
        *out = PERF_ALL_OPS;
        return true;
    }
    if (!perf_op_find(text, &op)) {
        return false;
    }
    *out = 1u << op;
    return true;
}

bool perf_root_of(const char *text, long *out)
{
    if (strcasecmp(text, "all") == 0) {
        *out = -1;
        return true;
    }
    return perf_whole_of(text, -1, INT_MAX, out);
}
