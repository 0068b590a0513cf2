// SPDX-License-Identifier: Apache-2.0
/* Runs expat over a document within the limits of the reader. expat's memory functions have no
 * context argument, so the memory left for a parse is a variable of the thread. */
#include "topology/formats/xml.h"

#include <errno.h>
#include <expat.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 256 };

static _Thread_local size_t bytes_left;

/* Each block begins with its size. */
union xml_block {
    size_t bytes;
    max_align_t align;
};

static void *take_block(size_t bytes)
{
    union xml_block *block = bytes <= bytes_left ? malloc(sizeof *block + bytes) : NULL;
    if (block == NULL) {
        return NULL;
    }
    bytes_left -= bytes;
    block->bytes = bytes;
    return block + 1;
}

static void give_block(void *pointer)
{
    if (pointer != NULL) {
        union xml_block *block = (union xml_block *)pointer - 1;
        bytes_left += block->bytes;
        free(block);
    }
}

static void *take_again(void *pointer, size_t bytes)
{
    const size_t old = pointer != NULL ? ((union xml_block *)pointer - 1)->bytes : 0;
    void *new = take_block(bytes);
    if (new != NULL && pointer != NULL) {
        memcpy(new, pointer, old < bytes ? old : bytes);
        give_block(pointer);
    }
    return new;
}

size_t kolo_xml_limit(size_t len)
{
    return (512u << 10) + 7 * len;
}

struct parse {
    XML_Parser parser;
    const struct kolo_xml_source *source;
    const struct kolo_xml_reader *reader;
    int depth;
    kolo_status status;
};

static void stop_parser(struct parse *parse, kolo_status status)
{
    if (parse->status == KOLO_OK) {
        parse->status = status;
        (void)XML_StopParser(parse->parser, XML_FALSE);
    }
}

static struct kolo_xml_element element_of(const struct parse *parse, const char *name,
                                          const char **attributes)
{
    return (struct kolo_xml_element){.path = parse->source->path,
                                     .line = (int)XML_GetCurrentLineNumber(parse->parser),
                                     .depth = parse->depth,
                                     .name = name,
                                     .attributes = attributes};
}

static void XMLCALL on_start(void *context, const XML_Char *name, const XML_Char **attributes)
{
    struct parse *parse = context;
    const struct kolo_xml_element element = element_of(parse, name, attributes);
    if (parse->status != KOLO_OK) {
        return;
    }
    if (parse->depth >= DEPTH_MAX) {
        stop_parser(parse, kolo_xml_fail(&element, "elements are more than %d deep", DEPTH_MAX));
        return;
    }
    const kolo_status st = parse->reader->start(parse->reader->context, &element);
    parse->depth++;
    if (st < 0) {
        stop_parser(parse, st);
    }
}

static void XMLCALL on_end(void *context, const XML_Char *name)
{
    static const char *none[] = {NULL};
    struct parse *parse = context;
    parse->depth--;
    const struct kolo_xml_element element = element_of(parse, name, none);
    if (parse->status != KOLO_OK || parse->reader->end == NULL) {
        return;
    }
    const kolo_status st = parse->reader->end(parse->reader->context, &element);
    if (st < 0) {
        stop_parser(parse, st);
    }
}

static void XMLCALL on_text(void *context, const XML_Char *text, int len)
{
    static const char *none[] = {NULL};
    struct parse *parse = context;
    const struct kolo_xml_element element = element_of(parse, "text", none);
    const kolo_status st =
        parse->status == KOLO_OK
            ? parse->reader->text(parse->reader->context, &element, text, (size_t)len)
            : KOLO_OK;
    if (st < 0) {
        stop_parser(parse, st);
    }
}

static void XMLCALL on_doctype(void *context, const XML_Char *name, const XML_Char *system,
                               const XML_Char *public, int has_internal)
{
    struct parse *parse = context;
    static const char *none[] = {NULL};
    const struct kolo_xml_element element = element_of(parse, name, none);
    (void)system;
    (void)public;
    if (has_internal != 0) {
        stop_parser(parse,
                    kolo_xml_fail(&element, "a document type with declarations is not accepted"));
    }
}

static kolo_status run_parser(struct parse *parse)
{
    const struct kolo_xml_source *source = parse->source;
    XML_SetUserData(parse->parser, parse);
    XML_SetElementHandler(parse->parser, on_start, on_end);
    XML_SetStartDoctypeDeclHandler(parse->parser, on_doctype);
    if (parse->reader->text != NULL) {
        XML_SetCharacterDataHandler(parse->parser, on_text);
    }
    const enum XML_Status done = XML_Parse(parse->parser, source->bytes, (int)source->len, 1);
    if (parse->status != KOLO_OK || done == XML_STATUS_OK) {
        return parse->status;
    }
    const enum XML_Error error = XML_GetErrorCode(parse->parser);
    return kolo_fail(KOLO_ERR_INVALID, "%s:%lu: %s", source->path,
                     (unsigned long)XML_GetCurrentLineNumber(parse->parser),
                     error == XML_ERROR_NO_MEMORY ? "needs more memory than a file of its size may"
                                                  : XML_ErrorString(error));
}

kolo_status kolo_xml_read(const struct kolo_xml_source *source,
                          const struct kolo_xml_reader *reader)
{
    const XML_Memory_Handling_Suite memory = {take_block, take_again, give_block};
    struct parse parse = {.source = source, .reader = reader};
    if (source->len > INT_MAX) {
        return kolo_fail(KOLO_ERR_INVALID, "%s: larger than 2 GiB", source->path);
    }
    bytes_left = kolo_xml_limit(source->len);
    parse.parser = XML_ParserCreate_MM(NULL, &memory, NULL);
    if (parse.parser == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "%s: out of memory", source->path);
    }
    const kolo_status st = run_parser(&parse);
    XML_ParserFree(parse.parser);
    return st;
}

/* ---- attributes ---- */

const char *kolo_xml_get(const struct kolo_xml_element *element, const char *name)
{
    for (const char **at = element->attributes; at[0] != NULL; at += 2) {
        if (strcmp(at[0], name) == 0) {
            return at[1];
        }
    }
    return NULL;
}

kolo_status kolo_xml_int(const struct kolo_xml_element *element, const char *name, long lo, long hi,
                         long absent, int *out)
{
    const char *text = kolo_xml_get(element, name);
    char *end = NULL;
    if (text == NULL || text[0] == '\0') {
        *out = (int)absent;
        return KOLO_OK;
    }
    errno = 0;
    const bool hex = strncmp(text, "0x", 2) == 0 || strncmp(text, "0X", 2) == 0;
    const long value = strtol(text, &end, hex ? 16 : 10);
    if (*end != '\0' || errno != 0 || value < lo || value > hi) {
        return kolo_xml_fail(element, "%s is \"%.40s\", not a whole number of %ld to %ld", name,
                             text, lo, hi);
    }
    *out = (int)value;
    return KOLO_OK;
}

kolo_status kolo_xml_number(const struct kolo_xml_element *element, const char *name, double absent,
                            double *out)
{
    const char *text = kolo_xml_get(element, name);
    char *end = NULL;
    if (text == NULL || text[0] == '\0') {
        *out = absent;
        return KOLO_OK;
    }
    const double value = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(value) || value < 0) {
        return kolo_xml_fail(element, "%s is \"%.40s\", not a number of 0 or more", name, text);
    }
    *out = value;
    return KOLO_OK;
}

kolo_status kolo_xml_fail(const struct kolo_xml_element *element, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return kolo_fail(KOLO_ERR_INVALID, "%s:%d: <%.40s>: %s", element->path, element->line,
                     element->name, text);
}
