# SPDX-License-Identifier: Apache-2.0
"""What the public headers declare, and what they say about it. The linker's list of symbols, the
manual and the tests of the interface are made from this.

usage: declared.py [--list] HEADER...   prints the version script of the functions marked KOLO_EXPORT,
                                       or the list of them for a program that loads plug-ins
"""
import re
import sys
from dataclasses import dataclass, field

COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*$", re.MULTILINE)
FUNCTION = re.compile(r"\bKOLO_EXPORT\b([^;{]*?)\b(kolo_\w+)\s*\(([^;{]*)\)\s*;")
STRUCT = re.compile(r"\bstruct\s+(kolo_\w+)\s*\{(.*?)\n\}", re.DOTALL)
ENUM = re.compile(r"\benum\b(?:\s+kolo_\w+)?\s*\{(.*?)\}", re.DOTALL)
CONSTANT = re.compile(r"^#define[ \t]+(KOLO_\w+)[ \t]+([^\\\n]+)$", re.MULTILINE)
# Not constants, or such as change with every version.
NO_CONSTANT = re.compile(r"KOLO_(EXPORT|CHECK|\w+_H|VERSION\w*)$")


@dataclass
class Function:
    name: str
    result: str  # its type
    parameters: list
    about: str = ""  # the comment above, which functions that follow each other share
    together: list = field(default_factory=list)  # the names that share it, this one among them

    def prototype(self):
        space = "" if self.result.endswith("*") else " "
        return f"{self.result}{space}{self.name}({', '.join(self.parameters)})"


def bare(text):
    """A header's text without comments and directives."""
    return DIRECTIVE.sub("", COMMENT.sub("", text))


def split(text, mark):
    """The parts of `text` between those `mark`s that stand in no parentheses, stripped, none empty."""
    parts, depth = [""], 0
    for sign in text:
        depth += {"(": 1, ")": -1}.get(sign, 0)
        if sign == mark and depth == 0:
            parts.append("")
        else:
            parts[-1] += sign
    return [" ".join(part.split()) for part in parts if part.strip()]


def functions(text):
    """The functions that a header's text marks KOLO_EXPORT, in its order."""
    found = []
    for match in FUNCTION.finditer(bare(text)):
        result = " ".join(match.group(1).replace("KOLO_CHECK", "").split())
        found.append(Function(match.group(2), result, split(match.group(3), ",")))
    return found


def members(body):
    """Names of a struct's members, from what stands between its braces."""
    names = []
    for declaration in split(body, ";"):
        pointer = re.search(r"\(\s*\*\s*(\w+)\s*\)\s*\(", declaration)
        if pointer:
            names.append(pointer.group(1))
        else:
            names += [re.search(r"(\w+)\s*(?:\[[^]]*\])*$", one).group(1)
                      for one in split(declaration, ",")]
    return names


def structs(text):
    """{name: names of its members} of the structs that a header's text defines."""
    return {match.group(1): members(match.group(2)) for match in STRUCT.finditer(bare(text))}


def constants(text):
    """Names of enumerators and of macros that stand for a number, in the header's order."""
    names = []
    for match in ENUM.finditer(bare(text)):
        names += [one.split("=")[0].strip() for one in split(match.group(1), ",")]
    for name, value in CONSTANT.findall(COMMENT.sub("", text)):
        if not NO_CONSTANT.match(name) and not value.lstrip().startswith("_"):
            names.append(name)
    return names


def version_script(names):
    lines = "".join(f"        {name};\n" for name in sorted(names))
    return f"KOLO_1.0 {{\n    global:\n{lines}    local:\n        *;\n}};\n"


def dynamic_list(names):
    return "{\n" + "".join(f"    {name};\n" for name in sorted(names)) + "};\n"


def main():
    write, paths = version_script, sys.argv[1:]
    if paths[0] == "--list":
        write, paths = dynamic_list, paths[1:]
    names = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            names += [one.name for one in functions(file.read())]
    print(write(names), end="")


if __name__ == "__main__":
    main()
