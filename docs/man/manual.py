# SPDX-License-Identifier: Apache-2.0
"""Writes the manual, man(7) pages, from what is said once elsewhere: the contracts in the public
headers (section 3), the subcommands' own --help (section 1), src/util/variables.def (kolo-env), and
what only a manual says, in docs/man/*.in.

usage: manual.py --list ROOT                            prints the names of all pages
       manual.py ROOT KOLO VERSION DATE FOLDER          writes them into FOLDER

A page of docs/man/*.in is man(7) with lines @NAME@ in place of what is generated.
"""
import glob
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../include"))
import declared  # noqa: E402

HEADERS = ("kolo/kolo.h", "kolo/plugin.h", "kolo/codec.h", "kolo/members.h")
MAIN = {"kolo/codec.h": "kolo/kolo.h", "kolo/members.h": "kolo/kolo.h"}  # the header that a program includes
TYPES = ("kolo_status", "kolo_type", "kolo_op", "kolo_id", "kolo_config", "kolo_recv_info", "kolo_failure")
STATUS = re.compile(r"(?<![A-Z_])(INVALID|UNSUPPORTED|MISMATCH|PEER|TIMEOUT|LINK|ABORTED|SYSTEM|FORKED"
                    r"|VERSION|INTERNAL)(?![A-Z_])")
PARTS = {"Errors": "ERRORS", "Cost": "COST", "Source": "SOURCE"}
VARIABLE = re.compile(r'^KOLO_VARIABLE\((\w+), "(.*?)", "(.*?)", "(.*?)", "(.*)"\)$', re.MULTILINE)
GROUPS = {"START": "JOINING A JOB", "LOG": "THE LOG", "CHOOSE": "HOW IT IS COMPUTED",
          "MACHINE": "THE MACHINE", "NETWORK": "SEVERAL HOSTS", "GPU": "GPUS",
          "PROGRAMS": "PROGRAMS OVER KOLO"}


# ---- text to roff ----


def plain(text):
    """Text as it is: nothing in it is taken for a request or an escape."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    text = text.replace("^", "\\(ha").replace("~", "\\(ti")
    return re.sub(r"^(?=\.)", "\\&", text, flags=re.MULTILINE)


def rich(text):
    """A header's sentences: `x` is an argument, *x* a new word, x() a call, CAPITALS of a status its
    name."""
    def word(match):
        argument, new, call, status = match.groups()
        if argument or new:
            argument = argument or new
            return f"\\fI{plain(argument)}\\fP"
        return f"\\fB{call}\\fP(3)" if call else f"\\fBKOLO_ERR_{status}\\fP"
    found = re.compile(rf"`([^`]*)`|(?<!\w)\*(\w+)\*(?!\w)|\b(kolo_\w+)\(\)|{STATUS.pattern}")
    parts, at = [], 0
    for match in found.finditer(text):
        parts += [plain(text[at:match.start()]), word(match)]
        at = match.end()
    return "".join(parts) + plain(text[at:])


def shown(text):
    """Lines as they stand, in a typewriter's letters."""
    return [".PP", ".EX", *(plain(line) for line in text.rstrip("\n").split("\n")), ".EE"]


def body(text):
    """Paragraphs, items that begin with a dash and lines that are set in, of a comment."""
    out, lines, kind = [], [], ""

    def flush():
        if lines and kind == "shown":
            out.extend(shown("\n".join(lines)))
        elif lines:
            out.extend([".IP \\(bu 2" if kind == "item" else ".PP", rich(" ".join(lines))])
        lines.clear()

    for line in text.split("\n"):
        item = re.match(r" ?- (.*)", line)
        if not line.strip():
            flush()
            kind = ""
        elif item:
            flush()
            kind = "item"
            lines.append(item.group(1))
        elif line.startswith("  ") and kind != "item":
            if kind != "shown":
                flush()
            kind = "shown"
            lines.append(line)
        else:
            if kind == "shown":
                flush()
                kind = ""
            lines.append(line.strip())
    flush()
    return out


def comment_text(comment):
    """What a block comment says, line by line."""
    lines = comment.strip()[2:-2].split("\n")
    return "\n".join(re.sub(r"^ ?\* ?", "", line.rstrip()) if i else line.strip() for i, line in
                     enumerate(lines)).strip("\n ")


def in_short(text):
    """What stands in NAME: the first sentence up to its first mark, beginning small."""
    first = re.split(r"[.:;(,]", text.replace("\n", " ").replace("`", ""))[0].strip()
    return first[0].lower() + first[1:]


def in_parts(text):
    """[(title, text)]: the description, and what the contract says under Errors, Cost, Source."""
    pieces = re.split(r"\s*\b(Errors|Cost|Source): ", text)
    return [("DESCRIPTION", pieces[0]), *((PARTS[pieces[i]], pieces[i + 1]) for i in range(1, len(pieces), 2))]


# ---- the headers ----


class Headers:
    """Functions and types of the public headers, with the comments above them."""

    def __init__(self, root):
        self.text, self.functions, self.opening = {}, [], {}
        for header in HEADERS:
            with open(os.path.join(root, "include", header), encoding="utf-8") as file:
                text = file.read()
            self.text[header] = text
            self.opening[header] = comment_text(re.search(r"/\*.*?\*/", text, re.DOTALL).group(0))
            self.functions += [(header, together) for together in self.grouped(text)]

    @staticmethod
    def grouped(text):
        """The functions in groups that share the comment above the first."""
        known = {one.name: one for one in declared.functions(text)}
        groups, at = [], 0
        for match in re.finditer(r"^KOLO_EXPORT\n[^;]*?\b(kolo_\w+)\([^;]*;", text, re.MULTILINE):
            between = text[at:match.start()]
            comments = re.findall(r"/\*.*?\*/", between, re.DOTALL)
            function = known[match.group(1)]
            if comments and "----" not in comments[-1]:
                function.about = comment_text(comments[-1])
                groups.append([function])
            else:
                groups[-1].append(function)
            at = match.end()
        return groups

    def type_of(self, name):
        """(comment, declaration) of a public type of kolo.h; to the comment belongs one that stands free
        after the declaration."""
        text = self.text[HEADERS[0]]
        found = re.search(rf"((?:/\*(?:(?!\*/).)*\*/\n)?)((?:typedef enum {name} {{|enum {name} {{|struct {name} {{)"
                          rf".*?\n}}[^\n]*;|typedef uint32_t {name};\nenum {{.*?\n}};)", text, re.DOTALL)
        about, declaration, end = comment_text(found.group(1)), found.group(2), found.end()
        macro = re.search(rf"^#define {name.upper()}_INIT.*?[^\\]$", text, re.DOTALL | re.MULTILINE)
        if macro:
            declaration += "\n" + re.sub(r" +\\\n", " \\\\\n", macro.group(0))
            end = macro.end()
        free = re.match(r"\s*(/\*(?:(?!\*/).)*\*/)\n\n", text[end:], re.DOTALL)
        if free and "----" not in free.group(1):
            about += "\n\n" + comment_text(free.group(1))
        return about, declaration


# ---- pages ----


class Manual:
    def __init__(self, root, kolo="", version="", date=""):
        self.root, self.kolo, self.version, self.date = root, kolo, version, date
        self.headers = Headers(root)
        self.hand = {os.path.basename(path)[:-3]: path for path in
                     sorted(glob.glob(os.path.join(root, "docs/man/*.in")))}

    def names(self):
        calls = [one.name for _, together in self.headers.functions for one in together]
        return [name + ".3" for name in calls + list(TYPES)] + list(self.hand)

    def title(self, name):
        page, section = name.rsplit(".", 1)
        kind = {"1": "User Commands", "3": "Library Functions", "7": "Miscellaneous"}[section]
        return [f'.TH {page.upper()} {section} {self.date} "kolo {self.version}" "{kind}"']

    def call_pages(self):
        for header, together in self.headers.functions:
            for one in together:
                yield one.name + ".3", self.title(one.name + ".3") + self.call_page(header, together)

    def call_page(self, header, together):
        first, names = together[0], [one.name for one in together]
        out = [".SH NAME", f"{', '.join(names)} \\- {plain(in_short(first.about))}"]
        out += [".SH LIBRARY", "kolo, \\-lkolo"]
        out += [".SH SYNOPSIS", ".nf", f".B #include <{MAIN.get(header, header)}>"]
        for one in together:
            out += [".PP", *self.prototype(one)]
        out.append(".fi")
        for title, text in in_parts(first.about):
            if title == "ERRORS":
                out += self.result(together, text)
            else:
                out += [f".SH {title}", *body(text)[1:]]
        if "Errors: " not in first.about:
            out += self.result(together, "")
        others = ["kolo_status(3)"] if any(one.result == "kolo_status" for one in together) else []
        others += ["kolo_config(3)"] if any("kolo_config" in part for part in first.parameters) else []
        others.append("kolo\\-plugin(7)" if header == HEADERS[1] else "kolo(7)")
        return out + [".SH SEE ALSO", ", ".join(re.sub(r"([\w\\-]+)(\(\d\))", r"\\fB\1\\fP\2", one) for one in others)]

    @staticmethod
    def prototype(one):
        """In lines of up to 76 columns, the rest set in below the first parameter."""
        head = f"{one.result}{'' if one.result.endswith('*') else ' '}{one.name}("
        lines, line = [], head
        for i, part in enumerate(one.parameters):
            part += "," if i + 1 < len(one.parameters) else ");"
            if line != head and len(line) + 1 + len(part) > 76:
                lines.append(line)
                line = " " * min(len(head), 8) + part
            else:
                line += part if line == head else " " + part
        return [f'.B "{plain(text)}"' for text in [*lines, line]]

    @staticmethod
    def result(together, errors):
        """RETURN VALUE of calls that return a status; what else a call returns, its text tells."""
        if together[0].result != "kolo_status":
            return []
        out = [".SH RETURN VALUE", "\\fBKOLO_OK\\fP, or an error that \\fBkolo_error_text\\fP(3) puts into words."]
        on_comm = together[0].parameters[-2:] == ["struct kolo_comm *comm", "kolo_stream stream"]
        if errors or on_comm:
            out.append(".SH ERRORS")
        if errors:
            out.append(rich(" ".join(errors.split())))
        if on_comm:
            out += [".PP"] if errors else []
            out.append("What ended the communicator, or ends it now: a rank that died, a call that others do not make,"
                       "\na time\\-out, a broken connection; see \\fBkolo_status\\fP(3) and"
                       " \\fBkolo_comm_failure\\fP(3).")
        return out

    def type_page(self, name):
        about, declaration = self.headers.type_of(name)
        out = self.title(name + ".3")
        out += [".SH NAME", f"{name} \\- {plain(in_short(about))}", ".SH LIBRARY", "kolo, \\-lkolo"]
        out += [".SH SYNOPSIS", ".nf", f".B #include <{HEADERS[0]}>", ".fi"]
        out += [*shown(declaration), ".SH DESCRIPTION", *body(about)[1:]]
        return out + [".SH SEE ALSO", "\\fBkolo\\fP(7)"]

    def help(self, *command):
        ran = subprocess.run([self.kolo, *command], capture_output=True, text=True, check=True)
        return ran.stdout.split("\n")

    def commands(self):
        """{subcommand: what it does}, from `kolo help`."""
        rows = [re.match(r"  (\w+) +(.*)", line) for line in self.help("help")]
        return {row.group(1): row.group(2) for row in rows if row}

    def usage_parts(self, lines):
        """The pieces of a --help: (usage lines, paragraphs, rows). A row is [option or term, its meaning,
        the number of paragraphs before it]."""
        usages, paragraphs, terms, current = [], [[]], [], None
        for line in filter(None, lines):
            row = re.match(r" {2,6}(\S.*?)(?: {2,}(.*))?$", line)
            if line.startswith("Usage: ") or (line.startswith("       ") and not paragraphs[0] and not terms):
                text = line.removeprefix("Usage: ").strip()
                if text.startswith("kolo"):
                    usages.append(text)
                else:
                    usages[-1] += " " + text
            elif not line.startswith(" "):
                if current is not None:
                    paragraphs.append([])
                    current = None
                paragraphs[-1].append(line)
            elif row:
                current = [row.group(1), row.group(2) or "", len(paragraphs)]
                terms.append(current)
            else:
                current[1] += " " + line.strip()
        return usages, [" ".join(part) for part in paragraphs], terms

    def command_parts(self, name):
        usages, paragraphs, terms = self.usage_parts(self.help(name, "--help"))
        out = [".SH NAME", f"kolo\\-{name} \\- {plain(self.commands()[name])}", ".SH SYNOPSIS"]
        for i, line in enumerate(usages):
            out += ([".br"] if i else []) + [f".B {plain(line)}"]
        out.append(".SH DESCRIPTION")
        def rows(which):
            return [line for term, meaning, at in terms if which(term, at)
                    for line in (".TP", f".B {plain(term)}", plain(meaning))]
        for i, text in enumerate(paragraphs):
            out += ([".PP"] if out[-1] != ".SH DESCRIPTION" else []) + [plain(text)] if text else []
            out += rows(lambda term, at, i=i: at == i + 1 and not term.startswith("-"))
        return out + [".SH OPTIONS"] + rows(lambda term, _: term.startswith("-"))

    def variables(self):
        with open(os.path.join(self.root, "src/util/variables.def"), encoding="utf-8") as file:
            rows = VARIABLE.findall(file.read())
        out, last = [], ""
        for group, name, otherwise, example, meaning in rows:
            if group != last:
                out.append(f".SH {GROUPS[group]}")
                last = group
            default = f" (default {plain(otherwise)})" if otherwise not in ("", "-") else ""
            out += [".TP", f".B {name}\\fR{default}\\fP" if default else f".B {name}", plain(meaning)]
            out += [".br", f"Example: \\fB{name}={plain(example)}\\fP"]
        return out

    def declarations(self, title):
        """A section of plugin.h as it stands."""
        text = self.headers.text[HEADERS[1]]
        part = re.search(rf"/\* ---- {title} ---- \*/\n(.*?)(?=/\* ---- |#ifdef __cplusplus\n}}|\Z)", text, re.DOTALL)
        return shown(part.group(1).strip("\n"))[1:]

    def generated(self, name, what):
        if what == "VARIABLES":
            return self.variables()
        if what == "CONVENTIONS":
            return body(self.headers.opening[HEADERS[0]].partition("Conventions")[2].partition("\n")[2])
        if what == "PLUGINS":
            return body(self.headers.opening[HEADERS[1]])[1:]
        if what == "COMMANDS":
            out = []
            for command, meaning in self.commands().items():
                page = f"\\fBkolo\\-{command}\\fP(1)" if f"kolo-{command}.1" in self.hand else f"\\fBkolo {command}\\fP"
                out += [".TP", page, plain(meaning)]
            return out
        if what == "COMMAND":
            return self.command_parts(re.match(r"kolo-(\w+)\.1", name).group(1))
        return self.declarations(what.lower())

    def hand_page(self, name):
        out = self.title(name)
        with open(self.hand[name], encoding="utf-8") as file:
            for line in file.read().rstrip("\n").split("\n"):
                mark = re.fullmatch(r"@(\w+)@", line)
                if mark:
                    out += self.generated(name, mark.group(1))
                elif not line.startswith('.\\"'):
                    out.append(line)
        return out

    def pages(self):
        yield from self.call_pages()
        for name in TYPES:
            yield name + ".3", self.type_page(name)
        for name in self.hand:
            yield name, self.hand_page(name)


def main():
    if sys.argv[1] == "--list":
        print("\n".join(Manual(sys.argv[2]).names()))
        return
    root, kolo, version, date, folder = sys.argv[1:]
    for name, lines in Manual(root, kolo, version, date).pages():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
