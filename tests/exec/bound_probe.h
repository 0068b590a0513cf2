// SPDX-License-Identifier: Apache-2.0
/* Looks into a bound program, whose types are C11's. */
#ifndef KOLO_TESTS_BOUND_PROBE_H
#define KOLO_TESTS_BOUND_PROBE_H

#ifdef __cplusplus
extern "C" {
#endif

#include "exec/lower/extents.h"
#include "exec/lower/program.h"

/* Bind the program and compare each op's lengths with what its chunks have in every tile: "" if
 * they agree, else what does not. `phases` of any rank at most. The text is the caller's. */
char *bound_probe(const struct kolo_prog *prog, const struct kolo_extents *extents,
                  size_t slot_bytes, int phases);

#ifdef __cplusplus
}
#endif
#endif
