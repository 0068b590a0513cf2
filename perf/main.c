// SPDX-License-Identifier: Apache-2.0
/* The entry of every program. The build chooses the collective. */
#include "perf.h"

#ifndef PERF_COLLECTIVE
#error "compile with -DPERF_COLLECTIVE=perf_<collective>"
#endif

int main(int argc, char **argv)
{
    return perf_main(&PERF_COLLECTIVE, argc, argv);
}
