// SPDX-License-Identifier: Apache-2.0
/* A reader for untrusted XML, element by element, by expat. It accepts only the XML that a
 * machine's file needs:
 * - no document type with declarations, and so no entities of the file's own;
 * - elements at most 256 deep;
 * - memory up to kolo_xml_limit(), whatever the file holds. */
#ifndef KOLO_TOPOLOGY_FORMATS_XML_H
#define KOLO_TOPOLOGY_FORMATS_XML_H

#include "util/util.h"

struct kolo_xml_source {
    const char *path;
    const char *bytes;
    size_t len;
};

struct kolo_xml_element {
    const char *path;
    int line;
    int depth; /* the root: 0 */
    const char *name;
    const char **attributes; /* name, value, name, value ..., NULL */
};

struct kolo_xml_reader {
    kolo_status (*start)(void *context, const struct kolo_xml_element *element);
    kolo_status (*end)(void *context, const struct kolo_xml_element *element); /* no attributes */
    /* A piece of an element's text. `element` has only path, line and depth here. May be NULL. */
    kolo_status (*text)(void *context, const struct kolo_xml_element *element, const char *text,
                        size_t len);
    void *context;
};

/* Read a document and call the reader's functions. The first error of a function ends the parse.
 * Errors: INVALID (the text has file, line and fault), SYSTEM, those of the functions. */
KOLO_CHECK kolo_status kolo_xml_read(const struct kolo_xml_source *source,
                                     const struct kolo_xml_reader *reader);

/* Memory limit in bytes for a file of this length: half a MiB, and 7 times the file. expat has this
 * limit, and so has the result of the reading. */
size_t kolo_xml_limit(size_t len);

/* The value of an attribute; NULL: the attribute is absent. */
const char *kolo_xml_get(const struct kolo_xml_element *element, const char *name);
/* A whole number in lo..hi, decimal or hexadecimal with 0x. An absent or empty attribute gives
 * `absent`. Errors: INVALID (the text has file, line, attribute, value and range). */
KOLO_CHECK kolo_status kolo_xml_int(const struct kolo_xml_element *element, const char *name,
                                    long lo, long hi, long absent, int *out);
/* A finite number of at least 0. An absent or empty attribute gives `absent`. Errors: INVALID. */
KOLO_CHECK kolo_status kolo_xml_number(const struct kolo_xml_element *element, const char *name,
                                       double absent, double *out);
/* Fail with INVALID; the text is "FILE:LINE: <ELEMENT>: ...". */
kolo_status kolo_xml_fail(const struct kolo_xml_element *element, const char *format, ...)
    KOLO_PRINTF(2, 3);

#endif
