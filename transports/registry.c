// SPDX-License-Identifier: Apache-2.0
/* The catalogue of transports. The order only decides ties: probe() gives each peer a score. */
#include "transports/transports.h"

const struct kolo_transport *const kolo_transports[] = {
    &kolo_transport_shm,
    &kolo_transport_loop,
    &kolo_transport_verbs,
    &kolo_transport_tcp,
};
const int kolo_transports_count = (int)(sizeof kolo_transports / sizeof kolo_transports[0]);
