// SPDX-License-Identifier: Apache-2.0
/* Makes groups of ranks that are near each other. The groups of a level are cut out of the groups
 * of the level above. So groups nest on every machine, even if an L3 spans two NUMA nodes, or a
 * node two packages: the cut by the larger part then changes nothing.
 *
 * A level that changes nothing is left out. So is a level that is unknown for some rank, because
 * such a rank may run anywhere. */
#include "topology/layout/groups.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[KOLO_GROUP_LEVELS] = {"L3", "NUMA node", "package", "host"};

/* The number of a rank's part at a level; -1 unknown. Ranks with different numbers are separated.
 */
static int key_of(const int *host_of, const struct kolo_place *place, int level, int rank)
{
    if (level == KOLO_GROUP_LEVELS - 1) {
        return host_of != NULL ? host_of[rank] : 0;
    }
    if (place == NULL) {
        return -1;
    }
    const int keys[] = {place[rank].l3, place[rank].numa, place[rank].package};
    return keys[level];
}

/* Cut the groups of `above` by a level. A group is named by its smallest rank. False: the level is
 * unknown for some rank, and `out` is undefined. */
static bool cut_level(int nranks, const int *host_of, const struct kolo_place *place, int level,
                      const int *above, int *out)
{
    for (int r = 0; r < nranks; r++) {
        const int key = key_of(host_of, place, level, r);
        if (key < 0) {
            return false;
        }
        int first = above[r];
        while (first < r && (out[first] != first || above[first] != above[r] ||
                             key_of(host_of, place, level, first) != key)) {
            first++;
        }
        out[r] = first;
    }
    return true;
}

/* True: every rank is alone, or all ranks are together. A plan cannot use such groups. */
static bool says_nothing(int nranks, const int *group)
{
    bool alone = true;
    bool together = true;
    for (int r = 0; r < nranks; r++) {
        alone = alone && group[r] == r;
        together = together && group[r] == 0;
    }
    return alone || together;
}

/* Make all levels, from the host down. `made` begins with the group of all ranks, and has room for
 * every level behind it. */
static int cut_all(int nranks, const int *host_of, const struct kolo_place *place, int *made,
                   int *level_of)
{
    const size_t bytes = (size_t)nranks * sizeof *made;
    int kept = 0;
    const int *above = made; /* all together */
    memset(made, 0, bytes);
    for (int level = KOLO_GROUP_LEVELS - 1; level >= 0; level--) {
        int *group = made + (size_t)(kept + 1) * (size_t)nranks;
        if (cut_level(nranks, host_of, place, level, above, group) &&
            !says_nothing(nranks, group) && memcmp(group, above, bytes) != 0) {
            level_of[kept++] = level;
            above = group;
        }
    }
    return kept;
}

kolo_status kolo_groups_make(int nranks, const int *host_of, const struct kolo_place *place,
                             struct kolo_groups *out)
{
    const size_t n = (size_t)nranks;
    struct kolo_groups groups = {0};
    int level_of[KOLO_GROUP_LEVELS];
    int *made = malloc((KOLO_GROUP_LEVELS + 1) * n * sizeof *made);
    groups.group = malloc(KOLO_GROUP_LEVELS * n * sizeof *groups.group);
    if (made == NULL || groups.group == NULL) {
        free(made);
        free(groups.group);
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for groups of %d ranks", nranks);
    }
    groups.nlevels = cut_all(nranks, host_of, place, made, level_of);
    for (int l = 0; l < groups.nlevels; l++) { /* nearest first */
        const int from = groups.nlevels - 1 - l;
        groups.name[l] = names[level_of[from]];
        memcpy(groups.group + (size_t)l * n, made + (size_t)(from + 1) * n,
               n * sizeof *groups.group);
    }
    free(made);
    *out = groups;
    return KOLO_OK;
}

void kolo_groups_free(struct kolo_groups *groups)
{
    if (groups != NULL) {
        free(groups->group);
        *groups = (struct kolo_groups){0};
    }
}

/* ---- groups by hand ---- */

/* Parse one list of `len` characters. Rank r gets entry r mod the number of entries. */
static bool parse_list(const char *text, size_t len, int nranks, size_t member,
                       struct kolo_place *place)
{
    char word[16];
    int count = 0;
    for (size_t at = 0; at <= len; count++) {
        const char *comma = memchr(text + at, ',', len - at);
        const size_t end = comma != NULL ? (size_t)(comma - text) : len;
        long number = 0;
        if (end - at >= sizeof word) {
            return false;
        }
        memcpy(word, text + at, end - at);
        word[end - at] = '\0';
        if (!kolo_parse_int(word, 0, 65535, &number)) {
            return false;
        }
        if (count < nranks) {
            *(int *)(void *)((char *)&place[count] + member) = (int)number;
        }
        at = end + 1;
    }
    for (int r = count; r < nranks; r++) {
        *(int *)(void *)((char *)&place[r] + member) =
            *(int *)(void *)((char *)&place[r % count] + member);
    }
    return true;
}

bool kolo_places_parse(const char *text, int nranks, struct kolo_place *out)
{
    static const size_t member[] = {offsetof(struct kolo_place, l3),
                                    offsetof(struct kolo_place, numa),
                                    offsetof(struct kolo_place, package)};
    for (int r = 0; r < nranks; r++) {
        out[r] = (struct kolo_place){.pu = -1, .core = -1};
    }
    const char *at = text;
    for (size_t i = 0; i < KOLO_LENGTH(member); i++) {
        const size_t len = strcspn(at, ";");
        if (!parse_list(at, len, nranks, member[i], out)) {
            return false;
        }
        if (at[len] == '\0') {
            return true;
        }
        at += len + 1;
    }
    return false; /* more lists than levels */
}
