// SPDX-License-Identifier: Apache-2.0
/* A reader for untrusted JSON, value by value. A function of the caller is called for each member of
 * an object and each element of an array, and reads or skips the value. It keeps no memory. */
#ifndef KOLO_TOOLS_JSON_READ_H
#define KOLO_TOOLS_JSON_READ_H

#include "util/util.h"

struct kolo_json {
    const char *path;  /* for error texts */
    const char *begin; /* of the text, which ends with a 0 */
    const char *at;    /* the next value */
    int depth;
};

/* Each function below reads one value. Errors: INVALID (file, line and fault), and those of the
 * caller's functions. */

/* The first character of the next value: '{', '[', '"', 'n' for null, ... */
char kolo_json_next(struct kolo_json *json);
/* `name` is cut to 63 bytes. */
KOLO_CHECK kolo_status kolo_json_object(struct kolo_json *json,
                                        kolo_status (*member)(void *context, struct kolo_json *json,
                                                              const char *name),
                                        void *context);
KOLO_CHECK kolo_status kolo_json_array(struct kolo_json *json,
                                       kolo_status (*element)(void *context, struct kolo_json *json,
                                                              int index),
                                       void *context);
/* A string that does not fit is cut. Escapes of characters outside ASCII become '?'. */
KOLO_CHECK kolo_status kolo_json_string(struct kolo_json *json, char *out, size_t cap);
/* null gives NAN. */
KOLO_CHECK kolo_status kolo_json_number(struct kolo_json *json, double *out);
KOLO_CHECK kolo_status kolo_json_skip(struct kolo_json *json);

#endif
