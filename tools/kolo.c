// SPDX-License-Identifier: Apache-2.0
/* The `kolo` command: a table of subcommands, each in a file of its own. */
#include "tools/doctor.h"
#include "tools/env.h"
#include "tools/log/log.h"
#include "tools/plan.h"
#include "tools/ps.h"
#include "tools/run/run.h"
#include "tools/sim/sim.h"
#include "tools/topo/topo.h"
#include "tools/tune/tune.h"

#include <kolo/kolo.h>

#include <stdio.h>
#include <string.h>

static int run_help(int argc, char **argv);
static int run_version(int argc, char **argv);

static const struct {
    const char *name;
    int (*run)(int argc, char **argv); /* argv[0] is the name */
    const char *what;
} commands[] = {
    {"run", kolo_tool_run, "start the ranks of a job on this host"},
    {"ps", kolo_tool_ps, "show the ranks on this host, their calls, and the ranks they wait for"},
    {"plan", kolo_tool_plan, "show, prove, price and draw the plan of an algorithm"},
    {"sim", kolo_tool_sim, "predict the time of a collective on a machine that need not be here"},
    {"topo", kolo_tool_topo, "show a machine, and the rings and trees planned on it"},
    {"log", kolo_tool_log, "read a log of NCCL, RCCL or kolo"},
    {"doctor", kolo_tool_doctor, "check whether this machine is set up for collectives"},
    {"tune", kolo_tool_tune, "measure the algorithms, write the best choices, and explain them"},
    {"env", kolo_tool_env, "show the variables that kolo reads, and their values"},
    {"version", run_version, "print the library's version"},
    {"help", run_help, "print this list, or describe a command: kolo help COMMAND"},
};

static void list_commands(FILE *to)
{
    (void)fputs("Usage: kolo COMMAND [ARGUMENTS]\n", to);
    for (size_t i = 0; i < KOLO_LENGTH(commands); i++) {
        (void)fprintf(to, "  %-8s %s\n", commands[i].name, commands[i].what);
    }
    (void)fputs("kolo COMMAND --help describes a command.\n", to);
}

static int run_help(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    list_commands(stdout);
    return 0;
}

static int run_version(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    (void)printf("kolo %d.%d.%d\n", KOLO_VERSION_MAJOR, KOLO_VERSION_MINOR, KOLO_VERSION_PATCH);
    return 0;
}

int main(int argc, char **argv)
{
    char asks[] = "--help";
    char *of_help[] = {argc > 2 ? argv[2] : NULL, asks, NULL};
    const char *name = argc > 1 ? argv[1] : "";
    char **args = argv + 1;
    int nargs = argc - 1;
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        name = "help";
    } else if (strcmp(name, "--version") == 0) {
        name = "version";
    }
    if (strcmp(name, "help") == 0 && argc > 2) {
        name = argv[2];
        args = of_help;
        nargs = 2;
    }
    for (size_t i = 0; i < KOLO_LENGTH(commands); i++) {
        if (strcmp(name, commands[i].name) == 0) {
            return commands[i].run(nargs, args);
        }
    }
    if (argc > 1) {
        (void)fprintf(stderr, "kolo: no command \"%s\"\n", name);
    }
    list_commands(stderr);
    return 2;
}
