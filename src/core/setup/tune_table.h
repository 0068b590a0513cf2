// SPDX-License-Identifier: Apache-2.0
/* Where tables of measured choices lie. */
#ifndef KOLO_CORE_SETUP_TUNE_TABLE_H
#define KOLO_CORE_SETUP_TUNE_TABLE_H

#include "topology/machine/host.h"
#include "tune/table.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The file that communicators of this machine look for: kolo/<hash of the fingerprint>.tune in
 * $XDG_CONFIG_HOME (an absolute path) or ~/.config. Nothing where neither is set. */
void kolo_table_path(const struct kolo_host *host, struct kolo_text *out);
/* The text of a file and its table, with all algorithms there are. `host` NULL: of any machine.
 * Errors: INVALID (what is wrong, and where; not made on this machine), SYSTEM (it cannot be read).
 */
KOLO_CHECK kolo_status kolo_table_load(const char *path, const struct kolo_host *host, char **text,
                                       struct kolo_table **out);

#ifdef __cplusplus
}
#endif

#endif
