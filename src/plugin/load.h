// SPDX-License-Identifier: Apache-2.0
/* Parts of the plug-in loader; the rest of core uses catalogue.h. */
#ifndef KOLO_PLUGIN_LOAD_H
#define KOLO_PLUGIN_LOAD_H

#include "util/util.h"

#include <kolo/plugin.h>

/* Copy `given`, which may be shorter than our struct, and fill every empty slot. */
void kolo_transport_overlay(const struct kolo_transport *given, struct kolo_transport *out);
void kolo_algo_overlay(const struct kolo_algo *given, struct kolo_algo *out);

/* The struct that a plug-in's file exports, and the file's facts about it. */
struct kolo_plugin_found {
    const char *path;   /* has a slash */
    const char *kind;   /* "algo", "transport" or "tuner" */
    const void *symbol; /* aligned as the struct of that kind */
    size_t bytes;       /* of the struct, by the file's symbol table */
};

/* Read the struct as this library defines it, and fill every empty slot. *out is written on
 * success. Errors: as kolo_plugin_load_file(), except for the path and for a name that is taken. */
kolo_status kolo_plugin_read_algo(const struct kolo_plugin_found *found, struct kolo_algo *out);
kolo_status kolo_plugin_read_transport(const struct kolo_plugin_found *found,
                                       struct kolo_transport *out);
kolo_status kolo_plugin_read_tuner(const struct kolo_plugin_found *found, struct kolo_tuner *out);

#endif
