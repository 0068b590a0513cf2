// SPDX-License-Identifier: Apache-2.0
/* Parts of `kolo doctor`. */
#ifndef KOLO_TOOLS_DOCTOR_PARTS_H
#define KOLO_TOOLS_DOCTOR_PARTS_H

#include "util/util.h"

/* Whether access control (ACS) of a PCI bridge sends peer-to-peer traffic up to the host: 1 or 0;
 * -1: not to be seen. `bus` as in /sys/bus/pci/devices. */
int kolo_doctor_redirects(const char *bus);

/* Try peer access of each pair of GPUs that claims it, and tell a line for each: OK, SYSTEM where
 * it could not be tried, else what is wrong with the likely cause in the line, and a fix. Processes
 * of their own try, since drivers hang where hardware does. */
void kolo_doctor_peers(void (*tell)(void *arg, kolo_status status, const char *line,
                                    const char *fix),
                       void *arg);

#endif
