// SPDX-License-Identifier: Apache-2.0
/* `kolo env`: the variables that the library and its programs read, with their values in this
 * environment. It also lists variables that are set but never read, because a mistyped name has no
 * other sign. */
#include "tools/env.h"

#include "tools/output.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// clang-format off
static const char usage[] =
    "Usage: kolo env [--set] [NAME...]\n"
    "Show the variables that kolo reads, all or the named ones: meaning, default and current value.\n"
    "  -s, --set    show only variables that are set\n"
    "  -h, --help   print this help\n"
    "The value of KOLO_SECRET is not shown. Exit status: 1 if an unknown name that begins with KOLO_ is\n"
    "set or was given, else 0.\n";
// clang-format on

enum { WIDTH = 92, INDENT = 6 };

enum group { START, LOG, CHOOSE, MACHINE, NETWORK, GPU, PROGRAMS, GROUPS };

static const char *const titles[GROUPS] = {
    [START] = "joining a job",         [LOG] = "the log",
    [CHOOSE] = "algorithms and sums",  [MACHINE] = "the machine",
    [NETWORK] = "several hosts",       [GPU] = "GPUs",
    [PROGRAMS] = "programs over kolo",
};

static const struct variable {
    enum group group;
    const char *name, *otherwise, *example, *meaning;
} variables[] = {
#define KOLO_VARIABLE(group, name, otherwise, example, meaning)                                    \
    {group, name, otherwise, example, meaning},
#include "util/variables.def"
#undef KOLO_VARIABLE
};

static const struct variable *find_variable(const char *name, size_t len)
{
    for (size_t i = 0; i < KOLO_LENGTH(variables); i++) {
        if (strlen(variables[i].name) == len && strncmp(variables[i].name, name, len) == 0) {
            return &variables[i];
        }
    }
    return NULL;
}

static void print_wrapped(const char *text)
{
    int column = 0;
    while (*text != '\0') {
        const int len = (int)strcspn(text, " ");
        if (column > 0 && column + 1 + len > WIDTH) {
            (void)putchar('\n');
            column = 0;
        }
        if (column == 0) {
            column = printf("%*s%.*s", INDENT, "", len, text);
        } else {
            column += printf(" %.*s", len, text);
        }
        text += len;
        text += *text == ' ';
    }
    (void)putchar('\n');
}

static void print_variable(const struct variable *v)
{
    const char *value = getenv(v->name);
    (void)printf("  %s", v->name);
    if (value != NULL) {
        (void)printf("=%s", strcmp(v->name, "KOLO_SECRET") == 0 ? "(not shown)" : value);
    }
    if (v->otherwise[0] != '\0' && strcmp(v->otherwise, "-") != 0) {
        (void)printf("   (%s)", v->otherwise);
    }
    (void)putchar('\n');
    print_wrapped(v->meaning);
    (void)printf("%*sfor example %s=%s\n", INDENT, "", v->name, v->example);
}

static bool is_asked_for(const struct variable *v, int nnames, char **names, bool set)
{
    bool named = nnames == 0;
    for (int i = 0; i < nnames && !named; i++) {
        named = strcmp(names[i], v->name) == 0;
    }
    return named && (!set || getenv(v->name) != NULL);
}

static void print_all(int nnames, char **names, bool set)
{
    enum group last = GROUPS;
    for (size_t i = 0; i < KOLO_LENGTH(variables); i++) {
        const struct variable *v = &variables[i];
        if (!is_asked_for(v, nnames, names, set)) {
            continue;
        }
        if (v->group != last) {
            (void)printf("%s%s\n", last != GROUPS ? "\n" : "", titles[v->group]);
            last = v->group;
        }
        print_variable(v);
    }
}

/* Report unknown names, requested or in the environment, and return their number. */
static int count_unknown(int nnames, char **names)
{
    int strangers = 0;
    for (int i = 0; i < nnames; i++) {
        if (find_variable(names[i], strlen(names[i])) == NULL) {
            (void)fprintf(stderr, "kolo env: nothing reads %s\n", names[i]);
            strangers++;
        }
    }
    for (char **at = environ; nnames == 0 && at != NULL && *at != NULL; at++) {
        const size_t len = strcspn(*at, "=");
        if (strncmp(*at, "KOLO_", 5) == 0 && find_variable(*at, len) == NULL) {
            (void)fprintf(stderr, "kolo env: %.*s is set, and nothing reads it\n", (int)len, *at);
            strangers++;
        }
    }
    return strangers;
}

int kolo_tool_env(int argc, char **argv)
{
    static const struct option longs[] = {
        {"set", no_argument, NULL, 's'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    bool set = false;
    int option = 0;
    opterr = 0;
    optind = 0;
    while ((option = getopt_long(argc, argv, ":sh", longs, NULL)) != -1) {
        if (option == 'h') {
            (void)fputs(usage, stdout);
            return 0;
        }
        if (option != 's') {
            (void)kolo_option_refuse("kolo env", argc, argv, option);
            return 2;
        }
        set = true;
    }
    print_all(argc - optind, argv + optind, set);
    return count_unknown(argc - optind, argv + optind) > 0 ? 1 : 0;
}
