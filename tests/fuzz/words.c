// SPDX-License-Identifier: Apache-2.0
// covers: src/boot/launch.c src/tune/rules.c
/* Texts that users and launchers write: rules, tables of measured choices, costs, groups, and the
 * variables that say which rank this is.
 *
 * Input: a letter for which of them, then the text; of variables a line each, NAME=VALUE. */
#include "boot/launch.h"
#include "plan/plan.h"
#include "target.h"
#include "topology/draw/lines.h"
#include "tune/table.h"
#include "tune/tune.h"
#include "util/net.h"

#include <stdlib.h>
#include <string.h>

enum { RANKS = 16 };

static int algo_count(void)
{
    return kolo_algos_count;
}

static const struct kolo_algo *algo_at(int index)
{
    return kolo_algos[index];
}

static void read_rules(const char *text)
{
    struct kolo_rules *rules = NULL;
    if (kolo_rules_parse(text, &rules) == KOLO_OK) {
        kolo_rules_destroy(rules);
    }
}

static void read_table(const char *text)
{
    const struct kolo_table_source source = {"fuzz", algo_count, algo_at};
    struct kolo_table *table = NULL;
    if (kolo_table_parse(text, &source, &table) == KOLO_OK) {
        (void)kolo_table_rows(table);
        (void)kolo_table_machine(table);
        (void)kolo_table_fits(table, "any");
        kolo_table_destroy(table);
    }
}

static void read_places(const char *text)
{
    struct kolo_place place[RANKS];
    if (!kolo_places_parse(text, RANKS, place)) {
        return;
    }
    int host_of[RANKS] = {0};
    struct kolo_groups groups;
    struct kolo_text line = {0};
    if (kolo_groups_make(RANKS, host_of, place, &groups) == KOLO_OK) {
        kolo_line_groups(&line, RANKS, &groups);
        kolo_groups_free(&groups);
    }
    kolo_text_free(&line);
}

/* Variables of kolo and of launchers alone. */
static void read_variables(char *text)
{
    static const char *const known[] = {"KOLO_",       "RANK=",        "WORLD_SIZE=", "LOCAL_",
                                        "PMI",         "SLURM_",       "OMPI_",       "MPI_",
                                        "MASTER_PORT", "TORCHELASTIC_"};
    struct kolo_launch launch;
    struct kolo_interface interface;
    char *rest = NULL;
    (void)clearenv();
    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        char *value = strchr(line, '=');
        bool is_known = false;
        for (size_t i = 0; i < KOLO_LENGTH(known); i++) {
            is_known = is_known || strncmp(line, known[i], strlen(known[i])) == 0;
        }
        if (value == NULL || !is_known) {
            continue;
        }
        *value = '\0';
        (void)setenv(line, value + 1, 1);
    }
    if (kolo_launch_detect(&launch) == KOLO_OK &&
        (launch.rank < 0 || launch.rank >= launch.nranks || launch.local_rank < 0 ||
         launch.local_rank >= launch.local_size || launch.local_size > launch.nranks ||
         strnlen(launch.meet.name, sizeof launch.meet.name) == sizeof launch.meet.name)) {
        abort();
    }
    (void)!kolo_net_choose(false, NULL, &interface);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kolo_costs costs = {.size = sizeof costs};
    size_t bytes = 0;
    char *text = size > 0 ? strndup((const char *)data + 1, size - 1) : NULL;
    if (text == NULL) {
        return 0;
    }
    switch (data[0]) {
    case 'r':
        read_rules(text);
        break;
    case 't':
        read_table(text);
        break;
    case 'c':
        (void)kolo_costs_parse(text, &costs);
        break;
    case 'g':
        read_places(text);
        break;
    case 'b':
        (void)kolo_parse_bytes(text, &bytes);
        break;
    case 'v':
        read_variables(text);
        break;
    default:
        break;
    }
    free(text);
    return 0;
}
