// SPDX-License-Identifier: Apache-2.0
/* The reference executor runs all ranks of a plan in one thread, in the simplest way. It does not
 * share the walker with the verifier, so that a wrong ordering rule cannot hide in both. */
#ifndef KOLO_REF_H
#define KOLO_REF_H

#include "plan/plan.h"

/* dst[i] = a[i] op b[i]; dst may be a or b. `last`: the reduction is complete. */
typedef void kolo_ref_fn(void *arg, void *dst, const void *a, const void *b, size_t bytes,
                         bool last);

/* Run a whole plan on real bytes: rank r's IN and OUT are in[r] and out[r] (in[r] may be the
 * aliased part of out[r]), `chunk_bytes` each chunk. Errors: INVALID (the plan does not finish; the
 * text names the waiting ranks), SYSTEM. */
kolo_status kolo_ref_run(const struct kolo_plan *plan, size_t chunk_bytes, const void *const *in,
                         void *const *out, kolo_ref_fn *reduce, void *arg);

#endif
