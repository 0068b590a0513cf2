// SPDX-License-Identifier: Apache-2.0
/* The table of the built-in transports. Core uses it through src/plugin/catalogue.h, which fills
 * the slots that they leave NULL. */
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
