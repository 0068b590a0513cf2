// SPDX-License-Identifier: Apache-2.0
/* Parts of `kolo doctor`. */
#ifndef KOLO_TOOLS_DOCTOR_PARTS_H
#define KOLO_TOOLS_DOCTOR_PARTS_H

#include "util/util.h"

/* Whether the access control (ACS) of a PCI bridge sends peer-to-peer traffic up to the host: 1 or
 * 0; -1: not readable. `bus` is as in /sys/bus/pci/devices. */
int kolo_doctor_redirects(const char *bus);

/* Try peer access between each pair of GPUs that claims it, and report a line for each pair. Status
 * OK: it works. SYSTEM: it could not be tried. Another status: it fails, the line has the likely
 * cause, and there is a fix. The trial runs in child processes, since drivers hang if hardware
 * does. */
void kolo_doctor_peers(void (*tell)(void *arg, kolo_status status, const char *line,
                                    const char *fix),
                       void *arg);

#endif
