// SPDX-License-Identifier: Apache-2.0
/* A leader of one bound program, whose calls take the time that the test says. */
#ifndef KOLO_TESTS_STORES_LEADER_H
#define KOLO_TESTS_STORES_LEADER_H

#ifdef __cplusplus
extern "C" {
#endif

#include <stdbool.h>
#include <stdint.h>

struct leader;

struct leader *leader_create(void);
void leader_destroy(struct leader *leader);
/* From now on the program is the one of this key, with this kind before anything is known. */
void leader_bind(struct leader *leader, uint64_t key, bool starts_past);
/* The kind of the next call. */
bool leader_is_past(const struct leader *leader);
/* A call of that duration. The leader's clock advances by it. */
void leader_call(struct leader *leader, double us);
/* So long the program computes. */
void leader_wait(struct leader *leader, double us);
double leader_clock_us(const struct leader *leader);
/* KOLO_STORES: "measured", "ordinary" or "past". False: another text. */
bool leader_rule(struct leader *leader, const char *text);
/* Calls whose keys differ by this number share a place. */
uint64_t leader_places(void);

#ifdef __cplusplus
}
#endif
#endif
