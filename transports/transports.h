// SPDX-License-Identifier: Apache-2.0
/* The built-in transports, one row each, and what they share.
 * Core sees them through src/plugin/catalogue.h, which fills slots they left NULL. */
#ifndef KOLO_TRANSPORTS_H
#define KOLO_TRANSPORTS_H

#include <kolo/plugin.h>

extern const struct kolo_transport *const kolo_transports[];
extern const int kolo_transports_count;

extern const struct kolo_transport kolo_transport_loop;
extern const struct kolo_transport kolo_transport_shm;
extern const struct kolo_transport kolo_transport_tcp;
extern const struct kolo_transport kolo_transport_verbs;

#endif
