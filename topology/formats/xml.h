// SPDX-License-Identifier: Apache-2.0
/* XML from outside, element by element, by expat. What a machine's file needs and no more: no
 * document type, no entities of the file's own, elements at most 256 deep, and no more memory than
 * the limits of kolo_xml_limit() whatever the file holds. */
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
    /* A piece of the text in `element`, which has neither name nor attributes here; may be NULL. */
    kolo_status (*text)(void *context, const struct kolo_xml_element *element, const char *text,
                        size_t len);
    void *context;
};

/* Errors: INVALID (text: file, line, what), SYSTEM; else the first that a function returned. */
KOLO_CHECK kolo_status kolo_xml_read(const struct kolo_xml_source *source,
                                     const struct kolo_xml_reader *reader);

/* Bytes that expat may take for a file of this length, and as much again for what is made of it:
 * half a MiB, and 7 times the file, each. */
size_t kolo_xml_limit(size_t len);

/* The value of an attribute; NULL: it is not there. */
const char *kolo_xml_get(const struct kolo_xml_element *element, const char *name);
/* A whole number, decimal or with 0x. Absent or "": `absent`. Errors: INVALID (text: file, line,
 * attribute, value, range). */
KOLO_CHECK kolo_status kolo_xml_int(const struct kolo_xml_element *element, const char *name,
                                    long lo, long hi, long absent, int *out);
/* A finite number >= 0. */
KOLO_CHECK kolo_status kolo_xml_number(const struct kolo_xml_element *element, const char *name,
                                       double absent, double *out);
/* "FILE:LINE: ..." */
kolo_status kolo_xml_fail(const struct kolo_xml_element *element, const char *format, ...)
    KOLO_PRINTF(2, 3);

#endif
