// SPDX-License-Identifier: Apache-2.0
/* Parts of the plug-in loader; the rest of core uses plugins.h. */
#ifndef KOLO_CORE_PLUGIN_LOAD_H
#define KOLO_CORE_PLUGIN_LOAD_H

#include "util/util.h"

#include <kolo/plugin.h>

/* `given`, which may be shorter than ours, with every empty slot filled. */
void kolo_transport_overlay(const struct kolo_transport *given, struct kolo_transport *out);
void kolo_algo_overlay(const struct kolo_algo *given, struct kolo_algo *out);

/* Whether `path` may be loaded, by the rules of plugins.h; *real gets the path without symbolic
 * links in its directories, to be freed. Errors: INVALID, SYSTEM. */
kolo_status kolo_plugin_path_check(const char *path, char **real);

#endif
