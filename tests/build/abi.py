# SPDX-License-Identifier: Apache-2.0
# covers: include
"""The binary interface is the one in abi.txt: every exported function with its prototype, every
constant, and offset and size of every member of every public struct.

usage: abi.py ROOT LIBRARY CC...            compares the headers and the library with abi.txt
       abi.py ROOT LIBRARY CC... --update   writes abi.txt anew, if nothing that it holds has changed:
                                            what is new is a function, a constant, or a member at the
                                            end of a struct that says its own size

To change what abi.txt holds is to break programs that are compiled already; who means to (before
1.0) takes the line out of abi.txt first.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

import tap

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../include"))
import declared  # noqa: E402

HEADERS = ("kolo/kolo.h", "kolo/codec.h", "kolo/members.h", "kolo/plugin.h")
LIST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "abi.txt")
SIZED = ("size", "base")  # what the first member of a struct is called that tells its size
MOST_TLS = 1300  # glibc keeps little for the libraries that a program loads late: 1,544 bytes did not fit
COUNTS = ("KOLO_TYPES", "KOLO_OPS", "KOLO_CODECS", "KOLO_COLLS", "KOLO_BUFS")  # grow with what they count


def layout_program(texts):
    """A C program that prints the values and the layouts that these headers declare."""
    lines = []
    for text in texts:
        for name in declared.constants(text):
            lines.append(f'printf("value {name} %lld\\n", (long long)({name}));')
        for name, members in declared.structs(text).items():
            whole = f"struct {name}"
            lines.append(f'printf("{whole}: %zu bytes\\n", sizeof({whole}));')
            for member in members:
                lines.append(f'printf("    {member} at %zu, %zu bytes\\n", offsetof({whole}, {member}),'
                             f" sizeof((({whole} *)0)->{member}));")
    includes = "".join(f"#include <{header}>\n" for header in HEADERS)
    return f"{includes}#include <stdio.h>\nint main(void)\n{{\n" + "\n".join(lines) + "\n}\n"


def interface(include, compiler):
    """The lines of abi.txt for the headers below `include`."""
    texts = []
    for header in HEADERS:
        with open(os.path.join(include, header), encoding="utf-8") as file:
            texts.append(file.read())
    lines = ["function " + one.prototype() for text in texts for one in declared.functions(text)]
    with tempfile.TemporaryDirectory(prefix="kolo-abi-") as folder:
        source, program = os.path.join(folder, "layout.c"), os.path.join(folder, "layout")
        with open(source, "w", encoding="utf-8") as file:
            file.write(layout_program(texts))
        subprocess.run([*compiler, "-std=c17", "-I", include, source, "-o", program], check=True)
        ran = subprocess.run([program], capture_output=True, text=True, check=True)
    return lines + ran.stdout.splitlines()


def parse(lines):
    """({function: prototype}, {constant: value}, {struct: its lines, the first its size})."""
    prototypes, values, structs = {}, {}, {}
    for line in lines:
        if line.startswith("function "):
            prototypes[re.search(r"(kolo_\w+)\(", line).group(1)] = line
        elif line.startswith("value "):
            values[line.split()[1]] = line
        elif line.startswith("struct "):
            here = structs.setdefault(line.split(":")[0], [line])
        else:
            here.append(line)
    return prototypes, values, structs


def breaks(old, new):
    """What of the interface `old` is otherwise in `new`: a program compiled before would be wrong."""
    found = []
    old_calls, old_values, old_structs = parse(old)
    calls, values, structs = parse(new)
    for name, line in {**old_calls, **old_values}.items():
        if {**calls, **values}.get(name) != line and name not in COUNTS:
            found.append(f"{line}: now {({**calls, **values}).get(name, 'gone')}")
    for name, lines in old_structs.items():
        now = structs.get(name, [""])
        grown = len(now) > len(lines)
        if now[1 : len(lines)] != lines[1:] or (not grown and now != lines):
            found.append(f"{name}: a member that was there has moved, changed or gone")
        elif grown and lines[1].split()[0] not in SIZED:
            found.append(f"{name}: has grown, and does not say its size")
    return found


def exported(library):
    """Dynamic symbols that the library defines, without their version."""
    ran = subprocess.run(
        ["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True
    )
    symbols = [line.split()[-2:] for line in ran.stdout.splitlines()]
    # "A" is the name of a version, not of something to call
    return {name.split("@")[0] for kind, name in symbols if kind != "A"}


def tls_bytes(library):
    """The size of the library's thread-local memory."""
    ran = subprocess.run(["readelf", "-lW", library], capture_output=True, text=True, check=True)
    return sum(int(line.split()[5], 16) for line in ran.stdout.splitlines() if line.split()[:1] == ["TLS"])


def soname(library):
    ran = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True)
    return re.search(r"\(SONAME\).*\[(.*)\]", ran.stdout).group(1)


def check_the_reader():
    text = """
#define KOLO_EXPORT __attribute__((visibility("default")))
#define KOLO_TWICE(x) \\
    KOLO_EXPORT int kolo_macro(x);
/* KOLO_EXPORT int kolo_comment(void); */
KOLO_EXPORT KOLO_CHECK kolo_status
kolo_two_lines(const void *send, int (*kolo_callback)(int));
KOLO_EXPORT int kolo_version(void); // KOLO_EXPORT int kolo_gone(void);
int kolo_hidden(void);
static inline int kolo_inline(void) { return kolo_version(); }
"""
    found = [one.prototype() for one in declared.functions(text)]
    tap.check(found == ["kolo_status kolo_two_lines(const void *send, int (*kolo_callback)(int))",
                        "int kolo_version(void)"], "the reader sees the marked functions only", *found)


def check_that_changes_are_seen(root, compiler, now):
    """Each change to a header is seen, and only what old programs survive may be written down."""
    changes = (
        ("a new function", "kolo.h", "KOLO_EXPORT\nint kolo_version(void);",
         "KOLO_EXPORT\nint kolo_new(void);\nKOLO_EXPORT\nint kolo_version(void);", False),
        ("a function that is gone", "kolo.h", "KOLO_EXPORT\nint kolo_version(void);", "", True),
        ("another parameter", "plugin.h", "void kolo_lane(struct kolo_builder *b, int lane);",
         "void kolo_lane(struct kolo_builder *b, long lane);", True),
        ("a member in the middle", "kolo.h", "    int timeout_ms;", "    int new_one;\n    int timeout_ms;", True),
        ("a member at the end", "kolo.h", "    char text[512];", "    char text[512];\n    int new_one;", False),
        ("a member at the end of a struct without a size", "kolo.h", "    unsigned char bytes[128];",
         "    unsigned char bytes[128];\n    int new_one;", True),
        ("two members changed over", "kolo.h", "    int source;    /* rank it came from */\n    int tag;",
         "    int tag;\n    int source;", True),
        ("a new slot of a transport", "plugin.h", "    void (*ring)(struct kolo_endpoint *endpoint);",
         "    void (*ring)(struct kolo_endpoint *endpoint);\n    void (*last)(void);", False),
        ("an enumerator with another value", "kolo.h", "KOLO_ERR_PEER = -17", "KOLO_ERR_PEER = -16", True),
        ("a new enumerator", "kolo.h", "    KOLO_TYPES = 19", "    KOLO_NEW = 19,\n    KOLO_TYPES = 20", False),
    )
    for what, header, before, after, is_break in changes:
        with tempfile.TemporaryDirectory(prefix="kolo-abi-") as include:
            shutil.copytree(os.path.join(root, "include/kolo"), os.path.join(include, "kolo"))
            with open(os.path.join(include, "kolo", header), "r+", encoding="utf-8") as file:
                text = file.read()
                file.seek(0)
                file.truncate()
                file.write(text.replace(before, after))
            then = interface(include, compiler)
        tap.check(then != now, f"{what} is seen")
        said = breaks(now, then)
        tap.check(bool(said) == is_break, f"{what} {'may not' if is_break else 'may'} be added", *said)


def main():
    root, library, compiler = sys.argv[1], sys.argv[2], sys.argv[3:]
    update = compiler[-1] == "--update"
    compiler = compiler[:-1] if update else compiler
    now = interface(os.path.join(root, "include"), compiler)
    old = []
    if os.path.exists(LIST):
        with open(LIST, encoding="utf-8") as file:
            old = file.read().splitlines()
    if update:
        said = breaks(old, now)
        if said:
            sys.exit("\n".join(said))
        with open(LIST, "w", encoding="utf-8") as file:
            file.write("\n".join(now) + "\n")
        return
    changed = [f"only here: {line}" for line in now if line not in old]
    changed += [f"only in abi.txt: {line}" for line in old if line not in now]
    if not changed and now != old:
        changed = ["the order is another"]
    tap.check(not changed, f"the interface is that of abi.txt, {len(old)} lines", *changed,
              *breaks(old, now), "abi.py --update writes down what may be added")
    symbols, listed = exported(library), set(parse(old)[0])
    missing, extra = sorted(listed - symbols), sorted(symbols - listed)
    tap.check(not missing, f"all {len(listed)} functions of abi.txt are exported", *missing)
    tap.check(not extra, "nothing else is exported", *extra)
    tap.check(soname(library) == "libkolo.so.0", "the library is libkolo.so.0", soname(library))
    tap.check(tls_bytes(library) <= MOST_TLS, "its memory of each thread has room where torch and sklearn are loaded "
              "first", f"{tls_bytes(library)} bytes; {MOST_TLS} at most")
    check_the_reader()
    check_that_changes_are_seen(root, compiler, now)
    tap.done()


main()
